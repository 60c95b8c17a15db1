/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model - a version of a Python model: where its file is, with which interpreter it runs, what its
 * parameters say, and the completion of its configuration.
 *
 * Threads: the server calls model_open() and model_close() on one; a model is constant between.
 */
#ifndef BACKENDS_PYTHON_MODEL_H
#define BACKENDS_PYTHON_MODEL_H

#include "python/child.h"

/* A backend: the Python backend itself, or one that is written in Python. */
struct python {
    TRITONBACKEND_Backend *handle;
    struct settings settings;
    char *script; /* start.py, beside our library */
};

struct model {
    TRITONBACKEND_Model *handle;
    TRITONSERVER_Server *server;
    const struct python *python;
    const char *name;
    char *version;
    char *repository;       /* the model's folder */
    char *folder;           /* of the version */
    char *file;             /* a name in it, or a path with a slash */
    char *environment_path; /* EXECUTION_ENV_PATH; NULL: none */
    struct environment *environment;
    struct completion *completion; /* NULL: the server does not complete configurations */
    bool force_cpu;
    uint64_t execute_timeout_ns; /* CONCH_EXECUTE_TIMEOUT_MS; 0: none */
    uint64_t spin_ns; /* CONCH_PYTHON_SPIN_US, also as a variable for the child; 0, NULL: none */
    char *spin_variable;
};

/*
 * model_open - finds the model's file and interpreter, and completes its configuration if the
 * server wants that.
 *
 * Errors: NOT_FOUND, INVALID_ARG, UNSUPPORTED  of its configuration or environment
 *         INTERNAL                             its auto_complete_config() has failed
 */
TRITONSERVER_Error *model_open(TRITONBACKEND_Model *handle, struct model **ret_model);
void model_close(struct model *m);

/* The arguments of initialize(). */
struct arguments {
    TRITONSERVER_Message *config; /* owned; the text is in it */
    const char *config_text;
    size_t config_len;
    const char *kind, *instance, *repository, *version, *model, *folder, *file;
    int32_t device;
    int64_t max_batch_size; /* as completed, which a model does not see before it has instances */
    bool is_initialize, is_decoupled, force_cpu;
};

/* model_arguments - those of an instance; NULL: to complete the configuration. arguments_done()
 * ends them. */
TRITONSERVER_Error *model_arguments(const struct model *m, TRITONBACKEND_ModelInstance *instance,
                                    struct arguments *ret_arguments);
void arguments_done(struct arguments *a);

/* model_command - sends COMMAND_COMPLETE or COMMAND_INITIALIZE. False: no memory. */
bool model_command(struct child *c, const struct arguments *a);

/* model_start - what child_start() needs, but for its owner. */
void model_start(const struct model *m, struct child_start *ret_start);

/*
 * model_give_child - the process that has completed the configuration, once, to the first instance
 * that asks: it has been adopted (child_adopt()), and the caller has a reference. One in which the
 * completion has left threads, or which is bound to other processors than start->processors, is
 * ended instead. Any thread.
 * Returns NULL: there is none.
 */
struct child *model_give_child(const struct model *m, const struct child_start *start);

#endif
