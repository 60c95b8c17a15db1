/* SPDX-License-Identifier: Apache-2.0 */
/*
 * demonstration - what Triton's own identity backend does beside its work, to show what a backend
 * can: a metric, parameters of responses, lines in the log. Its tests look for them, and they cost
 * every request something, so they are there for who asks:
 *
 *     --backend-config=identity,demonstrate=true
 *
 * All functions but demonstration_open() do nothing with NULL, which is what it gives when nobody
 * asks.
 */
#ifndef BACKENDS_IDENTITY_DEMONSTRATION_H
#define BACKENDS_IDENTITY_DEMONSTRATION_H

#include "common/frame.h"

struct demonstration; /* of the backend */

/* demonstration_open - *ret is NULL unless the backend's settings ask for one. */
TRITONSERVER_Error *demonstration_open(TRITONBACKEND_Backend *backend, struct demonstration **ret);
void demonstration_close(struct demonstration *d);

/* demonstration_model_open - the metric of a model, which is ended by …_close(). */
TRITONSERVER_Error *demonstration_model_open(struct demonstration *d, const struct frame_model *m,
                                             TRITONSERVER_Metric **ret_metric);
void demonstration_model_close(TRITONSERVER_Metric *metric);

/* demonstration_instance_open, demonstration_instance_close - lines in the log. */
TRITONSERVER_Error *demonstration_instance_open(const TRITONSERVER_Metric *metric,
                                                const struct frame_instance *in);
void demonstration_instance_close(const TRITONSERVER_Metric *metric);

/*
 * demonstration_answer - counts the inputs of a request whose outputs are filled in, tells of them
 * in a verbose log, and gives its response parameters.
 * @number  of the request in its batch
 */
TRITONSERVER_Error *demonstration_answer(TRITONSERVER_Metric *metric, const struct batch_part *part,
                                         uint32_t number);

#endif
