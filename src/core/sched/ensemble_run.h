/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state of one request to an ensemble: events in; ready steps, answers and tensors that nobody
 * reads any more out. It has no thread, no request and no tensor's memory. ensemble_run.c has the
 * states of a step.
 *
 *     ensemble_run_init(run, plan, pool, owner);
 *     ensemble_run_begin(run, outputs, inputs);
 *     and after each event:
 *         take ensemble_run_next_step() until NULL: begin each, or skip it
 *         take ensemble_run_next_answer() until false: send it, then ensemble_run_answered()
 *         free ensemble_run_take_gone()
 *         if ensemble_run_is_over(): ensemble_run_done()
 *
 * Thread: one at a time, the owner's lock sees to that.
 */
#ifndef CONCH_CORE_SCHED_ENSEMBLE_RUN_H
#define CONCH_CORE_SCHED_ENSEMBLE_RUN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "core/sched/ensemble_plan.h"

struct mem_owner;
struct pool;
struct status;

/* The head of the owner's struct of a tensor with data. One that is absent has none. */
struct ensemble_value {
    struct ensemble_value *next; /* in ensemble_run_take_gone() */
};

enum ensemble_stage {
    ENSEMBLE_UNNEEDED, /* no requested output needs it, or nothing begins any more */
    ENSEMBLE_WAITING,  /* for inputs */
    ENSEMBLE_READY,    /* in ensemble_run.ready */
    ENSEMBLE_STARTED,  /* the owner has it */
};

/* A step in one wave. */
struct ensemble_step_run {
    struct ensemble_wave *wave;
    struct list link; /* in ensemble_run.ready */
    uint32_t step;
    uint32_t n_missing; /* entries of its input map whose tensors are not there yet */
    uint8_t stage;      /* enum ensemble_stage */
    bool has_answered;  /* with outputs */
    bool has_ended;     /* no response comes any more */
    bool is_released;   /* it does not read its inputs any more */
    void *data;         /* the owner's */
};

/* A tensor in one wave. */
struct ensemble_tensor_run {
    struct ensemble_value *value; /* NULL: not there yet, or absent, or gone */
    uint32_t n_uses;              /* of readers and of the answer */
};

struct ensemble_wave {
    struct list link; /* in ensemble_run.waves */
    struct list complete;
    uint32_t kind;
    uint32_t n_uses; /* steps that have not ended or are not released; the answer */
    uint32_t n_missing_outputs;
    bool is_answerable; /* the answer is not sent yet */
    void *data;         /* the owner's; of a decoupled step's response: what the owner says there */
    struct ensemble_step_run *steps;
    struct ensemble_tensor_run *tensors;
};

struct ensemble_run {
    const struct ensemble_plan *plan;
    struct pool *pool;
    struct mem_owner *owner;
    const uint64_t *needed;    /* steps */
    const uint64_t *requested; /* outputs */
    uint32_t n_requested;
    uint32_t n_running; /* steps that are ready or started, and have not ended */
    uint32_t n_held;    /* steps that are started and not released */
    struct list waves;
    struct list ready;
    struct list complete; /* waves whose requested outputs are all known */
    struct ensemble_value *gone;
    struct ensemble_wave *answering; /* the wave whose answer is being sent */
    struct status *error;            /* the first one */
    bool is_answering;               /* a thread sends an answer */
    bool has_responded;              /* … a response has been sent */
    atomic_bool has_failed;          /* nothing begins any more */
    bool has_final;                  /* the final answer is taken */
    struct ensemble_wave *first;
};

/* What is to be sent. */
struct ensemble_answer {
    struct ensemble_wave *wave; /* a response with its outputs; NULL: none */
    bool is_final;
    bool is_deadlock;     /* an error: the steps have ended without all outputs */
    struct status *error; /* owned by the receiver */
};

/* ensemble_run_bytes - the size of the memory that ensemble_run_init() wants. */
size_t ensemble_run_bytes(const struct ensemble_plan *p);

/*
 * ensemble_run_init - makes the state of a request in run[0..ensemble_run_bytes()).
 *
 * @pool   where waves but the first come from, charged to the owner
 */
void ensemble_run_init(struct ensemble_run *run, const struct ensemble_plan *p, struct pool *pool,
                       struct mem_owner *owner);
/* ensemble_run_done - ends a run that is over, or has not begun. */
void ensemble_run_done(struct ensemble_run *run);

/*
 * ensemble_run_begin - the request comes.
 *
 * @outputs  the requested ones, by the ensemble's index, as a set; NULL: all
 * @inputs   by the ensemble's index; taken; NULL: absent
 */
void ensemble_run_begin(struct ensemble_run *run, const uint64_t *outputs,
                        struct ensemble_value *const *inputs);

/*
 * ensemble_run_next_step - the next ready step; the owner begins it, and then reports its responses
 * and its release, or skips it. NULL: none is ready.
 */
struct ensemble_step_run *ensemble_run_next_step(struct ensemble_run *run);

/* ensemble_run_input - the value of a tensor that the step reads; NULL: it is absent. */
static inline struct ensemble_value *ensemble_run_input(const struct ensemble_run *run,
                                                        const struct ensemble_step_run *s,
                                                        uint32_t tensor)
{
    return s->wave->tensors[run->plan->tensors[tensor].slot].value;
}

/* ensemble_run_output - the value of an output of the ensemble; NULL: it is absent. */
static inline struct ensemble_value *
ensemble_run_output(const struct ensemble_run *run, const struct ensemble_wave *w, uint32_t output)
{
    return w->tensors[run->plan->tensors[run->plan->outputs[output]].slot].value;
}

/*
 * ensemble_run_skip - the step, which is started, is not executed: its outputs are absent. The
 * owner has ended with it.
 */
void ensemble_run_skip(struct ensemble_run *run, struct ensemble_step_run *s);

/*
 * ensemble_run_respond - the step answers. After the last call with `ended` and after
 * ensemble_run_release() the step's struct is gone.
 *
 * @outputs    by the step's output map; taken; NULL: absent. NULL instead of the array: the
 *             response has no outputs, since it is an error or only an end
 * @wave_data  the `data` of the wave that a decoupled step makes
 * @error      taken; fails the request; the step's number and model are put behind its text, unless
 *             it is a cancel
 */
void ensemble_run_respond(struct ensemble_run *run, struct ensemble_step_run *s,
                          struct ensemble_value *const *outputs, void *wave_data, bool ended,
                          struct status *error);

/* ensemble_run_release - the step does not read its inputs any more. */
void ensemble_run_release(struct ensemble_run *run, struct ensemble_step_run *s);

/*
 * ensemble_run_fail - nothing begins any more. The first error is the request's, and is its answer
 * when all steps have ended.
 *
 * @error  taken
 */
void ensemble_run_fail(struct ensemble_run *run, struct status *error);

/* ensemble_run_has_failed - does nothing begin any more? Thread: any, without the lock, too. */
static inline bool ensemble_run_has_failed(const struct ensemble_run *run)
{
    return atomic_load_explicit(&run->has_failed, memory_order_relaxed);
}

/*
 * ensemble_run_next_answer - what is to be sent now. False: nothing is, or an answer is being sent,
 * or the final one has been. The caller sends the answer and calls ensemble_run_answered(). When a
 * response is to be sent, no step reads its outputs any more, so the client may have their memory.
 */
bool ensemble_run_next_answer(struct ensemble_run *run, struct ensemble_answer *ret_answer);
void ensemble_run_answered(struct ensemble_run *run);

/* ensemble_run_take_gone - the values that nobody reads any more, linked. Each comes once. */
struct ensemble_value *ensemble_run_take_gone(struct ensemble_run *run);

/* ensemble_run_is_over - the final answer has been sent, and no step reads anything. */
static inline bool ensemble_run_is_over(const struct ensemble_run *run)
{
    return run->has_final && !run->is_answering && run->n_held == 0;
}

#endif
