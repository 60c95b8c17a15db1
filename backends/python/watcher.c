/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watcher - see watcher.h. Descriptors first, then jobs, then times; a job that frees a watch
 * therefore runs when no event of that watch is left in the batch that epoll has given.
 */
#include "python/watcher.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

enum { MOST_EVENTS = 64, CLOSE_LIMIT_S = 5 };
#define NS_PER_MS UINT64_C(1000000)

/* A thread of watcher_run(). */
struct helper {
    void (*run)(void *arg);
    void *arg;
    pthread_t thread;
    struct helper *next;
};

static struct {
    pthread_mutex_t users_mu; /* held while the thread is started or ended */
    pthread_cond_t changed;
    /* Under users_mu. */
    unsigned int n_users, n_helpers;

    /* Set while it has users. */
    int epoll, bell;
    pthread_t thread;

    pthread_mutex_t mu;
    /* Under mu. */
    struct job *first_job, *last_job;
    struct helper *ended_helpers;
    bool stops;

    /* Of the watcher's thread. */
    struct timer *timers;
} watcher = {
    .users_mu = PTHREAD_MUTEX_INITIALIZER,
    .changed = PTHREAD_COND_INITIALIZER,
    .epoll = -1,
    .bell = -1,
    .mu = PTHREAD_MUTEX_INITIALIZER,
};

static void ring_watcher(void)
{
    const uint64_t one = 1;

    while (write(watcher.bell, &one, sizeof one) < 0 && errno == EINTR)
        ;
}

/* ---- Helpers -------------------------------------------------------------------------------- */

static void *run_helper(void *arg)
{
    struct helper *h = arg;

    h->run(h->arg);
    pthread_mutex_lock(&watcher.mu);
    h->next = watcher.ended_helpers;
    watcher.ended_helpers = h;
    pthread_mutex_unlock(&watcher.mu);
    ring_watcher();
    return NULL;
}

/* They have nothing left to do but to end. */
static void join_helpers(void)
{
    pthread_mutex_lock(&watcher.mu);
    struct helper *h = watcher.ended_helpers;
    watcher.ended_helpers = NULL;
    pthread_mutex_unlock(&watcher.mu);
    while (h) {
        struct helper *next = h->next;

        pthread_join(h->thread, NULL);
        free(h);
        pthread_mutex_lock(&watcher.users_mu);
        watcher.n_helpers--;
        pthread_cond_broadcast(&watcher.changed);
        pthread_mutex_unlock(&watcher.users_mu);
        h = next;
    }
}

/* Threads of ours leave signals to the server's. */
static int start_unsignalled(pthread_t *thread, void *(*run)(void *arg), void *arg)
{
    sigset_t all, before;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int why = pthread_create(thread, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return why;
}

TRITONSERVER_Error *watcher_run(void (*run)(void *arg), void *arg)
{
    struct helper *h = malloc(sizeof *h);

    if (!h)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    *h = (struct helper){.run = run, .arg = arg};
    pthread_mutex_lock(&watcher.users_mu);
    watcher.n_helpers++;
    pthread_mutex_unlock(&watcher.users_mu);
    /* Under mu, so that its handle is there before it is joined. */
    pthread_mutex_lock(&watcher.mu);
    const int why = start_unsignalled(&h->thread, run_helper, h);
    pthread_mutex_unlock(&watcher.mu);
    if (!why)
        return NULL;
    pthread_mutex_lock(&watcher.users_mu);
    watcher.n_helpers--;
    pthread_cond_broadcast(&watcher.changed);
    pthread_mutex_unlock(&watcher.users_mu);
    free(h);
    return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "cannot start a thread: %s",
                         strerror(why));
}

/* ---- Times ---------------------------------------------------------------------------------- */

void watcher_clear_timer(struct timer *t)
{
    if (!t->set)
        return;
    for (struct timer **at = &watcher.timers; *at; at = &(*at)->next) {
        if (*at != t)
            continue;
        *at = t->next;
        break;
    }
    t->set = false;
}

void watcher_set_timer(struct timer *t, uint64_t at_ns)
{
    struct timer **at = &watcher.timers;

    watcher_clear_timer(t);
    while (*at && (*at)->at_ns <= at_ns)
        at = &(*at)->next;
    t->at_ns = at_ns;
    t->next = *at;
    t->set = true;
    *at = t;
}

static void run_timers(void)
{
    const uint64_t now_ns = watcher.timers ? backend_now_ns() : 0;

    while (watcher.timers && watcher.timers->at_ns <= now_ns) {
        struct timer *t = watcher.timers;

        watcher_clear_timer(t);
        t->due(t);
    }
}

static int find_timeout_ms(void)
{
    if (!watcher.timers)
        return -1;
    const uint64_t now_ns = backend_now_ns(), at_ns = watcher.timers->at_ns;
    const uint64_t ms = at_ns <= now_ns ? 0 : (at_ns - now_ns + NS_PER_MS - 1) / NS_PER_MS;
    return ms > INT_MAX ? INT_MAX : (int)ms;
}

/* ---- The thread ----------------------------------------------------------------------------- */

/* Returns the first of these jobs; NULL: none is left. It counts as posted until then, so that a
 * post meanwhile does not take it out of the list. */
static struct job *take_job(struct job **jobs)
{
    pthread_mutex_lock(&watcher.mu);
    struct job *j = *jobs;
    if (j) {
        *jobs = j->next;
        j->posted = false;
    }
    pthread_mutex_unlock(&watcher.mu);
    return j;
}

/* Runs those that are posted now. Returns false when it is to stop, and none is posted: the bell
 * may have rung for both at once. */
static bool run_jobs(void)
{
    pthread_mutex_lock(&watcher.mu);
    struct job *jobs = watcher.first_job, *j;
    watcher.first_job = watcher.last_job = NULL;
    pthread_mutex_unlock(&watcher.mu);
    while ((j = take_job(&jobs)))
        j->run(j);
    pthread_mutex_lock(&watcher.mu);
    const bool stops = watcher.stops && !watcher.first_job;
    pthread_mutex_unlock(&watcher.mu);
    return !stops;
}

static void read_events(const struct epoll_event *events, int n)
{
    for (int i = 0; i < n; i++) {
        struct watch *w = events[i].data.ptr;
        uint64_t count;

        if (!w)
            (void)!read(watcher.bell, &count, sizeof count);
        else if (w->fd >= 0)
            w->ready(w, events[i].events);
    }
}

static void *run_watcher(void *arg)
{
    struct epoll_event events[MOST_EVENTS];

    (void)arg;
    do {
        const int n = epoll_wait(watcher.epoll, events, MOST_EVENTS, find_timeout_ms());

        read_events(events, n);
        join_helpers();
        run_timers();
    } while (run_jobs());
    return NULL;
}

bool watcher_add(struct watch *w, int fd, uint32_t events)
{
    struct epoll_event e = {.events = events, .data.ptr = w};

    w->fd = fd;
    if (epoll_ctl(watcher.epoll, EPOLL_CTL_ADD, fd, &e) == 0)
        return true;
    w->fd = -1;
    return false;
}

void watcher_change(struct watch *w, uint32_t events)
{
    struct epoll_event e = {.events = events, .data.ptr = w};

    (void)epoll_ctl(watcher.epoll, EPOLL_CTL_MOD, w->fd, &e);
}

void watcher_remove(struct watch *w)
{
    if (w->fd >= 0)
        (void)epoll_ctl(watcher.epoll, EPOLL_CTL_DEL, w->fd, NULL);
    w->fd = -1;
}

void watcher_post(struct job *j)
{
    pthread_mutex_lock(&watcher.mu);
    const bool first = !j->posted;
    if (first) {
        j->posted = true;
        j->next = NULL;
        if (watcher.last_job)
            watcher.last_job->next = j;
        else
            watcher.first_job = j;
        watcher.last_job = j;
    }
    pthread_mutex_unlock(&watcher.mu);
    if (first)
        ring_watcher();
}

/* ---- Users ---------------------------------------------------------------------------------- */

static void close_watcher(void)
{
    if (watcher.epoll >= 0)
        close(watcher.epoll);
    if (watcher.bell >= 0)
        close(watcher.bell);
    watcher.epoll = watcher.bell = -1;
}

static int start_watcher(void)
{
    struct epoll_event e = {.events = EPOLLIN};

    watcher.stops = false;
    watcher.epoll = epoll_create1(EPOLL_CLOEXEC);
    watcher.bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (watcher.epoll < 0 || watcher.bell < 0 ||
        epoll_ctl(watcher.epoll, EPOLL_CTL_ADD, watcher.bell, &e))
        return errno;
    const int why = start_unsignalled(&watcher.thread, run_watcher, NULL);
    if (!why)
        (void)pthread_setname_np(watcher.thread, "python");
    return why;
}

TRITONSERVER_Error *watcher_ref(void)
{
    int why = 0;

    pthread_mutex_lock(&watcher.users_mu);
    if (watcher.epoll < 0) {
        why = start_watcher();
        if (why)
            close_watcher();
    }
    if (!why)
        watcher.n_users++;
    pthread_mutex_unlock(&watcher.users_mu);
    return why ? backend_error(TRITONSERVER_ERROR_UNAVAILABLE,
                               "cannot start the thread that watches Python processes: %s",
                               strerror(why))
               : NULL;
}

static void stop_watcher_locked(void)
{
    pthread_mutex_lock(&watcher.mu);
    watcher.stops = true;
    pthread_mutex_unlock(&watcher.mu);
    ring_watcher();
    pthread_join(watcher.thread, NULL);
    close_watcher();
}

void watcher_unref(void)
{
    pthread_mutex_lock(&watcher.users_mu);
    if (--watcher.n_users == 0 && !watcher.n_helpers)
        stop_watcher_locked();
    pthread_mutex_unlock(&watcher.users_mu);
}

void watcher_close(void)
{
    struct timespec until;
    bool in_time = true;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += CLOSE_LIMIT_S;
    pthread_mutex_lock(&watcher.users_mu);
    while (watcher.n_helpers && in_time)
        in_time = pthread_cond_timedwait(&watcher.changed, &watcher.users_mu, &until) == 0;
    if (watcher.n_helpers) {
        Dl_info info;

        if (dladdr((void *)(uintptr_t)watcher_close, &info))
            (void)dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
    } else if (watcher.epoll >= 0) {
        stop_watcher_locked();
    }
    pthread_mutex_unlock(&watcher.users_mu);
}
