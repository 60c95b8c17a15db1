/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Implicit state: tensors that the server keeps for a sequence from one request to the next. The
 * backend finds them among the inputs of a request, writes new ones (TRITONBACKEND_StateNew,
 * …Buffer), and publishes them (…Update) as inputs of the next request.
 *
 *      shown ◄── this request's input; constant while the backend has the request
 *      next  ◄── the next request's input: `shown`, until the backend updates the state
 *      out   ◄── what the backend writes
 *
 * An update makes `out` the next value. For the next request the backend may write into the buffer
 * that was shown before: the two buffers alternate, and nothing is allocated. With
 * use_same_buffer_for_input_output there is one buffer, and no update is needed.
 *
 * A state belongs to one sequence, not to a slot. It begins with the initial value of its
 * configuration, or with zeros, so no client sees values of another client's sequence.
 *
 * Threads: any under the scheduler's lock, while no request of the sequence is in execution. During
 * an execution the thread that executes, and the backend's threads, one at a time.
 *
 * Source: model configuration, sequence_batching.state; reference/behaviours §11.15
 */
#ifndef CONCH_CORE_SCHED_STATE_H
#define CONCH_CORE_SCHED_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/request/request.h"

struct model;
struct states;
struct status;

enum { MAX_STATE_DIMS = 32 };

/* A tensor's value; its bytes are aligned to MEM_ALIGNMENT. */
struct state_value {
    enum dtype dtype;
    uint32_t n_dims;
    int64_t shape[MAX_STATE_DIMS]; /* batch dimension included */
    size_t size_bytes;
    void *base;
    void *block; /* what base lies in; NULL: no buffer yet */
};

/* One state of a model; constant. */
struct state_spec {
    const char *input_name, *output_name;
    bool same_buffer;
    struct state_value initial;
};

struct state_specs {
    uint32_t n;
    struct state_spec *items;
    struct mem_owner *owner; /* the account of their memory */
};

/* What states_fill() writes to a state that begins, before the backend sees it. */
enum state_fill { STATE_FILLED, STATE_INITIAL, STATE_ZEROS };

/* This is TRITONBACKEND_State. */
struct state {
    const struct state_spec *spec;
    struct states *states;
    struct input input;
    struct state_value shown, next, out; /* next.block is shown's, or its own */
    bool has_next;                       /* `next` differs from `shown` */
    enum state_fill fill;                /* of `shown` */
};

/* All states of one sequence. */
struct states {
    const struct state_specs *specs;
    struct state items[];
};

/*
 * state_specs_init - reads the states of a validated configuration, and initial values from the
 * model's folder initial_state/. The caller ends it with state_specs_done().
 *
 * Errors: STATUS_INVALID_ARG  too large, too many dimensions, a file of another size
 *         STATUS_INTERNAL     a file that cannot be read
 */
NODISCARD struct status *state_specs_init(struct state_specs *specs, const struct model *m);
void state_specs_done(struct state_specs *specs);

/* states_new - the states of a sequence, without values; the caller ends them with states_free().
 * Errors: STATUS_UNAVAILABLE  no memory */
NODISCARD struct status *states_new(const struct state_specs *specs, struct states **ret_states);
void states_free(struct states *s);

/*
 * states_begin - a sequence starts: allocates the initial values, which states_fill() writes.
 * Errors: STATUS_UNAVAILABLE  no memory
 */
NODISCARD struct status *states_begin(struct states *s);

/*
 * states_begin_like - the same with zeros, in the shapes that another sequence's states have now; a
 * state of strings gets as many empty strings. Errors: as states_begin()
 */
NODISCARD struct status *states_begin_like(struct states *s, const struct states *other);

/*
 * states_fill - writes the first values of states that have begun. These may be large, so this is
 * not done under the scheduler's lock.
 *
 * Thread: the one that is about to give the request to the backend, without locks.
 */
void states_fill(struct states *s);

/* states_show - makes the values that the last request has published the inputs of request r. */
void states_show(struct states *s, struct request *r);

/*
 * states_output - finds the state of that output name, and sets type and shape of its new value.
 * Borrowed from the request.
 *
 * Errors: STATUS_INVALID_ARG  the request has no states, or none of that name; a bad shape
 */
NODISCARD struct status *states_output(const struct request *r, const char *name, enum dtype dtype,
                                       const int64_t *shape, uint32_t n_dims,
                                       struct state **ret_state);

/*
 * state_buffer - the memory for the new value; the state owns it. A second call with the same size
 * returns the same buffer.
 *
 * Errors: STATUS_UNAVAILABLE  no memory
 */
NODISCARD struct status *state_buffer(struct state *st, size_t size_bytes, void **ret_base);

/* state_buffer_bytes - Errors: STATUS_INVALID_ARG  there is no buffer yet */
NODISCARD struct status *state_buffer_bytes(const struct state *st, size_t *ret_bytes);

/*
 * state_update - publishes what was written as the input of the next request.
 *
 * Errors: STATUS_INVALID_ARG  there is no buffer, or one whose size does not fit type and shape
 */
NODISCARD struct status *state_update(struct state *st);

#endif
