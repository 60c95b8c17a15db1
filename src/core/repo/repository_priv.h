/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the repository share: the catalog, the locks of models, and the steps of a
 * load. README.md has the rules.
 *
 *     start.c       loads the models that the options want, several at a time
 *     change.c      loads and unloads by name while the server runs
 *     group.c       the change of several related models: an ensemble and its members
 *     register.c    registers and unregisters repositories while the server runs
 *     poll_mode.c   loads and unloads what has changed in the repositories
 *     load.c        loads one model, while its old versions serve
 *     retire.c      waits for the last request of a version that serves no more; takes it down
 *     index.c       reads the catalog
 *     repository.c  the catalog itself
 *
 * One thread at a time changes a model: the one that has locked it (repository_lock_model()).
 * Other threads that want to change it wait. Different models are changed in parallel.
 */
#ifndef CONCH_CORE_REPO_REPOSITORY_PRIV_H
#define CONCH_CORE_REPO_REPOSITORY_PRIV_H

#include <stdatomic.h>

#include "base/list.h"
#include "base/mutex.h"
#include "core/repo/fingerprint.h"
#include "core/repo/listing.h"
#include "core/repo/model_version.h"
#include "core/repo/relations.h"
#include "core/repo/repository.h"
#include "core/repo/roots.h"
#include "core/repo/table.h"
#include "core/threads/control.h"

struct source;
struct storage;

/*
 *                        ┌────────────── reload: stays READY throughout ─┐
 *      (new) ──► LOADING ──► READY ──────────────────────────────────────┘
 *                  │  ▲        └──► UNLOADING ──► UNLOADED
 *                  ▼  │ (again)                        │
 *                 FAILED ◄───────── (again) LOADING ◄──┘
 */
struct repo_version {
    int64_t version;
    enum version_state state;
    char *failure;           /* why it has FAILED; while READY: why its last load failed; or NULL */
    struct model *model;     /* a reference while READY */
    struct source *source;   /* where its files lie; a reference while READY */
    unsigned int n_retiring; /* retired models of this version that are not taken down yet */
};

/* How far the loading of a model is. */
enum repo_stage {
    REPO_WAITING, /* its load has not begun, or it is not to be loaded */
    REPO_LOADING,
    REPO_SETTLED, /* each version is READY or has a reason why not; or the folder has none */
};

struct repo_model {
    /* Constant. */
    char *name;
    char *title; /* its name in the log: with the repository in front under namespacing */

    /* Of the thread that has locked the model. */
    struct table_entry *entry; /* NULL: it has never been loaded */
    struct fingerprint seen;   /* of its folder, when the serving versions were loaded from it */
    bool lacks_versions;       /* versions of its folder could not be loaded; a load tries these */
    bool overridden;           /* the serving versions have a configuration from a load request */
    /* Of an ensemble that has been loaded, or was to be; NULL: it is none. Written under
     * repository.mu, too: the books of relations have its members. */
    struct composition *composition;

    /* Under repository.mu. Any thread changes the fields marked (any); the others are changed only
     * by the thread that has locked the model. */
    struct storage *storage; /* a reference: where its folder is; NULL: its files came by request */
    uint64_t n_tickets,
        ticket_served;    /* (any) tickets that were given out; the one that has the lock */
    unsigned int n_users; /* (any) threads that have locked it or wait for that, and its retiring
                             models: they keep it in the catalog */
    bool wanted;          /* it is to serve */
    bool unserved;        /* it counts in repository.n_unserved */
    bool duplicate;       /* several repositories have it, so it is not served; see failure */
    bool missing;         /* --load-model names it, and no repository has it; see failure */
    bool empty;           /* no version in its folder is to be served */
    enum repo_stage stage;
    uint64_t loading_since_ns;     /* when the stage became LOADING, by the services' clock */
    size_t n_versions;             /* 0: the folder could not be read, or the model is not wanted */
    struct repo_version *versions; /* ascending; (any) their n_retiring */
    char *failure;                 /* why the model could not be read, or NULL */
    char *unfit;                   /* why the ensemble does not fit its members, or NULL */
    struct load *parked;           /* at the start: of an ensemble that waits for its members */
    bool is_for_others;            /* it was loaded only as a member of an ensemble */
};

/* A retired version: it is taken down when the requests that found it before have ended. */
struct retiring_model {
    struct list link; /* of repository.retiring */
    struct repository *repo;
    struct repo_model *rm;
    struct model *model; /* the catalog's reference */
    struct source *source;
    struct control_job job; /* takes it down, when its last request has ended */
};

struct repository {
    /* Constant. */
    const struct model_services *services;
    struct backend_registry *backends;
    struct agent_registry *agents;
    const struct server_options *options;
    struct control *control; /* its threads take models down; NULL: models never change */

    struct table table;

    /*
     * A summary of the catalog for readiness probes, which then need no lock. Any thread, relaxed:
     * a probe may get an answer that is a moment old, and asks again.
     */
    /* Models that could be read, and of which a version that should serve does not. */
    atomic_size_t n_unserved;
    atomic_bool must_ask; /* some backend has TRITONBACKEND_ModelInstanceReady: it is asked */
    /* The last answer of repository_all_ready() with may_wait false: see tag_answer(). */
    atomic_uint_least64_t last_answer;

    atomic_bool stopping; /* no further model is loaded */

    struct mutex mu;     /* level 100 in core/README.md */
    struct cond changed; /* a model was unlocked, a retiring model has gone */
    /* Under mu. */
    struct roots *roots; /* a reference; NULL before repository_open() */
    bool listed;         /* the repositories have been listed: the catalog knows the models */
    size_t n_models;
    struct repo_model **models; /* sorted by name, then by repository */
    struct relations relations; /* which ensembles name which models */
    struct list retiring;       /* of struct retiring_model; until they are taken down */
    size_t n_ending;            /* retiring models that are being taken down */
};

/*
 * repository_unable - the READY model versions whose backends say that they cannot serve: at most
 * max, then NULL. The caller ends list and references with repository_unref_models().
 *
 * Thread: any, without locks.
 * @may_wait  ask the backends now; false: use their last answers
 */
struct model **repository_unable(struct repository *repo, size_t max, bool may_wait);

/* repository_roots - a reference to the present list of repositories; the caller ends it with
 * roots_unref(). */
struct roots *repository_roots(struct repository *repo);

/* repository_model_new - a model that is not in the catalog yet. @storage NULL: no repository has
 * it. */
struct repo_model *repository_model_new(const struct repository *repo, const char *name,
                                        struct storage *storage);
/* repository_model_free - frees a model that is not in the catalog and has no version. */
void repository_model_free(struct repo_model *rm);

/*
 * repository_lock_model - locks the model: only this thread changes it now. A model that is not in
 * the catalog is added to it. repository_unlock_model() unlocks it, and removes from the catalog a
 * model that has no state to tell and no other user.
 *
 * Thread: control. Threads get the lock in the order of their calls; waits for those before.
 * @storage  the repository that has the model, under namespacing; NULL: none has it
 */
struct repo_model *repository_lock_model(struct repository *repo, const char *name,
                                         struct storage *storage);
void repository_unlock_model(struct repository *repo, struct repo_model *rm);
/* repository_drop_user_and_unlock - the same for a user that has not locked the model (n_users).
 * The caller has locked repository.mu; the function unlocks it. */
void repository_drop_user_and_unlock(struct repository *repo, struct repo_model *rm);
/* repository_move - sets the storage that has the model's folder; NULL: none has it. Thread: the
 * one that has locked the model. */
void repository_move(struct repository *repo, struct repo_model *rm, struct storage *storage);

/* repository_lock_named_model - the same for a model that the caller has found in the catalog, and
 * counted itself in n_users of. */
void repository_lock_named_model(struct repository *repo, struct repo_model *rm);

/* repository_find_or_add_locked - the model in the catalog, which gets it if it has none. */
struct repo_model *repository_find_or_add_locked(struct repository *repo, const char *name,
                                                 struct storage *storage);

/* repository_named_locked - the models of that name in the catalog. Borrowed. */
struct repo_model **repository_named_locked(const struct repository *repo, const char *name,
                                            size_t *ret_n);

/* repository_member_locked - the model that a step of the ensemble means by that name: the one in
 * the repository of that namespace; without a namespace, the one in the same repository, or else
 * the only one. NULL: there is none, or there are several. */
struct repo_model *repository_member_locked(const struct repository *repo,
                                            const struct repo_model *ensemble,
                                            const char *namespace, const char *name);

/* repository_add_to_table - requests can look the model's name up from now on. Thread: control,
 * which has locked the model. */
void repository_add_to_table(struct repository *repo, struct repo_model *rm);

/*
 * repository_publish_locked - writes what the catalog says of the model into the table, if the
 * table has its name. To be called in the same hold of mu as the change, so that a client that sees
 * a version READY in the index can send requests to it. Returns the old view; the caller passes it
 * to table_view_end() after unlocking mu.
 */
NODISCARD struct table_view *repository_publish_locked(struct repository *repo,
                                                       struct repo_model *rm);

/* repository_set_state - sets the state of a version, any but FAILED. */
void repository_set_state(struct repository *repo, struct repo_version *rv,
                          enum version_state state);
void repository_set_state_locked(struct repository *repo, struct repo_version *rv,
                                 enum version_state state);
/* repository_set_failed_locked - sets the state FAILED; the text is copied. */
void repository_set_failed_locked(struct repository *repo, struct repo_version *rv,
                                  const char *failure);
/* repo_version_keep_serving - notes why the last load of a version failed that serves on all the
 * same; NULL: it did not fail. The text is copied. Returns whether the version serves. Under mu. */
bool repo_version_keep_serving(struct repo_version *rv, const char *failure);
/* repo_version_reason - what the index says of its state; "" = nothing. Borrowed, under mu. */
const char *repo_version_reason(const struct repo_version *rv);

/* repository_begin_loading_locked - enters the stage LOADING. Thread: the one that has locked the
 * model. */
void repository_begin_loading_locked(struct repository *repo, struct repo_model *rm);

/* repository_count_locked - counts the model, or not, in n_unserved: among those that keep the
 * server from being ready. */
void repository_count_locked(struct repository *repo, struct repo_model *rm, bool unserved);

/* Why a model is loaded. */
enum load_reason {
    LOAD_AT_START,   /* each version serves as soon as it is READY, even if others fail */
    LOAD_ON_REQUEST, /* a model that cannot be read: the client gets the error, nothing changes */
    LOAD_ON_POLL,    /* a model that cannot be read: the catalog keeps the reason */
    LOAD_FOR_MEMBER, /* an ensemble whose members change: it keeps its configuration */
};

/* repository_is_unfit_locked - notes the failure of a model whose folder cannot be read, or must
 * not be served. The text is copied. */
void repository_is_unfit_locked(struct repository *repo, struct repo_model *rm,
                                const char *failure);

/*
 * repository_unload_locked - the model serves no more. Thread: control, which has locked it.
 *
 * @retiring  gets what served, for retire_start()
 * @ret_gone  what the books had of an ensemble; the caller frees it
 * Returns the view that was replaced, for table_view_end(), which comes first
 */
NODISCARD struct table_view *repository_unload_locked(struct repository *repo,
                                                      struct repo_model *rm, struct list *retiring,
                                                      struct composition **ret_gone);

/* repository_log_unloaded - logs that a version of the model has been taken down. */
void repository_log_unloaded(const struct repo_model *rm, int64_t version);

/* repository_log_missing - logs that no repository has the model of that name. */
void repository_log_missing(const char *name);

/* repository_poll_failure - makes the error for a client; the reason stands behind the reference's
 * text. */
NODISCARD struct status *repository_poll_failure(const char *name, const char *why);

/* repository_check_name - may a model have that name? Errors: STATUS_INVALID_ARG  it may not */
NODISCARD struct status *repository_check_name(const char *name);

/*
 * retire_take_locked - takes the version's model out of the catalog, and adds it to `taken`: the
 * version is READY no more, or gets another model. retire_start() begins to retire those in `taken`
 * once no request can find them: after table_view_end() of the view that
 * repository_publish_locked() has replaced.
 */
void retire_take_locked(struct repository *repo, struct repo_model *rm, struct repo_version *rv,
                        struct list *taken);
void retire_start(struct list *taken);

/* retire_end_all - see repository_unload_all(). */
void retire_end_all(struct repository *repo);

#endif
