/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the ensemble's scheduler share. One request of the ensemble is a struct
 * ensemble_request: its state machine (ensemble_run.h), its steps, each a request of its own to
 * another model, and the responses that it is about to send.
 */
#ifndef CONCH_CORE_SCHED_ENSEMBLE_PRIV_H
#define CONCH_CORE_SCHED_ENSEMBLE_PRIV_H

#include <stdatomic.h>

#include "core/request/response.h"
#include "core/request/step_times.h"
#include "core/request/steps.h"
#include "core/sched/afterwards.h"
#include "core/sched/ensemble_limit.h"
#include "core/sched/ensemble_run.h"
#include "core/sched/scheduler.h"

/* The three parameters that a response of a step may set for the steps behind it
 * (reference/behaviours §12.2). */
struct ensemble_sequence {
    struct correlation_id id;
    uint32_t flags; /* REQUEST_SEQUENCE_… */
};

/* The values that have one response, which is freed with the last of them. */
struct ensemble_values {
    struct response *response;
    atomic_uint n_left;                /* values; and one while the response is being taken */
    struct ensemble_sequence sequence; /* what the steps behind this one inherit */
};

/* A tensor: an input of the ensemble, or an output of a step. Constant, but for the head. */
struct ensemble_tensor_value {
    struct ensemble_value head;     /* first */
    const struct input *input;      /* of the ensemble; NULL: an output */
    struct ensemble_values *values; /* of an output: whose response it belongs to */
    struct output *output;
    struct output *leaving; /* … that the ensemble's maker has allocated: of the ensemble's
                               response; NULL: the memory is the step's */
    uint32_t batch_size;    /* of the request that it comes from */
};

/* What a step's model has, in the order of the step's maps. A name that it does not have is the
 * error of the step's request. */
struct ensemble_step_tensors {
    const struct tensor_spec *const *inputs; /* NULL: it has no such input */
    const char **output_names;               /* the model's own; NULL: an output is missing */
};

struct ensemble_scheduler {
    struct scheduler base; /* first */
    /* Constant. */
    struct model *model;
    struct ensemble_plan *plan;
    const struct ensemble_step_tensors *tensors; /* by step; in the plan's memory */
    struct ensemble_limits *limits;              /* NULL: none */
};

struct ensemble_request {
    struct steps steps; /* first; its mu guards this struct, too */
    /* Constant. */
    struct ensemble_scheduler *scheduler;
    struct request *outer;                /* the request of the ensemble */
    struct ensemble_tensor_value *inputs; /* those of the ensemble that the request has */
    /* Under steps.mu. */
    unsigned int n_busy;   /* threads that come back to this request, though no step has it */
    struct list responses; /* to the ensemble's client, not sent yet */
    bool has_failed;       /* its final answer was an error; set by the thread that sent that */
    struct ensemble_run *run;

    struct ensemble_limited limited;
    struct step_times times; /* any thread */
};

/* What a step has answered, for the state machine. */
struct ensemble_step_answer {
    struct ensemble_values *values; /* NULL: it has no outputs */
    struct ensemble_value *const *by_map;
    void *wave_data;
    struct status *error;
};

/* A step's request. */
struct ensemble_step_request {
    struct request request; /* first */
    struct step step;
    struct afterwards later; /* its begin or its end, of the thread that has that to do */
    struct ensemble_request *parent;
    struct ensemble_step_run *run; /* until the step has ended and is released */
    const struct ensemble_step *plan;
    const struct ensemble_step_tensors *tensors;
    /* The final answer that is to be reported together with the release. Of the thread that has
     * executed the step, and then of the one that releases it. */
    bool has_answer;
    struct ensemble_step_answer answer;
    char first[];
};

static inline struct ensemble_step_request *to_ensemble_step(struct request *r)
{
    return (struct ensemble_step_request *)(void *)r;
}

/* ---- ensemble_tensors.c: the tensors of the steps' models ------------------------------------ */

/*
 * ensemble_tensors_new - finds the tensors of each step. The result lies in the plan's memory.
 *
 * @models  by step; they outlive the plan
 * Errors:  STATUS_UNAVAILABLE  no memory
 */
NODISCARD struct status *ensemble_tensors_new(struct ensemble_plan *p, struct model *const *models,
                                              const struct ensemble_step_tensors **ret_tensors);

/*
 * ensemble_find_output - the place of an output in the step's output map; ENSEMBLE_NONE: it has
 * none. Thread: any.
 */
uint32_t ensemble_find_output(const struct ensemble_step_request *s, const char *name);

/* ---- ensemble_value.c: from outputs to inputs ------------------------------------------------ */

/* ensemble_value_of_input - the value of an input of the ensemble's request. */
void ensemble_value_of_input(const struct request *outer, const struct input *in,
                             struct ensemble_tensor_value *ret_value);

/*
 * ensemble_take_response - makes the values of a step's response.
 *
 * @resp        without an error. On success its owner calls ensemble_values_done() once, after
 *              which the last value frees it
 * @ret_values  by the step's output map; NULL: absent
 * Errors:      STATUS_INVALID_ARG  a parameter has the wrong type
 *              STATUS_UNAVAILABLE  no memory
 */
NODISCARD struct status *ensemble_take_response(struct ensemble_step_request *s,
                                                struct response *resp,
                                                struct ensemble_values **ret_response,
                                                struct ensemble_value *const **ret_values);
void ensemble_values_done(struct ensemble_values *values);

/* ensemble_value_is_input - is it an input of the ensemble's request? */
bool ensemble_value_is_input(const struct ensemble_value *v);

/* ensemble_value_free - nobody reads the value any more. Thread: any, without locks. */
void ensemble_value_free(struct ensemble_value *v);

/*
 * ensemble_step_fill - makes the step's request: its inputs, its outputs, and what it inherits.
 *
 * Thread: any, without locks; the step is started.
 */
NODISCARD struct status *ensemble_step_fill(struct ensemble_step_request *s);

/*
 * ensemble_step_condition - says in *skip whether the step's condition is false, or absent.
 *
 * Errors: STATUS_INVALID_ARG  its tensor is not BOOL of one element, in memory that we can read
 */
NODISCARD struct status *ensemble_step_condition(const struct ensemble_request *er,
                                                 const struct ensemble_step_run *s, bool *skip);

/* A shape, as the receiver of a tensor wants it. */
struct ensemble_shape {
    const int64_t *dims;
    uint32_t n_dims;
    bool add_one; /* a batch dimension of 1 in front */
};

/*
 * ensemble_shape_of - the shape of the value for a receiver that has a batch dimension where the
 * sender has none, or the reverse (reference/behaviours §12.3).
 *
 * @dims      that the receiver's configuration has
 * @batching  the receiver has a batch dimension
 */
struct ensemble_shape ensemble_shape_of(const struct ensemble_tensor_value *v, const int64_t *dims,
                                        uint32_t n_dims, bool batching);

/* ---- ensemble_answer.c: the responses of the ensemble ---------------------------------------- */

/* The memory of a step's outputs: request_ops. An output that the client wants is allocated by the
 * maker of the ensemble's request. */
struct status *ensemble_alloc_output(struct request *r, struct output *out, size_t size_bytes);
void ensemble_free_output(struct request *r, struct output *out);

/*
 * ensemble_keep_output - the output is a value now, and is not freed with its response. Returns the
 * ensemble's output that has its memory; NULL: the step has it.
 */
struct output *ensemble_keep_output(struct output *out);

/* ensemble_take_response_of - the ensemble's response with the memory of that wave's outputs; the
 * caller has it. NULL: there is none. Thread: any, under steps.mu. */
struct response *ensemble_take_response_of(struct ensemble_wave *w);

/*
 * ensemble_send - sends the answer. Thread: any, without locks; one answer at a time.
 *
 * @resp    that of ensemble_take_response_of(); taken
 * Returns an error that fails the request, which has no final answer then.
 */
NODISCARD struct status *ensemble_send(struct ensemble_request *er, const struct ensemble_answer *a,
                                       struct response *resp);

/* ensemble_drop_responses - frees those that have not been sent. */
void ensemble_drop_responses(struct ensemble_request *er);

#endif
