/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads: "access-rules" reads the file; loops take a reference of the rules, under mu, when
 * `version` tells them that there are others.
 */
#include "frontends/ops/access.h"

#include <stdatomic.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/file_watch.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/mutex.h"
#include "base/status.h"

enum { LEVEL = 891 }; /* a leaf in the table of core/README.md */

struct access {
    /* Constant. */
    char *path;
    struct file_watch *watch;

    atomic_uint version; /* changes behind `rules` */
    struct mutex mu;
    struct access_rules *rules; /* under mu */
};

static struct status *read_rules(const struct access *a, struct access_rules **ret)
{
    struct buf content;
    buf_init(&content, ACCESS_MAX_BYTES);
    struct status *st = file_read(a->path, &content);
    if (!st)
        st = access_rules_parse(buf_text(&content), content.size, ret);
    if (content.data)
        explicit_bzero(content.data, content.size);
    buf_done(&content);
    if (!st)
        return NULL;
    struct status *named =
        status_new(status_code(st) == STATUS_UNAVAILABLE ? STATUS_UNAVAILABLE : STATUS_INVALID_ARG,
                   "access rules '%s': %s", a->path, status_message(st));
    status_free(st);
    return named;
}

static bool read_rules_again(void *arg)
{
    struct access *a = arg;
    struct access_rules *rules, *before;
    struct status *st = read_rules(a, &rules);
    if (st) {
        bool is_final = status_code(st) != STATUS_UNAVAILABLE;
        log_status(LOG_WARN, "the access rules that were read before stay in use", st);
        return is_final;
    }
    log_info("read access rules '%s' again: %zu", a->path, access_rules_count(rules));
    mutex_lock(&a->mu);
    before = a->rules;
    a->rules = rules;
    /* Release: pairs with the load in access_view_get(). */
    atomic_fetch_add_explicit(&a->version, 1, memory_order_release);
    mutex_unlock(&a->mu);
    access_rules_unref(before);
    return true;
}

struct status *access_start(const char *path, uint64_t check_ns, struct access **ret)
{
    struct access *a = mem_zalloc(sizeof(*a));
    struct file_watch_options o = {.thread_name = "access-rules",
                                   .paths = {path},
                                   .check_ns = check_ns,
                                   .on_change = read_rules_again,
                                   .arg = a};
    a->path = mem_strdup(path);
    mutex_init(&a->mu, LEVEL, "access.mu");
    a->watch = file_watch_new(&o);
    struct status *st = read_rules(a, &a->rules);
    if (!st)
        st = file_watch_start(a->watch);
    if (st)
        access_stop(a);
    else
        *ret = a;
    return st;
}

void access_stop(struct access *a)
{
    if (!a)
        return;
    file_watch_free(a->watch);
    access_rules_unref(a->rules);
    mutex_done(&a->mu);
    mem_free(a->path);
    mem_free(a);
}

/* ---- Views ----------------------------------------------------------------------------------- */

static void take_rules(struct access_view *v)
{
    struct access_rules *before = v->rules;
    mutex_lock(&v->source->mu);
    v->rules = access_rules_ref(v->source->rules);
    v->version = atomic_load_explicit(&v->source->version, memory_order_relaxed);
    mutex_unlock(&v->source->mu);
    access_rules_unref(before);
}

void access_view_init(struct access_view *v, struct access *source)
{
    *v = (struct access_view){.source = source};
    if (source)
        take_rules(v);
}

void access_view_done(struct access_view *v)
{
    access_rules_unref(TAKE(v->rules));
}

struct access_rules *access_view_get(struct access_view *v)
{
    /* Acquire: pairs with the addition in read_rules_again(). */
    if (UNLIKELY(atomic_load_explicit(&v->source->version, memory_order_acquire) != v->version))
        take_rules(v);
    return v->rules;
}
