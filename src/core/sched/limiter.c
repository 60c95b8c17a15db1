/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The book: for each resource how much there is and how much is taken, and the instances that wait.
 *
 * Those who wait are looked at whenever a turn ends. No other event has to: one waits only while
 * another has a turn with a resource that it needs, or that one needs which has been passed too
 * often.
 */
#include "core/sched/limiter.h"

#include <inttypes.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/mutex.h"
#include "base/status.h"
#include "core/backend/instance.h"
#include "core/model/model.h"
#include "core/model/model_priv.h"
#include "core/options/server_options.h"

enum { LIMITER_LEVEL = 520 };

enum { ALL_DEVICES = -1, GLOBAL = -2 };

struct resource {
    struct list link; /* in limiter.resources */
    char *name;
    int device;      /* or GLOBAL */
    size_t n_users;  /* needs that point to it */
    uint64_t amount; /* by the options, or the largest need */
    uint64_t taken;
    bool is_reserved; /* during a search: for one that has been passed too often */
};

struct limiter {
    const struct server_options *options; /* the server's */
    struct mutex mu;
    struct list resources, limits;
    struct list waiting;       /* the fewest points first */
    uint64_t points_of_latest; /* of the turn that began last, before it began */
};

struct limiter *limiter_new(const struct server_options *o)
{
    if (!o->limits_rate)
        return NULL;
    struct limiter *l = mem_zalloc(sizeof(*l));
    l->options = o;
    mutex_init(&l->mu, LIMITER_LEVEL, "limiter.mu");
    list_init(&l->resources);
    list_init(&l->limits);
    list_init(&l->waiting);
    return l;
}

void limiter_free(struct limiter *l)
{
    if (!l)
        return;
    BUG_ON(!list_empty(&l->limits));
    mutex_done(&l->mu);
    mem_free(l);
}

/* ---- The book -------------------------------------------------------------------------------- */

/* Returns the amount by the options, of those for the device and those for each device the largest.
 * What they do not name is not there. A global resource has no device, whatever they say. */
static uint64_t amount_in_options(const struct limiter *l, const struct resource *r)
{
    uint64_t amount = 0;
    for (size_t i = 0; i < l->options->n_rate_resources; i++) {
        const struct rate_resource *o = &l->options->rate_resources[i];
        if (strcmp(o->name, r->name) == 0 &&
            (o->device == r->device || o->device == ALL_DEVICES || r->device == GLOBAL))
            amount = MAX(amount, o->count);
    }
    return amount;
}

static uint64_t largest_need_locked(const struct limiter *l, const struct resource *r)
{
    uint64_t largest = 0;
    LIST_FOR_EACH (link, &l->limits) {
        const struct limit *one = LIST_ENTRY(link, struct limit, everyone);
        for (size_t i = 0; i < one->n_needs; i++) {
            if (one->needs[i].resource == r)
                largest = MAX(largest, one->needs[i].count);
        }
    }
    return largest;
}

static struct resource *find_resource_locked(const struct limiter *l, const char *name, int device)
{
    LIST_FOR_EACH (link, &l->resources) {
        struct resource *r = LIST_ENTRY(link, struct resource, link);
        if (r->device == device && strcmp(r->name, name) == 0)
            return r;
    }
    return NULL;
}

/* Is the resource there both for a device and for all? Then it is unclear what the options mean. */
static bool is_ambiguous_locked(const struct limiter *l, const struct resource *new)
{
    LIST_FOR_EACH (link, &l->resources) {
        const struct resource *r = LIST_ENTRY(link, struct resource, link);
        if ((r->device == GLOBAL) != (new->device == GLOBAL) && strcmp(r->name, new->name) == 0)
            return true;
    }
    return false;
}

static struct resource *use_resource_locked(struct limiter *l, const char *name, int device)
{
    struct resource *r = find_resource_locked(l, name, device);
    if (!r) {
        MEM_CHARGE(NULL, 0); /* other models may use it for longer */
        r = mem_zalloc(sizeof(*r));
        r->name = mem_strdup(name);
        r->device = device;
        list_push(&l->resources, &r->link);
    }
    r->n_users++;
    return r;
}

static void unuse_resource_locked(struct resource *r)
{
    if (--r->n_users > 0)
        return;
    list_remove(&r->link);
    mem_free(r->name);
    mem_free(r);
}

/* Sets the amount anew, after a limit has come or gone. */
NODISCARD static struct status *set_amount_locked(struct limiter *l, struct resource *r)
{
    uint64_t needed = largest_need_locked(l, r);
    r->amount = l->options->n_rate_resources ? amount_in_options(l, r) : needed;
    if (is_ambiguous_locked(l, r))
        return status_new(STATUS_INVALID_ARG,
                          "Resource \"%s\" is present as both global and device-specific resource "
                          "in the model configuration.",
                          r->name);
    if (r->amount < needed)
        return status_new(STATUS_INVALID_ARG,
                          "Resource count for \"%s\" is limited to %" PRIu64
                          " which will prevent scheduling of one or more model instances, the "
                          "minimum required count is %" PRIu64,
                          r->name, r->amount, needed);
    log_verbose(1, "Resource: %s\t Count: %" PRIu64, r->name, r->amount);
    return NULL;
}

/* ---- Limits come and go ---------------------------------------------------------------------- */

/* Of a resource that the group names several times the last counts, as in the reference. */
static void add_need_locked(struct limit *one, const char *name, int device, uint64_t count)
{
    size_t i = 0;
    const struct resource *r = find_resource_locked(one->limiter, name, device);
    while (i < one->n_needs && one->needs[i].resource != r)
        i++;
    if (i == one->n_needs) {
        one->needs[i].resource = use_resource_locked(one->limiter, name, device);
        one->n_needs++;
    }
    one->needs[i].count = count;
}

static struct limit *add_limit_locked(struct limiter *l, struct instance *in)
{
    const Inference__ModelRateLimiter *wants = in->group->rate_limiter;
    struct limit *one = mem_zalloc(sizeof(*one));
    one->limiter = l;
    one->instance = in;
    one->points_per_turn = wants && wants->priority ? wants->priority : 1;
    one->points = l->points_of_latest;
    one->needs = mem_zalloc((wants ? wants->n_resources : 0) * sizeof(*one->needs) + 1);
    for (size_t i = 0; wants && i < wants->n_resources; i++) {
        const Inference__ModelRateLimiter__Resource *r = wants->resources[i];
        add_need_locked(one, r->name, r->global ? GLOBAL : in->device_id, r->count);
    }
    list_push(&l->limits, &one->everyone);
    return one;
}

NODISCARD static struct status *add_instance_locked(struct limiter *l, struct instance *in)
{
    struct status *st = NULL;
    in->limit = add_limit_locked(l, in);
    for (size_t i = 0; i < in->limit->n_needs && !st; i++)
        st = set_amount_locked(l, in->limit->needs[i].resource);
    return st;
}

struct status *limiter_add_instances(struct limiter *l, struct instance **instances, uint32_t n)
{
    struct status *st = NULL;
    if (!l)
        return NULL;
    mutex_lock(&l->mu);
    for (uint32_t i = 0; i < n && !st; i++) {
        if (!instances[i]->group->passive)
            st = add_instance_locked(l, instances[i]);
    }
    mutex_unlock(&l->mu);
    return st;
}

static void remove_limit_locked(struct limiter *l, struct limit *one)
{
    BUG_ON(one->state != LIMIT_FREE);
    list_remove(&one->everyone);
    for (size_t i = 0; i < one->n_needs; i++) {
        struct resource *r = one->needs[i].resource;
        if (!l->options->n_rate_resources)
            r->amount = largest_need_locked(l, r);
        unuse_resource_locked(r);
    }
    mem_free(one->needs);
    mem_free(one);
}

void limiter_remove_instances(struct limiter *l, struct instance **instances, uint32_t n)
{
    if (!l)
        return;
    mutex_lock(&l->mu);
    for (uint32_t i = 0; i < n; i++) {
        struct limit *one = TAKE(instances[i]->limit);
        if (one)
            remove_limit_locked(l, one);
    }
    mutex_unlock(&l->mu);
}

/* ---- Turns ----------------------------------------------------------------------------------- */

static bool fits_locked(const struct limit *l)
{
    for (size_t i = 0; i < l->n_needs; i++) {
        const struct resource *r = l->needs[i].resource;
        if (r->is_reserved || r->taken > r->amount || l->needs[i].count > r->amount - r->taken)
            return false;
    }
    return true;
}

static void begin_turn_locked(struct limit *l)
{
    for (size_t i = 0; i < l->n_needs; i++)
        l->needs[i].resource->taken += l->needs[i].count;
    l->limiter->points_of_latest = MAX(l->limiter->points_of_latest, l->points);
    l->points += l->points_per_turn;
    l->state = LIMIT_HELD;
    l->was_used = false;
}

static void end_turn_locked(struct limit *l)
{
    for (size_t i = 0; i < l->n_needs; i++)
        l->needs[i].resource->taken -= l->needs[i].count;
    l->state = LIMIT_FREE;
}

/* The points of one that has waited for nothing lately are those of the others. */
static void begin_to_wait_locked(struct limit *l)
{
    struct list *after = l->limiter->waiting.prev;
    BUG_ON(l->state != LIMIT_FREE);
    l->state = LIMIT_WAITING;
    l->n_passed = 0;
    l->points = MAX(l->points, l->limiter->points_of_latest);
    while (after != &l->limiter->waiting &&
           LIST_ENTRY(after, struct limit, link)->points > l->points)
        after = after->prev;
    list_push_front(after, &l->link);
}

static void reserve_locked(const struct limit *l, bool is_reserved)
{
    for (size_t i = 0; i < l->n_needs; i++)
        l->needs[i].resource->is_reserved = is_reserved;
}

static void stop_waiting_locked(struct limit *l)
{
    list_remove(&l->link);
    l->state = LIMIT_FREE;
}

static bool share_resource(const struct limit *a, const struct limit *b)
{
    for (size_t i = 0; i < a->n_needs; i++) {
        for (size_t k = 0; k < b->n_needs; k++) {
            if (a->needs[i].resource == b->needs[k].resource)
                return true;
        }
    }
    return false;
}

/* Those in front of it that need what it takes are passed once more. */
static void count_as_passed_locked(struct limiter *l, const struct limit *by)
{
    LIST_FOR_EACH (link, &l->waiting) {
        struct limit *one = LIST_ENTRY(link, struct limit, link);
        if (one == by)
            return;
        one->n_passed += share_resource(one, by);
    }
}

/* Grants a turn to each that waits and fits, in their order. @only  NULL: any of them */
static void grant_locked(struct limiter *l, const struct limit *only, struct list *granted)
{
    LIST_FOR_EACH_SAFE (link, &l->waiting) {
        struct limit *one = LIST_ENTRY(link, struct limit, link);
        if (!fits_locked(one)) {
            if (one->n_passed >= LIMITER_MAX_PASSED)
                reserve_locked(one, true);
        } else if (!only || one == only) {
            count_as_passed_locked(l, one);
            list_remove(link);
            begin_turn_locked(one);
            list_push(granted, link);
        }
    }
    LIST_FOR_EACH (link, &l->waiting)
        reserve_locked(LIST_ENTRY(link, struct limit, link), false);
}

/* Keeps the models of granted instances, which may stop meanwhile, until their turns have begun. */
static void hold_models(const struct list *granted)
{
    LIST_FOR_EACH (link, granted) {
        struct model *m = LIST_ENTRY(link, struct limit, link)->instance->model;
        model_ref(m);
        model_request_begun(m);
    }
}

enum turn limit_begin_turn(struct limit *l)
{
    struct list granted = LIST_INIT(granted);
    mutex_lock(&l->limiter->mu);
    begin_to_wait_locked(l);
    grant_locked(l->limiter, l, &granted);
    bool has_begun = l->state == LIMIT_HELD;
    mutex_unlock(&l->limiter->mu);
    return has_begun ? TURN_BEGUN : TURN_WAITS;
}

enum turn limit_next_turn(struct limit *l, bool wants, bool may_wait, struct list *granted)
{
    struct list turns = LIST_INIT(turns);
    enum turn turn = TURN_NONE;
    mutex_lock(&l->limiter->mu);
    if (l->state == LIMIT_HELD)
        end_turn_locked(l);
    if (wants)
        begin_to_wait_locked(l);
    grant_locked(l->limiter, NULL, &turns);
    if (l->state == LIMIT_HELD) {
        list_remove(&l->link);
        turn = TURN_BEGUN;
    } else if (wants && may_wait && list_empty(&turns)) {
        turn = TURN_WAITS;
    } else if (wants) {
        stop_waiting_locked(l);
    }
    hold_models(&turns);
    list_move_all(granted, &turns);
    mutex_unlock(&l->limiter->mu);
    return turn;
}

bool limit_withdraw(struct limit *l)
{
    mutex_lock(&l->limiter->mu);
    bool waits = l->state == LIMIT_WAITING;
    if (waits)
        stop_waiting_locked(l);
    mutex_unlock(&l->limiter->mu);
    return waits;
}
