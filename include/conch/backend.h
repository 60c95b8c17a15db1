/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What Conch offers to backends besides tritonbackend.h. A backend that is to run under Triton as
 * well declares what it uses as weak, and asks whether it is there:
 *
 *     #include "conch/backend.h"
 *
 *     extern __typeof__(conch_backend_attribute_set_instance_threads)
 *         conch_backend_attribute_set_instance_threads __attribute__((weak));
 *     …
 *     if (conch_backend_attribute_set_instance_threads)
 *         err = conch_backend_attribute_set_instance_threads(attributes, true);
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

#ifdef __cplusplus
}
#endif

#endif
