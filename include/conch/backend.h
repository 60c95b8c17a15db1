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
 * conch_cpu_count - how many threads of this process can compute at once: as many as the CPUs that
 * it may run on, or as many as the CPU time that its control groups allow keeps busy, where these
 * are fewer; at least 1. With more threads all of them wait: when the time of a period, mostly
 * 0.1 s, is used up, the whole process stands still until the next one. Frameworks do not know of
 * such a quota and make a thread for each CPU, so a backend tells its framework this number. The
 * CPUs of host policies do not count: they are the affinity of the instances' threads.
 *
 * Thread: any. It reads files in /proc and /sys.
 */
CONCH_DECLSPEC int conch_cpu_count(void);

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

/*
 * conch_model_instance_readiness_changed - the backend says that TRITONBACKEND_ModelInstanceReady
 * now answers otherwise for this instance. The server asks it at once, on a thread of its own, and
 * clients get the new answer as soon as it is there. Without the call the server asks when clients
 * want to know, and about once a second while they do.
 *
 * A call while the server asks has it ask once more. A call while the model is being loaded or
 * unloaded has no effect: the server asks when the model has been loaded. Do not call it in
 * ModelInstanceReady, which the server would then ask for ever.
 *
 * Thread: any, between ModelInstanceInitialize and the return of ModelInstanceFinalize; the backend
 * may hold locks of its own, also those that ModelInstanceReady takes.
 * Errors: INVALID_ARG  `instance` is NULL
 */
CONCH_DECLSPEC struct TRITONSERVER_Error *
conch_model_instance_readiness_changed(struct TRITONBACKEND_ModelInstance *instance);

/*
 * Executions in two parts. A backend whose model runs elsewhere, such as in another process, sends
 * the requests there in ModelInstanceExecute, calls conch_model_instance_leave(), and returns. When
 * the answer has come, the server calls the finish function, which answers and releases the
 * requests. In between no thread of the server waits, and the instance gets no other requests. The
 * threads that read network connections can do both parts, which saves two hand-offs to a thread.
 *
 * The two parts of one execution are on different threads, one after the other: whatever the first
 * has written, the second sees.
 */
enum conch_finish {
    CONCH_FINISH_OVER = 0,     /* all requests are answered and released */
    CONCH_FINISH_LATER = 1,    /* the answer is not there so far; nothing has been done */
    CONCH_FINISH_ON_THREAD = 2 /* it takes long or waits: to be called with may_wait; as before */
};
/*
 * @may_wait  false: on a thread that reads network connections. The function does not wait for
 *            anything, and copies no more than a megabyte. true: it waits for the answer, and
 *            returns CONCH_FINISH_OVER
 * Returns an enum conch_finish.
 */
typedef int (*conch_finish_fn_t)(struct TRITONBACKEND_ModelInstance *instance, bool may_wait);

/*
 * conch_model_instance_set_finish - the backend has executions of this instance leave. The first
 * part of each then takes a few copies of its inputs at most and does not wait, unless
 * conch_model_instance_leave() returns false. They do not leave where the server wants a thread for
 * an execution: with sequences, a batching library, the rate limiter, an execution limit, CPUs of a
 * host policy, or the parameter CONCH_EXECUTION.
 *
 * @descriptor  becomes readable, or readable once more, for each answer: an eventfd or a pipe. The
 *              server watches a duplicate of it edge-triggered, and reads nothing. Also ready when
 *              an execution is to be finished for another reason: the other side has ended
 * Thread: the one that initialises the instance. With another descriptor and the same function
 *         also the one that executes it, in ModelInstanceExecute, before
 *         conch_model_instance_leave().
 * Errors: INVALID_ARG  `instance` or `finish` is NULL, or `descriptor` negative
 */
CONCH_DECLSPEC struct TRITONSERVER_Error *
conch_model_instance_set_finish(struct TRITONBACKEND_ModelInstance *instance, int descriptor,
                                conch_finish_fn_t finish);

/*
 * conch_model_instance_leave - true: the finish function ends this execution, and
 * ModelInstanceExecute returns NULL. The backend sends the requests away after the call: when the
 * descriptor has become ready before it, that does not count. The finish function is not called
 * before ModelInstanceExecute has returned. false: ModelInstanceExecute waits for the answer by
 * itself.
 *
 * Thread: the one that executes the instance, in ModelInstanceExecute, once.
 */
CONCH_DECLSPEC bool conch_model_instance_leave(struct TRITONBACKEND_ModelInstance *instance);

/*
 * conch_request_set_parent - the backend makes the request because of another one, its parent,
 * which it executes. The next call of TRITONSERVER_ServerInferAsync with the request then gives it
 *
 * - the parent's deadline, after which no model executes it;
 * - the parent's cancellation: when the parent is cancelled, the request is, too, wherever it
 * waits;
 * - the parent's priority, if it has none of its own;
 * - a child of the parent's trace, if the caller passes no trace;
 * - leave to run while the server stops. The server waits for it until its release callback has
 *   returned, also when the parent has been answered meanwhile.
 *
 * When the parent has been cancelled already, ServerInferAsync returns CANCELLED, and nothing runs.
 * This holds for one run of the request, until it is released or ServerInferAsync returns an error.
 * A later call replaces the parent; NULL takes it away.
 *
 * Thread: any, while the backend has the parent, that is until it releases it. The request may be
 * run and may end later.
 * Errors: INVALID_ARG  `inference_request` is NULL, or in flight; no backend has the parent
 */
CONCH_DECLSPEC struct TRITONSERVER_Error *
conch_request_set_parent(struct TRITONSERVER_InferenceRequest *inference_request,
                         struct TRITONBACKEND_Request *parent);

#ifdef __cplusplus
}
#endif

#endif
