/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The model repositories: which models there are, and in which state each version is.
 *
 * Requests (any thread) look models up in a table that needs no lock (table.h); the repository's
 * own catalog, with states and reasons, is under its lock. Only control threads change either.
 *
 *     start.c       the models that the options want, several at a time
 *     change.c      loading and unloading by name while the server runs
 *     register.c    repositories come and go while the server runs
 *     poll_mode.c   loading and unloading what the repositories have come to hold
 *     load.c        one model comes up, beside what serves of it
 *     retire.c      what does not serve any more is waited for and taken down
 *     index.c       what the catalog says
 *     repository.c  the catalog itself
 *
 * A model is changed by one thread at a time: by the one that has locked it
 * (repository_lock_model()), others wait for that. Different models are changed in parallel.
 */
#ifndef CONCH_CORE_REPO_REPOSITORY_H
#define CONCH_CORE_REPO_REPOSITORY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "base/mutex.h"
#include "core/control.h"
#include "core/repo/fingerprint.h"
#include "core/repo/listing.h"
#include "core/repo/roots.h"
#include "core/repo/table.h"
#include "core/server.h"

struct backend_registry;
struct buf;
struct load_parameter;
struct model;
struct server_options;
struct source;

enum version_state {
    VERSION_UNKNOWN,
    VERSION_LOADING,
    VERSION_READY,
    VERSION_UNLOADING,
    VERSION_UNAVAILABLE,
};

const char *version_state_name(enum version_state state);

/*
 *                        ┌────────────── reload: stays READY throughout ─┐
 *      (new) ──► LOADING ──► READY ──────────────────────────────────────┘
 *                  │  ▲        └──► UNLOADING ──► UNAVAILABLE "unloaded"
 *                  ▼  │ (again)                         │
 *              UNAVAILABLE "<why>" ◄── (again) LOADING ─┘
 */
struct repo_version {
    int64_t version;
    enum version_state state;
    char *reason;          /* "" or why it is not READY */
    struct model *model;   /* a reference while READY */
    struct source *source; /* where its files lie; likewise */
    unsigned int
        n_retiring; /* models of this version that do not serve any more, and still exist */
};

/* How far the loading of a model is. */
enum repo_stage {
    REPO_WAITING, /* its load has not begun; or nobody wants it loaded */
    REPO_LOADING,
    REPO_SETTLED, /* each version is READY, or says why not; or none could be made out */
};

struct repo_model {
    /* Constant. */
    char *name;
    char *title; /* how logs call it: with its repository in front under namespacing */

    /* Of the thread that has locked the model. */
    struct table_entry *entry; /* NULL: it has never been loaded */
    struct fingerprint seen;   /* of its folder, when what serves now was loaded from it */
    bool lacks_versions; /* some that its folder has could not be loaded; a load tries again */
    bool
        overridden; /* what serves now has a configuration that came by request, not its folder's */

    /* Under repository.mu; only the thread that has locked the model changes what is not marked
     * (any). */
    struct storage *storage; /* a reference: where its folder is; NULL: it came by request */
    uint64_t n_tickets,
        ticket_served;    /* (any) tickets that were given out; the one that has the lock */
    unsigned int n_users; /* (any) who knows it: those that have locked it or wait for that,
                             retiring models */
    bool wanted;          /* it is to serve */
    bool unserved;        /* it counts in repository.n_unserved */
    bool duplicate;       /* several repositories have it, so none serves it; failure says so */
    bool missing;         /* --load-model names it, and no repository has it; likewise */
    bool empty;           /* no version in its folder is to be served */
    enum repo_stage stage;
    size_t n_versions;             /* 0: it could not even be read, or is not wanted */
    struct repo_version *versions; /* ascending; (any) those that retire */
    char *failure;                 /* why it could not be read, or NULL */
};

/* A version that does not serve any more: those that found it before are waited for. */
struct retiring_model {
    struct list link; /* of repository.retiring */
    struct repository *repo;
    struct repo_model *rm;
    struct model *model; /* the catalog's reference */
    struct source *source;
    struct control_job job; /* takes it down, when nobody has it any more */
};

struct repository {
    /* Constant. */
    struct server *server;
    struct backend_registry *backends;
    const struct server_options *options;
    struct control *control; /* where models are taken down; NULL: none comes or goes */

    struct table table;

    /*
     * What the catalog says of readiness, so that a probe need not look. Any thread, relaxed:
     * models come up one by one, and a probe that is answered a moment ago's truth asks again.
     */
    /* Models that could be read and do not serve as they should. */
    atomic_size_t n_unserved;
    atomic_bool must_ask; /* a backend wants to be asked whether an instance is ready */
    /* The last answer of repository_all_ready() to who may not wait: CLOCK_MONOTONIC, and in the
     * lowest bit whether it was yes. */
    atomic_uint_least64_t last_answer;

    atomic_bool stopping; /* nothing more is loaded */

    struct mutex mu;     /* level 100 in core/README.md */
    struct cond changed; /* a model was unlocked, a retiring model has gone */
    /* Under mu. */
    struct roots *roots; /* a reference; NULL before repository_open() */
    bool listed;         /* the models are known */
    size_t n_models;
    struct repo_model **models; /* sorted by name, then by repository */
    struct list retiring;       /* of struct retiring_model; until they are taken down */
    size_t n_ending;            /* retiring models that are being taken down */
};

void repository_init(struct repository *repo, struct server *server,
                     struct backend_registry *backends, const struct server_options *options,
                     struct control *control);
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

/* See server_load_model() and server_unload_model(); the server may change its models. */
NODISCARD struct status *repository_load(struct repository *repo, const char *name,
                                         const struct load_parameter *parameters,
                                         size_t n_parameters);
void repository_unload(struct repository *repo, const char *name);

/* See server_register_repository() and server_unregister_repository(). */
NODISCARD struct status *repository_register(struct repository *repo, const char *path,
                                             const struct model_mapping *mappings,
                                             size_t n_mappings);
NODISCARD struct status *repository_unregister(struct repository *repo, const char *path);

/*
 * repository_poll - loads what has come or changed in the repositories, unloads what has gone. What
 * cannot be loaded is told in the log, and what served of it goes on.
 *
 * Thread: control. Blocks until all is done.
 */
void repository_poll(struct repository *repo);

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

/*
 * repository_all_ready - is every version of every wanted model READY, and able to run? Models that
 * cannot be read, that several repositories have or that none has do not count.
 *
 * @may_wait  backends are asked now; else what they said last counts
 */
bool repository_all_ready(struct repository *repo, bool may_wait);

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

/* repository_stop - every model refuses new requests, but those of sequences that have begun, and
 * no further one is loaded. */
void repository_stop(struct repository *repo);

/* repository_log_unended - an error in the log for each version that is being loaded or unloaded.
 */
void repository_log_unended(struct repository *repo);

/*
 * repository_inflight - how many model versions have requests inside. After repository_stop().
 *
 * @log_them  write a line for each
 * @waits     sequences that have begun may go on; if not, every model refuses all from now on
 * @ret_open  how many model versions have such sequences
 */
size_t repository_inflight(struct repository *repo, bool log_them, bool waits, size_t *ret_open);

/* repository_has_open_sequences - some model has sequences that have begun and not ended. */
bool repository_has_open_sequences(struct repository *repo);

/*
 * repository_unload_all - the models are stopped and empty; takes them down, the retiring ones
 * included.
 */
void repository_unload_all(struct repository *repo);

/* repository_print_table - the start-up table of models. */
void repository_print_table(struct repository *repo, struct buf *out);

/* ---- For the files of the repository --------------------------------------------------------- */

/*
 * repository_unable - model versions that are READY, and whose backends say that they cannot serve
 * now (or said so last, unless may_wait); up to max, then NULL. Each has a reference, which
 * repository_unref_models() ends.
 *
 * Thread: any, without locks: it asks backends.
 */
struct model **repository_unable(struct repository *repo, size_t max, bool may_wait);

/*
 * repository_ready_models - each READY model version, with a reference, so that whoever asks
 * backends need not hold the lock. Ends with NULL; repository_unref_models() ends it. (Those that
 * retire are not to be had: their last reference ends them.)
 */
struct model **repository_ready_models(struct repository *repo);
void repository_unref_models(struct model **models);

/* repository_roots - a reference to the repositories as they are now. */
struct roots *repository_roots(struct repository *repo);

/* repository_model_new - not in the catalog yet. @storage NULL: no repository has it. */
struct repo_model *repository_model_new(const struct repository *repo, const char *name,
                                        struct storage *storage);
/* repository_model_free - it is not in the catalog, and has no version. */
void repository_model_free(struct repo_model *rm);

/*
 * repository_lock_model - locks the model, that this thread alone changes it; what is not in the
 * catalog yet is added to it. repository_unlock_model() ends that; it may be the end of a model of
 * which there is nothing to tell.
 *
 * Thread: control. Waits as long as the changes take that have come before.
 * @storage  which one, under namespacing; NULL: of no repository
 */
struct repo_model *repository_lock_model(struct repository *repo, const char *name,
                                         struct storage *storage);
void repository_unlock_model(struct repository *repo, struct repo_model *rm);
/* repository_drop_user_and_unlock - the same for somebody who only knows it (n_users), and has mu.
 */
void repository_drop_user_and_unlock(struct repository *repo, struct repo_model *rm);
/* repository_move - by who has locked it: there the model's folder is now, or nowhere. */
void repository_move(struct repository *repo, struct repo_model *rm, struct storage *storage);

/*
 * repository_named - the models of that name that are in the catalog, for
 * repository_lock_named_model() and repository_unlock_model() one after the other; NULL ends, and
 * the caller frees the list with mem_free().
 */
struct repo_model **repository_named(struct repository *repo, const char *name);
void repository_lock_named_model(struct repository *repo, struct repo_model *rm);

/* repository_add_to_table - its name is looked up from now on. Thread: control, which has locked
 * the model. */
void repository_add_to_table(struct repository *repo, struct repo_model *rm);

/*
 * repository_publish_locked - requests find what the catalog says from now on, if they look the
 * name up at all. In the same hold of mu as the change itself: who sees a version READY in the
 * index may ask it. Returns what they found before, for table_view_end(), which is not called under
 * mu.
 */
NODISCARD struct table_view *repository_publish_locked(struct repository *repo,
                                                       struct repo_model *rm);

/* repository_set_state - what has become of a version that does not serve. */
void repository_set_state(struct repository *repo, struct repo_version *rv,
                          enum version_state state, const char *reason);
void repository_set_state_locked(struct repository *repo, struct repo_version *rv,
                                 enum version_state state, const char *reason);

/* repository_count - whether the model is one of those that keep the server from being ready. */
void repository_count_locked(struct repository *repo, struct repo_model *rm, bool unserved);

/* On whose behalf a model is loaded. */
enum load_reason {
    LOAD_AT_START,   /* each version serves at once, whatever becomes of the others */
    LOAD_ON_REQUEST, /* what cannot be read is the client's to know, and changes nothing */
    LOAD_ON_POLL,    /* it is to be there: why it cannot be read stays in the catalog */
};

/*
 * repository_load_model - brings a model up: all versions that are not there yet, or not as their
 * files are now. What served before serves until then, and goes on if anything fails.
 *
 * Thread: control, which has locked the model.
 * @source   where its files lie; borrowed
 * @config   the configuration as JSON, or NULL: as its folder has it
 * Errors: STATUS_INTERNAL, STATUS_INVALID_ARG  for the client (reference/behaviours §13.3, §13.4);
 *         the log has the cause
 */
NODISCARD struct status *repository_load_model(struct repository *repo, struct repo_model *rm,
                                               struct source *source, const char *config,
                                               enum load_reason reason);

/* repository_is_unfit_locked - its folder cannot be read, or is not to be. The text is copied. */
void repository_is_unfit_locked(struct repository *repo, struct repo_model *rm,
                                const char *failure);

/* repository_unload_model - see server_unload_model(). Thread: control, which has locked the model.
 */
void repository_unload_model(struct repository *repo, struct repo_model *rm);

/* repository_log_unloaded - a version of the model has been taken down. */
void repository_log_unloaded(const struct repo_model *rm, int64_t version);

/* repository_log_missing - no repository has a model of that name, which was asked for. */
void repository_log_missing(const char *name);

/* repository_poll_failure - the error that a client is told when the log has the cause. */
NODISCARD struct status *repository_poll_failure(const char *name);

/* repository_check_name - may a model be called so? Errors: STATUS_INVALID_ARG */
NODISCARD struct status *repository_check_name(const char *name);

/*
 * retire_take_locked - the version's model is retired: it is not READY any more, or another one
 * takes its place. retire_start() follows when no request finds it any more, that is, after
 * table_view_end() of what repository_publish_locked() has replaced.
 */
void retire_take_locked(struct repository *repo, struct repo_model *rm, struct repo_version *rv,
                        struct list *taken);
void retire_start(struct list *taken);

/* retire_end_all - see repository_unload_all(). */
void retire_end_all(struct repository *repo);

#endif
