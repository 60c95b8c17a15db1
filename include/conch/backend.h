/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What Conch offers to backends besides tritonbackend.h. A backend that should also run under
 * Triton declares these functions weak, and tests whether they are there:
 *
 *     #include "conch/backend.h"
 *
 *     extern __typeof__(conch_model_declare_bounded) conch_model_declare_bounded
 *         __attribute__((weak));
 *     …
 *     if (conch_model_declare_bounded)
 *         err = conch_model_declare_bounded(model);
 */
#ifndef CONCH_BACKEND_H
#define CONCH_BACKEND_H

#include <stdbool.h>

#include "triton/core/tritonbackend.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifndef CONCH_DECLSPEC
#define CONCH_DECLSPEC __attribute__((__visibility__("default")))
#endif

/*
 * conch_backend_attribute_set_instance_threads - gives each instance one thread for life, on which
 * the instance is initialised, warmed up, executed and finalised, as in Triton. Without it, and
 * where the parameter CONCH_EXECUTION of the model is not `thread`, a loading thread initialises an
 * instance, and a worker thread that exists while there is work executes it.
 *
 * Thread: the one that calls TRITONBACKEND_GetBackendAttribute.
 * Errors: INVALID_ARG  `backend_attributes` is NULL
 */
CONCH_DECLSPEC struct TRITONSERVER_Error *conch_backend_attribute_set_instance_threads(
    struct TRITONBACKEND_BackendAttribute *backend_attributes, bool enabled);

/*
 * conch_model_declare_bounded - the backend declares that for this model the size of the inputs
 * bounds each execution, whatever their values, and that an execution waits for nothing. That is,
 * ModelInstanceExecute
 *
 * - has no loop whose length a value decides, be it in the model, a parameter or an input;
 * - opens no file, makes no call over a network, does not sleep, and takes no lock that another
 *   thread may hold for long;
 * - takes much less than a millisecond for small inputs, and for larger ones no longer than a few
 *   copies of them would.
 *
 * The server may then execute the model on the threads that read its network connections, when
 * measurements show that the model is quick. That saves the hand-off to another thread, while all
 * other connections of that thread wait for the execution. A model without the declaration always
 * executes on threads of its own. So a wrong declaration delays other clients; a watchdog notices
 * it after some milliseconds, and keeps the model off those threads for long.
 *
 * Thread: the one that initialises the model or one of its instances.
 * Errors: INVALID_ARG  `model` is NULL
 *         UNSUPPORTED  the model has been loaded already
 */
CONCH_DECLSPEC struct TRITONSERVER_Error *
conch_model_declare_bounded(struct TRITONBACKEND_Model *model);

#ifdef __cplusplus
}
#endif

#endif
