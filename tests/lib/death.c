/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/death.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

void assert_aborts(void (*run)(void *arg), void *arg, const char *words)
{
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        signal(SIGABRT, SIG_DFL); /* cmocka's handler would report a failed test */
        dup2(fds[1], STDERR_FILENO);
        run(arg);
        _exit(0);
    }
    close(fds[1]);
    char text[4096];
    size_t size = 0;
    ssize_t n;
    while (size < sizeof(text) - 1 && (n = read(fds[0], text + size, sizeof(text) - 1 - size)) > 0)
        size += (size_t)n;
    text[size] = '\0';
    close(fds[0]);
    int result;
    assert_int_equal(waitpid(pid, &result, 0), pid);
    if (!WIFSIGNALED(result) || WTERMSIG(result) != SIGABRT)
        fail_msg("no SIGABRT, but wait status %#x; stderr: %s", (unsigned int)result, text);
    if (!strstr(text, words))
        fail_msg("'%s' is not in: %s", words, text);
}
