/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations of clients that need more than one call of the server (core/server/server.h), for all
 * protocols: they parse versions, and refuse replies that a protocol cannot carry. All other
 * operations are calls of the server. Answers are structs; frontends encode them.
 *
 * Thread: any, also an event loop's. Nothing here blocks.
 */
#ifndef CONCH_FRONTENDS_OPS_OPS_H
#define CONCH_FRONTENDS_OPS_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

struct control;
struct model;
struct server;
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
 * ops_model_ready - whether the version can execute requests.
 *
 * Errors: as ops_model_find()
 */
NODISCARD struct status *ops_model_ready(struct server *s, const struct ops_model_ref *ref,
                                         bool *ret_ready);

/*
 * ops_model_to_trace - refuses a model whose settings of traces cannot be read or changed.
 *
 * Errors: as ops_model_find(); STATUS_INVALID_ARG  it is not ready
 */
NODISCARD struct status *ops_model_to_trace(struct server *s, const struct ops_model_ref *ref);

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
 * ops_model_metadata - collects the data of a metadata reply. The caller ends it with
 * ops_model_metadata_done().
 *
 * Errors: as ops_model_find()
 */
NODISCARD struct status *ops_model_metadata(struct server *s, const struct ops_model_ref *ref,
                                            struct ops_model_metadata *ret);
void ops_model_metadata_done(struct ops_model_metadata *m);

/*
 * ops_statistics - collects the statistics of models. The caller ends them with
 * server_statistics_done().
 *
 * @ref    without a name: all models; without a version: all versions of the model
 * Errors: STATUS_INVALID_ARG  the version is not a number above 0; there is no such model or
 *                             version (reference/behaviours §2.11)
 *         STATUS_UNAVAILABLE  Server not ready
 */
NODISCARD struct status *ops_statistics(struct server *s, const struct ops_model_ref *ref,
                                        struct server_statistics *ret);

struct access_view;

/*
 * ops_model_to_infer - like ops_model_find(), for an inference. The error of an unknown model says
 * which one may be meant, unless rules of access hide models from clients.
 *
 * @access  the rules that hold for the caller
 * Errors: as ops_model_find()
 */
NODISCARD struct status *ops_model_to_infer(struct server *s, const struct ops_model_ref *ref,
                                            const struct access_view *access,
                                            struct model **ret_model);

/*
 * ops_infer_model - like ops_model_to_infer(), for an inference with exactly one response.
 *
 * @protocol  the name of the caller in the error: "HTTP end point", "ModelInfer RPC"
 * Errors: as ops_model_find(), and
 *         STATUS_UNSUPPORTED  the model is decoupled: `protocol` cannot carry its responses
 */
NODISCARD struct status *ops_infer_model(struct server *s, const struct ops_model_ref *ref,
                                         const struct access_view *access, const char *protocol,
                                         struct model **ret_model);

/*
 * ops_control - the control threads. A caller that must not block, such as an event loop, posts
 * calls of server_index(), server_load_model() and server_unload_model() to them. NULL: the system
 * has no room for a thread; the caller then makes the calls itself and blocks.
 */
struct control *ops_control(struct server *s);

#endif
