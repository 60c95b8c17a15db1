/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_start PORT LOG PROGRAM ARGUMENTS…: starts a server and waits until it is ready, which is
 * the first 200 of GET /v2/health/ready. Prints one JSON object: the time from the start of the
 * process to the first answer of any kind and to readiness, the resources of the process at that
 * moment, and how long it takes to end after SIGTERM; after ten seconds it is killed.
 *
 * It asks every 200 µs, on a connection of its own each time, as a probe does; so the times are at
 * most that much too long.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PAUSE_NS = 200000, LIMIT_S = 120, STOP_LIMIT_S = 10 };

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static void pause_a_little(void)
{
    nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
}

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static pid_t start(char **argv, const char *log)
{
    posix_spawn_file_actions_t files;
    pid_t pid;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, log, O_WRONLY | O_CREAT | O_TRUNC,
                                     0666);
    posix_spawn_file_actions_adddup2(&files, STDOUT_FILENO, STDERR_FILENO);
    errno = posix_spawnp(&pid, argv[0], &files, NULL, argv, environ);
    if (errno)
        die(argv[0]);
    posix_spawn_file_actions_destroy(&files);
    return pid;
}

/* Returns the status code of one question; 0 without an answer. */
static int ask(int port)
{
    static const char question[] =
        "GET /v2/health/ready HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    char answer[32] = "";
    int code = 0, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        die("socket");
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0 &&
        send(fd, question, sizeof(question) - 1, MSG_NOSIGNAL) > 0 &&
        recv(fd, answer, sizeof(answer) - 1, 0) > 0)
        code = (int)strtol(answer + strcspn(answer, " "), NULL, 10);
    close(fd);
    return code;
}

static unsigned long field_of_status(pid_t pid, const char *name)
{
    char path[64], line[256];
    unsigned long value = 0;
    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    FILE *f = fopen(path, "re");
    if (!f)
        die(path);
    while (fgets(line, sizeof(line), f)) {
        if (strncmp(line, name, strlen(name)) == 0)
            value = strtoul(line + strlen(name), NULL, 10);
    }
    fclose(f);
    return value;
}

/* utime + stime of all its threads, those that have ended too. */
static double cpu_ms(pid_t pid)
{
    clockid_t clock;
    struct timespec t;
    if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &t) != 0)
        die("CPU clock");
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

int main(int argc, char **argv)
{
    int port = argc > 3 ? (int)strtol(argv[1], NULL, 10) : 0;
    if (port <= 0 || port > 65535) {
        fprintf(stderr, "usage: %s PORT LOG PROGRAM ARGUMENTS…\n", argv[0]);
        return 2;
    }
    prctl(PR_SET_TIMERSLACK, 1UL); /* otherwise each pause is 50 µs longer */

    double started = now_ms(), answered = 0;
    pid_t pid = start(argv + 3, argv[2]);
    for (;;) {
        int code = ask(port);
        if (code && !answered)
            answered = now_ms();
        if (code == 200)
            break;
        if (waitpid(pid, NULL, WNOHANG) == pid || now_ms() - started > LIMIT_S * 1e3) {
            kill(pid, SIGKILL);
            fprintf(stderr, "%s is not ready: see %s\n", argv[3], argv[2]);
            return 1;
        }
        pause_a_little();
    }
    double ready = now_ms(), cpu = cpu_ms(pid);
    unsigned long rss_kb = field_of_status(pid, "VmRSS:"),
                  threads = field_of_status(pid, "Threads:");
    unsigned long anonymous_kb = field_of_status(pid, "RssAnon:");

    double asked = now_ms();
    kill(pid, SIGTERM);
    while (waitpid(pid, NULL, WNOHANG) == 0) {
        if (now_ms() - asked > STOP_LIMIT_S * 1e3)
            kill(pid, SIGKILL);
        pause_a_little();
    }
    printf(
        "{\"answered_ms\": %.2f, \"ready_ms\": %.2f, \"cpu_ms\": %.2f, \"rss_kb\": %lu, \"anonymous_kb\": %lu, "
        "\"threads\": %lu, \"stop_ms\": %.2f}\n",
        answered - started, ready - started, cpu, rss_kb, anonymous_kb, threads, now_ms() - asked);
    return 0;
}
