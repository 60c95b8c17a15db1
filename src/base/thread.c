/* SPDX-License-Identifier: Apache-2.0 */
/*
 * thread_main() surrounds the function of each thread: it brings a stack for signal handlers, and
 * sets the name. `kept` is the only state, the signal mask of new threads; kept.mu guards it. The
 * other functions ask the kernel at each call.
 */
#include "base/thread.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/status.h"

/* The registers of large vector units are saved there (AT_MINSIGSTKSZ is up to 11 KiB); a
 * backtrace needs some more. */
enum { HANDLER_STACK_BYTES = 64 << 10 };

/*
 * The mask with which threads begin, once thread_keep_mask() was called. Set before the threads of
 * a server start; a second server may set it again while others start threads.
 */
static struct {
    pthread_mutex_t mu;
    bool is_kept;
    sigset_t mask;
} kept = {.mu = PTHREAD_MUTEX_INITIALIZER};

void thread_keep_mask(void)
{
    pthread_mutex_lock(&kept.mu);
    pthread_sigmask(SIG_SETMASK, NULL, &kept.mask);
    kept.is_kept = true;
    pthread_mutex_unlock(&kept.mu);
}

/*
 * A handler with SA_ONSTACK needs this stack when the thread's own is full: then it runs on the
 * other one, whose pages cost nothing until they are used. A sanitizer brings a stack of its own,
 * which must stay.
 */
static bool lend_stack(void *bytes, size_t n_bytes)
{
    stack_t before, ours = {.ss_sp = bytes, .ss_size = n_bytes};
    return sigaltstack(NULL, &before) == 0 && (before.ss_flags & SS_DISABLE) &&
           sigaltstack(&ours, NULL) == 0;
}

static void take_stack_back(void)
{
    sigaltstack(&(stack_t){.ss_flags = SS_DISABLE}, NULL);
}

static void *thread_main(void *arg)
{
    struct thread *t = arg;
    char handler_stack[HANDLER_STACK_BYTES];
    bool lent = lend_stack(handler_stack, sizeof(handler_stack));
    pthread_setname_np(pthread_self(), t->name);
    t->run(t->arg);
    if (lent)
        take_stack_back();
    return NULL;
}

struct status *thread_start(struct thread *t, const char *name, void (*run)(void *), void *arg)
{
    pthread_attr_t attr;
    snprintf(t->name, sizeof(t->name), "%s", name);
    t->run = run;
    t->arg = arg;

    pthread_attr_init(&attr);
    pthread_mutex_lock(&kept.mu);
    int err = kept.is_kept ? pthread_attr_setsigmask_np(&attr, &kept.mask) : 0;
    pthread_mutex_unlock(&kept.mu);
    if (!err)
        err = pthread_create(&t->id, &attr, thread_main, t);
    pthread_attr_destroy(&attr);
    if (err)
        return status_from_errno(err, "failed to start thread '%s'", name);
    return NULL;
}

void thread_join(struct thread *t)
{
    pthread_join(t->id, NULL);
}

struct status *thread_call(const char *name, void (*run)(void *arg), void *arg)
{
    struct thread t;
    struct status *st = thread_start(&t, name, run, arg);
    if (!st)
        thread_join(&t);
    return st;
}

uint64_t thread_waited_ns(void)
{
    /* Without stdio, which would allocate: this may be in the middle of a request. */
    char text[128];
    int fd = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
    if (fd >= 0)
        close(fd);
    text[MAX(n, (ssize_t)0)] = '\0';
    const char *second = strchr(text, ' '); /* "ran waited slices" */
    return second ? strtoull(second, NULL, 10) : 0;
}

long thread_preemptions(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_THREAD, &usage) == 0 ? usage.ru_nivcsw : 0;
}
