/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server: its options, its models, its state. This is TRITONSERVER_Server. It knows no wire
 * format: it answers with structs, which frontends encode.
 */
#ifndef CONCH_CORE_SERVER_H
#define CONCH_CORE_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

struct model;
struct request;
struct server;
struct server_options;

#define CONCH_VERSION_LATEST (-1)

/*
 * server_new - a running server: reads the repositories and loads the models.
 *
 * Thread: control. Blocks until every model is ready or has failed.
 * @options  borrowed, copied
 * Errors:   STATUS_INTERNAL     a model failed and options say exit-on-error
 *           STATUS_INVALID_ARG  an option or a repository path is wrong
 */
NODISCARD struct status *server_new(const struct server_options *options,
                                    struct server **ret_server);

/*
 * server_stop - refuses new requests, waits for those in flight (up to the exit timeout), unloads.
 *
 * Errors: STATUS_INTERNAL  Exit timeout expired. Exiting immediately.
 */
NODISCARD struct status *server_stop(struct server *s);
void server_free(struct server *s);
void server_set_exit_timeout(struct server *s, unsigned int seconds);

/* server_id, server_version - what server metadata shows. Borrowed. */
const char *server_id(const struct server *s);
const char *server_version(const struct server *s);
/* server_extensions - the protocol extensions that this server has; NULL ends. */
const char *const *server_extensions(const struct server *s);

/* Errors: STATUS_UNAVAILABLE  Server exiting */
NODISCARD struct status *server_is_live(struct server *s, bool *ret_live);
NODISCARD struct status *server_is_ready(struct server *s, bool *ret_ready);

/*
 * server_find_model - the model version that serves, by name; the caller ends the reference.
 *
 * Thread: any. Takes no lock that cores share.
 * @version  CONCH_VERSION_LATEST, or a version
 * Errors:   STATUS_NOT_FOUND, STATUS_UNAVAILABLE, both beginning "Request for unknown model: "
 */
NODISCARD struct status *server_find_model(struct server *s, const char *name, size_t name_length,
                                           int64_t version, struct model **ret_model);

/*
 * server_model_versions - the READY versions of a model, ascending.
 *
 * @ret_versions  the caller frees it with mem_free()
 * Errors:        as server_find_model()
 */
NODISCARD struct status *server_model_versions(struct server *s, const char *name,
                                               size_t name_length, int64_t **ret_versions,
                                               size_t *ret_n);

/*
 * server_model_is_ready - whether the backend finds the version able to serve.
 *
 * Errors: STATUS_NOT_FOUND, STATUS_UNAVAILABLE when it is missing or not loaded
 */
NODISCARD struct status *server_model_is_ready(struct server *s, const char *name,
                                               size_t name_length, int64_t version,
                                               bool *ret_ready);

/*
 * server_infer - checks the request against its model and hands it to the scheduler.
 *
 * Thread: any. May execute the model before it returns (r->budget), so that all of r->ops may
 * have been called by then.
 * @r      the core has it until its final response and its release; on error nothing happened and
 *         it is the caller's as before
 * Errors: STATUS_INVALID_ARG  the request does not fit the model (behaviours §7)
 *         STATUS_UNAVAILABLE  the model or the server is stopping
 */
NODISCARD struct status *server_infer(struct server *s, struct request *r);

/* One row of the repository index. */
struct model_index_row {
    const char *name;
    int64_t version;   /* -1 = none: never loaded */
    const char *state; /* "" without a version, except for duplicates */
    const char *reason;
};

/* server_index - all models, sorted by name and version; the caller frees with mem_free(). */
struct model_index_row *server_index(struct server *s, bool ready_only, size_t *ret_n);

#endif
