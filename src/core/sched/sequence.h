/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sequences: requests that belong together, in their order, on one instance. What the two
 * strategies (direct.c, oldest.c) have in common is in sequence.c: which request belongs to which
 * sequence, who has a slot and who waits for one, and when a sequence ends.
 *
 *     START, no slot is free      START, a slot is free
 *             │                           │
 *             ▼      a slot gets free     ▼        END is given to the backend; the first of its
 *          BACKLOG ─────────────────► IN A SLOT    requests is cancelled; nothing comes for long
 *             │                           │
 *             │ its time is over;         │
 *             │ one is cancelled          │
 *             └─────────► gone ◄──────────┘ … and the backend has let go of its last request
 *
 * A struct sequence is a lease: it begins with a START and never serves a second client. The id of
 * a sequence leads to it until END comes (`known`); if the same id starts anew, that is another
 * struct sequence, with control tensors and states of its own. So a late request, timer or release
 * can never meet somebody else's sequence.
 *
 * At any time the backend has at most one request of a sequence (`running`); the next one is given
 * out when that has been released. When the thread that executes the instance releases it, which
 * nearly all backends do, and it was not the END, the sequence is only noted
 * (`instance_slots.released`), without the lock: the next request is for that very thread, which
 * goes on with all of them when it looks for more. `ready` are those sequences in slots that have
 * none there, and one waiting; `silent` those that have neither.
 *
 * An iterative sequence is made by the backend: it gives a request back to be executed again, as
 * often as it likes, and when it does not the sequence is over. Clients then need to know nothing
 * of sequences: who names none gets one for each request.
 *
 * A sequence has one timer: in the backlog, when its requests do not want to wait any longer; in a
 * slot, when nothing has come for too long. The latter never ends a sequence of which a request
 * waits or is in execution. When the server or the model is about to stop, those of which nothing
 * waits make room for those of the backlog; the others go on to their END, and none begins.
 *
 * Source: reference/behaviours §11
 */
#ifndef CONCH_CORE_SCHED_SEQUENCE_H
#define CONCH_CORE_SCHED_SEQUENCE_H

#include "base/map.h"
#include "core/sched/batch.h"
#include "core/sched/injected_inputs.h"
#include "core/sched/response_order.h"
#include "core/sched/padding.h"
#include "core/sched/scheduler.h"

struct instance_slots;
struct sequence;
struct sequence_scheduler;

/* All under scheduler.mu. */
struct sequence_strategy {
    /* How many sequences an instance has at a time, at least 1. */
    uint32_t (*n_slots)(const struct model *m);
    /* What is constant of an instance's slots. Optional. */
    void (*init)(struct instance_slots *l);
    /*
     * Are there requests to be given to the instance now? If not, and it depends on the time, by
     * when to ask again; else UINT64_MAX.
     */
    bool (*due)(struct instance_slots *l, uint64_t now_ns, uint64_t *ret_until_ns);
    /* Takes them; 0 when all that were due have been cancelled. */
    uint32_t (*take)(struct instance_slots *l, struct request **batch, uint32_t max);
    /* The sequence, which is ready, is not any more. Optional. */
    void (*unready)(struct instance_slots *l, struct sequence *seq);
};

extern const struct sequence_strategy sequence_direct, sequence_oldest;

struct slot {
    struct instance_slots *instance_slots;
    uint32_t number;
    struct sequence *sequence;  /* NULL: free */
    struct heap_node free_node; /* in scheduler.free_slots then */
};

/* The slots of one instance. */
struct instance_slots {
    struct sequence_scheduler *scheduler;
    uint32_t n_made, capacity;
    struct slot **slots; /* by number; as many as were ever needed at a time */
    uint32_t n_ready;
    struct list ready;  /* sequences, in the order in which they became ready */
    struct list silent; /* … of which nothing waits and nothing runs, the longest first */
    /* Sequences whose request the thread that executes has released, the last one first: put there
     * without the lock, by that thread, and taken under it, by any. */
    _Atomic(struct sequence *) released;
    uint64_t n_looks;  /* how many of those have been looked at, whether they make room */
    size_t hold_below; /* oldest: nothing is due while fewer are ready: a hook of tests */

    /* The oldest strategy's: the next batch is made of the first ones of `ready`. */
    struct batch_rule rule; /* constant */
    bool preserves_order;   /* constant */
    struct response_order order;
    struct batch batch;
    struct sequence *last; /* of the batch; NULL: it has none */
};

struct sequence {
    struct sequence_scheduler *scheduler;
    struct slot *slot; /* NULL: it has none yet, or no more */
    struct list link;  /* in the backlog, or among its instance's ready or silent ones */
    bool ready;
    bool in_batch; /* the oldest strategy's */
    bool known;    /* its id leads here */
    bool is_own;   /* the client named none: number is ours, and taken from the request again */
    bool is_text;
    uint64_t number; /* the id … */
    uint32_t n_waiting;
    struct list waiting;     /* requests, oldest first */
    struct request *running; /* the backend's; NULL: none */
    struct sequence *next_released;
    struct request *changed;         /* one of the above whose flags are ours; its maker's … */
    uint32_t maker_flags;            /* … are these */
    struct injected_inputs injected; /* of the one that is running */

    uint64_t ready_ns;  /* since when it has been ready */
    uint64_t active_ns; /* when its last request came, or was released */
    struct heap_node timer;
    uint64_t timer_ns; /* when to look at it; UINT64_MAX: never */
    char text[];       /* … or this */
};

struct sequence_scheduler {
    struct scheduler scheduler;
    /* Constant. */
    const struct sequence_strategy *strategy;
    uint32_t n_slots; /* of each instance */
    uint64_t idle_ns;
    uint64_t delay_ns; /* direct: how long to wait for more slots to be ready; 0: not at all */
    float min_use;     /* … and which part of them is enough */
    bool iterative;
    struct injected_inputs_spec injected;
    uint32_t n_instances;
    struct instance_slots *instance_slots; /* those of passive instances have no slots */

    /* Under scheduler.mu. */
    struct map numbers, texts; /* known sequences by their ids */
    struct list backlog;       /* sequences, oldest first */
    struct heap free_slots;    /* the lowest number first, whichever the instance */
    struct heap timers;        /* sequences, the next to be looked at first */
    struct padding paddings;
    uint64_t n_own;                  /* sequences that were given numbers */
    size_t n_in_slots, n_in_backlog; /* requests that wait */
    /* Direct: nothing is due while fewer wait in slots, in the backlog: hooks of tests. */
    size_t hold_below, hold_backlog_below;
    uint64_t n_conflicts, conflict_told_ns;
};

/* ---- For the strategies ---------------------------------------------------------------------- */

/* sequence_front - the oldest request that waits. Of a ready sequence there is one. */
struct request *sequence_front(const struct sequence *seq);

/*
 * sequence_take - the front request of a ready sequence, with all that its backend is to see, goes
 * to the backend; with END the sequence leaves its slot, and another one may become ready there.
 *
 * Returns NULL, when there is no memory for that: the sequence has ended
 */
struct request *sequence_take(struct sequence *seq);

/*
 * sequence_give_up - a request that was taken is not given to the backend: it is answered with that
 * error, which is taken.
 */
void sequence_give_up(struct request *r, struct status *error);

/* sequence_drop_cancelled - its front request is cancelled: all of them are, and it ends. */
void sequence_drop_cancelled(struct sequence *seq);
/* sequence_drop - the same for another reason; error is taken. */
void sequence_drop(struct sequence *seq, enum failure_reason reason, struct status *error);

/* ---- For requests ---------------------------------------------------------------------------- */

/*
 * sequence_released - the backend has let go of a request of a sequence, or of a padding.
 *
 * Thread: any, without locks. Takes scheduler.mu, and may dispatch; unless it is the one that
 * executes.
 */
void sequence_released(struct request *r);

/* sequence_rescheduled - … and wants it again: the next of its sequence. As above. */
void sequence_rescheduled(struct request *r);

#endif
