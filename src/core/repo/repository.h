/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The repository knows all models of the model repositories, and the state of each version. The
 * server calls these functions; README.md says which file of this folder does what, and has the
 * states and the rules of the locks.
 *
 * Requests, on any thread, look models up in a table without a lock (table.h). The catalog, with
 * states and reasons, is under the repository's lock. Only control threads change table and
 * catalog. One thread at a time changes a model; different models are changed in parallel.
 */
#ifndef CONCH_CORE_REPO_REPOSITORY_H
#define CONCH_CORE_REPO_REPOSITORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

struct agent_registry;
struct backend_registry;
struct buf;
struct control;
struct load_parameter;
struct model;
struct model_index_row;
struct model_mapping;
struct model_services;
struct repository;
struct server_options;
struct server_progress;
struct status;

/*
 * repository_new - a repository without models; all arguments are borrowed.
 *
 * @services  what the models get of the server
 * @control   its threads take models down; NULL: models never change
 */
struct repository *repository_new(const struct model_services *services,
                                  struct backend_registry *backends, struct agent_registry *agents,
                                  const struct server_options *options, struct control *control);
/* repository_free - all models must be unloaded. */
void repository_free(struct repository *repo);

/*
 * repository_open - opens the repositories that the options name.
 *
 * Errors: STATUS_INTERNAL, STATUS_INVALID_ARG  as storage_open(), such as: there is no such folder
 */
NODISCARD struct status *repository_open(struct repository *repo);

/*
 * repository_load_all - reads all repositories and loads the models that the options want, several
 * at a time; each serves as soon as it is READY. To be called once. Ends early after
 * repository_stop().
 *
 * Thread: control. Blocks until each is READY or has failed.
 * Errors: STATUS_INTERNAL     "failed to load all models": a repository cannot be read, or a model
 *                             failed; the others serve nevertheless
 *         STATUS_INVALID_ARG  "load failed for model …": the same in mode explicit
 */
NODISCARD struct status *repository_load_all(struct repository *repo);

/* See server_load_model() and server_unload_model(). The control mode must allow changes. */
NODISCARD struct status *repository_load(struct repository *repo, const char *name,
                                         const struct load_parameter *parameters,
                                         size_t n_parameters);
void repository_unload(struct repository *repo, const char *name, bool with_members);

/*
 * repository_await_unloaded - waits until no version of the model is being unloaded. False: that
 * has not happened by deadline_ns, of the services' clock. Thread: control.
 */
bool repository_await_unloaded(struct repository *repo, const char *name, uint64_t deadline_ns);

/* See server_register_repository() and server_unregister_repository(). */
NODISCARD struct status *repository_register(struct repository *repo, const char *path,
                                             const struct model_mapping *mappings,
                                             size_t n_mappings);
NODISCARD struct status *repository_unregister(struct repository *repo, const char *path);

/*
 * repository_poll - reads the repositories, loads what is new or has changed, and unloads what is
 * gone. Failures of a load are logged; the model's old versions go on serving then.
 *
 * Thread: control. Blocks until all is done.
 */
void repository_poll(struct repository *repo);

/* See server_find_model(), server_model_versions(), table_serving(), server_index(). */
char *repository_nearest(struct repository *repo, const char *name, size_t name_length);
NODISCARD struct status *repository_find(struct repository *repo, const char *name,
                                         size_t name_length, int64_t version,
                                         struct model **ret_model);
NODISCARD struct status *repository_versions(struct repository *repo, const char *name,
                                             size_t name_length, int64_t **ret_versions,
                                             size_t *ret_n);
NODISCARD struct status *repository_serving(struct repository *repo, const char *name,
                                            size_t name_length, int64_t version,
                                            struct model ***ret_models);
NODISCARD struct status *repository_index(struct repository *repo, bool ready_only,
                                          struct model_index_row **ret_rows, size_t *ret_n);

/*
 * repository_ready_models - each READY model version, with a reference, so that the caller can ask
 * backends without the lock. The list ends with NULL; the caller ends it with
 * repository_unref_models(). It has no retiring models: their last reference ends them.
 */
struct model **repository_ready_models(struct repository *repo);
void repository_unref_models(struct model **models);

/*
 * repository_all_ready - is every version of every wanted model READY and able to run? Models that
 * cannot be read, that several repositories have or that no repository has are not counted.
 *
 * @may_wait  ask the backends now; false: use their last answers
 */
bool repository_all_ready(struct repository *repo, bool may_wait);

/*
 * repository_progress - how many models serve, are being loaded, have failed; and why.
 *
 * @max_rows    the most rows of models being loaded, and of models that failed
 * @ret         its counts and rows are filled in; the rows are one block, which the caller frees
 *              with mem_free()
 */
NODISCARD struct status *repository_progress(struct repository *repo, size_t max_rows,
                                             struct server_progress *ret);

/*
 * repository_stop_loading - no further model is loaded; those that are being loaded go on.
 * repository_load_all() ends soon, with an error if that left a model out. Requests are executed
 * without waiting for others to make a batch.
 */
void repository_stop_loading(struct repository *repo);

/* repository_is_stopping - has repository_stop_loading() been called? Thread: any. */
bool repository_is_stopping(const struct repository *repo);

/* repository_stop - every model refuses new requests, except those of sequences that have begun.
 * No further model is loaded. */
void repository_stop(struct repository *repo);

/* repository_log_unended - an error in the log for each version that is being loaded or unloaded.
 */
void repository_log_unended(struct repository *repo);

/*
 * repository_inflight - how many model versions have requests in flight. After repository_stop().
 *
 * @log_them  log a line for each
 * @waits     true: sequences that have begun may go on. False: every model refuses all requests
 *            from now on
 * @ret_open  how many model versions have sequences that have begun and not ended
 */
size_t repository_inflight(struct repository *repo, bool log_them, bool waits, size_t *ret_open);

/* repository_has_open_sequences - has some model a sequence that has begun and not ended? */
bool repository_has_open_sequences(struct repository *repo);

/*
 * repository_unload_all - takes all models down, the retiring ones included. They must be stopped,
 * with no request in flight.
 */
void repository_unload_all(struct repository *repo);

/* repository_print_table - prints the table of models that is logged at the start.
 * @columns  see table_text_print() */
void repository_print_table(struct repository *repo, size_t columns, struct buf *out);

#endif
