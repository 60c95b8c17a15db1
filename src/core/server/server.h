/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server: its options, its models, its state. This is TRITONSERVER_Server. It knows no wire
 * format: it answers with structs, which frontends encode.
 */
#ifndef CONCH_CORE_SERVER_SERVER_H
#define CONCH_CORE_SERVER_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "core/model/statistics.h"
#include "core/model/tensor.h"
#include "core/repo/index_row.h"
#include "core/repo/model_mapping.h"
#include "core/repo/model_version.h"

struct budget;
struct buf;
struct changes;
struct control;
struct load_parameter;
struct model;
struct request;
struct server;
struct server_options;
struct status;
struct inline_budget;

/* Receives the result of server_load(): NULL, or an error, which is taken. */
typedef void server_loaded_fn(void *arg, struct status *st);

/*
 * server_new - makes a running server: reads the repositories and loads the models. The caller ends
 * it with server_stop(), then server_free().
 *
 * Thread: control. Blocks until every model is ready or has failed.
 * @options  borrowed, copied
 * Errors:   STATUS_INTERNAL     a model failed and options say exit-on-error
 *           STATUS_INVALID_ARG  an option or a repository path is wrong
 */
NODISCARD struct status *server_new(const struct server_options *options,
                                    struct server **ret_server);

/*
 * server_create - makes a server that has opened its repositories and has no model yet; the caller
 * calls server_load() next. Until then requests for a model get STATUS_UNAVAILABLE.
 *
 * Errors: STATUS_INVALID_ARG, STATUS_INTERNAL  an option or a repository path is wrong. Without
 *                             exit-on-error a path that cannot be opened is no error here: the
 *                             server is made, but never becomes live or ready
 */
NODISCARD struct status *server_create(const struct server_options *options,
                                       struct server **ret_server);

/*
 * server_load - loads the models that the options want; each serves as soon as it is READY. To be
 * called once.
 *
 * Thread: control. Blocks until every model is ready or has failed, or until server_stop(); models
 * that are being loaded at that time are still loaded to their end.
 * Errors: STATUS_INTERNAL, STATUS_INVALID_ARG  a model failed and options say exit-on-error: the
 *                             caller is to stop the server
 *         STATUS_UNAVAILABLE  the server was stopped meanwhile, or this is a second call
 */
NODISCARD struct status *server_load(struct server *s);

/*
 * server_load_start - starts a thread that does the same, and calls on_loaded at its end.
 *
 * @on_loaded  not called on error. It must not stop the server, which waits for this thread
 * Errors:     STATUS_UNAVAILABLE     the system has no room for another thread
 *             STATUS_ALREADY_EXISTS  it has been called before
 */
NODISCARD struct status *server_load_start(struct server *s, server_loaded_fn *on_loaded,
                                           void *arg);

/*
 * server_stop_loading - the first step of a stop, for a caller that has to wait for something
 * before server_stop(). No further model is loaded, and requests are executed without waiting for
 * others. If that leaves a model out, the server does not become ready any more, and server_load()
 * ends as after server_stop(). Returns at once.
 */
void server_stop_loading(struct server *s);

/* server_has_open_sequences - have sequences begun and not ended? Thread: any; may look at each
 * model. */
bool server_has_open_sequences(struct server *s);

/* server_end_sequences - no client is left to continue sequences: a stop need not wait for them.
 * Thread: any. */
void server_end_sequences(struct server *s);

/*
 * server_keep - makes every later stop fail. A frontend calls it when one of its threads hangs in a
 * call of the server or of a backend, so that it cannot be ended. Thread: any.
 */
void server_keep(struct server *s);

/*
 * server_show_loading - shows which models are being loaded, and for how long: in place on a
 * terminal, else, if may_log, as a line of the log. server_count_models - how many models serve
 * with all their versions, and how many of these make batches of requests. Thread: any.
 */
void server_show_loading(struct server *s, bool may_log);
void server_count_models(struct server *s, size_t *ret_serving, size_t *ret_batched);

/* server_log_unended - logs the names of the models that are being loaded or unloaded. Thread: any.
 */
void server_log_unended(struct server *s);

/*
 * server_stop - stops the server: refuses new requests (but not those of sequences that have
 * begun), waits for models that are being loaded and for requests in flight (up to the exit
 * timeout), and unloads the models. A second caller waits for the first one, and gets its result.
 * After an error the caller may call it again; server_free() is allowed only after a success.
 *
 * Thread: control. Blocks.
 * Errors: STATUS_INTERNAL  Exit timeout expired. Exiting immediately.
 */
NODISCARD struct status *server_stop(struct server *s);
void server_free(struct server *s);
void server_set_exit_timeout(struct server *s, unsigned int seconds);

/* server_get_options - the options of its start. Borrowed. */
const struct server_options *server_get_options(const struct server *s);

/* server_budget - the budget, in bytes, of all that the frontends' connections keep. Borrowed. */
struct budget *server_budget(struct server *s);

/*
 * server_changes - is announced whenever the answer of server_is_ready() or server_model_is_ready()
 * may have changed. The answers of backends count only as long as clients ask for them
 * (core/backend/readiness.h). Borrowed. Thread: any.
 */
struct changes *server_changes(struct server *s);

/* server_id, server_version - for the server metadata. Borrowed. */
const char *server_id(const struct server *s);
const char *server_version(const struct server *s);
/* server_extensions - the protocol extensions that this server has; the list ends with NULL. */
const char *const *server_extensions(const struct server *s);

/* Errors of all three: STATUS_UNAVAILABLE  Server exiting */
NODISCARD struct status *server_is_live(struct server *s, bool *ret_live);
/* server_is_ready - answers from what backends said last. Thread: any; does not wait. */
NODISCARD struct status *server_is_ready(struct server *s, bool *ret_ready);
/* server_ask_ready - asks the backends now. Thread: any that may wait for them. */
NODISCARD struct status *server_ask_ready(struct server *s, bool *ret_ready);

/*
 * server_progress - tells why the server is not ready.
 *
 * @max_rows  the most rows of each of the two kinds
 * Errors:    STATUS_UNAVAILABLE  Server exiting
 */
NODISCARD struct status *server_progress(struct server *s, size_t max_rows,
                                         struct server_progress *ret);

/*
 * server_load_model - loads or reloads the model from its files as they are now. Versions whose
 * files have not changed are not loaded again. The old versions serve until all new ones are READY;
 * if the load fails they go on serving.
 *
 * Thread: control. Waits for a thread that loads or unloads the same model, reads folders, calls
 * the backend. Different models are loaded in parallel.
 * @parameters  overrides of configuration and files (load_parameter.h); borrowed
 * Errors: STATUS_UNAVAILABLE  the model control mode does not allow it
 *                             (reference/behaviours §13.1); the server is not ready
 *         STATUS_INVALID_ARG  no model may have that name; a version cannot be loaded
 *         STATUS_INTERNAL     there is no such model, or its configuration is wrong
 */
NODISCARD struct status *server_load_model(struct server *s, const char *name,
                                           const struct load_parameter *parameters,
                                           size_t n_parameters);

/*
 * server_unload_model - unloads the model: new requests do not find it any more. Requests in flight
 * are served; a control thread takes the model down when the last of them has ended. This call does
 * not wait for that. Unloading an unknown model succeeds. Ensembles that use the model are unloaded
 * with it, and serve again when it is loaded again.
 *
 * Thread: control. Waits for a thread that loads or unloads the same model, or one related to it.
 * @with_members  of an ensemble: the models that were loaded for it alone are unloaded, too
 * Errors: STATUS_UNAVAILABLE  as server_load_model()
 */
NODISCARD struct status *server_unload_model(struct server *s, const char *name, bool with_members);

/*
 * server_await_unloaded - waits until a model that server_unload_model() has unloaded is taken
 * down: its last request has ended, and its memory is freed. Returns false when that has not
 * happened within timeout_ns.
 *
 * Thread: control. Blocks. A control thread takes the model down, so not all of them may wait here.
 */
bool server_await_unloaded(struct server *s, const char *name, uint64_t timeout_ns);

/*
 * server_register_repository - adds a repository: its models may be loaded from now on. This call
 * loads none. A model that two repositories have can be loaded from neither.
 *
 * Thread: control. Looks for the folder.
 * @mappings  copied. The model of a mapped folder has only the mapped name, whatever its
 *            configuration says. A load by that name means this model, never a folder of that name
 * Errors: STATUS_UNSUPPORTED     the model control mode is not explicit
 *         STATUS_UNAVAILABLE     the server is not ready
 *         STATUS_INVALID_ARG     there is no such folder; no model may have a mapped name, or it is
 *                                given twice; a mapped folder lies outside the repository
 *         STATUS_ALREADY_EXISTS  the repository is registered; another repository's mappings have a
 *                                name of these
 */
NODISCARD struct status *server_register_repository(struct server *s, const char *path,
                                                    const struct model_mapping *mappings,
                                                    size_t n_mappings);

/*
 * server_unregister_repository - removes a repository: its models cannot be loaded any more. Models
 * that are loaded serve until they are unloaded, and then disappear from the index.
 *
 * Thread: control.
 * Errors: STATUS_UNSUPPORTED, STATUS_UNAVAILABLE  as server_register_repository()
 *         STATUS_INVALID_ARG                      the repository is not registered
 */
NODISCARD struct status *server_unregister_repository(struct server *s, const char *path);

/*
 * server_poll - reads the repositories, loads what is new or has changed, and unloads what is gone.
 * Failures of a load are logged; the model's old versions go on serving then.
 *
 * Thread: control. Blocks until all that has changed is loaded.
 * Errors: STATUS_UNAVAILABLE  the model control mode is not poll; the server is not ready
 */
NODISCARD struct status *server_poll(struct server *s);

/*
 * server_control - the threads to which a caller that must not block, such as a loop, posts loads
 * and unloads. Borrowed. NULL when this server never changes its models: loads and unloads are
 * refused at once, and the index is read from memory, so nothing blocks.
 */
struct control *server_control(struct server *s);

/*
 * server_helpers - the threads to which such a caller posts long work that changes no model.
 * Borrowed. NULL when the system has no room for a thread.
 */
struct control *server_helpers(struct server *s);

/*
 * server_find_model - the serving version of a model, by name; the caller ends the reference with
 * model_unref().
 *
 * Thread: any. Takes no lock that cores share.
 * @version  CONCH_VERSION_LATEST, or a version
 * Errors:   STATUS_NOT_FOUND, STATUS_UNAVAILABLE, both beginning "Request for unknown model: "
 */
NODISCARD struct status *server_find_model(struct server *s, const char *name, size_t name_length,
                                           int64_t version, struct model **ret_model);

/*
 * server_nearest_model - the name of a model that serves and is named like this one, which no model
 * has; NULL if there is none, or not among the few that it looks at. The caller frees it with
 * mem_free(). Thread: any.
 */
char *server_nearest_model(struct server *s, const char *name, size_t name_length);

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
 * server_model_is_ready, server_ask_model_ready - is the version able to serve? Its backend must
 * say so, and no instance may be stuck with requests beyond the execution limit. The first function
 * uses the backend's last answer. The second asks the backend now.
 *
 * Thread: any; for server_ask_model_ready() one that may wait for the backend.
 * Errors: STATUS_NOT_FOUND, STATUS_UNAVAILABLE  the version is missing or not loaded
 */
NODISCARD struct status *server_model_is_ready(struct server *s, const char *name,
                                               size_t name_length, int64_t version,
                                               bool *ret_ready);
NODISCARD struct status *server_ask_model_ready(struct server *s, const char *name,
                                                size_t name_length, int64_t version,
                                                bool *ret_ready);

/* What a model version has executed, and how much memory it uses. */
struct model_statistics {
    struct model *model; /* a reference */
    struct statistics sums;
    size_t memory_bytes[N_MEMORY_PLACES]; /* kept while the model is loaded; without tensors */
};

struct server_statistics {
    size_t n;
    struct model_statistics *list;
};

/*
 * server_statistics - the statistics of the READY versions of a model, or of all models, sorted by
 * name and version. The caller ends *ret with server_statistics_done().
 *
 * @name     all models if name_length is 0
 * @version  CONCH_VERSION_LATEST: all versions
 * Errors:   STATUS_INVALID_ARG  requested model '…' is not available; or that version is not
 *           STATUS_UNAVAILABLE  Server not ready; no memory
 */
NODISCARD struct status *server_statistics(struct server *s, const char *name, size_t name_length,
                                           int64_t version, struct server_statistics *ret);
void server_statistics_done(struct server_statistics *statistics);

/* server_has_metrics - whether the options want metrics. Thread: any. */
bool server_has_metrics(const struct server *s);

/*
 * server_metrics - prints all metrics in Prometheus' text format. A server without models prints
 * those that are not about models.
 *
 * Errors: STATUS_INVALID_ARG, STATUS_UNAVAILABLE  they do not fit into out; no memory
 */
NODISCARD struct status *server_metrics(struct server *s, struct buf *out);

/*
 * server_check - checks the request as server_infer() does, without executing it.
 *
 * Thread: the maker's.
 * Errors: STATUS_INVALID_ARG  the request does not fit its model (reference/behaviours §7), or is
 *                             in flight
 */
NODISCARD struct status *server_check(struct request *r);

/*
 * server_watch - from now on the watchdog measures how long this budget's thread executes models;
 * inline_watch_close(&budget->watch) ends that. Thread: any, while nothing is executed in it.
 */
void server_watch(struct server *s, struct inline_budget *budget);

/*
 * server_infer - checks the request against its model and hands it to the scheduler.
 *
 * Thread: any. May execute the model before it returns (r->maker.inline_budget), so that all of
 * r->ops may have been called by then.
 * @r      the core has it until its final response and its release; on error nothing happened and
 *         it is the caller's as before
 * Errors: STATUS_INVALID_ARG  the request does not fit the model (reference/behaviours §7)
 *         STATUS_UNAVAILABLE  the model or the server is stopping
 */
NODISCARD struct status *server_infer(struct server *s, struct request *r);

/*
 * server_index - all models, sorted by name and version.
 *
 * Thread: any, if server_control() is NULL; else control, since it reads the repositories' folders.
 * @ready_only  only READY versions, and models that two repositories have (reference/behaviours
 *              §2.12)
 * @ret_rows    the caller frees it with mem_free(); the texts are in the same block
 * Errors:      STATUS_UNAVAILABLE  Server not ready
 */
NODISCARD struct status *server_index(struct server *s, bool ready_only,
                                      struct model_index_row **ret_rows, size_t *ret_n);

#endif
