/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The same for each of many models, several at a time: the threads share the work, each takes the
 * next one.
 */
#include <stdatomic.h>

#include "base/log.h"
#include "base/status.h"
#include "base/thread.h"
#include "core/repo/repository.h"
#include "core/server_options.h"

enum { MAX_THREADS = 64 };

struct crew {
    size_t n;
    void (*work)(void *arg, size_t i);
    void *arg;
    atomic_size_t next;
};

static void work_on(void *arg)
{
    struct crew *c = arg;
    size_t i;
    while ((i = atomic_fetch_add(&c->next, 1)) < c->n)
        c->work(c->arg, i);
}

void repository_each(struct repository *repo, const char *thread_name, size_t n,
                     void (*work)(void *arg, size_t i), void *arg)
{
    struct crew c = {.n = n, .work = work, .arg = arg};
    struct thread threads[MAX_THREADS];
    size_t wanted = MIN((size_t)repo->options->load_threads, (size_t)MAX_THREADS);
    wanted = MIN(wanted, n);
    size_t n_threads = 0;
    while (n_threads + 1 < wanted) { /* this thread works, too */
        struct status *st = thread_start(&threads[n_threads], thread_name, work_on, &c);
        if (st) {
            log_status(LOG_WARN, "fewer threads load or unload models", st);
            break;
        }
        n_threads++;
    }
    work_on(&c);
    for (size_t i = 0; i < n_threads; i++)
        thread_join(&threads[i]);
}
