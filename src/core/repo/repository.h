/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The model repositories: which models there are, and in which state each version is.
 *
 * Requests (any thread) look models up in a table behind a snapshot pointer (table.h); the
 * repository's own books, with states and reasons, are under its lock. Only control threads change
 * either. load.c brings models up, index.c tells what the books say, repository.c has the rest.
 */
#ifndef CONCH_CORE_REPO_REPOSITORY_H
#define CONCH_CORE_REPO_REPOSITORY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/mutex.h"
#include "core/repo/poll.h"
#include "core/server.h"
#include "core/snapshot.h"

struct backend_registry;
struct buf;
struct model;
struct server_options;
struct table;

enum version_state {
    VERSION_UNKNOWN,
    VERSION_LOADING,
    VERSION_READY,
    VERSION_UNLOADING,
    VERSION_UNAVAILABLE,
};

const char *version_state_name(enum version_state state);

struct repo_version {
    int64_t version;
    enum version_state state;
    char *reason;        /* "" or why it is not READY */
    struct model *model; /* a reference while READY or UNLOADING */
};

/* How far the loading of a model is. */
enum repo_stage {
    REPO_WAITING, /* its turn has not come; or nobody wants it loaded */
    REPO_LOADING,
    REPO_SETTLED, /* each version is READY, or says why not; or none could be made out */
};

struct repo_model {
    /* Constant while the repository loads. */
    char *name;
    char *title;    /* how logs call it: with its repository in front under namespacing */
    bool wanted;    /* it is to serve */
    bool duplicate; /* several repositories have it, so none serves it; failure says so, too */
    bool missing;   /* --load-model names it, and no repository has it; likewise */
    const struct storage *storage; /* where its folder is, by its name; of the repository's roots */

    char *directory; /* the folder on this machine, while it is loaded; of the loading thread */

    /* Under repository.mu; only the thread that loads the model changes them meanwhile. */
    enum repo_stage stage;
    size_t n_versions; /* 0: it could not even be read, or is not wanted */
    struct repo_version *versions;
    char *failure; /* why it could not be read, or NULL */
};

struct repository {
    /* Constant. */
    struct server *server;
    struct backend_registry *backends;
    const struct server_options *options;

    struct roots roots;    /* constant after repository_open() */
    struct snapshot table; /* of struct table; its entries are in the order of the models */

    /*
     * What the books say of readiness, so that a probe need not look. Any thread, relaxed: models
     * come up one by one, and a probe that is answered a moment ago's truth asks again.
     */
    /* Wanted models of which not every version is READY, and repositories that cannot be listed. */
    atomic_size_t n_unserved;
    atomic_bool must_ask; /* a backend wants to be asked whether an instance is ready */

    atomic_bool stopping; /* nothing more is loaded, no batch waits for more */

    struct mutex mu; /* level 100 in core/README.md */
    /* Under mu; constant from the first look until the end. */
    bool listed; /* the models are known */
    size_t n_models;
    struct repo_model *models; /* sorted by name */
};

void repository_init(struct repository *repo, struct server *server,
                     struct backend_registry *backends, const struct server_options *options);
/* repository_done - all models are unloaded. */
void repository_done(struct repository *repo);

/*
 * repository_open - opens the repositories that the options name.
 *
 * Errors: STATUS_INTERNAL, STATUS_INVALID_ARG  there is no such folder, and so on
 */
NODISCARD struct status *repository_open(struct repository *repo);

/*
 * repository_load_all - reads all repositories and loads the models that the options want, several
 * at a time; each serves as soon as it is READY. Once; it ends early after repository_stop().
 *
 * Thread: control. Blocks until each is READY or has failed.
 * Errors: STATUS_INTERNAL     "failed to load all models": a repository cannot be read, or a model
 *                             failed; the others serve nevertheless
 *         STATUS_INVALID_ARG  "load failed for model …": the same in mode explicit
 */
NODISCARD struct status *repository_load_all(struct repository *repo);

/* See server_find_model(), server_model_versions(), table_serving(), server_index(). */
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

/* repository_all_ready - is every version of every wanted model READY, and able to run? */
bool repository_all_ready(struct repository *repo);

/*
 * repository_progress - how far the models are, and what is wrong with those that do not serve.
 *
 * @max_rows    rows at most of those being loaded, and of those that failed
 * @ret         its counts and rows are filled in; the rows are one block, as repository_index()'s
 */
NODISCARD struct status *repository_progress(struct repository *repo, size_t max_rows,
                                             struct server_progress *ret);

/*
 * repository_stop_loading - no further model is loaded; those that are being loaded go on.
 * repository_load_all() ends soon, and with an error if that left a model out. Requests do not wait
 * for others any more, to be executed with them.
 */
void repository_stop_loading(struct repository *repo);

/* repository_stop - every model refuses new requests, and no further one is loaded. */
void repository_stop(struct repository *repo);

/*
 * repository_inflight - how many model versions have requests inside.
 *
 * @log_them  write a line for each
 */
size_t repository_inflight(struct repository *repo, bool log_them);

/* repository_unload_all - the models are stopped and empty; takes them down. */
void repository_unload_all(struct repository *repo);

/* repository_print_table - the start-up table of models. */
void repository_print_table(struct repository *repo, struct buf *out);

/* ---- For the files of the repository --------------------------------------------------------- */

/*
 * repository_unable - model versions that are READY, and whose backends say that they cannot serve
 * now; up to max, then NULL. Each has a reference, which repository_unref_models() ends.
 *
 * Thread: any, without locks: it asks backends.
 */
struct model **repository_unable(struct repository *repo, size_t max);
void repository_unref_models(struct model **models);

/* repository_set_state - what has become of a version; m is a reference that the books take. */
void repository_set_state(struct repository *repo, struct repo_version *rv,
                          enum version_state state, struct model *m, const char *reason);

#endif
