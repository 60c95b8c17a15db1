/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compiled - what OpenVINO has compiled of a model, and the requests by which instances run it.
 *
 * A run that fails or is ended leaves its shapes in a part of the compiled model. Later runs of the
 * same compiled model, by any request, then fail or compute with those shapes: they give wrong
 * answers, and no error says so (OpenVINO 2026.4). So such a run breaks the compiled model: no
 * answer of a later run of it counts, and the model is compiled anew.
 *
 *     do {
 *         TRY(runner_begin(m, &runner, alone, &renewed));
 *         … bind tensors to runner.request: all of them, if it was renewed …
 *         runner_enter(m, alone);
 *         failed = … OpenVINO runs the request …
 *         counts = runner_counts(m, &runner, alone, failed);
 *         runner_leave(m, alone);
 *     } while (!counts);
 *     … read outputs …
 *     runner_end(&runner);
 *
 * Threads: a runner belongs to one instance, and one thread at a time uses it. Its functions may be
 * called for several runners at the same time.
 */
#ifndef BACKENDS_OPENVINO_COMPILED_H
#define BACKENDS_OPENVINO_COMPILED_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "openvino/runtime.h"

struct model;

/* A request of OpenVINO, which an instance uses for all its runs until it is renewed. */
struct runner {
    struct ov_request *request; /* NULL: none yet */

    /* Private. Written under compiled.mu, but for the end of `used`. */
    uint64_t number;  /* of the compiled model that the request is of */
    atomic_bool used; /* others leave the request alone */
    struct runner *next;
};

struct compiled {
    /* Constant once made. */
    uint64_t cost_ms;   /* how long OpenVINO compiled */
    bool one_at_a_time; /* OpenVINO executes one run after the other, by one graph for all */

    pthread_mutex_t run_mu; /* from runner_enter() to runner_leave(); before mu */
    pthread_mutex_t mu;
    bool has_mu;
    /* Under mu; while the model is loaded, its loader's. */
    struct ov_compiled *model; /* NULL: none */
    uint64_t number;           /* of `model`: how many were made before it, and it */
    uint64_t broken;           /* those with a number up to this one are broken */
    struct runner *first;      /* of all instances */
};

/*
 * compiled_make - compile the model that m->read is, and take the ports of its tensors.
 * Errors: INTERNAL  OpenVINO's
 */
TRITONSERVER_Error *compiled_make(struct model *m);
void compiled_done(struct model *m); /* when all runners are closed */

/*
 * compiled_computes_in_caller - does OpenVINO compute in the thread that calls it, with no other?
 * Errors: INTERNAL  OpenVINO's
 */
TRITONSERVER_Error *compiled_computes_in_caller(const struct model *m, bool *ret_it_does);

/*
 * runner_open - a runner of the model's. It must stay where it is, until runner_close().
 * Errors: INTERNAL  OpenVINO's
 */
TRITONSERVER_Error *runner_open(struct model *m, struct runner *r);
void runner_close(struct model *m, struct runner *r); /* one that was never opened is fine */

/*
 * runner_begin - a run begins: the runner's request is of a compiled model that is not broken.
 * @alone        of one that no other runner has until runner_counts(); other runs of the model wait
 * @ret_renewed  it is another request than in the last run: nothing is bound to it
 * Errors: INTERNAL  OpenVINO's, when it compiles the model anew; no run has begun
 */
TRITONSERVER_Error *runner_begin(struct model *m, struct runner *r, bool alone, bool *ret_renewed);

/*
 * runner_enter - OpenVINO gets the run now. Where it would execute one run after the other, this
 * waits for the one before: a run that fails could break the next one, of another thread, before it
 * comes to say so. One that is alone does not wait.
 */
void runner_enter(struct model *m, bool alone);
void runner_leave(struct model *m, bool alone); /* after runner_counts() */

/*
 * runner_counts - the run is over, or was given up before OpenVINO had it. Does it count?
 * @failed  OpenVINO gave an error, or the run was ended
 * Returns whether what it gave counts. If not, another run broke the compiled model meanwhile, and
 * this one is to be repeated. One that was alone counts.
 */
bool runner_counts(struct model *m, struct runner *r, bool alone, bool failed);

/* runner_end - nobody reads the request's outputs any more. One that has not begun is fine. */
void runner_end(struct runner *r);

#endif
