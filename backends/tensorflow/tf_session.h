/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tf_session - a model that TensorFlow has loaded: its sessions, and where its tensors are.
 *
 * All instances share a session, and with it the weights, unless MAX_SESSION_SHARE_COUNT says
 * otherwise.
 *
 * Threads: constant once loaded, but for `sessions`, which mu guards.
 */
#ifndef BACKENDS_TENSORFLOW_TF_SESSION_H
#define BACKENDS_TENSORFLOW_TF_SESSION_H

#include <pthread.h>

#include "tensorflow/model.h"
#include "tensorflow/tf_library.h"

struct tf_session {
    struct tf_session *next;
    struct tf_graph *graph;
    struct tf_session_object *object;
    struct tf_port *inputs, *outputs; /* of the model's tensors, in their order */
    int64_t n_users;
};

struct tf_loaded {
    const struct tf_library *lib;
    struct tf_model *m;
    bool in_place;  /* inputs may be used where they are: nothing keeps them after an execution */
    bool *wanted;   /* outputs that the configuration has */
    bool *optional; /* inputs that requests may lack; the graph has a value for them */

    uint64_t bytes; /* of its files, which each session keeps */

    pthread_mutex_t mu;
    struct tf_session *sessions; /* under mu; the newest first */
};

/*
 * tf_session_load - load a model, and of a GraphDef take its tensors as m->signature.
 * Errors: those of TensorFlow, and INVALID_ARG where file and configuration do not fit
 */
TRITONSERVER_Error *tf_session_load(const struct tf_library *lib, struct tf_model *m,
                                    struct tf_loaded **ret_loaded);
void tf_session_unload(struct tf_loaded *l);

/* tf_session_take - a session for one more instance, which gives it back when it is closed. */
TRITONSERVER_Error *tf_session_take(struct tf_loaded *l, struct tf_session **ret_session);
void tf_session_give_back(struct tf_loaded *l, struct tf_session *session);

#endif
