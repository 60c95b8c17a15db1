/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records are copies: the core's texts and tensors are borrowed. Their bytes count in the writer's
 * memory; a record that it has no room for makes the whole trace one that is dropped, since half a
 * trace would mislead. Threads: see traced.h; `parts` is a list onto which any thread pushes.
 */
#include "frontends/tracing/traced.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "frontends/tracing/trace_setting.h"

void trace_home_unref(struct trace_home *home)
{
    if (atomic_fetch_sub(&home->refs, 1) == 1)
        home->free(home);
}

static void credit(struct trace_home *home, size_t n_bytes)
{
    atomic_fetch_sub_explicit(&home->size_bytes, n_bytes, memory_order_relaxed);
}

/* Whether there is memory for that many bytes of records; credit() gives them back. */
static bool charge(struct trace_home *home, size_t n_bytes)
{
    size_t was = atomic_fetch_add_explicit(&home->size_bytes, n_bytes, memory_order_relaxed);
    if (was + n_bytes <= TRACE_MAX_BYTES)
        return true;
    credit(home, n_bytes);
    return false;
}

static void unref_traced(struct traced *t)
{
    if (atomic_fetch_sub(&t->refs, 1) == 1)
        t->home->put(t->home, t);
}

static struct trace_part *part_of(struct trace *trace)
{
    return CONTAINER_OF(trace, struct trace_part, trace);
}

/* Memory that counts in the writer's; NULL: there is none, and the trace is cut. */
static void *alloc_counted(struct traced *t, size_t size_bytes)
{
    MEM_CHARGE(NULL, 0);
    void *p = NULL;
    if (charge(t->home, size_bytes)) {
        p = mem_try_zalloc(1, size_bytes);
        if (p)
            atomic_fetch_add_explicit(&t->size_bytes, size_bytes, memory_order_relaxed);
        else
            credit(t->home, size_bytes);
    }
    if (!p)
        atomic_store_explicit(&t->is_cut, true, memory_order_relaxed);
    return p;
}

/* Adds a record with room behind it. NULL: no memory. */
static struct trace_record *add_record(struct trace_part *p, enum trace_activity activity,
                                       size_t more_bytes)
{
    struct trace_record *r = alloc_counted(p->whole, sizeof(*r) + more_bytes);
    if (!r)
        return NULL;
    r->activity = activity;
    *p->end = r;
    p->end = &r->next;
    return r;
}

/* Finds the name of a custom activity, which is the last member of the context (trace_custom()):
 * its text as JSON, without the quotes. */
static const char *find_custom_name(const struct trace *trace, uint64_t ns, size_t *ret_length)
{
    char key[32];
    size_t length = strlen(trace->context);
    int n = snprintf(key, sizeof(key), "\"%llu\":\"", (unsigned long long)ns);
    const char *found = NULL;
    for (const char *at = trace->context; (at = strstr(at, key)); at++)
        found = at + n;
    *ret_length = found ? (size_t)(trace->context + length - found) : 0;
    if (*ret_length < 2)
        return NULL;
    *ret_length -= 2; /* the closing quote and brace */
    return found;
}

static void on_activity(struct trace *trace, enum trace_activity activity, uint64_t ns)
{
    size_t length = 0;
    const char *name =
        activity == TRACE_CUSTOM_ACTIVITY ? find_custom_name(trace, ns, &length) : NULL;
    struct trace_record *r = add_record(part_of(trace), activity, length + 1);
    if (!r)
        return;
    r->ns = ns;
    if (name)
        r->name = memcpy(r + 1, name, length);
}

static void on_tensor(struct trace *trace, enum trace_activity activity,
                      const struct trace_tensor *what)
{
    size_t shape_bytes = what->n_dims * sizeof(*what->shape), name_bytes = strlen(what->name) + 1;
    struct trace_record *r =
        add_record(part_of(trace), activity, shape_bytes + name_bytes + what->size_bytes);
    if (!r)
        return;
    char *at = (char *)(r + 1);
    r->is_tensor = true;
    r->dtype = what->dtype;
    r->n_dims = what->n_dims;
    r->size_bytes = what->size_bytes;
    r->shape = shape_bytes ? memcpy(at, what->shape, shape_bytes) : NULL;
    r->name = memcpy(at + shape_bytes, what->name, name_bytes);
    at += shape_bytes + name_bytes;
    r->data = what->size_bytes ? memcpy(at, what->base, what->size_bytes) : at;
}

static void on_release(struct trace *trace)
{
    unref_traced(part_of(trace)->whole);
}

static struct trace *spawn_part(struct trace *trace);

static const struct trace_ops traced_ops = {
    .activity = on_activity,
    .tensor = on_tensor,
    .release = on_release,
    .spawn = spawn_part,
    .free = on_release, /* its request was not taken; its part stays, without records */
};

static void init_part(struct trace_part *p, struct traced *t, uint64_t parent_id)
{
    MEM_CHARGE(NULL, 0);
    trace_init(&p->trace, &traced_ops, (unsigned int)t->setting->values.of[TRACE_LEVEL], parent_id);
    p->whole = t;
    p->end = &p->records;
}

static struct trace *spawn_part(struct trace *trace)
{
    MEM_CHARGE(NULL, 0);
    struct traced *t = part_of(trace)->whole;
    struct trace_part *p = mem_zalloc(sizeof(*p));
    init_part(p, t, trace->id);
    atomic_fetch_add(&t->refs, 1);
    p->next = atomic_load(&t->parts);
    while (!atomic_compare_exchange_weak(&t->parts, &p->next, p))
        ;
    return &p->trace;
}

struct traced *traced_new(struct trace_home *home, struct trace_setting *setting)
{
    MEM_CHARGE(NULL, 0);
    struct traced *t = mem_zalloc(sizeof(*t));
    struct trace_part *p = mem_zalloc(sizeof(*p));
    t->home = home;
    atomic_fetch_add_explicit(&home->refs, 1, memory_order_relaxed);
    t->setting = setting;
    trace_setting_ref(setting);
    atomic_init(&t->refs, 2);
    t->root = p;
    init_part(p, t, 0);
    atomic_init(&t->parts, p);
    return t;
}

void traced_refused(struct traced *t)
{
    if (!t)
        return;
    t->is_refused = true;
    unref_traced(t);
}

void traced_end(struct traced *t)
{
    unref_traced(t);
}

void traced_free(struct traced *t)
{
    struct trace_part *next;
    for (struct trace_part *p = atomic_load(&t->parts); p; p = next) {
        next = p->next;
        for (struct trace_record *r = p->records, *after; r; r = after) {
            after = r->next;
            mem_free(r);
        }
        trace_done(&p->trace);
        mem_free(p);
    }
    credit(t->home, atomic_load(&t->size_bytes));
    trace_setting_unref(t->setting);
    trace_home_unref(t->home);
    mem_free(t);
}
