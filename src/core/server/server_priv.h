/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONCH_CORE_SERVER_SERVER_PRIV_H
#define CONCH_CORE_SERVER_SERVER_PRIV_H

#include <stdatomic.h>

#include "base/mutex.h"
#include "base/thread.h"
#include "core/agents/repo_agent.h"
#include "core/backend/backend.h"
#include "core/backend/readiness.h"
#include "core/model/model_services.h"
#include "core/server/server.h"
#include "core/threads/changes.h"
#include "core/threads/control.h"
#include "core/threads/deadline_timer.h"
#include "core/threads/helpers.h"
#include "core/threads/watchdog.h"

struct budget;
struct clock;
struct embedder_budgets;
struct machine;
struct repository;
struct server_options;

/*
 *   INITIALIZING ──► READY ──► EXITING      server_load() makes the first step, server_stop() the
 *        │  └───► FAILED ────────┘ ▲        last, from anywhere
 *        └─────────────────────────┘
 *
 * INITIALIZING: models are being loaded; each serves when it is READY. FAILED: a model failed, and
 * the options say exit-on-error; the caller of server_load() is to stop the server.
 */
enum server_state { SERVER_INITIALIZING, SERVER_READY, SERVER_EXITING, SERVER_FAILED };

struct server {
    /* Constant once made. */
    struct server_options *options;
    struct clock *clock; /* all of core reads the time of this one */
    struct backend_registry backends;
    struct agent_registry agents;
    struct repository *repository;
    struct budget *budget;   /* for what the frontends' connections keep */
    struct machine *machine; /* NULL: metrics of the machine are switched off */
    struct deadline_timers deadline_timers;
    struct helpers helpers;
    struct readiness_watch readiness_watch;
    struct changes changes;
    struct watchdog watchdog;
    struct limiter *limiter;                   /* NULL without --rate-limit */
    struct cache *cache;                       /* NULL: no cache is configured */
    struct model_services services;            /* of the above, for the models */
    struct embedder_budgets *embedder_budgets; /* NULL: no inline execution on embedders' threads */
    bool has_control;                          /* models may be loaded and unloaded */
    struct control control;

    atomic_int state; /* enum server_state */
    atomic_uint exit_timeout_s;
    atomic_bool no_sequences; /* server_end_sequences() */
    atomic_bool is_kept;      /* server_keep() */

    struct mutex drain_mu; /* level 300 in core/README.md */
    struct cond drained;   /* a field below has changed */
    /* Under drain_mu. */
    unsigned int n_drained; /* how often a stopping model has had its last request end */
    bool loading;           /* server_load() is under way */
    bool loaded;            /* … has returned */
    unsigned int n_changes; /* loads and unloads by name that are under way */
    bool has_load_thread, load_thread_joined;
    bool stopping;             /* server_stop() is under way */
    bool stopped;              /* … has taken all models down */
    unsigned int n_stops;      /* how often it has returned */
    struct status *stop_error; /* … and the error of the last time; NULL: success */

    /* Of server_load_start(); constant while the thread runs. */
    struct thread load_thread;
    server_loaded_fn *on_loaded;
    void *on_loaded_arg;
};

/* server_services_init - sets s->services; what it points to may be initialised later. */
void server_services_init(struct server *s);

/* server_log_tables - logs the agents, backends, models and options. Thread: control. */
void server_log_tables(struct server *s);
/* server_log_loaded - logs how many models serve, and how long loading took. */
void server_log_loaded(struct server *s, uint64_t ns);
/* server_log_loading - logs which models are still being loaded while a stop waits for them. */
void server_log_loading(struct server *s, unsigned int seconds_left);

#endif
