/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frame - the frame of a backend that answers each request once. Such a backend fills in one
 * struct, names it in BACKEND_FRAME(), and has all the functions of tritonbackend.h:
 *
 *     static TRITONSERVER_Error *execute(struct frame_instance *in, struct batch *b) { … }
 *     static const struct frame frame = {.execute = execute};
 *     BACKEND_FRAME(frame)
 *
 * The frame handles versions, configurations, states, statistics, errors and releases. (series.h is
 * for backends that answer any number of times, or later.)
 *
 * Threads: one thread at a time calls the functions of one instance. Instances of one model, and
 * models, run at the same time.
 */
#ifndef BACKENDS_COMMON_FRAME_H
#define BACKENDS_COMMON_FRAME_H

#include "common/batch.h"

#ifdef __cplusplus
extern "C" {
#endif

struct frame;

/* A version of a model. */
struct frame_model {
    TRITONBACKEND_Model *handle;
    const char *name;
    struct doc *config;
    int64_t max_batch_size;
    void *backend; /* frame.backend */
    void *state;   /* the backend's own */

    /* Private. */
    const struct frame *frame;
    bool entered; /* model_open() has been called */
};

/* How an instance executes its batches; see frame_run(). */
struct frame_execution {
    /* As frame.execute. */
    TRITONSERVER_Error *(*execute)(void *arg, struct batch *b);
    void *arg;
    TRITONBACKEND_ModelInstance *instance;
    const char *model;  /* its name, borrowed */
    bool has_rows;      /* does the model batch? */
    bool repeat_alone;  /* as frame.repeat_alone */
    bool names_model;   /* errors of execute() get the model's name in front */
    struct batch batch; /* zeroes at first; ended by batch_done() */
};

/* One of its instances. */
struct frame_instance {
    TRITONBACKEND_ModelInstance *handle;
    const char *name;
    struct frame_model *model;
    void *state; /* the backend's own */

    /* Private. */
    struct frame_execution execution;
    bool entered; /* instance_open() has been called */
};

struct frame {
    /*
     * For a backend of a framework: read what --backend-config says, and find the framework's
     * library. Called when the library has been loaded, before initialize(); finalize() is called
     * after an error of it, too. Optional.
     * @settings  as backend_settings() gives them; lent for the call
     * @folder    of the backend; lent for the call
     */
    TRITONSERVER_Error *(*configure)(const struct doc *settings, const char *folder);
    void *backend; /* the backend's own, which each frame_model has; often what configure() fills */

    /* Called after the library was loaded, before it is unloaded. Both optional. */
    TRITONSERVER_Error *(*initialize)(TRITONBACKEND_Backend *backend);
    void (*finalize)(TRITONBACKEND_Backend *backend);

    /* A model is initialised, finalised; optional. model_close() is called after an error of
     * model_open(), too. */
    TRITONSERVER_Error *(*model_open)(struct frame_model *m);
    void (*model_close)(struct frame_model *m);

    /* The same for its instances; optional. */
    TRITONSERVER_Error *(*instance_open)(struct frame_instance *in);
    void (*instance_close)(struct frame_instance *in);

    /* Is the instance able to work? Optional. */
    TRITONSERVER_Error *(*ready)(struct frame_instance *in);

    /*
     * Fill the responses of a batch. An error is the answer of all its parts that have none yet
     * (batch_fail()). A model that does not batch gets batches of one part.
     */
    TRITONSERVER_Error *(*execute)(struct frame_instance *in, struct batch *b);

    /* If a batch of several fails as a whole, execute each part alone, so that a request which the
     * model refuses does not make the others fail. Those cancelled meanwhile are not executed. */
    bool repeat_alone;
    /* instance_open() may run for several instances of a model at the same time. */
    bool parallel_instances;
    /* A group of instances without a kind is on GPUs, where there are some. */
    bool prefers_gpus;
    /* The error of instances on GPUs, which has the model's name at its "%s", if it has one; a
     * model without instance groups is on CPUs. NULL: instances may be on GPUs. */
    const char *refuses_gpu;
};

/* What the functions that BACKEND_FRAME() defines do. */
TRITONSERVER_Error *frame_initialize(const struct frame *f, TRITONBACKEND_Backend *backend);
TRITONSERVER_Error *frame_finalize(const struct frame *f, TRITONBACKEND_Backend *backend);
TRITONSERVER_Error *frame_attributes(const struct frame *f,
                                     TRITONBACKEND_BackendAttribute *attributes);
TRITONSERVER_Error *frame_model_open(const struct frame *f, TRITONBACKEND_Model *model);
TRITONSERVER_Error *frame_model_close(TRITONBACKEND_Model *model);
TRITONSERVER_Error *frame_instance_open(TRITONBACKEND_ModelInstance *instance);
TRITONSERVER_Error *frame_instance_close(TRITONBACKEND_ModelInstance *instance);
TRITONSERVER_Error *frame_instance_ready(TRITONBACKEND_ModelInstance *instance);
TRITONSERVER_Error *frame_execute(TRITONBACKEND_ModelInstance *instance,
                                  TRITONBACKEND_Request **requests, uint32_t n);

/*
 * frame_run - execute, answer and release all these requests: frame_execute() for a backend that
 * has functions of tritonbackend.h of its own.
 * Errors: UNAVAILABLE  no memory; the server still has the requests
 */
TRITONSERVER_Error *frame_run(struct frame_execution *e, TRITONBACKEND_Request **requests,
                              uint32_t n);

/* BACKEND_FRAME - define the functions that the server calls, for a struct frame. */
#define BACKEND_FRAME(f)                                                                           \
    TRITONSERVER_Error *TRITONBACKEND_Initialize(TRITONBACKEND_Backend *backend)                   \
    {                                                                                              \
        return frame_initialize(&(f), backend);                                                    \
    }                                                                                              \
    TRITONSERVER_Error *TRITONBACKEND_Finalize(TRITONBACKEND_Backend *backend)                     \
    {                                                                                              \
        return frame_finalize(&(f), backend);                                                      \
    }                                                                                              \
    TRITONSERVER_Error *TRITONBACKEND_GetBackendAttribute(                                         \
        TRITONBACKEND_Backend *backend, TRITONBACKEND_BackendAttribute *backend_attributes)        \
    {                                                                                              \
        (void)backend;                                                                             \
        return frame_attributes(&(f), backend_attributes);                                         \
    }                                                                                              \
    TRITONSERVER_Error *TRITONBACKEND_ModelInitialize(TRITONBACKEND_Model *model)                  \
    {                                                                                              \
        return frame_model_open(&(f), model);                                                      \
    }                                                                                              \
    TRITONSERVER_Error *TRITONBACKEND_ModelFinalize(TRITONBACKEND_Model *model)                    \
    {                                                                                              \
        return frame_model_close(model);                                                           \
    }                                                                                              \
    TRITONSERVER_Error *TRITONBACKEND_ModelInstanceInitialize(                                     \
        TRITONBACKEND_ModelInstance *instance)                                                     \
    {                                                                                              \
        return frame_instance_open(instance);                                                      \
    }                                                                                              \
    TRITONSERVER_Error *TRITONBACKEND_ModelInstanceFinalize(TRITONBACKEND_ModelInstance *instance) \
    {                                                                                              \
        return frame_instance_close(instance);                                                     \
    }                                                                                              \
    TRITONSERVER_Error *TRITONBACKEND_ModelInstanceReady(TRITONBACKEND_ModelInstance *instance)    \
    {                                                                                              \
        return frame_instance_ready(instance);                                                     \
    }                                                                                              \
    TRITONSERVER_Error *TRITONBACKEND_ModelInstanceExecute(TRITONBACKEND_ModelInstance *instance,  \
                                                           TRITONBACKEND_Request **requests,       \
                                                           const uint32_t request_count)           \
    {                                                                                              \
        return frame_execute(instance, requests, request_count);                                   \
    }

#ifdef __cplusplus
}
#endif
#endif
