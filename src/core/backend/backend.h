/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Backends are shared libraries that execute models, with the functions of tritonbackend.h. A
 * library is loaded once for its path, and shared by all models that use it. Backends written in
 * Python are different backends that share one library. struct backend is TRITONBACKEND_Backend.
 */
#ifndef CONCH_CORE_BACKEND_BACKEND_H
#define CONCH_CORE_BACKEND_BACKEND_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/compiler.h"
#include "base/list.h"
#include "base/mutex.h"
#include "core/backend/json_message.h"
#include "core/config/config.h"
#include "core/threads/helpers.h"

struct backend;
struct backend_attribute;
struct backend_setting;
struct instance;
struct model;
struct request;
struct server;
struct server_options;
struct status;

/* What a backend implements; only instance_execute is mandatory, the others may be NULL. */
struct backend_functions {
    struct status *(*initialize)(struct backend *);
    struct status *(*finalize)(struct backend *);
    struct status *(*get_attribute)(struct backend *, struct backend_attribute *);
    struct status *(*model_initialize)(struct model *);
    struct status *(*model_finalize)(struct model *);
    struct status *(*instance_initialize)(struct instance *);
    struct status *(*instance_finalize)(struct instance *);
    struct status *(*instance_ready)(struct instance *);
    struct status *(*instance_execute)(struct instance *, struct request **, uint32_t n);
};

enum execution_policy { EXECUTION_BLOCKING, EXECUTION_DEVICE_BLOCKING };

/* The attributes that a backend sets. This is TRITONBACKEND_BackendAttribute. */
struct backend_attribute {
    bool parallel_instance_loading;
    bool instance_threads; /* each instance has a thread for life */
    size_t n_groups;
    struct config_group *groups;
};

struct backend {
    /* Constant once loaded. */
    char *name;
    char *library_path;
    char *directory;
    struct json_message config; /* {"cmdline":{…}} */
    struct backend_functions fns;
    struct dl *library;
    bool entered; /* Initialize has been called, if there is one: Finalize is due */
    struct backend_attribute attribute;
    struct server *server;

    struct helpers askers; /* ask it whether its models are ready; joined before Finalize */

    /* Any thread, relaxed; see backend_stays(). Only ever becomes true. */
    atomic_bool stays;

    /* The backend's own, from any of its threads. */
    void *state;
    enum execution_policy policy;

    /* Under registry.mu. */
    struct list link;
    unsigned int users;
    enum { BACKEND_LOADING, BACKEND_LOADED } stage;
};

/* Whether instances of one model initialise at the same time; the environment may overrule. */
enum parallel_instances { PARALLEL_AS_BACKEND_SAYS, PARALLEL_ALWAYS, PARALLEL_NEVER };

/* All backends of a server. */
struct backend_registry {
    /* Constant. */
    struct server *server;
    const char *directory; /* of all backends, borrowed */
    const struct backend_setting *settings;
    size_t n_settings;
    bool auto_complete; /* may backends complete configurations? */
    enum parallel_instances parallel_instances;

    atomic_uint n_free_helpers; /* threads that may still help with making instances */

    struct mutex mu; /* level 200 in core/README.md */
    struct cond changed;
    /* Under mu. */
    struct list backends;
};

/* backend_registry_init - @options  borrowed; they outlive the registry. Reads the environment. */
void backend_registry_init(struct backend_registry *reg, struct server *server,
                           const struct server_options *options);
void backend_registry_done(struct backend_registry *reg);

/*
 * backend_find_file - the path of the first regular file of that name in the version's folder, the
 * model's folder, the backend's own folder; NULL: there is none. The caller frees it.
 */
char *backend_find_file(const struct backend_registry *reg, const char *backend,
                        const char *model_directory, const char *version_directory,
                        const char *name);

/* The name of the file of a backend written in Python. */
#define BACKEND_PYTHON_FILE "model.py"

/* The files of a model's backend. */
struct backend_files {
    char *library;   /* path */
    char *directory; /* the folder that the backend is told it is in */
    bool is_python;  /* the library is the Python backend's, which runs the directory's model.py */
    char *environment; /* if is_python: the packed Python environment there; NULL: none */
};
void backend_files_done(struct backend_files *f);

/*
 * backend_find - finds the files of a model's backend: the library `runtime`, or
 * libtriton_<backend>.so, in the version's folder, the model's folder or the backend's own folder.
 * If there is none, or `runtime` is model.py, it is a model.py in the backend's own folder. The
 * Python backend's library is then looked for in the same folders and in that backend's folder.
 *
 * @ret_files  the caller ends it with backend_files_done()
 * Errors: STATUS_INVALID_ARG  the name leads out of those folders, or there is no such file
 */
NODISCARD struct status *backend_find(const struct backend_registry *reg,
                                      const struct model_config *config,
                                      const char *model_directory, const char *version_directory,
                                      struct backend_files *ret_files);

/*
 * backend_get - the backend of these files, loaded and initialised. The caller ends its use with
 * backend_put(); the end of the last use finalises and unloads it.
 *
 * Thread: control. Waits while another thread loads the same library.
 * Errors: STATUS_NOT_FOUND, STATUS_INTERNAL, and those of TRITONBACKEND_Initialize
 */
NODISCARD struct status *backend_get(struct backend_registry *reg, const char *name,
                                     const struct backend_files *files,
                                     struct backend **ret_backend);
void backend_put(struct backend_registry *reg, struct backend *b);

/*
 * backend_stays - keeps the library in memory for good. To be called before a thread runs code of
 * the backend that is not joined before the library is unloaded: a thread of an event loop or an
 * embedder. The library may have thread-local values whose destructors run at the thread's end.
 * Threads of instances, those of backend_call() and the askers are joined.
 *
 * Thread: any.
 */
static inline void backend_stays(struct backend *b)
{
    if (UNLIKELY(!atomic_load_explicit(&b->stays, memory_order_relaxed)))
        atomic_store_explicit(&b->stays, true, memory_order_relaxed);
}

/*
 * backend_call - calls run(arg), which loads or unloads something in a backend, on a thread that it
 * joins before it returns. Returns false when there was no room for the thread: run(arg) was called
 * on this thread, so the caller must call backend_stays().
 */
bool backend_call(const char *thread_name, void (*run)(void *arg), void *arg);

#endif
