/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls of a parent are in one list, which the first call makes, and which then belongs to the
 * parent's object until that is freed (`life.calls`). So the thread that cancels, which has a
 * reference to the parent, never loses the list. Each call has a reference, too, since it may
 * outlive the parent. A parent may be executed several times; the list notes for which of its runs
 * it has been cancelled.
 */
#include "core/request/on_behalf.h"

#include "base/mem.h"
#include "base/status.h"
#include "core/model/model.h"
#include "core/model/model_priv.h"
#include "core/request/life.h"
#include "core/request/request.h"
#include "core/request/request_trace.h"
#include "core/request/steps.h"

struct calls {
    struct request_calls base;
    struct steps steps;
    uint64_t run; /* under steps.mu: the run of the parent that `steps.is_cancelled` is about */
};

struct on_behalf {
    struct step step;
    struct calls *calls;  /* a reference */
    struct model *parent; /* that of the parent: a reference, and counted as if in flight */
    uint64_t deadline_ns, priority;
    struct trace *trace; /* for the call; NULL: the parent has none */
    bool has_priority;   /* the call has the parent's, instead of none … */
    bool has_trace;      /* … and `trace` */
};

static void free_calls(struct steps *s)
{
    mem_free(CONTAINER_OF(s, struct calls, steps));
}

/* The upper half counts the runs of the request object. */
static uint64_t run_of(const struct request *r)
{
    return atomic_load(&r->life.senders) >> 32;
}

static void note_cancel(struct calls *c, const struct request *parent)
{
    mutex_lock(&c->steps.mu);
    if (c->run != run_of(parent)) {
        c->run = run_of(parent);
        c->steps.is_cancelled = false;
    }
    c->steps.is_cancelled |= atomic_load(&parent->life.cancelled);
    mutex_unlock(&c->steps.mu);
}

static void cancel_calls(struct request_calls *base, struct request *parent)
{
    struct calls *c = CONTAINER_OF(base, struct calls, base);
    note_cancel(c, parent);
    steps_cancel(&c->steps);
}

static void unref_calls(struct request_calls *base)
{
    steps_unref(&CONTAINER_OF(base, struct calls, base)->steps);
}

/* Returns the parent's list, with a reference for the caller. */
static struct calls *calls_of(struct request *parent)
{
    struct request_calls *base = atomic_load(&parent->life.calls);
    if (!base) {
        struct calls *made = mem_zalloc(sizeof(*made));
        made->base = (struct request_calls){.cancel = cancel_calls, .unref = unref_calls};
        steps_init(&made->steps, free_calls);
        /* seq_cst: request_cancel() stores `cancelled`, and then loads this pointer; this thread
         * stores the pointer, and then loads `cancelled`. One of the two sees the other's. */
        if (atomic_compare_exchange_strong(&parent->life.calls, &base, &made->base))
            base = &made->base;
        else
            steps_unref(&made->steps);
    }
    struct calls *c = CONTAINER_OF(base, struct calls, base);
    steps_ref(&c->steps);
    return c;
}

struct status *on_behalf_new(struct request *parent, struct on_behalf **ret)
{
    if (atomic_load_explicit(&parent->life.stage, memory_order_acquire) != REQUEST_EXECUTING)
        return status_new(STATUS_INVALID_ARG,
                          "[request id: %s] no request can be made on behalf of this one: no "
                          "backend has it",
                          request_log_name(parent));
    struct on_behalf *b = mem_zalloc(sizeof(*b));
    b->calls = calls_of(parent);
    note_cancel(b->calls, parent);
    b->parent = parent->model;
    model_ref(b->parent);
    model_request_begun(b->parent); /* the parent counts, too, so that the drain is not over */
    b->deadline_ns = parent->maker.deadline_ns;
    b->priority = parent->maker.priority;
    b->trace = parent->maker.trace ? trace_spawn(parent->maker.trace) : NULL;
    *ret = b;
    return NULL;
}

void on_behalf_free(struct on_behalf *b)
{
    if (!b)
        return;
    struct model *parent = b->parent;
    trace_free(b->trace);
    steps_unref(&b->calls->steps);
    mem_free(b);
    model_request_ended(parent);
    model_unref(parent);
}

struct status *on_behalf_begin(struct on_behalf *b, struct request *call)
{
    call->maker.goes_on = true;
    call->maker.deadline_ns = b->deadline_ns;
    b->has_priority = call->maker.priority == 0;
    if (b->has_priority)
        call->maker.priority = b->priority;
    b->has_trace = !call->maker.trace && b->trace;
    if (b->has_trace)
        call->maker.trace = TAKE(b->trace);
    b->step.request = call;
    mutex_lock(&b->calls->steps.mu);
    bool added = steps_add_locked(&b->calls->steps, &b->step);
    mutex_unlock(&b->calls->steps.mu);
    if (added)
        return NULL;
    b->step.request = NULL;
    return status_cancelled();
}

void on_behalf_end(struct on_behalf *b, struct request *call)
{
    if (b->step.request) {
        mutex_lock(&b->calls->steps.mu);
        steps_remove_locked(&b->calls->steps, &b->step);
        mutex_unlock(&b->calls->steps.mu);
    }
    call->maker.goes_on = false;
    call->maker.deadline_ns = 0;
    if (b->has_priority)
        call->maker.priority = 0;
    if (b->has_trace)
        trace_drop(call); /* an accepted call has none any more */
}
