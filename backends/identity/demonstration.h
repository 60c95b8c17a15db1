/* SPDX-License-Identifier: Apache-2.0 */
/*
 * demonstration - features of Triton's own identity backend that only show what a backend can do: a
 * metric, parameters of responses, log lines. Triton's tests look for them. They slow down every
 * request, so they are off unless the setting is given:
 *
 *     --backend-config=identity,demonstrate=true
 *
 * Without the setting demonstration_open() gives NULL; the other functions then do nothing.
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
 * demonstration_answer - counts the inputs of a request whose outputs are filled in, logs them
 * (verbose), and adds parameters to its response.
 * @number  of the request in its batch
 */
TRITONSERVER_Error *demonstration_answer(TRITONSERVER_Metric *metric, const struct batch_part *part,
                                         uint32_t number);

#endif
