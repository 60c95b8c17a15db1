/* SPDX-License-Identifier: Apache-2.0 */
/*
 * predict - the rows of a batch, and the forest's answer for each.
 *
 * One predictor belongs to one instance and is used by one thread at a time. It keeps the memory of
 * a run, so that nothing is allocated per request here.
 */
#ifndef BACKENDS_FIL_PREDICT_H
#define BACKENDS_FIL_PREDICT_H

#include "fil/model.h"

/* predictor_open - a predictor for the instance's model: in->state. */
TRITONSERVER_Error *predictor_open(struct frame_instance *in);
void predictor_close(struct frame_instance *in);

/*
 * predictor_run - fill the responses of a batch.
 * Errors: INVALID_ARG  rows with another number of features
 *         UNAVAILABLE  no memory
 *         INTERNAL     treelite refuses to predict
 */
TRITONSERVER_Error *predictor_run(struct frame_instance *in, struct batch *b);

#endif
