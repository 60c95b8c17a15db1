/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The watch of a descriptor belongs to its loop and to its instance, and lives as long as one of
 * them has it. Each may end first: an instance that ends takes itself out and posts a message, upon
 * which the loop stops watching; a loop that ends marks the watch, and the next runner makes
 * another one with its own loop. The watch has a duplicate of the descriptor, so that the backend
 * may close its own at any time.
 *
 * The state is under the watch's mutex, which three steps of an execution take; mostly no other
 * thread has it then.
 */
#include "core/backend/leave.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/list.h"
#include "base/loop.h"
#include "base/mem.h"
#include "base/mutex.h"
#include "base/status.h"
#include "core/backend/instance.h"
#include "core/model/model.h"
#include "core/request/request.h"

enum { LEFT_LEVEL = 530 };

struct left {
    /* Constant. */
    struct inline_budget *budget; /* of the loop; not to be used when the loop has ended */
    int descriptor;               /* our own */
    /* The loop's. */
    struct loop_fd watched;
    struct list link; /* of budget->left */

    atomic_uint n_refs;
    struct message instance_gone;
    struct mutex mu; /* level 530 in core/README.md */
    /* Under mu. */
    struct instance *instance; /* NULL: it has another watch, or is gone */
    bool loop_ended;
    enum { LEFT_HERE, LEFT_RANG, LEFT_AWAY } state;
};

static THREAD_WORD struct leave_scope *innermost;

static void unref(struct left *l)
{
    if (atomic_fetch_sub(&l->n_refs, 1) != 1)
        return;
    mutex_done(&l->mu);
    mem_free(l);
}

/* Thread: the loop's, or the one that ends it. */
static void stop_watching(struct left *l)
{
    struct loop *loop = l->budget->loop;
    if (l->watched.fd < 0)
        return;
    loop_remove_fd(loop, &l->watched);
    close(l->descriptor);
    list_remove(&l->link);
    unref(l);
}

static void on_instance_gone(struct message *m)
{
    struct left *l = CONTAINER_OF(m, struct left, instance_gone);
    mutex_lock(&l->mu);
    bool ended = l->loop_ended; /* it has stopped watching, then */
    mutex_unlock(&l->mu);
    if (!ended)
        stop_watching(l);
    unref(l);
}

/* Returns the instance whose execution this thread now finishes; NULL: none. */
static struct instance *take_finished(struct left *l)
{
    struct instance *in = NULL;
    mutex_lock(&l->mu);
    if (l->state == LEFT_AWAY && l->instance) {
        in = l->instance;
        l->state = LEFT_HERE;
    } else if (l->state == LEFT_HERE) {
        l->state = LEFT_RANG;
    }
    mutex_unlock(&l->mu);
    return in;
}

static void on_answer_event(struct loop_fd *w, uint32_t events)
{
    struct left *l = CONTAINER_OF(w, struct left, watched);
    struct instance *in = take_finished(l);
    (void)events;
    if (in)
        in->leave.ops->finish(in, l->budget);
}

/* Thread: the loop's. NULL: the system has no room for it. */
static struct left *watch_descriptor(struct instance *in, struct inline_budget *budget)
{
    int descriptor = fcntl(in->leave.descriptor, F_DUPFD_CLOEXEC, 0);
    if (descriptor < 0)
        return NULL;
    MEM_CHARGE(NULL, 0); /* it may live longer than the model */
    struct left *l = mem_zalloc(sizeof(*l));
    struct status *st =
        loop_add_fd(budget->loop, &l->watched, descriptor, EPOLLIN | EPOLLET, on_answer_event);
    if (st) {
        status_free(st);
        close(descriptor);
        mem_free(l);
        return NULL;
    }
    l->budget = budget;
    l->descriptor = descriptor;
    l->instance = in;
    l->instance_gone.deliver = on_instance_gone;
    atomic_init(&l->n_refs, 2); /* the loop's and the instance's */
    mutex_init(&l->mu, LEFT_LEVEL, "left.mu");
    list_push(&budget->left, &l->link);
    return l;
}

/* The instance has this watch no more. */
static void part(struct left *l)
{
    if (!l)
        return;
    mutex_lock(&l->mu);
    l->instance = NULL;
    bool ended = l->loop_ended;
    if (!ended) { /* under mu: the loop does not end meanwhile */
        atomic_fetch_add(&l->n_refs, 1);
        loop_post(l->budget->loop, &l->instance_gone);
    }
    mutex_unlock(&l->mu);
    unref(l);
}

void leave_begin(struct leave_scope *scope, struct instance *in, struct inline_budget *budget)
{
    *scope = (struct leave_scope){.instance = in, .budget = budget, .outer = innermost};
    innermost = scope;
    in->leave.has_left = false;
}

bool leave_end(struct leave_scope *scope)
{
    innermost = scope->outer;
    return scope->instance->leave.has_left;
}

/* Begins an execution. False: the loop of the watch has ended. */
static bool start(struct left *l)
{
    mutex_lock(&l->mu);
    bool ended = l->loop_ended;
    l->state = LEFT_HERE;
    mutex_unlock(&l->mu);
    return !ended;
}

bool leave_now(struct instance *in)
{
    struct leave_scope *scope = innermost;
    if (!scope || scope->instance != in || instance_executing() != in)
        return false;
    struct left **l = &in->leave.left;
    if (!*l || !start(*l)) {
        part(*l);
        *l = watch_descriptor(in, scope->budget);
        if (*l)
            (void)start(*l);
    }
    in->leave.has_left = true;
    return true;
}

enum leave leave_publish(struct instance *in)
{
    struct left *l = in->leave.left;
    enum leave how = LEAVE_AWAY;
    if (!l)
        return LEAVE_NO_LOOP;
    mutex_lock(&l->mu);
    if (l->state == LEFT_RANG) {
        l->state = LEFT_HERE;
        how = LEAVE_RANG;
    } else if (l->loop_ended) {
        how = LEAVE_NO_LOOP;
    } else {
        l->state = LEFT_AWAY;
    }
    mutex_unlock(&l->mu);
    return how;
}

void leave_set_descriptor(struct instance *in, int descriptor)
{
    part(TAKE(in->leave.left));
    in->leave.descriptor = descriptor;
}

void leave_forget(struct instance *in)
{
    part(TAKE(in->leave.left));
}

void leave_loop_ends(struct inline_budget *budget)
{
    while (!list_empty(&budget->left)) {
        struct left *l = LIST_ENTRY(budget->left.next, struct left, link);
        mutex_lock(&l->mu);
        l->loop_ended = true;
        struct instance *in = l->state == LEFT_AWAY ? l->instance : NULL;
        mutex_unlock(&l->mu);
        stop_watching(l);
        if (in)
            in->leave.ops->finish_on_worker(in);
    }
}
