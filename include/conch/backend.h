/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What Conch offers to backends besides tritonbackend.h. A backend that is to run under Triton as
 * well declares what it uses as weak, and asks whether it is there:
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
 * conch_backend_attribute_set_instance_threads - each instance has one thread for life, on which it
 * is initialised, warmed up, executed and finalised, as in Triton. Without it, and where the
 * parameter CONCH_EXECUTION of the model is not `thread`, instances are initialised on a thread
 * that loads, and executed on one that comes with work and goes without it.
 *
 * Thread: the one that calls TRITONBACKEND_GetBackendAttribute.
 * Errors: INVALID_ARG  `backend_attributes` is NULL
 */
CONCH_DECLSPEC struct TRITONSERVER_Error *conch_backend_attribute_set_instance_threads(
    struct TRITONBACKEND_BackendAttribute *backend_attributes, bool enabled);

/*
 * conch_model_declare_bounded - the backend promises, for this model: however its inputs are
 * chosen, an execution does no more than the size of the inputs allows, and it waits for nobody.
 * That is, ModelInstanceExecute
 *
 * - has no loop whose length a value decides, be it in the model, a parameter or an input;
 * - opens no file, makes no call over a network, does not sleep, and takes no lock that another
 *   thread may hold for long;
 * - takes much less than a millisecond for small inputs, and for larger ones no longer than a few
 *   copies of them would.
 *
 * The server may then execute the model on the threads that read its network connections, when
 * measurement shows that it is quick: that saves the hand-off to another thread, and all other
 * connections of that thread wait for as long as it takes. A model without the declaration always
 * executes on threads of its own. So a backend that promises too much does harm to others; a
 * watchdog notices after some milliseconds, and takes the model off those threads for long.
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
