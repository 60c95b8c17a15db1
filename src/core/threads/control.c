/* SPDX-License-Identifier: Apache-2.0 */
/*
 * First the choice of the next job, by kind and by key; then the threads that run the jobs.
 *
 * All state is under control.mu, except a job itself and the start of a thread. While a job could
 * run, some thread is about to look for it: one that is starting, the first thread, which is woken,
 * or a busy one after its job. So posting never waits for a thread. The first n_kept threads stay
 * until control_stop(); the others end when there is no job.
 *
 * A busy thread may be busy for ever: jobs call embedders and backends. control_post_or_run() does
 * not rely on it, and control_look() lets other jobs run beside it.
 */
#include "core/threads/control.h"

#include <string.h>

#include "base/mem.h"
#include "base/status.h"

enum { CONTROL_LEVEL = 870 };

/* ---- Which job is next ---------------------------------------------------------------------- */

/*
 * The first job of each key is ready, or running; later jobs of that key wait behind it. So a
 * thread takes the first ready job, and a new job finds its line by a hash, however many wait.
 */

static uint64_t hash_key(const char *key)
{
    uint64_t hash = 0xcbf29ce484222325; /* FNV-1a; naming models needs the right to load */
    for (; *key; key++)
        hash = (hash ^ (unsigned char)*key) * 0x100000001b3;
    return hash ^ hash >> 32;
}

static struct list *bucket_of(struct control *c, uint64_t hash)
{
    return &c->buckets[hash % CONTROL_BUCKETS];
}

static struct control_line *find_line_locked(struct control *c, const char *key, uint64_t hash)
{
    LIST_FOR_EACH (link, bucket_of(c, hash)) {
        struct control_line *line = LIST_ENTRY(link, struct control_line, link);
        if (line->hash != hash)
            continue;
        c->n_compared++;
        if (strcmp(line->key, key) == 0)
            return line;
    }
    return NULL;
}

static void open_line_locked(struct control *c, struct control_line *line, const char *key,
                             uint64_t hash)
{
    line->key = key;
    line->hash = hash;
    list_init(&line->behind);
    list_push(bucket_of(c, hash), &line->link);
}

/* Gives the line another head: a job, or the thread that runs it. */
static void take_line_over_locked(struct control *c, struct control_line *to, const char *key,
                                  struct control_line *from)
{
    open_line_locked(c, to, key, from->hash);
    list_move_all(&to->behind, &from->behind);
    list_remove(&from->link);
}

static void add_ready_locked(struct control *c, struct control_job *job)
{
    list_push(&c->ready[job->is_load], &job->link);
    c->n_ready[job->is_load]++;
}

static void take_ready_locked(struct control *c, struct control_job *job)
{
    list_remove(&job->link);
    c->n_ready[job->is_load]--;
    c->n_waiting--;
}

static void add_job_locked(struct control *c, struct control_job *job)
{
    struct control_line *line = NULL;
    c->n_waiting++;
    if (job->key) {
        uint64_t hash = hash_key(job->key);
        line = find_line_locked(c, job->key, hash);
        if (!line)
            open_line_locked(c, &job->line, job->key, hash);
    }
    if (line)
        list_push(&line->behind, &job->link);
    else
        add_ready_locked(c, job);
}

/* Makes the next job of the key ready, after one has run. */
static void advance_line_locked(struct control *c, struct control_line *line)
{
    struct list *link = list_pop(&line->behind);
    if (!link) {
        list_remove(&line->link);
        return;
    }
    struct control_job *job = LIST_ENTRY(link, struct control_job, link);
    take_line_over_locked(c, &job->line, job->key, line);
    add_ready_locked(c, job);
}

static struct control_job *next_job_locked(struct control *c)
{
    mutex_assert_held(&c->mu);
    const unsigned int max[] = {c->max_others + c->n_long,
                                MIN(c->max_loads + c->n_lent, (unsigned int)CONTROL_MAX_LOADS)};
    for (size_t i = 0; i < ARRAY_SIZE(c->ready); i++) {
        if (c->n_busy[i] < max[i] && !list_empty(&c->ready[i]))
            return LIST_ENTRY(c->ready[i].next, struct control_job, link);
    }
    return NULL;
}

/* ---- Threads -------------------------------------------------------------------------------- */

static void run_control_thread(void *arg);

/* Returns the place of one more thread, or NULL: there are enough. */
static struct control_thread *find_free_thread_locked(struct control *c)
{
    mutex_assert_held(&c->mu);
    LIST_FOR_EACH (link, &c->threads) {
        struct control_thread *t = LIST_ENTRY(link, struct control_thread, link);
        if (t->stage != CONTROL_THREAD && !t->is_starting)
            return t;
    }
    if (c->n_threads >= CONTROL_MAX_LOADS + CONTROL_MAX_OTHERS + c->n_long)
        return NULL;
    MEM_CHARGE(NULL, 0);
    struct control_thread *t = mem_zalloc(sizeof(*t));
    t->control = c;
    t->number = c->n_threads++;
    list_push(&c->threads, &t->link);
    return t;
}

/* Without the lock: a post waits neither for it nor for a thread that ends. */
static struct status *start_control_thread(struct control_thread *t, bool has_ended)
{
    struct control *c = t->control;
    if (has_ended)
        thread_join(&t->thread); /* it has no work left, and does not lock mu any more */
    struct status *st = thread_start(&t->thread, "control", run_control_thread, t);
    mutex_lock(&c->mu);
    if (st) {
        t->stage = CONTROL_NO_THREAD;
        c->n_starting--;
    }
    t->is_starting = false; /* from here on it may be joined */
    cond_broadcast(&c->changed);
    mutex_unlock(&c->mu);
    return st;
}

static struct status *start_one_and_unlock(struct control *c)
{
    struct control_thread *t = find_free_thread_locked(c);
    bool has_ended = t && t->stage == CONTROL_THREAD_ENDED;
    if (t) {
        t->stage = CONTROL_THREAD;
        t->is_starting = true;
        c->n_starting++;
    }
    mutex_unlock(&c->mu);
    return t ? start_control_thread(t, has_ended) : NULL;
}

/* Ensures that a job that can run now has a thread, or that one is about to look. */
static void ensure_thread_and_unlock(struct control *c)
{
    mutex_assert_held(&c->mu);
    if (next_job_locked(c) && c->n_idle == 0 && c->n_starting == 0) {
        status_free(start_one_and_unlock(c)); /* without a new thread a busy one looks later */
        return;
    }
    if (c->n_idle > 0 && next_job_locked(c))
        cond_signal(&c->work); /* that thread takes the job and wakes the next one */
    mutex_unlock(&c->mu);
}

/* A load that waits for a warm-up does not keep another load from its thread. */
static void lend_load_slot(struct load_slot *p)
{
    struct control *c = CONTAINER_OF(p, struct control_thread, slot)->control;
    mutex_lock(&c->mu);
    c->n_lent++;
    ensure_thread_and_unlock(c);
}

static void take_load_slot_back(struct load_slot *p)
{
    struct control *c = CONTAINER_OF(p, struct control_thread, slot)->control;
    mutex_lock(&c->mu);
    c->n_lent--;
    mutex_unlock(&c->mu);
}

static void run_job_locked(struct control_thread *t, struct control_job *job)
{
    struct control *c = t->control;
    bool is_load = job->is_load;
    /* The job may free itself while it runs: from here on the thread replaces it in its line. */
    char *key = job->key ? mem_strdup(job->key) : NULL;
    take_ready_locked(c, job);
    c->n_busy[is_load]++;
    if (key)
        take_line_over_locked(c, &t->line, key, &job->line);
    t->job = is_load ? CONTROL_NO_JOB : CONTROL_NEW;
    ensure_thread_and_unlock(c);
    t->slot.lend = lend_load_slot;
    t->slot.take_back = take_load_slot_back;
    load_slot_set(is_load ? &t->slot : NULL);
    job->run(job); /* may free the job */
    load_slot_set(NULL);
    mutex_lock(&c->mu);
    c->n_busy[is_load]--;
    c->n_long -= t->job == CONTROL_LONG;
    t->job = CONTROL_NO_JOB;
    if (key)
        advance_line_locked(c, &t->line);
    mem_free(key);
}

static void run_control_thread(void *arg)
{
    struct control_thread *t = arg;
    struct control *c = t->control;
    mutex_lock(&c->mu);
    c->n_starting--; /* it looks now, and then ensures that the next job has a thread */
    for (;;) {
        struct control_job *job = next_job_locked(c);
        if (job) {
            run_job_locked(t, job);
            continue;
        }
        if (t->number >= c->n_kept || (c->stopping && c->n_waiting == 0))
            break;
        c->n_idle++;
        cond_wait(&c->work, &c->mu);
        c->n_idle--;
        c->n_woken++;
    }
    t->stage = CONTROL_THREAD_ENDED;
    cond_broadcast(&c->changed);
    if (c->stopping)
        cond_broadcast(&c->work); /* the last job is over: all others end, too */
    mutex_unlock(&c->mu);
}

/* Joins the threads, all of which have ended. */
static void free_places(struct control *c)
{
    for (struct list *link; (link = list_pop(&c->threads));) {
        struct control_thread *t = LIST_ENTRY(link, struct control_thread, link);
        if (t->stage == CONTROL_THREAD_ENDED)
            thread_join(&t->thread);
        mem_free(t);
    }
}

struct status *control_start(struct control *c, unsigned int max_loads, unsigned int max_others)
{
    memset(c, 0, sizeof(*c));
    c->max_loads = MIN(max_loads, (unsigned int)CONTROL_MAX_LOADS);
    c->max_others = MIN(max_others, (unsigned int)CONTROL_MAX_OTHERS);
    c->n_kept = 1;
    mutex_init(&c->mu, CONTROL_LEVEL, "control.mu");
    cond_init(&c->work);
    cond_init(&c->changed);
    for (size_t i = 0; i < ARRAY_SIZE(c->ready); i++)
        list_init(&c->ready[i]);
    for (size_t i = 0; i < ARRAY_SIZE(c->buckets); i++)
        list_init(&c->buckets[i]);
    list_init(&c->threads);
    mutex_lock(&c->mu);
    struct status *st = start_one_and_unlock(c);
    if (st) {
        free_places(c);
        cond_done(&c->changed);
        cond_done(&c->work);
        mutex_done(&c->mu);
    }
    return st;
}

void control_keep(struct control *c, unsigned int n_threads)
{
    mutex_lock(&c->mu);
    c->n_kept = MIN(MAX(n_threads, 1U), (unsigned int)(CONTROL_MAX_LOADS + CONTROL_MAX_OTHERS));
    cond_broadcast(&c->work);
    mutex_unlock(&c->mu);
}

static bool has_threads_locked(const struct control *c)
{
    LIST_FOR_EACH (link, &c->threads) {
        const struct control_thread *t = LIST_ENTRY(link, struct control_thread, link);
        if (t->stage == CONTROL_THREAD || t->is_starting)
            return true;
    }
    return false;
}

void control_look(struct control *c, uint64_t now_ns, uint64_t patience_ns)
{
    mutex_lock(&c->mu);
    LIST_FOR_EACH (link, &c->threads) {
        struct control_thread *t = LIST_ENTRY(link, struct control_thread, link);
        if (t->job == CONTROL_NEW) {
            t->job = CONTROL_SEEN;
            t->seen_ns = now_ns;
        } else if (t->job == CONTROL_SEEN && now_ns - t->seen_ns >= patience_ns) {
            t->job = CONTROL_LONG;
            c->n_long++;
        }
    }
    ensure_thread_and_unlock(c);
}

void control_stop(struct control *c)
{
    mutex_lock(&c->mu);
    c->stopping = true;
    cond_broadcast(&c->work);
    while (has_threads_locked(c))
        cond_wait(&c->changed, &c->mu);
    mutex_unlock(&c->mu);
    free_places(c);
    cond_done(&c->changed);
    cond_done(&c->work);
    mutex_done(&c->mu);
}

void control_post(struct control *c, struct control_job *job)
{
    mutex_lock(&c->mu);
    add_job_locked(c, job);
    ensure_thread_and_unlock(c);
}

/* Whether as many threads are idle or starting as jobs are ready that do not load. */
static bool has_threads_for_ready_locked(const struct control *c)
{
    return c->n_ready[0] <= c->n_starting + c->n_idle || c->n_busy[0] >= c->max_others + c->n_long;
}

/* Takes the job back, if no thread has taken it meanwhile, and perhaps ended it. */
static bool take_back(struct control *c, struct control_job *job)
{
    bool is_ready = false;
    mutex_lock(&c->mu);
    LIST_FOR_EACH (link, &c->ready[0])
        is_ready |= link == &job->link;
    if (is_ready)
        take_ready_locked(c, job);
    mutex_unlock(&c->mu);
    return is_ready;
}

void control_post_or_run(struct control *c, struct control_job *job)
{
    BUG_ON(job->key || job->is_load);
    mutex_lock(&c->mu);
    add_job_locked(c, job);
    if (has_threads_for_ready_locked(c)) {
        ensure_thread_and_unlock(c);
        return;
    }
    struct status *st = start_one_and_unlock(c);
    if (st && take_back(c, job))
        job->run(job);
    status_free(st);
}
