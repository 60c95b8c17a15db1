/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In the order of the file: ids, the timer, a sequence's begin and end, slots; what strategies
 * call; a request comes, requests are due, time passes; the scheduler itself.
 *
 * Everything is under scheduler.mu but `lane.released`, a stack to which the thread that executes
 * adds without the lock. A sequence without a slot waits in the backlog, or has ended. One with a
 * slot is ready, silent, in execution, or on that stack. It is freed when it has ended and the
 * backend has let go of its last request.
 */
#include "core/sched/sequence.h"

#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/backend/backend.h"
#include "core/backend/instance.h"
#include "core/model.h"
#include "core/request_priv.h"

enum { TEXT_OF_NUMBER = 24 };

static struct sequence_scheduler *to_sequences(struct scheduler *s)
{
    return CONTAINER_OF(s, struct sequence_scheduler, scheduler);
}

/* ---- Ids ------------------------------------------------------------------------------------- */

/* Numbers and strings are different keys (reference/behaviours §11.14). */
static struct sequence *find_sequence_locked(const struct sequence_scheduler *ss,
                                             const struct correlation_id *id)
{
    return id->string ? map_gets(&ss->texts, id->string)
                      : map_get(&ss->numbers, (const char *)&id->number, sizeof(id->number));
}

static void register_id_locked(struct sequence *q)
{
    struct sequence_scheduler *ss = q->scheduler;
    if (q->is_text)
        map_puts(&ss->texts, q->text, q);
    else
        map_put(&ss->numbers, (const char *)&q->number, sizeof(q->number), q);
    q->known = true;
}

/* From now on the id is free for another sequence. */
static void release_id_locked(struct sequence *q)
{
    struct sequence_scheduler *ss = q->scheduler;
    if (!q->known)
        return;
    if (q->is_text)
        map_remove(&ss->texts, q->text, strlen(q->text));
    else
        map_remove(&ss->numbers, (const char *)&q->number, sizeof(q->number));
    q->known = false;
}

/* ---- The one timer of a sequence ------------------------------------------------------------- */

static bool is_timer_before(const struct heap_node *a, const struct heap_node *b)
{
    return CONTAINER_OF((uintptr_t)a, struct sequence, timer)->ring_ns <
           CONTAINER_OF((uintptr_t)b, struct sequence, timer)->ring_ns;
}

static void clear_timer_locked(struct sequence *q)
{
    if (q->ring_ns != UINT64_MAX)
        heap_remove(&q->scheduler->timers, &q->timer);
    q->ring_ns = UINT64_MAX;
}

static void set_timer_locked(struct sequence *q, uint64_t at_ns)
{
    clear_timer_locked(q);
    if (at_ns == UINT64_MAX)
        return;
    q->ring_ns = at_ns;
    heap_push(&q->scheduler->timers, &q->timer);
    alarm_ring_by(&q->scheduler->scheduler.alarm, at_ns);
}

static uint64_t add_wait_ns(uint64_t from_ns, uint64_t wait_ns)
{
    return from_ns < UINT64_MAX - wait_ns ? from_ns + wait_ns : UINT64_MAX;
}

/* ---- Beginning and end ----------------------------------------------------------------------- */

static struct sequence *begin_sequence_locked(struct sequence_scheduler *ss,
                                              const struct request *r)
{
    const char *text = r->correlation_id.string;
    size_t length = text ? strlen(text) : 0;
    MEM_CHARGE(ss->scheduler.model->owner, MEM_INSTANCES);
    struct sequence *q = mem_zalloc(sizeof(*q) + length + 1);
    q->scheduler = ss;
    q->is_own = !request_names_sequence(r);
    q->is_text = text != NULL;
    q->number = r->correlation_id.number;
    if (text)
        memcpy(q->text, text, length);
    list_init(&q->link);
    list_init(&q->waiting);
    q->ring_ns = UINT64_MAX;
    extras_init(&q->extras, &ss->extras);
    if (!q->is_own)
        register_id_locked(q);
    return q;
}

static void free_sequence_locked(struct sequence *q)
{
    release_id_locked(q);
    clear_timer_locked(q);
    extras_done(&q->extras);
    mem_free(q);
}

struct request *sequence_front(const struct sequence *q)
{
    return LIST_ENTRY(q->waiting.next, struct request, link);
}

static void become_ready_locked(struct sequence *q, uint64_t now_ns)
{
    struct lane *l = q->slot->lane;
    list_remove(&q->link); /* it may have been silent */
    q->ready = true;
    q->ready_ns = now_ns;
    l->n_ready++;
    list_push(&l->ready, &q->link);
}

static void unready_locked(struct sequence *q)
{
    struct lane *l = q->slot->lane;
    if (!q->ready)
        return;
    if (q->scheduler->strategy->unready)
        q->scheduler->strategy->unready(l, q);
    q->ready = false;
    l->n_ready--;
    list_remove(&q->link);
}

static struct request *pop_request_locked(struct sequence *q)
{
    struct sequence_scheduler *ss = q->scheduler;
    struct list *link = list_pop(&q->waiting);
    if (!link)
        return NULL;
    struct request *r = LIST_ENTRY(link, struct request, link);
    r->waits_in = NULL;
    q->n_waiting--;
    --*(q->slot ? &ss->n_in_slots : &ss->n_in_backlog);
    return r;
}

/* A maker that sends the same request again finds it as it was. */
static void change_flags_locked(struct sequence *q, struct request *r, uint32_t flags)
{
    if (q->changed != r)
        q->maker_flags = r->flags;
    q->changed = r;
    r->flags = flags;
}

static void restore_request_locked(struct sequence *q, struct request *r)
{
    if (q->is_own)
        r->correlation_id.number = 0;
    if (q->changed != r)
        return;
    r->flags = q->maker_flags;
    q->changed = NULL;
}

static bool any_is_cancelled(const struct sequence *q)
{
    LIST_FOR_EACH (link, &q->waiting) {
        if (request_is_cancelled(LIST_ENTRY(link, struct request, link)))
            return true;
    }
    return false;
}

/* ---- Slots ----------------------------------------------------------------------------------- */

static bool is_slot_before(const struct heap_node *a, const struct heap_node *b)
{
    const struct slot *x = CONTAINER_OF((uintptr_t)a, struct slot, free_node);
    const struct slot *y = CONTAINER_OF((uintptr_t)b, struct slot, free_node);
    return x->number != y->number ? x->number < y->number : x->lane < y->lane;
}

/* One more slot, where there are the fewest; NULL: there are as many as there may be. */
static struct slot *make_slot_locked(struct sequence_scheduler *ss)
{
    struct lane *l = NULL;
    for (uint32_t i = 0; i < ss->n_lanes; i++) {
        if (ss->lanes[i].scheduler && (!l || ss->lanes[i].n_made < l->n_made))
            l = &ss->lanes[i];
    }
    if (!l || l->n_made == ss->n_slots)
        return NULL;
    MEM_CHARGE(ss->scheduler.model->owner, MEM_INSTANCES);
    if (l->n_made == l->capacity) {
        l->capacity = MIN(MAX(2 * l->capacity, 4u), ss->n_slots);
        l->slots = mem_realloc(l->slots, l->capacity * sizeof(struct slot *));
    }
    struct slot *slot = mem_zalloc(sizeof(*slot));
    slot->lane = l;
    slot->number = l->n_made;
    l->slots[l->n_made++] = slot;
    return slot;
}

static struct slot *find_free_slot_locked(struct sequence_scheduler *ss)
{
    struct heap_node *node = heap_pop(&ss->free_slots);
    return node ? CONTAINER_OF(node, struct slot, free_node) : make_slot_locked(ss);
}

/* From here on only silence ends it, not its requests' time limits. */
static void enter_slot_locked(struct sequence *q, struct slot *slot, uint64_t now_ns)
{
    q->slot = slot;
    slot->sequence = q;
    q->active_ns = now_ns;
    set_timer_locked(q, add_wait_ns(now_ns, q->scheduler->idle_ns));
}

static void refuse_all_locked(struct sequence *q, enum failure_reason reason, struct status *error)
{
    struct request *r;
    while ((r = pop_request_locked(q))) {
        restore_request_locked(q, r);
        scheduler_refuse_locked(&q->scheduler->scheduler, r, reason, status_ref(error));
    }
    status_free(error);
}

/* The slot is free: for the oldest sequence of the backlog, if it is still wanted. */
static void refill_slot_locked(struct slot *slot)
{
    struct sequence_scheduler *ss = slot->lane->scheduler;
    struct list *link;
    while ((link = list_pop(&ss->backlog))) {
        struct sequence *q = LIST_ENTRY(link, struct sequence, link);
        if (any_is_cancelled(q)) {
            refuse_all_locked(q, FAILURE_CANCELED, request_cancelled());
            free_sequence_locked(q);
            continue;
        }
        uint64_t now_ns = monotonic_ns();
        ss->n_in_backlog -= q->n_waiting;
        ss->n_in_slots += q->n_waiting;
        enter_slot_locked(q, slot, now_ns);
        become_ready_locked(q, now_ns);
        return;
    }
    heap_push(&ss->free_slots, &slot->free_node);
}

static void release_slot_locked(struct sequence *q)
{
    struct slot *slot = q->slot;
    release_id_locked(q);
    clear_timer_locked(q);
    list_remove(&q->link);
    q->slot = NULL;
    slot->sequence = NULL;
    refill_slot_locked(slot);
}

/* ---- For the strategies ---------------------------------------------------------------------- */

struct request *sequence_take(struct sequence *q)
{
    struct request *r = sequence_front(q);
    struct status *st = extras_show(&q->extras, r);
    if (st) {
        sequence_drop(q, FAILURE_OTHER, st);
        return NULL;
    }
    unready_locked(q);
    pop_request_locked(q);
    q->running = r;
    r->sequence = q;
    /* An iterative sequence ends when its backend does not give the request back. */
    if ((r->flags & REQUEST_SEQUENCE_END) && !q->scheduler->iterative)
        release_slot_locked(q);
    return r;
}

void sequence_drop(struct sequence *q, enum failure_reason reason, struct status *error)
{
    unready_locked(q);
    refuse_all_locked(q, reason, error);
    release_slot_locked(q);
    free_sequence_locked(q);
}

void sequence_drop_cancelled(struct sequence *q)
{
    sequence_drop(q, FAILURE_CANCELED, request_cancelled());
}

/* The request is not the backend's any more, and does not lead here. */
static struct sequence *detach_sequence(struct request *r)
{
    struct sequence *q = r->sequence;
    r->sequence = NULL;
    r->added = NULL;
    r->n_added = 0;
    r->states = NULL;
    return q;
}

/* Nothing more is to be expected of it, or of too little use: others wait for its slot. */
static bool is_sequence_over(const struct sequence *q)
{
    const struct sequence_scheduler *ss = q->scheduler;
    bool in_the_way = ss->scheduler.hurrying && !list_empty(&ss->backlog);
    return (ss->iterative || in_the_way) && !q->running && list_empty(&q->waiting);
}

/* Its request has gone, for good. Returns whether there may be another one to be executed. */
static bool finish_request_locked(struct sequence *q, uint64_t now_ns)
{
    q->running = NULL;
    bool makes_room = q->slot && is_sequence_over(q);
    if (q->scheduler->iterative)
        release_id_locked(q);
    if (makes_room)
        release_slot_locked(q);
    if (!q->slot) {
        free_sequence_locked(q);
        return makes_room;
    }
    q->active_ns = now_ns;
    if (list_empty(&q->waiting)) {
        list_push(&q->slot->lane->silent, &q->link);
        return false;
    }
    become_ready_locked(q, q->active_ns);
    return true;
}

void sequence_give_up(struct request *r, struct status *error)
{
    struct sequence *q = detach_sequence(r);
    scheduler_refuse_locked(&q->scheduler->scheduler, r, FAILURE_OTHER, error);
    restore_request_locked(q, r);
    finish_request_locked(q, monotonic_ns());
}

static void note_released(struct lane *l, struct sequence *q)
{
    q->next_released = atomic_load_explicit(&l->released, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&l->released, &q->next_released, q,
                                                  memory_order_release, memory_order_relaxed)) {
    }
}

/* In the order in which they were released. Whoever executes looks for work afterwards. */
static void finish_released_locked(struct lane *l)
{
    if (!atomic_load_explicit(&l->released, memory_order_relaxed))
        return;
    struct sequence *q = atomic_exchange_explicit(&l->released, NULL, memory_order_acquire);
    struct sequence *first = NULL, *next;
    for (; q; q = next) {
        next = q->next_released;
        q->next_released = first;
        first = q;
    }
    uint64_t now_ns = monotonic_ns();
    for (q = first; q; q = next) {
        next = q->next_released;
        finish_request_locked(q, now_ns);
    }
}

void sequence_released(struct request *r)
{
    if (r->padding) {
        padding_released(r);
        return;
    }
    struct sequence_scheduler *ss = r->sequence->scheduler;
    struct scheduler *s = &ss->scheduler;
    const struct instance *in = atomic_load_explicit(&r->taken_by, memory_order_relaxed);
    bool goes_on = !ss->iterative && !(r->flags & REQUEST_SEQUENCE_END);
    if (goes_on && LIKELY(instance_executes_here(in))) {
        note_released(in->lane, detach_sequence(r)); /* its flags and its id are the maker's */
        return;
    }
    mutex_lock(&s->mu);
    struct sequence *q = detach_sequence(r);
    restore_request_locked(q, r);
    if (finish_request_locked(q, monotonic_ns()))
        scheduler_dispatch_and_unlock(s);
    else
        scheduler_unlock(s);
}

void sequence_rescheduled(struct request *r)
{
    struct scheduler *s = &r->sequence->scheduler->scheduler;
    mutex_lock(&s->mu);
    struct sequence *q = detach_sequence(r);
    q->running = NULL;
    change_flags_locked(q, r, 0);
    q->active_ns = r->queue_ns;
    list_push_front(&q->waiting, &r->link);
    r->waits_in = q;
    q->n_waiting++;
    scheduler_waits_locked(s, r);
    to_sequences(s)->n_in_slots++;
    become_ready_locked(q, r->queue_ns);
    scheduler_dispatch_and_unlock(s);
}

/* ---- A request comes ------------------------------------------------------------------------- */

static const char *id_text(const struct correlation_id *id, char number[TEXT_OF_NUMBER])
{
    if (id->string)
        return id->string;
    snprintf(number, TEXT_OF_NUMBER, "%" PRIu64, id->number);
    return number;
}

/* Clients can do that as often as they like; the log is told once per second. */
static void log_conflict_locked(struct sequence_scheduler *ss, const struct request *r)
{
    char number[TEXT_OF_NUMBER];
    ss->n_conflicts++;
    if (ss->conflict_told_ns && r->queue_ns - ss->conflict_told_ns < NS_PER_S)
        return;
    ss->conflict_told_ns = r->queue_ns;
    log_warn("sequence %s for model '%s' has a conflict. The sequence before did not end, and this "
             "one goes on in its place. (%" PRIu64 " so far)",
             id_text(&r->correlation_id, number), r->model->name, ss->n_conflicts);
}

/* The texts are those that clients know. */
NODISCARD static struct status *check_sequence_locked(const struct sequence_scheduler *ss,
                                                      const struct request *r,
                                                      const struct sequence *q)
{
    const struct correlation_id *id = &r->correlation_id;
    const char *model = r->model->name;
    bool start = r->flags & REQUEST_SEQUENCE_START;
    char number[TEXT_OF_NUMBER];
    if (r->batch_size > 1)
        return status_new(STATUS_INVALID_ARG,
                          "inference request to model '%s' must specify batch-size 1 due to "
                          "requirements of sequence batcher",
                          model);
    if (!request_names_sequence(r)) {
        if (ss->iterative)
            return NULL;
        return status_new(STATUS_INVALID_ARG,
                          "inference request to model '%s' must specify a non-zero or non-empty "
                          "correlation ID",
                          model);
    }
    if (!q && !start)
        return status_new(STATUS_INVALID_ARG,
                          "inference request for sequence %s to model '%s' must specify the START "
                          "flag on the first request of the sequence",
                          id_text(id, number), model);
    return NULL;
}

/* In the backlog the earliest limit of its requests is the sequence's. */
static void limit_backlog_wait_locked(struct sequence *q, const struct request *r)
{
    uint64_t ns;
    if (r->timeout_us == 0 || __builtin_mul_overflow(r->timeout_us, NS_PER_US, &ns))
        return;
    uint64_t at_ns = add_wait_ns(r->queue_ns, ns);
    if (at_ns < q->ring_ns)
        set_timer_locked(q, at_ns);
}

/* The request is a sequence of its own. */
static void assign_own_id_locked(struct sequence *q, struct request *r)
{
    r->correlation_id = (struct correlation_id){.number = ++q->scheduler->n_own};
    change_flags_locked(q, r, REQUEST_SEQUENCE_START);
}

static size_t count_open_sequences(const struct scheduler *s)
{
    const struct sequence_scheduler *ss =
        CONTAINER_OF((uintptr_t)s, struct sequence_scheduler, scheduler);
    return ss->numbers.count + ss->texts.count;
}

static struct status *push_to_sequence(struct scheduler *s, struct request *r)
{
    struct sequence_scheduler *ss = to_sequences(s);
    struct sequence *q =
        request_names_sequence(r) ? find_sequence_locked(ss, &r->correlation_id) : NULL;
    struct status *st = check_sequence_locked(ss, r, q);
    if (st)
        return st;
    if (UNLIKELY(s->closing) && (!q || (r->flags & REQUEST_SEQUENCE_START)))
        return request_too_late(NULL); /* what has begun goes on, and nothing begins */
    if (q && (r->flags & REQUEST_SEQUENCE_START))
        log_conflict_locked(ss, r);
    if (!q) {
        q = begin_sequence_locked(ss, r);
        if (q->is_own)
            assign_own_id_locked(q, r);
        struct slot *slot = find_free_slot_locked(ss);
        if (slot)
            enter_slot_locked(q, slot, r->queue_ns);
        else
            list_push(&ss->backlog, &q->link);
    }
    list_push(&q->waiting, &r->link);
    r->waits_in = q;
    q->n_waiting++;
    if (r->flags & REQUEST_SEQUENCE_END)
        release_id_locked(q);
    if (!q->slot) {
        ss->n_in_backlog++;
        limit_backlog_wait_locked(q, r);
        return NULL;
    }
    ss->n_in_slots++;
    q->active_ns = r->queue_ns;
    if (!q->ready && !q->running)
        become_ready_locked(q, r->queue_ns);
    return NULL;
}

/*
 * A sequence whose turn it is, or that waits for a slot, ends with the first of its requests that
 * is cancelled. One that is in execution goes on until that request's turn has come.
 */
static bool remove_cancelled(struct scheduler *s, struct request *r)
{
    struct sequence *q = r->waits_in;
    (void)s;
    if (q->slot)
        finish_released_locked(q->slot->lane);
    if (q->slot && (q->running || sequence_front(q) != r))
        return false;
    /* First in its line, so that it is popped and counted like any other; the caller answers it. */
    list_remove(&r->link);
    list_push_front(&q->waiting, &r->link);
    restore_request_locked(q, pop_request_locked(q));
    if (q->slot) {
        sequence_drop_cancelled(q);
    } else {
        list_remove(&q->link);
        refuse_all_locked(q, FAILURE_CANCELED, request_cancelled());
        free_sequence_locked(q);
    }
    return true;
}

/* ---- What is due ----------------------------------------------------------------------------- */

/*
 * Until enough requests have come, nothing is executed: hooks of the reference, on which its tests
 * rely (reference/behaviours §10.14). The lanes that were held as well are looked at by the alarm.
 */
static bool are_slots_held_locked(struct lane *l)
{
    struct sequence_scheduler *ss = l->scheduler;
    if (LIKELY(!ss->hold_below && !l->hold_below))
        return false;
    bool enough = l->hold_below ? l->n_ready >= l->hold_below
                                : ss->n_in_slots >= ss->hold_below &&
                                      ss->n_in_backlog >= ss->hold_backlog_below;
    if (!enough && !ss->scheduler.hurrying)
        return true;
    ss->hold_below = l->hold_below = 0;
    alarm_ring_by(&ss->scheduler.alarm, monotonic_ns());
    return false;
}

/* Each of them leaves: so a look costs no more than those that it ends. */
static void end_silent_sequences_locked(struct lane *l)
{
    while (!list_empty(&l->silent)) {
        struct sequence *q = LIST_ENTRY(l->silent.next, struct sequence, link);
        l->n_looks++;
        if (!is_sequence_over(q))
            break; /* nobody waits for a slot: none of the others is over then */
        release_slot_locked(q);
        free_sequence_locked(q);
    }
}

static bool is_batch_due_locked(struct lane *l)
{
    struct sequence_scheduler *ss = l->scheduler;
    uint64_t until_ns = UINT64_MAX;
    finish_released_locked(l);
    if (UNLIKELY(ss->scheduler.hurrying))
        end_silent_sequences_locked(l);
    if (l->n_ready == 0 || are_slots_held_locked(l))
        return false;
    uint64_t now_ns = ss->delay_ns || l->rule.delay_ns ? monotonic_ns() : 0;
    bool due = ss->strategy->due(l, now_ns, &until_ns);
    if (until_ns != UINT64_MAX)
        alarm_ring_by(&ss->scheduler.alarm, until_ns);
    return due;
}

static bool has_ready_batch(struct scheduler *s, const struct instance *in)
{
    (void)s;
    return is_batch_due_locked(in->lane);
}

static uint32_t take_ready_batch(struct scheduler *s, struct instance *in, struct request **batch,
                                 uint32_t max)
{
    uint32_t n = 0;
    while (n == 0 && is_batch_due_locked(in->lane)) {
        n = to_sequences(s)->strategy->take(in->lane, batch, max);
        if (UNLIKELY(n == 0 && !list_empty(&s->refused))) {
            /* They are answered first; then somebody has to look again. */
            alarm_ring_by(&s->alarm, monotonic_ns());
            break;
        }
    }
    return n;
}

/* ---- Time passes ----------------------------------------------------------------------------- */

/* In a slot: nothing has come for too long, unless it is the backend that takes its time. */
static void check_silence_locked(struct sequence *q, uint64_t now_ns)
{
    bool busy = q->running || q->n_waiting;
    uint64_t until_ns = add_wait_ns(busy ? now_ns : q->active_ns, q->scheduler->idle_ns);
    if (until_ns > now_ns) {
        set_timer_locked(q, until_ns);
        return;
    }
    log_verbose(1, "model '%s': a sequence ends, since no request has come for it within %llu ms",
                q->scheduler->scheduler.model->name,
                (unsigned long long)(q->scheduler->idle_ns / NS_PER_MS));
    release_slot_locked(q);
    free_sequence_locked(q);
}

static void expire_in_backlog_locked(struct sequence *q)
{
    list_remove(&q->link);
    refuse_all_locked(
        q, FAILURE_REJECTED,
        status_new(STATUS_UNAVAILABLE, "timeout of the corresponding sequence has been expired"));
    free_sequence_locked(q);
}

static void run_timers_locked(struct sequence_scheduler *ss, uint64_t now_ns)
{
    struct heap_node *top;
    while ((top = heap_top(&ss->timers))) {
        struct sequence *q = CONTAINER_OF(top, struct sequence, timer);
        if (q->ring_ns > now_ns) {
            alarm_ring_by(&ss->scheduler.alarm, q->ring_ns);
            break;
        }
        if (q->slot)
            check_silence_locked(q, now_ns);
        else
            expire_in_backlog_locked(q);
    }
}

static void on_sequence_timer_locked(struct scheduler *s)
{
    struct sequence_scheduler *ss = to_sequences(s);
    for (uint32_t i = 0; i < ss->n_lanes; i++)
        finish_released_locked(&ss->lanes[i]);
    run_timers_locked(ss, monotonic_ns());
}

/* ---- The scheduler --------------------------------------------------------------------------- */

static void end_lane(struct lane *l)
{
    for (uint32_t i = 0; i < l->n_made; i++) {
        struct sequence *q = l->slots[i]->sequence;
        if (q)
            free_sequence_locked(
                q); /* nothing came for it of late; nobody is left to take the lock */
        mem_free(l->slots[i]);
    }
    mem_free(l->slots);
    order_done(&l->order);
}

static void free_sequence_scheduler(struct scheduler *s)
{
    struct sequence_scheduler *ss = to_sequences(s);
    alarm_done(&s->alarm); /* before what it looks at */
    for (uint32_t i = 0; i < ss->n_lanes; i++)
        end_lane(&ss->lanes[i]);
    mem_free(ss->lanes);
    map_done(&ss->numbers);
    map_done(&ss->texts);
    padding_done(&ss->paddings);
    extras_spec_done(&ss->extras);
    scheduler_done(s);
    mem_free(ss);
}

static const struct scheduler_ops ops = {
    .batches = true,
    .per_instance = true,
    .push_locked = push_to_sequence,
    .take_locked = take_ready_batch,
    .has_work_locked = has_ready_batch,
    .remove_locked = remove_cancelled,
    .rung_locked = on_sequence_timer_locked,
    .n_open_locked = count_open_sequences,
    .free = free_sequence_scheduler,
};

static void init_lanes(struct sequence_scheduler *ss, const struct model *m)
{
    ss->n_lanes = m->n_instances;
    ss->lanes = mem_zalloc(ss->n_lanes * sizeof(*ss->lanes));
    for (uint32_t i = 0; i < ss->n_lanes; i++) {
        struct lane *l = &ss->lanes[i];
        list_init(&l->ready);
        list_init(&l->silent);
        order_init(&l->order);
        m->instances[i]->lane = l;
        if (m->instances[i]->group->passive)
            continue;
        l->scheduler = ss;
        if (ss->strategy->init)
            ss->strategy->init(l);
    }
}

static void set_rules(struct sequence_scheduler *ss, const struct model *m)
{
    const Inference__ModelSequenceBatching *c = model_config_sequences(m->config);
    if (__builtin_mul_overflow(c->max_sequence_idle_microseconds, NS_PER_US, &ss->idle_ns))
        ss->idle_ns = UINT64_MAX;
    ss->iterative = c->iterative_sequence;
    ss->strategy = &sequence_direct;
    if (c->strategy_choice_case == INFERENCE__MODEL_SEQUENCE_BATCHING__STRATEGY_CHOICE_OLDEST) {
        ss->strategy = &sequence_oldest;
    } else {
        ss->hold_below = scheduler_hook("TRITONSERVER_DELAY_SCHEDULER");
        ss->hold_backlog_below = scheduler_hook("TRITONSERVER_BACKLOG_DELAY_SCHEDULER");
    }
    if (c->strategy_choice_case == INFERENCE__MODEL_SEQUENCE_BATCHING__STRATEGY_CHOICE_DIRECT) {
        ss->min_use = c->direct->minimum_slot_utilization;
        if (ss->min_use > 0 && __builtin_mul_overflow(c->direct->max_queue_delay_microseconds,
                                                      NS_PER_US, &ss->delay_ns))
            ss->delay_ns = UINT64_MAX;
    }
    ss->n_slots = ss->strategy->n_slots(m);
    ss->scheduler.pads = ss->strategy == &sequence_direct && ss->n_slots > 1;
}

struct status *sequence_scheduler_new(struct model *m, struct scheduler **ret_scheduler)
{
    MEM_CHARGE(m->owner, MEM_INSTANCES);
    struct sequence_scheduler *ss = mem_zalloc(sizeof(*ss));
    struct status *st = extras_spec_init(&ss->extras, m);
    if (st) {
        mem_free(ss);
        return st;
    }
    st = scheduler_init(&ss->scheduler, &ops, m);
    if (st) {
        extras_spec_done(&ss->extras);
        mem_free(ss);
        return st;
    }
    if (ss->scheduler.exclusive)
        log_warn("model '%s': its backend wants one instance at a time to execute; with sequences "
                 "all of them do",
                 m->name);
    ss->scheduler.exclusive = false;
    map_init(&ss->numbers);
    map_init(&ss->texts);
    list_init(&ss->backlog);
    heap_init(&ss->free_slots, is_slot_before);
    heap_init(&ss->timers, is_timer_before);
    padding_init(&ss->paddings, m, &ss->extras);
    set_rules(ss, m);
    init_lanes(ss, m);
    *ret_scheduler = &ss->scheduler;
    return NULL;
}
