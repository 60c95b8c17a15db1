/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records are copies: the core's texts and tensors are borrowed. Their bytes count in the writer's
 * memory; a record that it has no room for makes the whole trace one that is dropped, since half a
 * trace would mislead. Of a trace that becomes spans only what a backend reports is a record: the
 * core's activities have their places in the part, and texts that are seldom asked for are made
 * when they are. Threads: see traced.h; `parts` is a list onto which any thread pushes.
 */
#include "frontends/tracing/traced.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/status.h"
#include "frontends/tracing/trace_setting.h"

const char *const stamp_names[N_STAMPS] = {
    [STAMP_HTTP_RECV_START] = "HTTP_RECV_START",
    [STAMP_HTTP_RECV_END] = "HTTP_RECV_END",
    [STAMP_GRPC_WAITREAD_START] = "GRPC_WAITREAD_START",
    [STAMP_GRPC_WAITREAD_END] = "GRPC_WAITREAD_END",
    [STAMP_RESPONSE_COMPLETE] = "INFER_RESPONSE_COMPLETE",
    [STAMP_HTTP_SEND_START] = "HTTP_SEND_START",
    [STAMP_HTTP_SEND_END] = "HTTP_SEND_END",
    [STAMP_GRPC_SEND_START] = "GRPC_SEND_START",
    [STAMP_GRPC_SEND_END] = "GRPC_SEND_END",
};

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

static struct trace_part *traced_part(struct trace *trace)
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
    struct trace_record *r = add_record(traced_part(trace), activity, length + 1);
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
        add_record(traced_part(trace), activity, shape_bytes + name_bytes + what->size_bytes);
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
    unref_traced(traced_part(trace)->whole);
}

static struct trace *spawn_part(struct trace *trace);

static const struct trace_ops traced_ops = {
    .activity = on_activity,
    .tensor = on_tensor,
    .release = on_release,
    .spawn = spawn_part,
    .free = on_release, /* its request was not taken; its part stays, without records */
};

/* ---- Spans ---------------------------------------------------------------------------------- */

static struct span_name span_of(const struct trace_part *p)
{
    struct span_name name;
    memcpy(name.trace_id, p->whole->span.trace_id, TRACE_ID_BYTES);
    memcpy(name.span_id, p->span_id, SPAN_ID_BYTES);
    return name;
}

/* The first of a batch has the batch's span, which has links to the others. */
static void on_batch(struct trace *trace, struct trace *first, uint32_t n_requests)
{
    struct trace_part *p = traced_part(trace), *leader = traced_part(first);
    p->n_batch = n_requests;
    if (p == leader) {
        p->leads_batch = true;
        p->batch = span_of(p);
        span_id_new(p->batch.span_id);
        return;
    }
    p->batch = leader->batch;
    struct traced_link *link = alloc_counted(leader->whole, sizeof(*link));
    if (!link)
        return;
    link->to = span_of(p);
    link->next = leader->links;
    leader->links = link;
}

static void on_span_activity(struct trace *trace, enum trace_activity activity, uint64_t ns)
{
    struct part_times *times = &traced_part(trace)->times;
    times->last_ns = MAX(times->last_ns, ns);
    if (activity == TRACE_CUSTOM_ACTIVITY) {
        times->n_custom++;
        on_activity(trace, activity, ns);
    } else if ((size_t)activity < ARRAY_SIZE(times->of) && times->of[activity] == 0) {
        times->of[activity] = ns;
    }
}

/* Backends, and the models that they call, continue the trace from this request's span. */
static void make_span_context(struct trace *trace)
{
    MEM_CHARGE(NULL, 0);
    char context[TRACE_CONTEXT_BYTES];
    const struct trace_part *p = traced_part(trace);
    struct span_name name = span_of(p);
    trace_context_print(&name, p->whole->span.state ? p->whole->span.state : "", context);
    trace_set_context(trace, context);
}

/* Spans have no tensors. */
static const struct trace_ops spanned_ops = {
    .activity = on_span_activity,
    .batch = on_batch,
    .release = on_release,
    .spawn = spawn_part,
    .free = on_release,
    .make_context = make_span_context,
};

static void begin_root_span(struct traced *t, const struct trace_parent *parent)
{
    struct traced_span *span = &t->span;
    span_id_new(span->root_id);
    span->reply_status = TRACED_NO_STATUS;
    span->has_parent = parent && parent->has_span;
    if (!span->has_parent) {
        trace_id_new(span->trace_id);
        return;
    }
    memcpy(span->trace_id, parent->span.trace_id, TRACE_ID_BYTES);
    memcpy(span->parent_id, parent->span.span_id, SPAN_ID_BYTES);
    if (parent->state_length > 0) {
        MEM_CHARGE(NULL, 0);
        span->state = mem_strdup(parent->state);
    }
}

/* ---- Life ----------------------------------------------------------------------------------- */

static void init_part(struct trace_part *p, struct traced *t, uint64_t parent_id)
{
    trace_init(&p->trace, t->home->has_spans ? &spanned_ops : &traced_ops,
               (unsigned int)t->setting->values.of[TRACE_LEVEL], parent_id);
    p->whole = t;
    p->end = &p->records;
    if (t->home->has_spans)
        span_id_new(p->span_id);
}

static struct trace *spawn_part(struct trace *trace)
{
    MEM_CHARGE(NULL, 0);
    struct traced *t = traced_part(trace)->whole;
    struct trace_part *p = mem_zalloc(sizeof(*p));
    init_part(p, t, trace->id);
    atomic_fetch_add(&t->refs, 1);
    p->next = atomic_load(&t->parts);
    while (!atomic_compare_exchange_weak(&t->parts, &p->next, p))
        ;
    return &p->trace;
}

struct traced *traced_new(struct trace_home *home, struct trace_setting *setting, struct pool *pool,
                          const struct trace_parent *parent)
{
    struct traced *t = pool_alloc(pool, sizeof(*t), NULL);
    if (UNLIKELY(!t))
        return NULL;
    memset(t, 0, sizeof(*t));
    t->home = home;
    atomic_fetch_add_explicit(&home->refs, 1, memory_order_relaxed);
    t->setting = setting;
    trace_setting_ref(setting);
    atomic_init(&t->refs, 2);
    if (home->has_spans)
        begin_root_span(t, parent);
    init_part(&t->root, t, 0);
    atomic_init(&t->parts, &t->root);
    return t;
}

void traced_refused(struct traced *t)
{
    if (!t)
        return;
    t->is_refused = true;
    unref_traced(t);
}

void traced_failed(struct traced *t, const struct status *st)
{
    if (!t || !t->home->has_spans || t->span.error_text)
        return;
    MEM_CHARGE(NULL, 0);
    t->span.error = status_code(st);
    t->span.error_text = mem_strdup(status_message(st));
}

void traced_end(struct traced *t)
{
    uint64_t sent_ns = MAX(t->stamps[STAMP_HTTP_SEND_END], t->stamps[STAMP_GRPC_SEND_END]);
    t->span.ended_ns = sent_ns ? sent_ns : monotonic_ns();
    unref_traced(t);
}

static void end_part(struct trace_part *p)
{
    for (struct trace_record *r = p->records, *after; r; r = after) {
        after = r->next;
        mem_free(r);
    }
    for (struct traced_link *l = p->links, *after; l; l = after) {
        after = l->next;
        mem_free(l);
    }
    trace_done(&p->trace);
}

void traced_free(struct traced *t)
{
    struct trace_part *next;
    for (struct trace_part *p = atomic_load(&t->parts); p; p = next) {
        next = p->next;
        end_part(p);
        if (p != &t->root)
            mem_free(p);
    }
    mem_free(t->span.state);
    mem_free(t->span.error_text);
    size_t size_bytes = atomic_load_explicit(&t->size_bytes, memory_order_relaxed);
    if (size_bytes > 0)
        credit(t->home, size_bytes);
    trace_setting_unref(t->setting);
    trace_home_unref(t->home);
    pool_release(t);
}
