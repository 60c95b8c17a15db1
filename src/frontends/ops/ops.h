/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operations that clients may ask for, one typed call each, whatever the protocol. Admin verbs,
 * restrictions and version strings are checked here and nowhere else, so that no route can get
 * around a check. Answers are structs; frontends encode them.
 *
 * Thread: any, also an event loop's. Nothing here blocks, except where a comment says so.
 */
#ifndef CONCH_FRONTENDS_OPS_OPS_H
#define CONCH_FRONTENDS_OPS_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

struct control;
struct load_parameter;
struct model;
struct model_index_row;
struct request;
struct server;
struct server_progress;
struct server_statistics;

/* The model that a path or a message names. Borrowed. */
struct ops_model_ref {
    const char *name;
    size_t name_length;
    const char *version; /* digits; empty for the latest */
    size_t version_length;
};

struct ops_model_metadata {
    struct model *model;
    size_t n_versions;
    int64_t *versions; /* ascending */
};

/*
 * ops_server_live, ops_server_ready - whether the server is live, or ready.
 *
 * Errors: STATUS_UNAVAILABLE  Server exiting
 */
NODISCARD struct status *ops_server_live(struct server *s, bool *ret_live);
NODISCARD struct status *ops_server_ready(struct server *s, bool *ret_ready);

/*
 * ops_server_progress - how far the server has come with its models, and why it is not ready. The
 * caller frees ret->rows with mem_free().
 *
 * @max_rows  the most rows of models that are being loaded, and of those that failed
 * Errors: as ops_server_live()
 */
NODISCARD struct status *ops_server_progress(struct server *s, size_t max_rows,
                                             struct server_progress *ret);

/*
 * ops_model_ready - whether the version can execute requests.
 *
 * Errors: as ops_model_find()
 */
NODISCARD struct status *ops_model_ready(struct server *s, const struct ops_model_ref *ref,
                                         bool *ret_ready);

/*
 * ops_model_stuck_instance - the name of an instance whose backend keeps requests beyond the
 * execution limit, which makes the model not ready. NULL: there is none. The caller frees it with
 * mem_free().
 */
char *ops_model_stuck_instance(struct server *s, const struct ops_model_ref *ref);

/*
 * ops_model_find - finds a model version. The caller ends the reference with model_unref().
 *
 * Errors: STATUS_INVALID_ARG  the version is not a number above 0
 *         STATUS_NOT_FOUND    Request for unknown model: …
 *         STATUS_UNAVAILABLE  … it is not at ready state
 */
NODISCARD struct status *ops_model_find(struct server *s, const struct ops_model_ref *ref,
                                        struct model **ret_model);

/*
 * ops_model_metadata - the data for a metadata reply; ended by ops_model_metadata_done().
 *
 * Errors: as ops_model_find()
 */
NODISCARD struct status *ops_model_metadata(struct server *s, const struct ops_model_ref *ref,
                                            struct ops_model_metadata *ret);
void ops_model_metadata_done(struct ops_model_metadata *m);

/*
 * ops_statistics - the statistics of models; ended by server_statistics_done().
 *
 * @ref    without a name: all models; without a version: all versions of the model
 * Errors: STATUS_INVALID_ARG  the version is not a number above 0; there is no such model or
 *                             version (reference/behaviours §2.11)
 *         STATUS_UNAVAILABLE  Server not ready
 */
NODISCARD struct status *ops_statistics(struct server *s, const struct ops_model_ref *ref,
                                        struct server_statistics *ret);

/*
 * ops_infer_model - like ops_model_find(), for an inference with exactly one response.
 *
 * @protocol  the name of the caller in the error: "HTTP end point", "ModelInfer RPC"
 * Errors: as ops_model_find(), and
 *         STATUS_UNSUPPORTED  the model is decoupled: `protocol` cannot carry its responses
 */
NODISCARD struct status *ops_infer_model(struct server *s, const struct ops_model_ref *ref,
                                         const char *protocol, struct model **ret_model);

/*
 * ops_repository_index - all models, sorted by name and version. The caller frees the rows with
 * mem_free().
 *
 * Thread: any; may block, see ops_control().
 * Errors: STATUS_UNAVAILABLE  Server not ready
 */
NODISCARD struct status *ops_repository_index(struct server *s, bool ready_only,
                                              struct model_index_row **ret_rows, size_t *ret_n);

/*
 * ops_control - the control threads. A caller that must not block, such as an event loop, has
 * ops_repository_index() and the calls below made there. NULL: the system has no room for a thread;
 * the caller then makes the calls itself and blocks.
 */
struct control *ops_control(struct server *s);

/* ops_helpers - likewise, the threads for calls of ops_statistics() for all models. */
struct control *ops_helpers(struct server *s);

/*
 * ops_model_load, ops_model_unload - load and unload a model. See server_load_model().
 *
 * Thread: any; blocks, see ops_control().
 * Errors: STATUS_UNAVAILABLE  the model control mode does not allow it (reference/behaviours
 *                             §13.1); the server is not ready
 *         STATUS_INVALID_ARG  the name is not a valid one; a version cannot be loaded
 *         STATUS_INTERNAL     there is no such model, or its configuration is wrong
 */
NODISCARD struct status *ops_model_load(struct server *s, const char *name,
                                        const struct load_parameter *parameters,
                                        size_t n_parameters);
NODISCARD struct status *ops_model_unload(struct server *s, const char *name);

/* ops_infer - calls server_infer(), whose comment holds for this function. */
NODISCARD struct status *ops_infer(struct server *s, struct request *r);

#endif
