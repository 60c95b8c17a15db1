/* SPDX-License-Identifier: Apache-2.0 */
/*
 * process - see process.h. posix_spawn() starts the child, since it does not copy the page tables
 * of a server that may be large, and no thread of ours runs between fork and exec.
 */
#include "python/process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "python/protocol.h"

enum { LOWEST_SOURCE = 16 }; /* above all descriptors that a child has */

extern char **environ;

static bool names_variable(const char *variable, const char *change)
{
    const size_t len = strcspn(change, "=");

    return strncmp(variable, change, len) == 0 && variable[len] == '=';
}

static bool is_changed(const char *variable, const char *const *changes)
{
    for (; changes && *changes; changes++) {
        if (names_variable(variable, *changes))
            return true;
    }
    return false;
}

/* The texts are borrowed. */
static const char **make_environment(const char *const *changes, const char *more)
{
    size_t n = 2, used = 0;

    for (char **v = environ; v && *v; v++)
        n++;
    for (const char *const *c = changes; c && *c; c++)
        n++;
    const char **made = malloc(n * sizeof *made);
    if (!made)
        return NULL;
    for (char **v = environ; v && *v; v++) {
        if (!is_changed(*v, changes) && !(more && names_variable(*v, more)))
            made[used++] = *v;
    }
    for (const char *const *c = changes; c && *c; c++) {
        if (strchr(*c, '='))
            made[used++] = *c;
    }
    if (more)
        made[used++] = more;
    made[used] = NULL;
    return made;
}

static const char **make_arguments(const struct process_start *start)
{
    size_t n = 0;

    while (start->arguments[n])
        n++;
    const char **made = malloc((n + 2) * sizeof *made);
    if (!made)
        return NULL;
    made[0] = start->python;
    memcpy(made + 1, start->arguments, (n + 1) * sizeof *made);
    return made;
}

/* The child's descriptors, copied to where none of them is the target of another. */
enum { N_SOURCES = PROTOCOL_FD_LAST - PROTOCOL_FD_SOCKET + 1 };

struct sources {
    int fd[N_SOURCES]; /* in the order of PROTOCOL_FD_… */
};

static int copy_sources(struct sources *s, const struct process_start *start)
{
    const int from[N_SOURCES] = {start->socket, start->page, start->down, start->up, start->event};

    for (int i = 0; i < N_SOURCES; i++)
        s->fd[i] = -1;
    for (int i = 0; i < N_SOURCES; i++) {
        s->fd[i] = fcntl(from[i], F_DUPFD_CLOEXEC, LOWEST_SOURCE);
        if (s->fd[i] < 0)
            return errno;
    }
    return 0;
}

static void close_sources(struct sources *s)
{
    for (int i = 0; i < N_SOURCES; i++) {
        if (s->fd[i] >= 0)
            close(s->fd[i]);
    }
}

static int set_actions(posix_spawn_file_actions_t *actions, const struct sources *s)
{
    int why = posix_spawn_file_actions_addopen(actions, 0, "/dev/null", O_RDONLY, 0);

    for (int i = 0; i < N_SOURCES && !why; i++)
        why = posix_spawn_file_actions_adddup2(actions, s->fd[i], PROTOCOL_FD_SOCKET + i);
    if (!why)
        why = posix_spawn_file_actions_addclosefrom_np(actions, PROTOCOL_FD_LAST + 1);
    return why;
}

static int set_attributes(posix_spawnattr_t *attributes)
{
    sigset_t none, all;

    sigemptyset(&none);
    sigfillset(&all);
    int why = posix_spawnattr_setsigmask(attributes, &none);
    if (!why)
        why = posix_spawnattr_setsigdefault(attributes, &all);
    if (!why)
        why = posix_spawnattr_setpgroup(attributes, 0);
    if (!why)
        why = posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
                                                       POSIX_SPAWN_SETPGROUP);
    return why;
}

static int spawn_with_actions(struct process *p, const struct process_start *start,
                              const struct sources *sources)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    const char **arguments = make_arguments(start),
               **variables = make_environment(start->changes, start->more);
    int why = arguments && variables ? posix_spawn_file_actions_init(&actions) : ENOMEM;

    if (why)
        goto no_actions;
    why = posix_spawnattr_init(&attributes);
    if (why)
        goto no_attributes;
    why = set_actions(&actions, sources);
    if (!why)
        why = set_attributes(&attributes);
    if (!why)
        why = posix_spawn(&p->pid, start->python, &actions, &attributes,
                          (char *const *)(uintptr_t)arguments, (char *const *)(uintptr_t)variables);
    if (why)
        p->pid = 0;
    posix_spawnattr_destroy(&attributes);
no_attributes:
    posix_spawn_file_actions_destroy(&actions);
no_actions:
    free(arguments);
    free(variables);
    return why;
}

/* The child inherits the processors of the thread that starts it. */
static int spawn_bound(struct process *p, const struct process_start *start,
                       const struct sources *sources)
{
    cpu_set_t before;
    const bool bind = start->processors && sched_getaffinity(0, sizeof before, &before) == 0 &&
                      !CPU_EQUAL(&before, start->processors) &&
                      sched_setaffinity(0, sizeof *start->processors, start->processors) == 0;
    const int why = spawn_with_actions(p, start, sources);

    if (bind)
        (void)sched_setaffinity(0, sizeof before, &before);
    return why;
}

/* read_kernel_count - the number behind a word in a small file; UINT64_MAX: none. */
static uint64_t read_kernel_count(const char *path, const char *word)
{
    char text[16384];
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);

    if (fd >= 0)
        close(fd);
    if (n < 0)
        return UINT64_MAX;
    text[n] = 0;
    const char *at = strstr(text, word);
    return at ? strtoull(at + strlen(word), NULL, 10) : UINT64_MAX;
}

/* count_memory_kills - how often memory ran out so far: in our group of processes, or else in the
 * machine. */
static uint64_t count_memory_kills(void)
{
    char group[512] = "", path[600];
    const int fd = open("/proc/self/cgroup", O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd < 0 ? -1 : read(fd, group, sizeof group - 1);
    uint64_t count = UINT64_MAX;

    if (fd >= 0)
        close(fd);
    if (n > 3 && strncmp(group, "0::", 3) == 0) {
        group[strcspn(group, "\n")] = 0;
        snprintf(path, sizeof path, "/sys/fs/cgroup%s/memory.events", group + 3);
        count = read_kernel_count(path, "oom_kill ");
    }
    return count == UINT64_MAX ? read_kernel_count("/proc/vmstat", "oom_kill ") : count;
}

TRITONSERVER_Error *process_spawn(struct process *p, const struct process_start *start)
{
    struct sources sources;

    *p = (struct process){.pidfd = -1, .memory_kills = count_memory_kills()};
    int why = copy_sources(&sources, start);
    if (!why)
        why = spawn_bound(p, start, &sources);
    close_sources(&sources);
    if (!why) {
        /* Nobody else reaps it, so the number is still its own. */
        p->pidfd = (int)syscall(SYS_pidfd_open, p->pid, 0);
        if (p->pidfd < 0)
            why = errno;
        else
            (void)fcntl(p->pidfd, F_SETFD, FD_CLOEXEC);
    }
    if (!why)
        return NULL;
    process_done(p);
    const bool lacks = why == ENOMEM || why == EAGAIN || why == EMFILE || why == ENFILE;
    return backend_error(lacks ? TRITONSERVER_ERROR_UNAVAILABLE : TRITONSERVER_ERROR_INTERNAL,
                         "cannot start the interpreter '%s': %s", start->python, strerror(why));
}

void process_kill(const struct process *p)
{
    if (p->pid <= 0)
        return;
    (void)kill(-p->pid, SIGKILL);
    (void)kill(p->pid, SIGKILL); /* before it has its group */
}

/* The process has ended, but its number is still taken, so the group can be no other one. */
static void await_end(const struct process *p)
{
    siginfo_t info;

    while (waitid(P_PID, (id_t)p->pid, &info, WEXITED | WNOWAIT) < 0 && errno == EINTR)
        ;
}

bool process_has_ended(const struct process *p)
{
    struct pollfd f = {.fd = p->pidfd, .events = POLLIN};

    return p->pidfd >= 0 && poll(&f, 1, 0) == 1;
}

static void describe_end(struct process *p, int code, int status)
{
    const bool starved =
        code != CLD_EXITED && status == SIGKILL && count_memory_kills() != p->memory_kills;

    if (code == CLD_EXITED)
        snprintf(p->cause, sizeof p->cause, "exited with code %d", status);
    else if (!code) /* the program that embeds the server has reaped it */
        snprintf(p->cause, sizeof p->cause, "has ended");
    else
        snprintf(p->cause, sizeof p->cause, "was killed by signal %d (%s%s)", status,
                 strsignal(status), starved ? ", since memory ran out" : "");
}

void process_reap(struct process *p)
{
    siginfo_t info = {0};

    if (p->pid <= 0)
        return;
    await_end(p);
    (void)kill(-p->pid, SIGKILL);
    while (waitid(P_PID, (id_t)p->pid, &info, WEXITED) < 0 && errno == EINTR)
        ;
    p->pid = 0;
    describe_end(p, info.si_code, info.si_status);
}

void process_done(struct process *p)
{
    if (p->pid > 0) {
        process_kill(p);
        process_reap(p);
    }
    if (p->pidfd >= 0)
        close(p->pidfd);
    p->pidfd = -1;
}
