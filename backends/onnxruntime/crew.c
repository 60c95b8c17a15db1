/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each thread waits under the crew's lock for what it is to run, and says so when that has
 * returned. A thread that has been joined waits for the next.
 */
#include "onnxruntime/crew.h"

#include <pthread.h>
#include <stdlib.h>

#include "onnxruntime/library.h"

/* ONNX Runtime keeps it as a struct ort_thread, whose contents only we know. */
struct member {
    struct crew *crew;
    pthread_t thread;
    struct member *next;
    enum { BEGINNING, IDLE, AT_WORK, DONE } stage;
    void (*run)(void *arg);
    void *arg;
};

struct crew {
    pthread_mutex_t mu;
    pthread_cond_t changed;
    /* Under mu. */
    struct member *first;
    bool serving; /* the pools need all the threads that they have started */
    bool ending;
};

/* ---- The threads ---------------------------------------------------------------------------- */

static void log_loss(void)
{
    BACKEND_LOG(ERROR, "ONNX Runtime has lost a thread of its pool to a C++ exception, for want of "
                       "memory most likely: the run that it worked for may never end, and the "
                       "server should be started anew; with intra_op_thread_count 1 such a run "
                       "fails with an error instead");
}

static void *run_member(void *arg)
{
    struct member *t = arg;
    struct crew *c = t->crew;
    bool lost;

    free(malloc(1)); /* the allocator's memory for each thread exists before we count on it */
    pthread_mutex_lock(&c->mu);
    if (t->stage == BEGINNING)
        t->stage = IDLE;
    pthread_cond_broadcast(&c->changed);
    for (;;) {
        if (t->stage == AT_WORK) {
            pthread_mutex_unlock(&c->mu);
            t->run(t->arg);
            pthread_mutex_lock(&c->mu);
            lost = c->serving;
            pthread_mutex_unlock(&c->mu);
            if (lost)
                log_loss();
            pthread_mutex_lock(&c->mu);
            t->stage = DONE;
            pthread_cond_broadcast(&c->changed);
        } else if (c->ending) {
            break;
        } else {
            pthread_cond_wait(&c->changed, &c->mu);
        }
    }
    pthread_mutex_unlock(&c->mu);
    return NULL;
}

static struct member *add_member_locked(struct crew *c)
{
    struct member *t = calloc(1, sizeof(*t));

    if (!t)
        return NULL;
    t->crew = c;
    if (pthread_create(&t->thread, NULL, run_member, t) != 0) {
        free(t);
        return NULL;
    }
    (void)pthread_setname_np(t->thread, "onnxruntime");
    t->next = c->first;
    c->first = t;
    return t;
}

struct ort_thread *crew_start_thread(void *crew, void (*run)(void *arg), void *arg)
{
    struct crew *c = crew;
    struct member *t;

    pthread_mutex_lock(&c->mu);
    for (t = c->first; t && t->stage != IDLE; t = t->next)
        ;
    if (!t)
        t = add_member_locked(c);
    if (t) {
        t->run = run;
        t->arg = arg;
        t->stage = AT_WORK;
        pthread_cond_broadcast(&c->changed);
    }
    pthread_mutex_unlock(&c->mu);
    return (struct ort_thread *)t;
}

void crew_join_thread(struct ort_thread *thread)
{
    struct member *t = (struct member *)thread;
    struct crew *c = t->crew;

    pthread_mutex_lock(&c->mu);
    while (t->stage == AT_WORK)
        pthread_cond_wait(&c->changed, &c->mu);
    t->stage = IDLE;
    pthread_mutex_unlock(&c->mu);
}

/* ---- Life ----------------------------------------------------------------------------------- */

static bool has_begun_locked(const struct crew *c)
{
    for (const struct member *t = c->first; t; t = t->next)
        if (t->stage == BEGINNING)
            return false;
    return true;
}

TRITONSERVER_Error *crew_new(size_t n, struct crew **ret_crew)
{
    struct crew *c = calloc(1, sizeof(*c));
    size_t got = 0;

    if (!c)
        return backend_error(TRITONSERVER_ERROR_INTERNAL, "out of memory");
    pthread_mutex_init(&c->mu, NULL);
    pthread_cond_init(&c->changed, NULL);
    pthread_mutex_lock(&c->mu);
    while (got < n && add_member_locked(c))
        got++;
    while (!has_begun_locked(c))
        pthread_cond_wait(&c->changed, &c->mu);
    pthread_mutex_unlock(&c->mu);
    if (got < n) {
        crew_free(c);
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE,
                             "the system has room for %zu of the %zu threads that ONNX Runtime is "
                             "to compute on",
                             got, n);
    }
    *ret_crew = c;
    return NULL;
}

static void set_serving(struct crew *c, bool serving)
{
    if (!c)
        return;
    pthread_mutex_lock(&c->mu);
    c->serving = serving;
    pthread_mutex_unlock(&c->mu);
}

void crew_serve(struct crew *c)
{
    set_serving(c, true);
}

void crew_retire(struct crew *c)
{
    set_serving(c, false);
}

static bool is_in_use_locked(const struct crew *c)
{
    for (const struct member *t = c->first; t; t = t->next)
        if (t->stage == AT_WORK)
            return true;
    return false;
}

void crew_free(struct crew *c)
{
    bool in_use;

    if (!c)
        return;
    pthread_mutex_lock(&c->mu);
    in_use = is_in_use_locked(c);
    c->ending = !in_use;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->mu);
    if (in_use) {
        library_keep_backend(); /* its threads run in it and do not count as users */
        return;
    }
    while (c->first) {
        struct member *t = c->first;

        c->first = t->next;
        pthread_join(t->thread, NULL);
        free(t);
    }
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->mu);
    free(c);
}
