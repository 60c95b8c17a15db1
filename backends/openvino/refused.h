/* SPDX-License-Identifier: Apache-2.0 */
/*
 * refused - shapes of inputs that a model does not take together, such as two of different length
 * that are added. OpenVINO finds that out in the middle of a run, which breaks the compiled model
 * (compiled.h). A client that repeats such a request would have the model compiled anew each time,
 * and all others would wait. So they are remembered, and refused before a run.
 *
 * Threads: any, at the same time.
 */
#ifndef BACKENDS_OPENVINO_REFUSED_H
#define BACKENDS_OPENVINO_REFUSED_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "common/gather.h"

struct model;

#define REFUSED_MOST 64

struct refused {
    pthread_mutex_t mu;
    bool has_mu;
    atomic_uint n;     /* of all[]; written under mu */
    unsigned int next; /* under mu: where the next one goes */
    struct refusal {
        int64_t *shapes; /* of each input: its rank, and its dimensions */
        size_t len;
        char *text;      /* OpenVINO's error */
    } all[REFUSED_MOST]; /* under mu */
};

void refused_init(struct refused *f); /* zeroed before */
void refused_done(struct refused *f); /* one that was never made is fine */

/*
 * refused_check - are these inputs refused?
 * @in  one for each input of the model
 * Errors: INTERNAL  they are: the error that the run gave which failed with them
 */
TRITONSERVER_Error *refused_check(struct model *m, const struct gathered *in);

/*
 * refused_learn - a run with these inputs has failed. Remembers them if it is their shapes that
 * OpenVINO refuses, with any values. Takes about as long as OpenVINO needs to follow the shapes
 * through the graph; the model is not compiled meanwhile.
 * @in   one for each input of the model
 * @err  the run's error
 */
void refused_learn(struct model *m, const struct gathered *in, TRITONSERVER_Error *err);

#endif
