/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Settings become due when they may have a file to complete: one of their traces has ended, or they
 * have been replaced. Only the thread `traces` looks at files. Traces of a setting come by the ring
 * before it is due for the last time, so none is missing when its last file is completed.
 *
 * Invariant: a trace counts in its setting's n_open until it is written or dropped.
 */
#include "frontends/tracing/trace_writer.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/metrics/family.h"
#include "frontends/tracing/trace_file.h"
#include "frontends/tracing/trace_print.h"
#include "frontends/tracing/trace_setting.h"
#include "frontends/tracing/traced.h"

enum { WRITER_LEVEL = 886 };

static void count(struct metric *metric)
{
    status_free(metric_increment(metric, 1));
}

/* ---- What other threads call ---------------------------------------------------------------- */

static void end_written(struct trace_home *home, struct trace_setting *s)
{
    struct trace_writer *w = CONTAINER_OF(home, struct trace_writer, home);
    mutex_lock(&w->mu);
    if (!s->is_due) {
        s->is_due = true;
        trace_setting_ref(s);
        list_push(&w->due, &s->due);
    }
    atomic_fetch_sub(&s->n_open, 1);
    cond_signal(&w->changed);
    mutex_unlock(&w->mu);
}

static void lose_trace(struct trace_home *home)
{
    count(CONTAINER_OF(home, struct trace_writer, home)->n_dropped[TRACE_DROP_MEMORY]);
}

static void drop_trace(struct trace_writer *w, struct traced *t, enum trace_drop why)
{
    count(w->n_dropped[why]);
    end_written(&w->home, t->setting);
    traced_free(t);
}

static void put_trace(struct trace_home *home, struct traced *t)
{
    struct trace_writer *w = CONTAINER_OF(home, struct trace_writer, home);
    enum trace_drop why = TRACE_DROP_MEMORY;
    bool is_taken = false;
    if (t->is_refused) {
        end_written(&w->home, t->setting);
        traced_free(t);
        return;
    }
    mutex_lock(&w->mu);
    if (!atomic_load(&t->is_cut)) {
        why = TRACE_DROP_RING;
        is_taken = w->n_ring < TRACE_RING && !w->is_ending;
    }
    if (is_taken) {
        list_push(&w->ring, &t->link);
        w->n_ring++;
        cond_signal(&w->changed);
    }
    mutex_unlock(&w->mu);
    if (!is_taken)
        drop_trace(w, t, why);
}

/* ---- Files ---------------------------------------------------------------------------------- */

/* Whether all traces of the setting go to the one file of that name. */
static bool is_unlimited(const struct trace_setting *s)
{
    return s->values.of[TRACE_LOG_FREQUENCY] == 0 && s->values.of[TRACE_COUNT] < 0;
}

static struct status *open_main_file(struct trace_writer *w)
{
    return w->main_file ? NULL : trace_file_open(w->path, &w->main_file);
}

static struct status *open_unfinished_file(struct trace_writer *w, struct trace_setting *s)
{
    if (s->file)
        return NULL;
    char *path = mem_printf("%s.%u.unfinished", w->path, w->next_unfinished++);
    struct status *st = trace_file_open(path, &s->file);
    mem_free(path);
    return st;
}

/* Logs the first of several failures. Takes the status. */
static void log_failure(struct trace_writer *w, struct status *st)
{
    if (!w->has_failed)
        log_error("traces are dropped: %s", status_message(st));
    w->has_failed = true;
    status_free(st);
}

/* Gives the file its number. */
static struct status *number_file(struct trace_writer *w, struct trace_setting *s)
{
    struct status *st = NULL;
    char *path = mem_printf("%s.%u", w->path, w->next_number++);
    if (rename(s->file->path, path) != 0)
        st = status_from_errno(errno, "failed to rename trace file '%s'", s->file->path);
    mem_free(path);
    return st;
}

/* The setting was replaced before its count was reached: its traces go to the one file. */
static struct status *append_file(struct trace_writer *w, struct trace_setting *s)
{
    struct status *st = open_main_file(w);
    if (!st)
        st = trace_file_append(w->main_file, s->file);
    if (!st)
        unlink(s->file->path);
    return st;
}

static void complete_file(struct trace_writer *w, struct trace_setting *s)
{
    bool has_number = s->values.of[TRACE_LOG_FREQUENCY] != 0 || atomic_load(&s->left) == 0;
    if (!s->file)
        return;
    struct status *st = NULL;
    if (s->n_in_file > 0)
        st = has_number ? number_file(w, s) : append_file(w, s);
    else
        unlink(s->file->path);
    if (st)
        log_failure(w, st);
    trace_file_close(TAKE(s->file));
    s->n_in_file = 0;
}

static struct status *write_to_file(struct trace_writer *w, struct traced *t)
{
    struct trace_setting *s = t->setting;
    bool main = is_unlimited(s);
    struct status *st = main ? open_main_file(w) : open_unfinished_file(w, s);
    if (st)
        return st;
    struct trace_file *f = main ? w->main_file : s->file;
    trace_file_begin(f);
    if (!trace_print(t, f))
        return NULL;
    st = trace_file_commit(f);
    if (st || main)
        return st;
    int64_t frequency = s->values.of[TRACE_LOG_FREQUENCY];
    if (++s->n_in_file >= frequency && frequency > 0)
        complete_file(w, s);
    return NULL;
}

static void write_trace(struct trace_writer *w, struct traced *t)
{
    struct status *st = write_to_file(w, t);
    if (st) {
        log_failure(w, st);
        drop_trace(w, t, TRACE_DROP_FILE);
        return;
    }
    if (w->has_failed)
        log_info("traces are written again to '%s'", w->path);
    w->has_failed = false;
    count(w->n_written);
    end_written(&w->home, t->setting);
    traced_free(t);
}

/* Completes the file of a setting that has had its last trace. */
static void look_at_setting(struct trace_writer *w, struct trace_setting *s)
{
    unsigned int n_open = atomic_load(&s->n_open);
    bool is_over = atomic_load(&s->left) == 0 && !atomic_load(&s->is_replaced);
    if (n_open == 0 || (n_open == 1 && is_over))
        complete_file(w, s);
    trace_setting_unref(s);
}

/* ---- The thread ----------------------------------------------------------------------------- */

static struct traced *next_trace_locked(struct trace_writer *w)
{
    mutex_assert_held(&w->mu);
    struct list *link = list_pop(&w->ring);
    if (!link)
        return NULL;
    w->n_ring--;
    return LIST_ENTRY(link, struct traced, link);
}

static struct trace_setting *next_setting_locked(struct trace_writer *w)
{
    mutex_assert_held(&w->mu);
    struct list *link = list_pop(&w->due);
    if (!link)
        return NULL;
    struct trace_setting *s = LIST_ENTRY(link, struct trace_setting, due);
    s->is_due = false;
    return s;
}

static void run_writer(void *arg)
{
    struct trace_writer *w = arg;
    mutex_lock(&w->mu);
    for (;;) {
        struct traced *t = next_trace_locked(w);
        struct trace_setting *s = t ? NULL : next_setting_locked(w);
        if (!t && !s) {
            if (w->is_ending)
                break;
            cond_wait(&w->changed, &w->mu);
            continue;
        }
        mutex_unlock(&w->mu);
        if (t)
            write_trace(w, t);
        else
            look_at_setting(w, s);
        mutex_lock(&w->mu);
    }
    mutex_unlock(&w->mu);
    trace_file_close(TAKE(w->main_file));
}

/* ---- Start and stop ------------------------------------------------------------------------- */

static struct status *make_metrics(struct trace_writer *w)
{
    static const char *const reasons[] = {
        [TRACE_DROP_RING] = "ring", [TRACE_DROP_MEMORY] = "memory", [TRACE_DROP_FILE] = "file"};
    struct status *st = metric_family_new(METRIC_COUNTER, "conch_traces_written",
                                          "Number of traces in trace files", &w->families[0]);
    if (!st)
        st =
            metric_family_new(METRIC_COUNTER, "conch_traces_dropped",
                              "Number of traces that were not written, by reason", &w->families[1]);
    if (!st)
        st = metric_new(w->families[0], NULL, 0, NULL, &w->n_written);
    for (int i = 0; i < N_TRACE_DROPS && !st; i++) {
        const struct metric_label label = {"reason", reasons[i]};
        st = metric_new(w->families[1], &label, 1, NULL, &w->n_dropped[i]);
    }
    return st;
}

static void free_due_settings(struct trace_writer *w)
{
    struct list *link;
    while ((link = list_pop(&w->due))) {
        struct trace_setting *s = LIST_ENTRY(link, struct trace_setting, due);
        trace_file_close(TAKE(s->file));
        trace_setting_unref(s);
    }
}

static void stop_writer(struct trace_home *home)
{
    struct trace_writer *w = CONTAINER_OF(home, struct trace_writer, home);
    mutex_lock(&w->mu);
    bool was_ending = w->is_ending;
    w->is_ending = true;
    cond_signal(&w->changed);
    mutex_unlock(&w->mu);
    if (!was_ending)
        thread_join(&w->thread);
}

static void free_writer(struct trace_home *home)
{
    struct trace_writer *w = CONTAINER_OF(home, struct trace_writer, home);
    free_due_settings(w);
    if (w->n_written)
        metric_free(w->n_written);
    for (int i = 0; i < N_TRACE_DROPS; i++) {
        if (w->n_dropped[i])
            metric_free(w->n_dropped[i]);
    }
    for (int i = 0; i < 2; i++) {
        if (w->families[i])
            status_free(metric_family_free(w->families[i]));
    }
    cond_done(&w->changed);
    mutex_done(&w->mu);
    mem_free(w->path);
    mem_free(w);
}

struct status *trace_writer_start(const char *path, struct trace_home **ret)
{
    MEM_CHARGE(NULL, 0);
    struct trace_writer *w = mem_zalloc(sizeof(*w));
    w->path = mem_strdup(path);
    w->home.put = put_trace;
    w->home.end = end_written;
    w->home.stop = stop_writer;
    w->home.lose = lose_trace;
    w->home.free = free_writer;
    atomic_init(&w->home.refs, 1);
    mutex_init(&w->mu, WRITER_LEVEL, "trace_writer.mu");
    cond_init(&w->changed);
    list_init(&w->ring);
    list_init(&w->due);
    struct status *st = make_metrics(w);
    if (!st)
        st = thread_start(&w->thread, "traces", run_writer, w);
    if (st) {
        w->is_ending = true;
        trace_home_unref(&w->home);
        return st;
    }
    *ret = &w->home;
    return NULL;
}
