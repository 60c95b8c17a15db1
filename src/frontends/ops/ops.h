/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operations that clients may ask for, one typed call each, whatever the protocol. Admin
 * verbs, restrictions and version strings are checked here and nowhere else, so that no route can
 * get around a check. Answers are structs; frontends encode them.
 *
 * Thread: any, also an event loop's: nothing here blocks, but for what says so.
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

/* Which model: as it stands in a path or a message. Borrowed. */
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

/* Errors: STATUS_UNAVAILABLE  Server exiting */
NODISCARD struct status *ops_server_live(struct server *s, bool *ret_live);
NODISCARD struct status *ops_server_ready(struct server *s, bool *ret_ready);

/*
 * ops_server_progress - the same with the reasons; the caller frees ret->rows with mem_free().
 *
 * @max_rows  of models that are being loaded, and of those that failed
 */
NODISCARD struct status *ops_server_progress(struct server *s, size_t max_rows,
                                             struct server_progress *ret);

/*
 * ops_model_ready - whether the version can serve.
 *
 * Errors: as ops_model_find()
 */
NODISCARD struct status *ops_model_ready(struct server *s, const struct ops_model_ref *ref,
                                         bool *ret_ready);

/*
 * ops_model_stuck_instance - why it cannot: the name of an instance whose backend keeps requests
 * beyond the execution limit, which the caller frees; NULL: there is none.
 */
char *ops_model_stuck_instance(struct server *s, const struct ops_model_ref *ref);

/*
 * ops_model_find - the model version, whose reference the caller ends with model_unref().
 *
 * Errors: STATUS_INVALID_ARG  the version is no number, or none above 0
 *         STATUS_NOT_FOUND    Request for unknown model: …
 *         STATUS_UNAVAILABLE  … it is not at ready state
 */
NODISCARD struct status *ops_model_find(struct server *s, const struct ops_model_ref *ref,
                                        struct model **ret_model);

/*
 * ops_model_metadata - what a client may know; ended by ops_model_metadata_done().
 *
 * Errors: as ops_model_find()
 */
NODISCARD struct status *ops_model_metadata(struct server *s, const struct ops_model_ref *ref,
                                            struct ops_model_metadata *ret);
void ops_model_metadata_done(struct ops_model_metadata *m);

/*
 * ops_statistics - what models have done so far; ended by server_statistics_done().
 *
 * @ref    without a name: of all models; without a version: of all its versions
 * Errors: STATUS_INVALID_ARG  the version is no number, or none above 0; there is no such model or
 *                             version (reference/behaviours §2.11)
 *         STATUS_UNAVAILABLE  Server not ready
 */
NODISCARD struct status *ops_statistics(struct server *s, const struct ops_model_ref *ref,
                                        struct server_statistics *ret);

/*
 * ops_infer_model - as ops_model_find(), for an inference of one response.
 *
 * Errors: as ops_model_find(), and
 *         STATUS_UNSUPPORTED  the model is decoupled: `protocol` cannot carry its responses
 * @protocol  how the error names the caller: "HTTP end point", "ModelInfer RPC"
 */
NODISCARD struct status *ops_infer_model(struct server *s, const struct ops_model_ref *ref,
                                         const char *protocol, struct model **ret_model);

/*
 * ops_repository_index - all models, sorted by name and version; the caller ends it with
 * mem_free().
 *
 * Thread: see ops_control().
 * Errors: STATUS_UNAVAILABLE  Server not ready
 */
NODISCARD struct status *ops_repository_index(struct server *s, bool ready_only,
                                              struct model_index_row **ret_rows, size_t *ret_n);

/*
 * ops_control - where the calls below are to be made, and ops_repository_index(), by those who must
 * not wait, such as event loops; NULL: the system has no room for a thread, and they wait.
 */
struct control *ops_control(struct server *s);

/* ops_helpers - likewise, where ops_statistics() of all models is to be called. */
struct control *ops_helpers(struct server *s);

/*
 * ops_model_load, ops_model_unload - changes which models serve. See server_load_model().
 *
 * Thread: see ops_control().
 * Errors: STATUS_UNAVAILABLE  the model control mode does not allow it
 *                             (reference/behaviours §13.1); the server is not ready
 *         STATUS_INVALID_ARG  the name is none; a version cannot be loaded
 *         STATUS_INTERNAL     there is no such model, or its configuration is wrong
 */
NODISCARD struct status *ops_model_load(struct server *s, const char *name,
                                        const struct load_parameter *parameters,
                                        size_t n_parameters);
NODISCARD struct status *ops_model_unload(struct server *s, const char *name);

/* ops_infer - server_infer(). */
NODISCARD struct status *ops_infer(struct server *s, struct request *r);

#endif
