/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In the order of the file: ids, the timer, a sequence's begin and end, slots; functions for the
 * strategies; a request arrives, requests become due, timers fire; the scheduler itself.
 *
 * All state is under scheduler.mu, except `instance_slots.released`, a stack to which the thread
 * that executes adds without the lock. A sequence without a slot waits in the backlog, or has
 * ended. One with a slot is ready, silent, in execution, or on that stack. It is freed when it has
 * ended and the backend has released its last request.
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
#include "core/model/model.h"
#include "core/request/life.h"

enum { TEXT_OF_NUMBER = 24 };

static struct sequence_scheduler *to_sequences(struct pull_scheduler *s)
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

static void register_id_locked(struct sequence *seq)
{
    struct sequence_scheduler *ss = seq->scheduler;
    if (seq->is_text)
        map_puts(&ss->texts, seq->text, seq);
    else
        map_put(&ss->numbers, (const char *)&seq->number, sizeof(seq->number), seq);
    seq->known = true;
}

/* From now on the id is free for another sequence. */
static void release_id_locked(struct sequence *seq)
{
    struct sequence_scheduler *ss = seq->scheduler;
    if (!seq->known)
        return;
    if (seq->is_text)
        map_remove(&ss->texts, seq->text, strlen(seq->text));
    else
        map_remove(&ss->numbers, (const char *)&seq->number, sizeof(seq->number));
    seq->known = false;
}

/* ---- The one timer of a sequence ------------------------------------------------------------- */

static bool is_timer_before(const struct heap_node *a, const struct heap_node *b)
{
    return CONTAINER_OF((uintptr_t)a, struct sequence, timer)->timer_ns <
           CONTAINER_OF((uintptr_t)b, struct sequence, timer)->timer_ns;
}

static void clear_timer_locked(struct sequence *seq)
{
    if (seq->timer_ns != UINT64_MAX)
        heap_remove(&seq->scheduler->timers, &seq->timer);
    seq->timer_ns = UINT64_MAX;
}

static void set_timer_locked(struct sequence *seq, uint64_t at_ns)
{
    clear_timer_locked(seq);
    if (at_ns == UINT64_MAX)
        return;
    seq->timer_ns = at_ns;
    heap_push(&seq->scheduler->timers, &seq->timer);
    deadline_timer_fire_by(&seq->scheduler->scheduler.deadline_timer, at_ns);
}

static uint64_t add_wait_ns(uint64_t from_ns, uint64_t wait_ns)
{
    return from_ns < UINT64_MAX - wait_ns ? from_ns + wait_ns : UINT64_MAX;
}

/* ---- Beginning and end ----------------------------------------------------------------------- */

static struct sequence *begin_sequence_locked(struct sequence_scheduler *ss,
                                              const struct request *r)
{
    const char *text = r->maker.correlation_id.string;
    size_t length = text ? strlen(text) : 0;
    MEM_CHARGE(ss->scheduler.model->owner, MEM_INSTANCES);
    struct sequence *seq = mem_zalloc(sizeof(*seq) + length + 1);
    seq->scheduler = ss;
    seq->is_own = !request_names_sequence(r);
    seq->is_text = text != NULL;
    seq->number = r->maker.correlation_id.number;
    if (text)
        memcpy(seq->text, text, length);
    list_init(&seq->link);
    list_init(&seq->waiting);
    seq->timer_ns = UINT64_MAX;
    injected_inputs_init(&seq->injected, &ss->injected);
    if (!seq->is_own)
        register_id_locked(seq);
    return seq;
}

static void free_sequence_locked(struct sequence *seq)
{
    release_id_locked(seq);
    clear_timer_locked(seq);
    injected_inputs_done(&seq->injected);
    mem_free(seq);
}

struct request *sequence_front(const struct sequence *seq)
{
    return LIST_ENTRY(seq->waiting.next, struct request, queue.link);
}

static void become_ready_locked(struct sequence *seq, uint64_t now_ns)
{
    struct instance_slots *slots = seq->slot->instance_slots;
    list_remove(&seq->link); /* it may have been silent */
    seq->ready = true;
    seq->ready_ns = now_ns;
    slots->n_ready++;
    list_push(&slots->ready, &seq->link);
}

static void unready_locked(struct sequence *seq)
{
    struct instance_slots *slots = seq->slot->instance_slots;
    if (!seq->ready)
        return;
    if (seq->scheduler->strategy->unready)
        seq->scheduler->strategy->unready(slots, seq);
    seq->ready = false;
    slots->n_ready--;
    list_remove(&seq->link);
}

static struct request *pop_request_locked(struct sequence *seq)
{
    struct sequence_scheduler *ss = seq->scheduler;
    struct list *link = list_pop(&seq->waiting);
    if (!link)
        return NULL;
    struct request *r = LIST_ENTRY(link, struct request, queue.link);
    r->seq.waits_in = NULL;
    seq->n_waiting--;
    --*(seq->slot ? &ss->n_in_slots : &ss->n_in_backlog);
    return r;
}

/* A maker that sends the same request again finds it unchanged. */
static void change_flags_locked(struct sequence *seq, struct request *r, uint32_t flags)
{
    if (seq->changed != r)
        seq->maker_flags = r->maker.flags;
    seq->changed = r;
    r->maker.flags = flags;
}

static void restore_request_locked(struct sequence *seq, struct request *r)
{
    if (seq->is_own)
        r->maker.correlation_id.number = 0;
    if (seq->changed != r)
        return;
    r->maker.flags = seq->maker_flags;
    seq->changed = NULL;
}

/* Returns the first request that is cancelled or late, or NULL. */
static const struct request *find_given_up(const struct sequence *seq)
{
    LIST_FOR_EACH (link, &seq->waiting) {
        const struct request *r = LIST_ENTRY(link, struct request, queue.link);
        if (request_is_given_up(r))
            return r;
    }
    return NULL;
}

/* ---- Slots ----------------------------------------------------------------------------------- */

static bool is_slot_before(const struct heap_node *a, const struct heap_node *b)
{
    const struct slot *x = CONTAINER_OF((uintptr_t)a, struct slot, free_node);
    const struct slot *y = CONTAINER_OF((uintptr_t)b, struct slot, free_node);
    return x->number != y->number ? x->number < y->number
                                  : x->instance_slots->place < y->instance_slots->place;
}

/* Makes one more slot, on the instance with the fewest; NULL: there are as many as allowed. */
static struct slot *make_slot_locked(struct sequence_scheduler *ss)
{
    struct instance_slots *slots = NULL;
    for (uint32_t i = 0; i < ss->n_instances; i++) {
        struct instance_slots *these = ss->instance_slots[i];
        if (these->scheduler && !these->is_leaving && (!slots || these->n_made < slots->n_made))
            slots = these;
    }
    if (!slots || slots->n_made == ss->n_slots)
        return NULL;
    MEM_CHARGE(ss->scheduler.model->owner, MEM_INSTANCES);
    if (slots->n_made == slots->capacity) {
        slots->capacity = MIN(MAX(2 * slots->capacity, 4u), ss->n_slots);
        slots->by_number = mem_realloc(slots->by_number, slots->capacity * sizeof(struct slot *));
    }
    struct slot *slot = mem_zalloc(sizeof(*slot));
    slot->instance_slots = slots;
    slot->number = slots->n_made;
    slots->by_number[slots->n_made++] = slot;
    return slot;
}

static struct slot *find_free_slot_locked(struct sequence_scheduler *ss)
{
    struct heap_node *node = heap_pop(&ss->free_slots);
    return node ? CONTAINER_OF(node, struct slot, free_node) : make_slot_locked(ss);
}

/* From here on only silence ends it, not its requests' time limits. */
static void enter_slot_locked(struct sequence *seq, struct slot *slot, uint64_t now_ns)
{
    seq->slot = slot;
    slot->sequence = seq;
    slot->instance_slots->n_used++;
    seq->active_ns = now_ns;
    set_timer_locked(seq, add_wait_ns(now_ns, seq->scheduler->idle_ns));
}

static void refuse_all_locked(struct sequence *seq, enum failure_reason reason,
                              struct status *error)
{
    struct request *r;
    while ((r = pop_request_locked(seq))) {
        restore_request_locked(seq, r);
        pull_refuse_locked(&seq->scheduler->scheduler, r, reason, status_ref(error));
    }
    status_free(error);
}

/* Gives the free slot to the oldest sequence of the backlog that is not given up. */
static void refill_slot_locked(struct slot *slot)
{
    struct sequence_scheduler *ss = slot->instance_slots->scheduler;
    struct list *link;
    while ((link = list_pop(&ss->backlog))) {
        struct sequence *seq = LIST_ENTRY(link, struct sequence, link);
        const struct request *given_up = find_given_up(seq);
        if (given_up) {
            refuse_all_locked(seq, FAILURE_CANCELED, status_given_up(given_up));
            free_sequence_locked(seq);
            continue;
        }
        uint64_t now_ns = clock_now_ns(ss->scheduler.clock);
        ss->n_in_backlog -= seq->n_waiting;
        ss->n_in_slots += seq->n_waiting;
        enter_slot_locked(seq, slot, now_ns);
        become_ready_locked(seq, now_ns);
        return;
    }
    heap_push(&ss->free_slots, &slot->free_node);
}

static void release_slot_locked(struct sequence *seq)
{
    struct slot *slot = seq->slot;
    struct instance_slots *slots = slot->instance_slots;
    release_id_locked(seq);
    clear_timer_locked(seq);
    list_remove(&seq->link);
    seq->slot = NULL;
    slot->sequence = NULL;
    slots->n_used--;
    if (LIKELY(!slots->is_leaving))
        refill_slot_locked(slot);
    else if (slots->n_used == 0)
        pull_drained_locked(&seq->scheduler->scheduler);
}

/* ---- For the strategies ---------------------------------------------------------------------- */

struct request *sequence_take(struct sequence *seq)
{
    struct request *r = sequence_front(seq);
    struct status *st = injected_inputs_attach(&seq->injected, r);
    if (st) {
        sequence_drop(seq, FAILURE_OTHER, st);
        return NULL;
    }
    unready_locked(seq);
    pop_request_locked(seq);
    seq->running = r;
    r->seq.sequence = seq;
    /* An iterative sequence ends when its backend does not reschedule the request. */
    if ((r->maker.flags & REQUEST_SEQUENCE_END) && !seq->scheduler->iterative)
        release_slot_locked(seq);
    return r;
}

void sequence_drop(struct sequence *seq, enum failure_reason reason, struct status *error)
{
    unready_locked(seq);
    refuse_all_locked(seq, reason, error);
    release_slot_locked(seq);
    free_sequence_locked(seq);
}

void sequence_drop_given_up(struct sequence *seq)
{
    sequence_drop(seq, FAILURE_CANCELED, status_given_up(sequence_front(seq)));
}

/* The backend has released the request, which must not lead here any more. */
static struct sequence *detach_sequence(struct request *r)
{
    struct sequence *seq = r->seq.sequence;
    r->seq.sequence = NULL;
    r->seq.injected = NULL;
    r->seq.n_injected = 0;
    r->seq.states = NULL;
    return seq;
}

/* An iterative sequence is over after its request; in a flush any is, if others wait for a slot. */
static bool is_sequence_over(const struct sequence *seq)
{
    const struct sequence_scheduler *ss = seq->scheduler;
    bool in_the_way = ss->scheduler.flushing && !list_empty(&ss->backlog) &&
                      !seq->slot->instance_slots->is_leaving;
    return (ss->iterative || in_the_way) && !seq->running && list_empty(&seq->waiting);
}

/* Its request was released for good. Returns whether there may be another one to execute. */
static bool finish_request_locked(struct sequence *seq, uint64_t now_ns)
{
    seq->running = NULL;
    bool makes_room = seq->slot && is_sequence_over(seq);
    if (seq->scheduler->iterative)
        release_id_locked(seq);
    if (makes_room)
        release_slot_locked(seq);
    if (!seq->slot) {
        free_sequence_locked(seq);
        return makes_room;
    }
    seq->active_ns = now_ns;
    if (list_empty(&seq->waiting)) {
        list_push(&seq->slot->instance_slots->silent, &seq->link);
        return false;
    }
    become_ready_locked(seq, seq->active_ns);
    return true;
}

void sequence_give_up(struct request *r, struct status *error)
{
    struct sequence *seq = detach_sequence(r);
    pull_refuse_locked(&seq->scheduler->scheduler, r, FAILURE_OTHER, error);
    restore_request_locked(seq, r);
    finish_request_locked(seq, clock_now_ns(seq->scheduler->scheduler.clock));
}

static void note_released(struct instance_slots *slots, struct sequence *seq)
{
    seq->next_released = atomic_load_explicit(&slots->released, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&slots->released, &seq->next_released, seq,
                                                  memory_order_release, memory_order_relaxed)) {
    }
}

/* In the order in which they were released. The executing thread looks for work afterwards. */
static void finish_released_locked(struct instance_slots *slots)
{
    if (!atomic_load_explicit(&slots->released, memory_order_relaxed))
        return;
    struct sequence *seq = atomic_exchange_explicit(&slots->released, NULL, memory_order_acquire);
    struct sequence *first = NULL, *next;
    for (; seq; seq = next) {
        next = seq->next_released;
        seq->next_released = first;
        first = seq;
    }
    uint64_t now_ns = clock_now_ns(slots->scheduler->scheduler.clock);
    for (seq = first; seq; seq = next) {
        next = seq->next_released;
        finish_request_locked(seq, now_ns);
    }
}

/* The backend has released a request of a sequence, or a padding. Dispatches, unless the thread
 * is the one that executes the instance. */
static void on_request_released(struct request *r)
{
    if (r->seq.padding) {
        padding_released(r);
        return;
    }
    struct sequence_scheduler *ss = r->seq.sequence->scheduler;
    struct pull_scheduler *s = &ss->scheduler;
    const struct instance *in = atomic_load_explicit(&r->life.taken_by, memory_order_relaxed);
    bool goes_on = !ss->iterative && !(r->maker.flags & REQUEST_SEQUENCE_END);
    if (goes_on && LIKELY(instance_executes_here(in))) {
        note_released(in->instance_slots,
                      detach_sequence(r)); /* its flags and its id belong to the maker */
        return;
    }
    mutex_lock(&s->mu);
    struct sequence *seq = detach_sequence(r);
    restore_request_locked(seq, r);
    if (finish_request_locked(seq, clock_now_ns(s->clock)))
        pull_dispatch_and_unlock(s);
    else
        pull_unlock(s);
}

/* The backend has rescheduled the request: it is the next of its sequence. */
static void on_request_rescheduled(struct request *r)
{
    struct pull_scheduler *s = &r->seq.sequence->scheduler->scheduler;
    mutex_lock(&s->mu);
    struct sequence *seq = detach_sequence(r);
    seq->running = NULL;
    change_flags_locked(seq, r, 0);
    seq->active_ns = r->admitted.queue_ns;
    list_push_front(&seq->waiting, &r->queue.link);
    r->seq.waits_in = seq;
    seq->n_waiting++;
    pull_waits_locked(s, r);
    to_sequences(s)->n_in_slots++;
    become_ready_locked(seq, r->admitted.queue_ns);
    pull_dispatch_and_unlock(s);
}

/* ---- A request arrives ----------------------------------------------------------------------- */

static const char *id_text(const struct correlation_id *id, char number[TEXT_OF_NUMBER])
{
    if (id->string)
        return id->string;
    snprintf(number, TEXT_OF_NUMBER, "%" PRIu64, id->number);
    return number;
}

/* Clients can cause that as often as they like; it is logged once per second. */
static void log_conflict_locked(struct sequence_scheduler *ss, const struct request *r)
{
    char number[TEXT_OF_NUMBER];
    ss->n_conflicts++;
    if (ss->conflict_logged_ns && r->admitted.queue_ns - ss->conflict_logged_ns < NS_PER_S)
        return;
    ss->conflict_logged_ns = r->admitted.queue_ns;
    log_warn("sequence %s for model '%s' has a conflict. The sequence before did not end, and this "
             "one goes on in its place. (%" PRIu64 " so far)",
             id_text(&r->maker.correlation_id, number), r->model->name, ss->n_conflicts);
}

/* Clients know these texts. */
NODISCARD static struct status *check_sequence_locked(const struct sequence_scheduler *ss,
                                                      const struct request *r,
                                                      const struct sequence *seq)
{
    const struct correlation_id *id = &r->maker.correlation_id;
    const char *model = r->model->name;
    bool start = r->maker.flags & REQUEST_SEQUENCE_START;
    char number[TEXT_OF_NUMBER];
    if (r->admitted.batch_size > 1)
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
    if (!seq && !start)
        return status_new(STATUS_INVALID_ARG,
                          "inference request for sequence %s to model '%s' must specify the START "
                          "flag on the first request of the sequence",
                          id_text(id, number), model);
    return NULL;
}

/* In the backlog the earliest limit of its requests is the sequence's. */
static void limit_backlog_wait_locked(struct sequence *seq, const struct request *r)
{
    uint64_t ns;
    if (r->maker.timeout_us == 0 || __builtin_mul_overflow(r->maker.timeout_us, NS_PER_US, &ns))
        return;
    uint64_t at_ns = add_wait_ns(r->admitted.queue_ns, ns);
    if (at_ns < seq->timer_ns)
        set_timer_locked(seq, at_ns);
}

/* Makes the request a sequence of its own. */
static void assign_own_id_locked(struct sequence *seq, struct request *r)
{
    r->maker.correlation_id = (struct correlation_id){.number = ++seq->scheduler->n_own};
    change_flags_locked(seq, r, REQUEST_SEQUENCE_START);
}

static size_t count_open_sequences(const struct pull_scheduler *s)
{
    const struct sequence_scheduler *ss =
        CONTAINER_OF((uintptr_t)s, struct sequence_scheduler, scheduler);
    return ss->numbers.count + ss->texts.count;
}

static struct status *push_to_sequence(struct pull_scheduler *s, struct request *r)
{
    struct sequence_scheduler *ss = to_sequences(s);
    struct sequence *seq =
        request_names_sequence(r) ? find_sequence_locked(ss, &r->maker.correlation_id) : NULL;
    struct status *st = check_sequence_locked(ss, r, seq);
    if (st)
        return st;
    if (UNLIKELY(s->closing) && !r->maker.goes_on &&
        (!seq || (r->maker.flags & REQUEST_SEQUENCE_START)))
        return request_too_late(NULL); /* sequences in progress go on, and none begins */
    if (seq && (r->maker.flags & REQUEST_SEQUENCE_START))
        log_conflict_locked(ss, r);
    if (!seq) {
        seq = begin_sequence_locked(ss, r);
        if (seq->is_own)
            assign_own_id_locked(seq, r);
        struct slot *slot = find_free_slot_locked(ss);
        if (slot)
            enter_slot_locked(seq, slot, r->admitted.queue_ns);
        else
            list_push(&ss->backlog, &seq->link);
    }
    list_push(&seq->waiting, &r->queue.link);
    r->seq.waits_in = seq;
    seq->n_waiting++;
    if (r->maker.flags & REQUEST_SEQUENCE_END)
        release_id_locked(seq);
    if (!seq->slot) {
        ss->n_in_backlog++;
        limit_backlog_wait_locked(seq, r);
        return NULL;
    }
    ss->n_in_slots++;
    seq->active_ns = r->admitted.queue_ns;
    if (!seq->ready && !seq->running)
        become_ready_locked(seq, r->admitted.queue_ns);
    return NULL;
}

/*
 * A sequence in a slot, or that waits for one, ends with the first of its requests that is
 * cancelled. A sequence in execution goes on until that request is its next one.
 */
static bool remove_cancelled(struct pull_scheduler *s, struct request *r)
{
    struct sequence *seq = r->seq.waits_in;
    (void)s;
    if (seq->slot)
        finish_released_locked(seq->slot->instance_slots);
    if (seq->slot && (seq->running || sequence_front(seq) != r))
        return false;
    /* First in its line, so that it is popped and counted like any other; the caller answers it. */
    list_remove(&r->queue.link);
    list_push_front(&seq->waiting, &r->queue.link);
    restore_request_locked(seq, pop_request_locked(seq));
    if (seq->slot) {
        sequence_drop(seq, FAILURE_CANCELED, status_cancelled());
    } else {
        list_remove(&seq->link);
        refuse_all_locked(seq, FAILURE_CANCELED, status_cancelled());
        free_sequence_locked(seq);
    }
    return true;
}

/* ---- Requests become due --------------------------------------------------------------------- */

/*
 * Until enough requests have arrived, none is executed: hooks of the reference, on which its tests
 * rely (reference/behaviours §10.14). The timer examines slots that were held as well.
 */
static bool are_slots_held_locked(struct instance_slots *slots)
{
    struct sequence_scheduler *ss = slots->scheduler;
    if (LIKELY(!ss->hold_below && !slots->hold_below))
        return false;
    bool enough = slots->hold_below ? slots->n_ready >= slots->hold_below
                                    : ss->n_in_slots >= ss->hold_below &&
                                          ss->n_in_backlog >= ss->hold_backlog_below;
    if (!enough && !ss->scheduler.flushing)
        return true;
    ss->hold_below = slots->hold_below = 0;
    deadline_timer_fire_by(&ss->scheduler.deadline_timer, clock_now_ns(ss->scheduler.clock));
    return false;
}

/* Each of them is removed, so a look costs no more than the sequences that it ends. */
static void end_silent_sequences_locked(struct instance_slots *slots)
{
    while (!list_empty(&slots->silent)) {
        struct sequence *seq = LIST_ENTRY(slots->silent.next, struct sequence, link);
        slots->n_looks++;
        if (!is_sequence_over(seq))
            break; /* no sequence waits for a slot, so none of the others is over */
        release_slot_locked(seq);
        free_sequence_locked(seq);
    }
}

static bool is_batch_due_locked(struct instance_slots *slots)
{
    struct sequence_scheduler *ss = slots->scheduler;
    uint64_t until_ns = UINT64_MAX;
    finish_released_locked(slots);
    if (UNLIKELY(ss->scheduler.flushing))
        end_silent_sequences_locked(slots);
    if (slots->n_ready == 0 || are_slots_held_locked(slots))
        return false;
    uint64_t now_ns = ss->delay_ns || slots->rule.delay_ns ? clock_now_ns(ss->scheduler.clock) : 0;
    bool due = ss->strategy->due(slots, now_ns, &until_ns);
    if (until_ns != UINT64_MAX)
        deadline_timer_fire_by(&ss->scheduler.deadline_timer, until_ns);
    return due;
}

static bool has_ready_batch(struct pull_scheduler *s, const struct instance *in)
{
    (void)s;
    return is_batch_due_locked(in->instance_slots);
}

static uint32_t take_ready_batch(struct pull_scheduler *s, struct instance *in,
                                 struct request **batch, uint32_t max)
{
    uint32_t n = 0;
    while (n == 0 && is_batch_due_locked(in->instance_slots)) {
        n = to_sequences(s)->strategy->take(in->instance_slots, batch, max);
        if (UNLIKELY(n == 0 && !list_empty(&s->refused))) {
            /* They are answered first; then a thread must look again. */
            deadline_timer_fire_by(&s->deadline_timer, clock_now_ns(s->clock));
            break;
        }
    }
    return n;
}

/* ---- Timers ---------------------------------------------------------------------------------- */

/* In a slot: ends it after too long a silence, unless its backend is still working. */
static void check_silence_locked(struct sequence *seq, uint64_t now_ns)
{
    bool busy = seq->running || seq->n_waiting;
    uint64_t until_ns = add_wait_ns(busy ? now_ns : seq->active_ns, seq->scheduler->idle_ns);
    if (until_ns > now_ns) {
        set_timer_locked(seq, until_ns);
        return;
    }
    log_verbose(1, "model '%s': a sequence ends, since no request has come for it within %llu ms",
                seq->scheduler->scheduler.model->name,
                (unsigned long long)(seq->scheduler->idle_ns / NS_PER_MS));
    release_slot_locked(seq);
    free_sequence_locked(seq);
}

static void expire_in_backlog_locked(struct sequence *seq)
{
    list_remove(&seq->link);
    refuse_all_locked(
        seq, FAILURE_REJECTED,
        status_new(STATUS_UNAVAILABLE, "timeout of the corresponding sequence has been expired"));
    free_sequence_locked(seq);
}

static void run_timers_locked(struct sequence_scheduler *ss, uint64_t now_ns)
{
    struct heap_node *top;
    while ((top = heap_top(&ss->timers))) {
        struct sequence *seq = CONTAINER_OF(top, struct sequence, timer);
        if (seq->timer_ns > now_ns) {
            deadline_timer_fire_by(&ss->scheduler.deadline_timer, seq->timer_ns);
            break;
        }
        if (seq->slot)
            check_silence_locked(seq, now_ns);
        else
            expire_in_backlog_locked(seq);
    }
}

static void on_sequence_timer_locked(struct pull_scheduler *s)
{
    struct sequence_scheduler *ss = to_sequences(s);
    for (uint32_t i = 0; i < ss->n_instances; i++)
        finish_released_locked(ss->instance_slots[i]);
    run_timers_locked(ss, clock_now_ns(s->clock));
}

/* ---- The scheduler --------------------------------------------------------------------------- */

static void free_slots_locked(struct instance_slots *slots)
{
    for (uint32_t i = 0; i < slots->n_made; i++) {
        struct sequence *seq = slots->by_number[i]->sequence;
        if (seq)
            free_sequence_locked(seq); /* no request was left; no other thread takes the lock now */
        mem_free(slots->by_number[i]);
    }
    mem_free(TAKE(slots->by_number));
    slots->n_made = slots->capacity = 0;
}

static void end_instance_slots(struct instance_slots *slots)
{
    free_slots_locked(slots);
    response_order_done(&slots->order);
    mem_free(slots);
}

static void free_sequence_scheduler(struct pull_scheduler *s)
{
    struct sequence_scheduler *ss = to_sequences(s);
    deadline_timer_done(&s->deadline_timer); /* before the objects that it reads */
    for (uint32_t i = 0; i < ss->n_instances; i++)
        end_instance_slots(ss->instance_slots[i]);
    mem_free(ss->instance_slots);
    struct list *link;
    while ((link = list_pop(&ss->spare)))
        end_instance_slots(LIST_ENTRY(link, struct instance_slots, link));
    map_done(&ss->numbers);
    map_done(&ss->texts);
    padding_done(&ss->paddings);
    injected_inputs_spec_done(&ss->injected);
    pull_done(s);
    mem_free(ss);
}

static void fill_request_states(struct request *r)
{
    states_fill(r->seq.states);
}

static const struct scheduler_request_ops request_ops = {
    .on_cancelled = pull_on_cancelled,
    .respond = response_order_respond,
    .on_late_end = pull_on_late_end,
    .fill_states = fill_request_states,
    .on_released = on_request_released,
    .on_rescheduled = on_request_rescheduled,
};

static uint64_t oldest_of_sequence_ns(const struct sequence *seq)
{
    if (!seq || list_empty(&seq->waiting))
        return UINT64_MAX;
    return LIST_ENTRY((uintptr_t)seq->waiting.next, struct request, queue.link)->admitted.queue_ns;
}

/* The requests wait in the sequences that have slots, and in those of the backlog. */
static uint64_t find_oldest_request(const struct pull_scheduler *s)
{
    const struct sequence_scheduler *ss =
        CONTAINER_OF((uintptr_t)s, struct sequence_scheduler, scheduler);
    uint64_t oldest_ns = UINT64_MAX;
    for (uint32_t i = 0; i < ss->n_instances; i++) {
        const struct instance_slots *slots = ss->instance_slots[i];
        for (uint32_t n = 0; n < slots->n_made; n++)
            oldest_ns = MIN(oldest_ns, oldest_of_sequence_ns(slots->by_number[n]->sequence));
    }
    LIST_FOR_EACH (link, &ss->backlog)
        oldest_ns = MIN(oldest_ns,
                        oldest_of_sequence_ns(LIST_ENTRY((uintptr_t)link, struct sequence, link)));
    return oldest_ns;
}

/* Returns those of an instance that has left and owes no response; NULL: there are none. */
static struct instance_slots *take_spare_slots_locked(struct sequence_scheduler *ss)
{
    LIST_FOR_EACH (link, &ss->spare) {
        struct instance_slots *slots = LIST_ENTRY(link, struct instance_slots, link);
        if (response_order_is_empty(&slots->order)) {
            list_remove(link);
            return slots;
        }
    }
    return NULL;
}

static struct instance_slots *new_instance_slots(struct sequence_scheduler *ss, struct instance *in)
{
    struct instance_slots *slots = take_spare_slots_locked(ss);
    if (!slots) {
        slots = mem_zalloc(sizeof(*slots));
        response_order_init(&slots->order);
    }
    slots->place = ss->n_instances;
    slots->scheduler = NULL;
    slots->is_leaving = false;
    list_init(&slots->ready);
    list_init(&slots->silent);
    in->instance_slots = slots;
    if (in->group->passive)
        return slots;
    slots->scheduler = ss;
    if (ss->strategy->init)
        ss->strategy->init(slots);
    return slots;
}

/* Sequences of the backlog enter the slots that there are now. */
static void add_instances_locked(struct pull_scheduler *s, struct instance *const *instances,
                                 uint32_t n)
{
    struct sequence_scheduler *ss = to_sequences(s);
    struct slot *slot;
    ss->instance_slots =
        mem_realloc(ss->instance_slots, (ss->n_instances + n) * sizeof(struct instance_slots *));
    for (uint32_t i = 0; i < n; i++) {
        ss->instance_slots[ss->n_instances] = new_instance_slots(ss, instances[i]);
        ss->n_instances++;
    }
    while (!list_empty(&ss->backlog) && (slot = make_slot_locked(ss)))
        refill_slot_locked(slot);
}

/* Its free slots are nobody's from now on. */
static bool drain_instance_locked(struct pull_scheduler *s, struct instance *in)
{
    struct sequence_scheduler *ss = to_sequences(s);
    struct instance_slots *slots = in->instance_slots;
    for (uint32_t i = 0; !slots->is_leaving && i < slots->n_made; i++) {
        if (!slots->by_number[i]->sequence)
            heap_remove(&ss->free_slots, &slots->by_number[i]->free_node);
    }
    slots->is_leaving = true;
    return slots->n_used > 0;
}

/* The places of the others keep their order, and so does the heap of free slots. */
static void remove_instance_locked(struct pull_scheduler *s, struct instance *in)
{
    struct sequence_scheduler *ss = to_sequences(s);
    struct instance_slots *slots = in->instance_slots;
    for (uint32_t i = slots->place + 1; i < ss->n_instances; i++) {
        ss->instance_slots[i - 1] = ss->instance_slots[i];
        ss->instance_slots[i - 1]->place = i - 1;
    }
    ss->n_instances--;
    free_slots_locked(slots);
    list_push(&ss->spare, &slots->link);
}

static const struct pull_ops ops = {
    .for_requests = &request_ops,
    .batches = true,
    .per_instance = true,
    .push_locked = push_to_sequence,
    .take_locked = take_ready_batch,
    .has_work_locked = has_ready_batch,
    .remove_locked = remove_cancelled,
    .find_oldest_locked = find_oldest_request,
    .on_timer_locked = on_sequence_timer_locked,
    .n_open_locked = count_open_sequences,
    .add_instances_locked = add_instances_locked,
    .drain_locked = drain_instance_locked,
    .remove_instance_locked = remove_instance_locked,
    .free = free_sequence_scheduler,
};

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
    struct status *st = injected_inputs_spec_init(&ss->injected, m);
    if (st) {
        mem_free(ss);
        return st;
    }
    st = pull_init(&ss->scheduler, &ops, m);
    if (st) {
        injected_inputs_spec_done(&ss->injected);
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
    list_init(&ss->spare);
    heap_init(&ss->free_slots, is_slot_before);
    heap_init(&ss->timers, is_timer_before);
    padding_init(&ss->paddings, m, &ss->injected);
    set_rules(ss, m);
    add_instances_locked(&ss->scheduler, m->instances, m->n_instances);
    *ret_scheduler = &ss->scheduler.base;
    return NULL;
}
