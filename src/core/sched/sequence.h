/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sequence is a series of requests that are executed in their order on one instance. sequence.c
 * has what the two strategies (direct.c, oldest.c) have in common: which request belongs to which
 * sequence, which sequences have a slot or wait for one, and when a sequence ends.
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
 * a sequence leads to it until END comes (`known`). A new START with the same id makes another
 * struct sequence, with control tensors and states of its own. So a late request, timer or release
 * never touches another client's sequence.
 *
 * The backend has at most one request of a sequence at a time (`running`); it gets the next one
 * after releasing that. Nearly all backends release a request on the thread that executes the
 * instance. Unless it was the END, the sequence is then only put into `instance_slots.released`,
 * without the lock; the same thread handles these sequences when it looks for its next batch.
 * `ready` has the sequences in slots that have no request with the backend, and one that waits;
 * `silent` those that have neither.
 *
 * The backend makes an iterative sequence: it gives a request back to be executed again, as often
 * as it likes; the sequence ends when it does not. Clients then need not know of sequences: a
 * request without an id gets a sequence of its own.
 *
 * A sequence has one timer. In the backlog it fires when a request's time in the queue is over; in
 * a slot, when no request has come for too long. The latter never ends a sequence of which a
 * request waits or is in execution. When the server or the model is about to stop, no sequence
 * begins. Those in slots without a waiting request then end to make room for those of the backlog;
 * the others go on to their END.
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
#include "core/sched/pull.h"

struct instance_slots;
struct sequence;
struct sequence_scheduler;

/* All under scheduler.mu. */
struct sequence_strategy {
    /* How many sequences an instance has at a time, at least 1. */
    uint32_t (*n_slots)(const struct model *m);
    /* Sets the constant fields of an instance's slots. Optional. */
    void (*init)(struct instance_slots *slots);
    /*
     * Are there requests to be given to the instance now? If not, *ret_until_ns is when to ask
     * again; UINT64_MAX: it does not depend on the time.
     */
    bool (*due)(struct instance_slots *slots, uint64_t now_ns, uint64_t *ret_until_ns);
    /* Takes the requests that are due; 0 when all of them have been cancelled. */
    uint32_t (*take)(struct instance_slots *slots, struct request **batch, uint32_t max);
    /* A ready sequence stops being ready. Optional. */
    void (*unready)(struct instance_slots *slots, struct sequence *seq);
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
    struct sequence_scheduler *scheduler; /* NULL: the instance is passive, and has no slots */
    uint32_t place;                       /* among those of all instances */
    bool is_leaving;                      /* a slot that gets free stays so */
    uint32_t n_used;                      /* slots that have a sequence */
    uint32_t n_made, capacity;
    struct slot **by_number; /* as many as were ever needed at a time */
    uint32_t n_ready;
    struct list ready;  /* sequences, in the order in which they became ready */
    struct list silent; /* … of which no request waits or runs, the one silent for longest first */
    /* Sequences whose request the executing thread has released, the last one first. That thread
     * adds them without the lock; any thread takes them out under it. */
    _Atomic(struct sequence *) released;
    uint64_t n_looks;  /* how many silent sequences were examined for making room */
    size_t hold_below; /* oldest: nothing is due while fewer are ready: a hook of tests */

    /* The oldest strategy's: the next batch is made of the first ones of `ready`. */
    struct batch_rule rule; /* constant */
    bool preserves_order;   /* constant */
    struct response_order order;
    struct batch batch;
    struct sequence *last; /* of the batch; NULL: it has none */

    struct list link; /* in scheduler.spare */
};

struct sequence {
    struct sequence_scheduler *scheduler;
    struct slot *slot; /* NULL: it has none yet, or has left it */
    struct list link;  /* in the backlog, or among its instance's ready or silent ones */
    bool ready;
    bool in_batch; /* the oldest strategy's */
    bool known;    /* its id leads here */
    bool is_own;   /* the client gave no id: `number` is ours, and is removed from the request */
    bool is_text;
    uint64_t number; /* the id … */
    uint32_t n_waiting;
    struct list waiting;     /* requests, oldest first */
    struct request *running; /* the backend's; NULL: none */
    struct sequence *next_released;
    struct request *changed;         /* a request of the above whose flags we have changed … */
    uint32_t maker_flags;            /* … and the flags that its maker set */
    struct injected_inputs injected; /* of `running` */

    uint64_t ready_ns;  /* since when it has been ready */
    uint64_t active_ns; /* when its last request came, or was released */
    struct heap_node timer;
    uint64_t timer_ns; /* when to look at it; UINT64_MAX: never */
    char text[];       /* … or this */
};

struct sequence_scheduler {
    struct pull_scheduler scheduler;
    /* Constant. */
    const struct sequence_strategy *strategy;
    uint32_t n_slots; /* of each instance */
    uint64_t idle_ns;
    uint64_t delay_ns; /* direct: how long to wait for more slots to be ready; 0: not at all */
    float min_use;     /* … and which share of all slots is enough */
    bool iterative;
    struct injected_inputs_spec injected;

    /* Under scheduler.mu. */
    uint32_t n_instances;
    struct instance_slots **instance_slots;
    /* Those of instances that have left, for new ones: responses may yet be sent in their order. */
    struct list spare;
    struct map numbers, texts; /* known sequences by their ids */
    struct list backlog;       /* sequences, oldest first */
    struct heap free_slots;    /* the lowest number first, whichever the instance */
    struct heap timers;        /* sequences, the next to be looked at first */
    struct padding paddings;
    uint64_t n_own;                  /* sequences that were given numbers */
    size_t n_in_slots, n_in_backlog; /* requests that wait */
    /* Direct: nothing is due while fewer wait in slots, in the backlog: hooks of tests. */
    size_t hold_below, hold_backlog_below;
    uint64_t n_conflicts, conflict_logged_ns;
};

/* ---- For the strategies ---------------------------------------------------------------------- */

/* sequence_front - the oldest request that waits. A ready sequence has one. */
struct request *sequence_front(const struct sequence *seq);

/*
 * sequence_take - takes the front request of a ready sequence for the backend, with its injected
 * inputs. With END the sequence leaves its slot, and another one may become ready there.
 *
 * Returns NULL when there is no memory; the sequence has ended then.
 */
struct request *sequence_take(struct sequence *seq);

/*
 * sequence_give_up - answers a request that was taken with that error, instead of giving it to the
 * backend. The error is taken.
 */
void sequence_give_up(struct request *r, struct status *error);

/* sequence_drop_given_up - its front request is cancelled or late: drops its other requests, too,
 * and ends the sequence. */
void sequence_drop_given_up(struct sequence *seq);
/* sequence_drop - the same for another reason; error is taken. */
void sequence_drop(struct sequence *seq, enum failure_reason reason, struct status *error);

#endif
