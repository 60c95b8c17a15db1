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
#include "core/statistics.h"

struct budget;
struct buf;
struct control;
struct load_parameter;
struct model;
struct model_index_row;
struct request;
struct server;
struct server_options;
struct status;
struct inline_budget;

#define CONCH_VERSION_LATEST (-1)

/* What becomes of the models: NULL, or what server_load() returns, which is taken. */
typedef void server_loaded_fn(void *arg, struct status *st);

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
 * server_create - a server that has opened its repositories and has no model yet: server_load() is
 * to follow. Whoever asks it for a model until then, or for anything that is not there yet, is
 * told to come again.
 *
 * Errors: STATUS_INVALID_ARG, STATUS_INTERNAL  an option or a repository path is wrong; unless
 *                             options say otherwise (exit-on-error), a path that cannot be opened
 *                             leaves a server that is neither live nor ready for good
 */
NODISCARD struct status *server_create(const struct server_options *options,
                                       struct server **ret_server);

/*
 * server_load - loads the models that the options want; each serves as soon as it is READY. Once.
 *
 * Thread: control. Blocks until every model is ready or has failed, or until server_stop(), which
 * lets the models end that are being loaded.
 * Errors: STATUS_INTERNAL, STATUS_INVALID_ARG  a model failed and options say exit-on-error: the
 *                             server is to be stopped
 *         STATUS_UNAVAILABLE  it has been stopped meanwhile, or has been here before
 */
NODISCARD struct status *server_load(struct server *s);

/*
 * server_load_start - the same on a thread of its own, which ends in a call of on_loaded.
 *
 * @on_loaded  not called on error; must not end the server itself, which waits for the thread
 * Errors:     STATUS_UNAVAILABLE     no room for another thread
 *             STATUS_ALREADY_EXISTS  it has been called before
 */
NODISCARD struct status *server_load_start(struct server *s, server_loaded_fn *on_loaded,
                                           void *arg);

/*
 * server_stop_loading - the first step of a stop, for those who have to wait for something before
 * the next one: no further model is loaded, and no request waits for others to be executed with.
 * The server does not become ready any more if that leaves a model out, and server_load() ends as
 * if it had been stopped. Returns at once.
 */
void server_stop_loading(struct server *s);

/* server_has_open_sequences - some have begun and not ended. Thread: any; may look at each model.
 */
bool server_has_open_sequences(struct server *s);

/* server_end_sequences - nobody is left to go on with them: a stop need not wait. Thread: any. */
void server_end_sequences(struct server *s);

/*
 * server_keep - a frontend cannot end: one of its threads is somewhere inside the server, or below,
 * and does not come back. From now on no stop succeeds. Thread: any.
 */
void server_keep(struct server *s);

/* server_log_unended - names the models that are being loaded or unloaded, in the log. Thread: any.
 */
void server_log_unended(struct server *s);

/*
 * server_stop - refuses new requests (but not those of sequences that have begun), waits for models
 * that are being loaded and for requests in flight (up to the exit timeout), unloads. Who calls it
 * while another thread does waits for that one, and has its result. After an error it may be called
 * again, and must not be followed by server_free() before it has succeeded.
 *
 * Errors: STATUS_INTERNAL  Exit timeout expired. Exiting immediately.
 */
NODISCARD struct status *server_stop(struct server *s);
void server_free(struct server *s);
void server_set_exit_timeout(struct server *s, unsigned int seconds);

/* server_budget - of bytes for all that the connections of its frontends keep. Borrowed. */
struct budget *server_budget(struct server *s);

/* server_id, server_version - what server metadata shows. Borrowed. */
const char *server_id(const struct server *s);
const char *server_version(const struct server *s);
/* server_extensions - the protocol extensions that this server has; NULL ends. */
const char *const *server_extensions(const struct server *s);

/* Errors: STATUS_UNAVAILABLE  Server exiting */
NODISCARD struct status *server_is_live(struct server *s, bool *ret_live);
/* server_is_ready - by what backends said last: does not wait. */
NODISCARD struct status *server_is_ready(struct server *s, bool *ret_ready);
/* server_ask_ready - backends are asked now. Thread: any that may wait for them. */
NODISCARD struct status *server_ask_ready(struct server *s, bool *ret_ready);

/* How far a server is on its way up, and what is wrong where it got stuck. */
struct server_progress {
    bool ready;
    const char *state;            /* "starting", "running", "stopping", "failed" */
    size_t n_models;              /* that are to serve */
    size_t n_serving;             /* with all their versions */
    size_t n_failed;              /* the others are being loaded, or wait for it */
    size_t n_loading;             /* rows of models that are being loaded: they come first */
    size_t n_rows;                /* then those that failed, with reasons */
    struct model_index_row *rows; /* one block: the caller frees it with mem_free() */
};

/*
 * server_progress - for those who want to know why the server is not ready.
 *
 * @max_rows  of each of the two kinds
 * Errors:    STATUS_UNAVAILABLE  Server exiting
 */
NODISCARD struct status *server_progress(struct server *s, size_t max_rows,
                                         struct server_progress *ret);

/*
 * server_load_model - has the model serve as its files are now. One that does so already is left
 * alone; what serves of it goes on until all that is new has come up, and if that fails.
 *
 * Thread: control: waits for whoever loads or unloads the same model, reads folders, calls the
 * backend. Different models are loaded in parallel.
 * @parameters  what it is to be loaded with (load_parameter.h)
 * Errors: STATUS_UNAVAILABLE  the model control mode does not allow it
 *                             (reference/behaviours §13.1); the server is not ready
 *         STATUS_INVALID_ARG  the name is none; a version cannot be loaded
 *         STATUS_INTERNAL     there is no such model, or its configuration is wrong
 */
NODISCARD struct status *server_load_model(struct server *s, const char *name,
                                           const struct load_parameter *parameters,
                                           size_t n_parameters);

/*
 * server_unload_model - no request finds the model any more. Those that have found it are served;
 * the model is taken down when they have ended, which nobody waits for. An unknown one is fine.
 *
 * Thread: control: waits for whoever loads or unloads the same model.
 * Errors: STATUS_UNAVAILABLE  as server_load_model()
 */
NODISCARD struct status *server_unload_model(struct server *s, const char *name);

/* A model that is not called as its folder is. */
struct model_mapping {
    const char *folder; /* in the repository; may be deeper in it ("group/digits") */
    const char *name;
};

/*
 * server_register_repository - one more repository; what it has may be loaded from now on. Nothing
 * is loaded, and what another one has besides can be loaded from neither.
 *
 * Thread: control. Looks for the folder.
 * @mappings  borrowed. A mapped folder's model has only this name, whatever its configuration says,
 *            and it is the one that is loaded by it: no folder of that name is, wherever it is
 * Errors: STATUS_UNSUPPORTED     the model control mode is not explicit
 *         STATUS_UNAVAILABLE     the server is not ready
 *         STATUS_INVALID_ARG     there is no such folder; a name that no model may have, or is
 *                                given twice; a folder out of the repository
 *         STATUS_ALREADY_EXISTS  it is registered; a name that another one has in its mappings
 */
NODISCARD struct status *server_register_repository(struct server *s, const char *path,
                                                    const struct model_mapping *mappings,
                                                    size_t n_mappings);

/*
 * server_unregister_repository - what it has can be loaded no more. What is loaded serves on until
 * it is unloaded, and is forgotten then.
 *
 * Thread: control.
 * Errors: STATUS_UNSUPPORTED, STATUS_UNAVAILABLE  as server_register_repository()
 *         STATUS_INVALID_ARG                      it is not registered
 */
NODISCARD struct status *server_unregister_repository(struct server *s, const char *path);

/*
 * server_poll - has those models serve that the repositories hold now, as their files are now. What
 * cannot be loaded is told in the log, and what served of it goes on.
 *
 * Thread: control. Blocks until all that has changed is loaded.
 * Errors: STATUS_UNAVAILABLE  the model control mode is another one; the server is not ready
 */
NODISCARD struct status *server_poll(struct server *s);

/*
 * server_control - where those may have something done that takes long who must not wait; NULL when
 * nothing does, as this server's models neither come nor go: then loads and unloads are refused at
 * once, and the index is in memory.
 */
struct control *server_control(struct server *s);

/*
 * server_helpers - where those may have something done that takes long, though it changes no model;
 * NULL when the system has no room for a thread.
 */
struct control *server_helpers(struct server *s);

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
 * server_model_is_ready, server_ask_model_ready - whether the backend finds the version able to
 * serve, by what it said last, or asked now, by a thread that may wait for it; and no instance is
 * stuck with requests beyond the execution limit.
 *
 * Errors: STATUS_NOT_FOUND, STATUS_UNAVAILABLE when it is missing or not loaded
 */
NODISCARD struct status *server_model_is_ready(struct server *s, const char *name,
                                               size_t name_length, int64_t version,
                                               bool *ret_ready);
NODISCARD struct status *server_ask_model_ready(struct server *s, const char *name,
                                                size_t name_length, int64_t version,
                                                bool *ret_ready);
/* server_model_stuck_instance - its name, which the caller frees; NULL: there is none, or no such
 * version. Thread: any. */
char *server_model_stuck_instance(struct server *s, const char *name, size_t name_length,
                                  int64_t version);

/* What a model version has done, and what it has in memory. */
struct model_statistics {
    struct model *model; /* a reference */
    struct statistics sums;
    size_t memory_bytes; /* what is kept for it while it is loaded: no tensors */
};

struct server_statistics {
    size_t n;
    struct model_statistics *list;
};

/*
 * server_statistics - of the READY versions of a model, or of all models, by name and version;
 * server_statistics_done() ends it.
 *
 * @name     of no length: all models
 * @version  CONCH_VERSION_LATEST: all versions
 * Errors:   STATUS_INVALID_ARG  requested model '…' is not available; or that version is not
 *           STATUS_UNAVAILABLE  Server not ready; no memory
 */
NODISCARD struct status *server_statistics(struct server *s, const char *name, size_t name_length,
                                           int64_t version, struct server_statistics *ret);
void server_statistics_done(struct server_statistics *statistics);

/*
 * server_metrics - all metrics, in Prometheus' text format. Of a server that has no models yet, or
 * none any more, those that are left.
 *
 * Errors: STATUS_INVALID_ARG, STATUS_UNAVAILABLE  they do not fit into out; no memory
 */
NODISCARD struct status *server_metrics(struct server *s, struct buf *out);

/*
 * server_check - what server_infer() would refuse the request for, without handing it to anybody.
 *
 * Thread: the maker's.
 * Errors: STATUS_INVALID_ARG  it does not fit its model (reference/behaviours §7), or is in flight
 */
NODISCARD struct status *server_check(struct request *r);

/*
 * server_watch - somebody looks from now on how long the thread of this budget executes models,
 * until inline_watch_close(&budget->watch). Thread: any, while nothing is executed in it.
 */
void server_watch(struct server *s, struct inline_budget *budget);

/*
 * server_infer - checks the request against its model and hands it to the scheduler.
 *
 * Thread: any. May execute the model before it returns (r->inline_budget), so that all of r->ops
 * may have been called by then.
 * @r      the core has it until its final response and its release; on error nothing happened and
 *         it is the caller's as before
 * Errors: STATUS_INVALID_ARG  the request does not fit the model (reference/behaviours §7)
 *         STATUS_UNAVAILABLE  the model or the server is stopping
 */
NODISCARD struct status *server_infer(struct server *s, struct request *r);

/* One row of the repository index. */
struct model_index_row {
    const char *name;
    int64_t version;    /* -1 = none: never loaded */
    const char *state;  /* "" = none, likewise */
    const char *reason; /* "" = none */
};

/*
 * server_index - all models, sorted by name and version.
 *
 * Thread: any; with a server_control() control, since it looks at the repositories.
 * @ready_only  only what is READY, and what two repositories have (reference/behaviours §2.12)
 * @ret_rows    the caller frees it with mem_free(); the texts are in the same block
 * Errors:      STATUS_UNAVAILABLE  Server not ready
 */
NODISCARD struct status *server_index(struct server *s, bool ready_only,
                                      struct model_index_row **ret_rows, size_t *ret_n);

#endif
