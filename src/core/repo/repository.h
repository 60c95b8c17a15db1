/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The model repositories: which models there are, in which state each version is, and the table
 * that requests look models up in.
 *
 * Readers (any thread) see an immutable table behind a snapshot pointer; the repository's own
 * books, with states and reasons, are under its lock. Only control threads change either.
 */
#ifndef CONCH_CORE_REPO_REPOSITORY_H
#define CONCH_CORE_REPO_REPOSITORY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "base/map.h"
#include "base/mutex.h"
#include "core/repo/poll.h"
#include "core/server.h"
#include "core/snapshot.h"

struct backend_registry;
struct buf;
struct model;
struct server_options;

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

struct repo_model {
    char *name;
    char *title;    /* how logs call it: with its repository in front under namespacing */
    bool duplicate; /* several repositories have it, so none serves it; failure says so, too */
    const struct storage *storage; /* where its folder is, by its name; of the repository's roots */
    char *directory;               /* the folder on this machine, while it is loaded */
    size_t n_versions;             /* 0: it could not even be read */
    struct repo_version *versions;
    char *failure; /* why it could not be read, or NULL */
};

struct repository {
    /* Constant. */
    struct server *server;
    struct backend_registry *backends;
    const struct server_options *options;

    struct roots roots; /* constant after repository_open() */
    struct snapshot table;

    /*
     * What the books say of readiness, so that a probe need not look: set with each new table.
     * Any thread, relaxed.
     */
    atomic_bool all_loaded; /* every model has its versions, all READY */
    atomic_bool must_ask;   /* … and some backend wants to be asked whether an instance is */

    struct mutex mu; /* level 100 in core/README.md */
    /* Under mu. */
    size_t n_models;
    struct repo_model *models; /* sorted by name once scanned */
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
 * repository_load_all - reads all repositories and loads every model, several at a time.
 *
 * Thread: control. Blocks until each is READY or has failed.
 * Errors: STATUS_INTERNAL  "failed to load all models": a repository cannot be read, or a model
 * failed; the others serve nevertheless
 */
NODISCARD struct status *repository_load_all(struct repository *repo);

/* See server_find_model(), server_model_versions(), server_index(). */
NODISCARD struct status *repository_find(struct repository *repo, const char *name,
                                         size_t name_length, int64_t version,
                                         struct model **ret_model);
NODISCARD struct status *repository_versions(struct repository *repo, const char *name,
                                             size_t name_length, int64_t **ret_versions,
                                             size_t *ret_n);
struct model_index_row *repository_index(struct repository *repo, bool ready_only, size_t *ret_n);

/* repository_all_ready - is every version of every model READY, and able to run? */
bool repository_all_ready(struct repository *repo);

/* repository_stop - every model refuses new requests. */
void repository_stop(struct repository *repo);

/*
 * repository_inflight - how many model versions have requests inside.
 *
 * @log_them  write a line for each
 */
size_t repository_inflight(struct repository *repo, bool log_them);

/* repository_unload_all - the models are stopped and empty; takes them down. */
void repository_unload_all(struct repository *repo);

/* repository_table - the start-up table of models. */
void repository_table(struct repository *repo, struct buf *out);

#endif
