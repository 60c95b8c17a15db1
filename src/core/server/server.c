/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server's life, in its order: options are validated, the server is made, models are loaded, it
 * stops, it is freed. Then come questions about the server, changes of models, questions about
 * models, requests.
 *
 * `state` goes from INITIALIZING to READY or FAILED, and from each of these to EXITING, which is
 * final. drain_mu guards what a stop waits for: `drained` is signalled when a stopping model has no
 * request left, and when a start, a change of models or another stop has ended. A change counts
 * itself before it begins, so a stop either waits for it or refuses it. A stop that runs out of
 * time unloads nothing: a backend may still be executing.
 */
#include "core/server/server.h"

#include <string.h>

#include "base/budget.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/memory_limit.h"
#include "base/status.h"
#include "base/thread_pool.h"
#include "core/cache/cache.h"
#include "core/load/model_load.h"
#include "core/metrics/machine.h"
#include "core/model/model_priv.h"
#include "core/model/model_statistics.h"
#include "core/options/server_options.h"
#include "core/repo/repository.h"
#include "core/request/admit.h"
#include "core/request/life.h"
#include "core/request/request_trace.h"
#include "core/sched/embedder.h"
#include "core/sched/limiter.h"
#include "core/sched/pull.h"
#include "core/server/page.h"
#include "core/server/server_priv.h"

enum {
    DRAIN_LEVEL = 300,
    CONTROL_THREADS = 16, /* at most, for jobs that load nothing */
};

/* A thread that works for the server itself counts as a request, and ends in a moment, even when
 * requests have no time left. */
#define MOMENT_NS (200 * NS_PER_MS)

/* A stop gets no event for the end of a sequence, so it looks again and again. */
#define SEQUENCES_LOOK_NS (10 * NS_PER_MS)

const char *server_id(const struct server *s)
{
    return s->options->server_id;
}

const struct server_options *server_get_options(const struct server *s)
{
    return s->options;
}

const char *server_version(const struct server *s)
{
    (void)s;
    /* The release of the reference whose protocol this is, with our own as build metadata. */
    return "2.73.0+conch." CONCH_VERSION;
}

const char *const *server_extensions(const struct server *s)
{
    static const char *const extensions[] = {"sequence",
                                             "model_repository",
                                             "model_repository(unload_dependents)",
                                             "model_configuration",
                                             "binary_tensor_data",
                                             "parameters",
                                             "statistics",
                                             NULL};
    (void)s;
    return extensions;
}

/* ---- Start ----------------------------------------------------------------------------------- */

/* Finds contradictions between options. */
static struct status *check_options(const struct server_options *o)
{
    if (o->n_repositories == 0)
        return status_new(STATUS_INVALID_ARG, "--model-repository must be specified");
    for (size_t i = 0; o->n_startup_models > 1 && i < o->n_startup_models; i++) {
        if (strcmp(o->startup_models[i], "*") == 0)
            return status_new(STATUS_INVALID_ARG, "Wildcard model name '*' must be the ONLY "
                                                  "startup model if specified at all.");
    }
    return NULL;
}

/*
 * With exit-on-error=false a missing repository gives a server that is neither live nor ready, and
 * reports why (reference/behaviours §2.7).
 */
static struct status *open_repositories(struct server *s)
{
    struct status *st = repository_open(s->repository);
    if (!st || s->options->exit_on_error)
        return st;
    log_status(LOG_ERROR, "the server has failed to initialize, and serves no model", st);
    atomic_store(&s->state, SERVER_FAILED);
    changes_announce(&s->changes);
    return NULL;
}

/* ---- What models see of the server --------------------------------------------------------- */

static bool is_server_stopping(const struct model_services *services)
{
    const struct server *s = services->server;
    return repository_is_stopping(s->repository) || atomic_load(&s->state) == SERVER_EXITING;
}

static void on_model_drained(const struct model_services *services, struct model *m)
{
    struct server *s = services->server;
    mutex_lock(&s->drain_mu);
    model_count_last_end(m);
    s->n_drained++;
    cond_broadcast(&s->drained);
    mutex_unlock(&s->drain_mu);
}

static struct status *find_model_for_step(const struct model_services *services, const char *name,
                                          size_t name_length, int64_t version,
                                          struct model **ret_model)
{
    return server_find_model(services->server, name, name_length, version, ret_model);
}

void server_services_init(struct server *s)
{
    s->services = (struct model_services){
        .server = s,
        .options = s->options,
        .clock = s->clock,
        .deadline_timers = &s->deadline_timers,
        .helpers = &s->helpers,
        .readiness_watch = &s->readiness_watch,
        .changes = &s->changes,
        .watchdog = &s->watchdog,
        .limiter = s->limiter,
        .cache = s->cache,
        .is_stopping = is_server_stopping,
        .find_model = find_model_for_step,
        .on_drained = on_model_drained,
    };
}

/* Asks each model about which a client wants to know; returns whether there is any. */
static bool ask_wanted_models(struct readiness_watch *w)
{
    struct server *s = CONTAINER_OF(w, struct server, readiness_watch);
    struct model **models = repository_ready_models(s->repository);
    uint64_t now_ns = clock_now_ns(s->clock);
    bool any = false;
    for (size_t i = 0; models[i]; i++)
        any |= readiness_ask_if_wanted(models[i], now_ns);
    repository_unref_models(models);
    return any;
}

struct status *server_create(const struct server_options *options, struct server **ret_server)
{
    struct status *st = check_options(options);
    if (st)
        return st;

    struct server *s = mem_zalloc(sizeof(*s));
    thread_keep_mask(); /* backends and their children get the server's maker's mask */
    log_start();
    s->options = server_options_copy(options);
    s->clock = options->clock ? options->clock : clock_real();
    atomic_init(&s->state, SERVER_INITIALIZING);
    atomic_init(&s->exit_timeout_s, options->exit_timeout_s);
    mutex_init(&s->drain_mu, DRAIN_LEVEL, "server.drain_mu");
    cond_init(&s->drained);
    s->budget = budget_new(options->connection_memory_bytes ? options->connection_memory_bytes
                                                            : memory_limit_bytes() / 4);
    if (options->metrics && options->cpu_metrics)
        s->machine = machine_new(options->metrics_interval_ms, clock_now_ns(s->clock));
    deadline_timers_init(&s->deadline_timers, s->clock);
    helpers_init(&s->helpers);
    readiness_watch_init(&s->readiness_watch, &s->deadline_timers, &s->helpers, ask_wanted_models);
    changes_init(&s->changes);
    watchdog_init(&s->watchdog, s->clock, pull_on_long_execution);
    s->limiter = limiter_new(s->options);
    st = cache_open(s->options, &s->cache);
    server_services_init(s);
    if (options->inline_execution)
        s->embedder_budgets = embedder_budgets_new(&s->watchdog);
    backend_registry_init(&s->backends, s, s->options);
    agent_registry_init(&s->agents, s->options->repoagent_directory);
    s->has_control = !st && options->control_mode != CONTROL_NONE;
    s->repository = repository_new(&s->services, &s->backends, &s->agents, s->options,
                                   s->has_control ? &s->control : NULL);
    if (s->has_control) {
        st = control_start(&s->control, options->load_threads, CONTROL_THREADS);
        s->has_control = !st;
    }
    if (!st)
        st = open_repositories(s);
    if (st) {
        server_free(s);
        return st;
    }
    *ret_server = s;
    return NULL;
}

/* All models have been tried: sets the server's next state, unless a stop has begun. What the log
 * says of it is true when it is read, so the state comes first. */
static struct status *enter_next_state(struct server *s, struct status *st)
{
    bool fails = st && s->options->exit_on_error;
    int expected = SERVER_INITIALIZING;
    if (!atomic_compare_exchange_strong(&s->state, &expected,
                                        fails ? SERVER_FAILED : SERVER_READY)) {
        status_free(st);
        return status_new(STATUS_UNAVAILABLE, "Server exiting");
    }
    changes_announce(&s->changes);
    if (fails)
        return st;
    log_status(LOG_ERROR, "the server starts without some of its models", st);
    return NULL;
}

struct status *server_load(struct server *s)
{
    if (atomic_load(&s->state) == SERVER_FAILED) /* it has no repositories: open_repositories() */
        return NULL;
    mutex_lock(&s->drain_mu);
    bool may_load = !s->loading && !s->loaded && atomic_load(&s->state) == SERVER_INITIALIZING;
    s->loading = may_load;
    mutex_unlock(&s->drain_mu);
    if (!may_load)
        return status_new(STATUS_UNAVAILABLE, "the server has loaded its models, or is stopping");

    uint64_t from_ns = clock_now_ns(s->clock);
    struct status *st = repository_load_all(s->repository);
    if (repository_is_stopping(s->repository)) {
        status_free(st);
        st = status_new(STATUS_UNAVAILABLE, "Server exiting");
    } else {
        /* Else the error is what is left to be read. */
        bool tells = !st || !s->options->exit_on_error;
        uint64_t took_ns = clock_now_ns(s->clock) - from_ns;
        if (tells)
            server_log_tables(s);
        st = enter_next_state(s, st);
        if (tells)
            server_log_loaded(s, took_ns);
    }

    mutex_lock(&s->drain_mu);
    s->loading = false;
    s->loaded = true;
    cond_broadcast(&s->drained);
    mutex_unlock(&s->drain_mu);
    return st;
}

static void load_in_background(void *arg)
{
    struct server *s = arg;
    struct status *st = server_load(s);
    s->on_loaded(s->on_loaded_arg, st);
}

struct status *server_load_start(struct server *s, server_loaded_fn *on_loaded, void *arg)
{
    mutex_lock(&s->drain_mu);
    bool first = !s->has_load_thread && !s->loading && !s->loaded;
    s->has_load_thread |= first;
    mutex_unlock(&s->drain_mu);
    if (!first)
        return status_new(STATUS_ALREADY_EXISTS, "the server loads its models, or has done so");
    s->on_loaded = on_loaded;
    s->on_loaded_arg = arg;
    struct status *st = thread_start(&s->load_thread, "model-load", load_in_background, s);
    if (st) {
        mutex_lock(&s->drain_mu);
        s->has_load_thread = false;
        mutex_unlock(&s->drain_mu);
    }
    return st;
}

struct status *server_new(const struct server_options *options, struct server **ret_server)
{
    struct server *s;
    struct status *st = server_create(options, &s);
    if (st)
        return st;
    st = server_load(s);
    if (st) {
        repository_stop(s->repository);
        repository_unload_all(s->repository);
        server_free(s);
        return st;
    }
    *ret_server = s;
    return NULL;
}

/* ---- Stop ------------------------------------------------------------------------------------ */

void server_set_exit_timeout(struct server *s, unsigned int seconds)
{
    atomic_store(&s->exit_timeout_s, seconds);
}

static unsigned int seconds_left(const struct server *s, uint64_t deadline_ns)
{
    uint64_t now_ns = clock_now_ns(s->clock);
    return now_ns >= deadline_ns ? 0
                                 : (unsigned int)((deadline_ns - now_ns + NS_PER_S - 1) / NS_PER_S);
}

/* Waits until no model has a request inside; a line per second has those that are left. */
static bool drain_requests(struct server *s, uint64_t deadline_ns)
{
    uint64_t tick_ns = clock_now_ns(s->clock), last_ns = MAX(deadline_ns, tick_ns + MOMENT_NS);
    for (;;) {
        bool at_tick = clock_now_ns(s->clock) >= tick_ns;
        /* A model that becomes empty after this line is an event that ends the wait below. */
        mutex_lock(&s->drain_mu);
        unsigned int seen = s->n_drained;
        mutex_unlock(&s->drain_mu);

        /* Sequences have until the deadline, if a client is left that can continue them. */
        bool waits = clock_now_ns(s->clock) < deadline_ns && !atomic_load(&s->no_sequences);
        size_t n_open, n = repository_inflight(s->repository, at_tick, waits, &n_open);
        if (at_tick) {
            log_info("Timeout %u: Found %zu model versions that have in-flight inferences",
                     seconds_left(s, deadline_ns), n);
            tick_ns += NS_PER_S;
        }
        /* The thread that ended the last request holds this lock, and is done with the server
         * when it unlocks it. */
        mutex_lock(&s->drain_mu);
        mutex_unlock(&s->drain_mu);
        if (n == 0 && n_open == 0)
            return true;
        uint64_t now_ns = clock_now_ns(s->clock);
        if (!waits && now_ns >= last_ns)
            return false;
        uint64_t until_ns = MIN(tick_ns, now_ns < deadline_ns ? deadline_ns : last_ns);
        if (n_open)
            until_ns = MIN(until_ns, now_ns + SEQUENCES_LOOK_NS);
        mutex_lock(&s->drain_mu);
        if (s->n_drained == seen)
            cond_wait_by_clock(&s->drained, &s->drain_mu, s->clock, until_ns);
        mutex_unlock(&s->drain_mu);
    }
}

/* The load thread is about to end: server_load() is over, or has never begun. */
static void join_load_thread(struct server *s)
{
    mutex_lock(&s->drain_mu);
    bool mine = s->has_load_thread && !s->load_thread_joined;
    s->load_thread_joined |= mine;
    mutex_unlock(&s->drain_mu);
    if (mine)
        thread_join(&s->load_thread);
}

static bool is_loading_locked(const struct server *s)
{
    return s->loading || s->n_changes > 0;
}

static bool is_loading(struct server *s)
{
    mutex_lock(&s->drain_mu);
    bool loading = is_loading_locked(s);
    mutex_unlock(&s->drain_mu);
    return loading;
}

/* Waits until no thread loads models; a backend's work cannot be ended from here. A line per
 * second has those models. */
static bool await_loading(struct server *s, uint64_t deadline_ns)
{
    for (uint64_t tick_ns = clock_now_ns(s->clock); is_loading(s);) {
        if (clock_now_ns(s->clock) >= tick_ns) {
            server_log_loading(s, seconds_left(s, deadline_ns));
            tick_ns += NS_PER_S;
        }
        if (clock_now_ns(s->clock) >= deadline_ns)
            return false;
        mutex_lock(&s->drain_mu);
        if (is_loading_locked(s))
            cond_wait_by_clock(&s->drained, &s->drain_mu, s->clock, MIN(tick_ns, deadline_ns));
        mutex_unlock(&s->drain_mu);
    }
    join_load_thread(s);
    return true;
}

void server_stop_loading(struct server *s)
{
    repository_stop_loading(s->repository);
}

static struct status *exit_timeout_error(void)
{
    return status_new(STATUS_INTERNAL, "Exit timeout expired. Exiting immediately.");
}

static struct status *stop_models(struct server *s)
{
    uint64_t deadline_ns = clock_now_ns(s->clock) + atomic_load(&s->exit_timeout_s) * NS_PER_S;
    repository_stop(s->repository);
    if (!await_loading(s, deadline_ns))
        return exit_timeout_error();
    log_info("Waiting for in-flight requests to complete.");
    repository_stop(s->repository); /* models that have become READY since */
    if (!drain_requests(s, deadline_ns))
        return exit_timeout_error();
    if (atomic_load(&s->is_kept)) /* the log has the reason */
        return exit_timeout_error();
    log_info("All models are stopped, unloading models");
    repository_unload_all(s->repository);
    log_info("Timeout %u: Found 0 live models and 0 in-flight non-inference requests",
             seconds_left(s, deadline_ns));
    return NULL;
}

void server_log_unended(struct server *s)
{
    repository_log_unended(s->repository);
}

bool server_has_open_sequences(struct server *s)
{
    return repository_has_open_sequences(s->repository);
}

void server_end_sequences(struct server *s)
{
    atomic_store(&s->no_sequences, true);
}

void server_keep(struct server *s)
{
    atomic_store(&s->is_kept, true);
}

/* Waits for the result of the stop in progress. */
static struct status *await_stop_locked(struct server *s)
{
    unsigned int seen = s->n_stops;
    while (s->n_stops == seen)
        cond_wait(&s->drained, &s->drain_mu);
    return status_ref(s->stop_error);
}

struct status *server_stop(struct server *s)
{
    struct status *st = NULL;
    atomic_store(&s->state, SERVER_EXITING);
    changes_announce(&s->changes);
    mutex_lock(&s->drain_mu);
    bool mine = !s->stopping && !s->stopped;
    if (s->stopping)
        st = await_stop_locked(s);
    s->stopping |= mine;
    mutex_unlock(&s->drain_mu);
    if (!mine)
        return st;
    st = stop_models(s);
    mutex_lock(&s->drain_mu);
    s->stopping = false;
    s->stopped = !st;
    s->n_stops++;
    status_free(s->stop_error);
    s->stop_error = status_ref(st);
    cond_broadcast(&s->drained);
    mutex_unlock(&s->drain_mu); /* a thread that has waited may free the server from here on */
    return st;
}

void server_free(struct server *s)
{
    if (!s)
        return;
    join_load_thread(s);
    if (s->has_control)
        control_stop(&s->control);
    readiness_watch_end(&s->readiness_watch);
    repository_free(s->repository);
    deadline_timers_done(&s->deadline_timers);
    helpers_done(&s->helpers); /* timers have posted to them */
    readiness_watch_done(&s->readiness_watch);
    embedder_budgets_free(s->embedder_budgets);
    watchdog_done(&s->watchdog);
    limiter_free(s->limiter);
    cache_close(s->cache);
    agent_registry_done(&s->agents);
    backend_registry_done(&s->backends);
    changes_done(&s->changes);
    machine_free(s->machine);
    thread_pools_trim(); /* blocks of requests of the C API */
    status_free(s->stop_error);
    budget_unref(s->budget);
    cond_done(&s->drained);
    mutex_done(&s->drain_mu);
    server_options_free(s->options);
    mem_free(s);
    log_stop();
}

struct budget *server_budget(struct server *s)
{
    return s->budget;
}

struct changes *server_changes(struct server *s)
{
    return &s->changes;
}

/* ---- Questions ------------------------------------------------------------------------------- */

static struct status *refuse_when_exiting(struct server *s)
{
    if (atomic_load(&s->state) == SERVER_EXITING)
        return status_new(STATUS_UNAVAILABLE, "Server exiting");
    return NULL;
}

/* A question while models load is answered for those that are loaded (reference/behaviours
 * §2.9). */
static struct status *refuse_unless_serving(struct server *s)
{
    int state = atomic_load(&s->state);
    if (state == SERVER_EXITING || state == SERVER_FAILED)
        return status_new(STATUS_UNAVAILABLE, "Server not ready");
    return NULL;
}

struct status *server_is_live(struct server *s, bool *ret_live)
{
    struct status *st = refuse_when_exiting(s);
    if (!st)
        *ret_live = atomic_load(&s->state) != SERVER_FAILED;
    return st;
}

static bool is_server_ready(struct server *s, bool may_wait)
{
    return atomic_load(&s->state) == SERVER_READY &&
           (!s->options->strict_readiness || repository_all_ready(s->repository, may_wait));
}

struct status *server_is_ready(struct server *s, bool *ret_ready)
{
    struct status *st = refuse_when_exiting(s);
    if (!st)
        *ret_ready = is_server_ready(s, false);
    return st;
}

struct status *server_ask_ready(struct server *s, bool *ret_ready)
{
    struct status *st = refuse_when_exiting(s);
    if (!st)
        *ret_ready = is_server_ready(s, true);
    return st;
}

struct status *server_progress(struct server *s, size_t max_rows, struct server_progress *ret)
{
    static const char *const states[] = {[SERVER_INITIALIZING] = "starting",
                                         [SERVER_READY] = "running",
                                         [SERVER_EXITING] = "stopping",
                                         [SERVER_FAILED] = "failed"};
    struct status *st = refuse_when_exiting(s);
    if (st)
        return st;
    ret->ready = is_server_ready(s, false);
    ret->state = states[atomic_load(&s->state)];
    return repository_progress(s->repository, max_rows, ret);
}

/* ---- Changes of models ----------------------------------------------------------------------- */

struct control *server_control(struct server *s)
{
    return s->has_control ? &s->control : NULL;
}

struct control *server_helpers(struct server *s)
{
    return helpers_control(&s->helpers);
}

/* A stop waits from here on until end_change(); or the change is too late and refused. */
static struct status *begin_change(struct server *s, enum control_mode mode)
{
    mutex_lock(&s->drain_mu);
    bool ready = atomic_load(&s->state) == SERVER_READY && !repository_is_stopping(s->repository);
    bool allowed = ready && s->options->control_mode == mode;
    s->n_changes += allowed;
    mutex_unlock(&s->drain_mu);
    if (!ready)
        return status_new(STATUS_UNAVAILABLE, "Server not ready");
    if (!allowed && mode == CONTROL_POLL)
        return status_new(STATUS_UNAVAILABLE, "polling is disabled");
    if (!allowed) /* the reference has one text for all modes */
        return status_new(STATUS_UNAVAILABLE,
                          "explicit model load / unload is not allowed if polling is enabled; "
                          "the server loads by request with --model-control-mode=explicit");
    return NULL;
}

static void end_change(struct server *s)
{
    mutex_lock(&s->drain_mu);
    s->n_changes--;
    cond_broadcast(&s->drained);
    mutex_unlock(&s->drain_mu);
}

struct status *server_load_model(struct server *s, const char *name,
                                 const struct load_parameter *parameters, size_t n_parameters)
{
    struct status *st = begin_change(s, CONTROL_EXPLICIT);
    if (st)
        return st;
    st = repository_load(s->repository, name, parameters, n_parameters);
    end_change(s);
    return st;
}

struct status *server_unload_model(struct server *s, const char *name, bool with_members)
{
    struct status *st = begin_change(s, CONTROL_EXPLICIT);
    if (st)
        return st;
    repository_unload(s->repository, name, with_members);
    end_change(s);
    return NULL;
}

bool server_await_unloaded(struct server *s, const char *name, uint64_t timeout_ns)
{
    return repository_await_unloaded(s->repository, name, clock_now_ns(s->clock) + timeout_ns);
}

/* @what  "registration", "unregistration" */
static struct status *begin_registration(struct server *s, const char *what)
{
    if (s->options->control_mode != CONTROL_EXPLICIT)
        return status_new(STATUS_UNSUPPORTED,
                          "repository %s is not allowed if model control mode is not EXPLICIT",
                          what);
    return begin_change(s, CONTROL_EXPLICIT);
}

struct status *server_register_repository(struct server *s, const char *path,
                                          const struct model_mapping *mappings, size_t n_mappings)
{
    struct status *st = begin_registration(s, "registration");
    if (st)
        return st;
    st = repository_register(s->repository, path, mappings, n_mappings);
    end_change(s);
    return st;
}

struct status *server_unregister_repository(struct server *s, const char *path)
{
    struct status *st = begin_registration(s, "unregistration");
    if (st)
        return st;
    st = repository_unregister(s->repository, path);
    end_change(s);
    return st;
}

struct status *server_poll(struct server *s)
{
    struct status *st = begin_change(s, CONTROL_POLL);
    if (st)
        return st;
    repository_poll(s->repository);
    end_change(s);
    return NULL;
}

/* ---- Questions about models ------------------------------------------------------------------ */

struct status *server_find_model(struct server *s, const char *name, size_t name_length,
                                 int64_t version, struct model **ret_model)
{
    return repository_find(s->repository, name, name_length, version, ret_model);
}

char *server_nearest_model(struct server *s, const char *name, size_t name_length)
{
    return repository_nearest(s->repository, name, name_length);
}

struct status *server_model_versions(struct server *s, const char *name, size_t name_length,
                                     int64_t **ret_versions, size_t *ret_n)
{
    struct status *st = refuse_unless_serving(s);
    if (st)
        return st;
    return repository_versions(s->repository, name, name_length, ret_versions, ret_n);
}

static struct status *model_is_ready(struct server *s, const char *name, size_t name_length,
                                     int64_t version, bool (*is)(struct model *), bool *ret_ready)
{
    struct model *m;
    struct status *st = refuse_unless_serving(s);
    if (!st)
        st = server_find_model(s, name, name_length, version, &m);
    if (st)
        return st;
    char *stuck = model_stuck_instance(m);
    *ret_ready = !stuck && is(m);
    mem_free(stuck);
    model_unref(m);
    return NULL;
}

struct status *server_model_is_ready(struct server *s, const char *name, size_t name_length,
                                     int64_t version, bool *ret_ready)
{
    return model_is_ready(s, name, name_length, version, readiness_known, ret_ready);
}

struct status *server_ask_model_ready(struct server *s, const char *name, size_t name_length,
                                      int64_t version, bool *ret_ready)
{
    return model_is_ready(s, name, name_length, version, readiness_ask, ret_ready);
}

struct status *server_index(struct server *s, bool ready_only, struct model_index_row **ret_rows,
                            size_t *ret_n)
{
    struct status *st = refuse_unless_serving(s);
    if (st)
        return st;
    return repository_index(s->repository, ready_only, ret_rows, ret_n);
}

static struct status *read_statistics(struct model_statistics *ret)
{
    struct model_memory memory;
    model_memory(ret->model, &memory);
    memcpy(ret->memory_bytes, memory.reported_bytes, sizeof(ret->memory_bytes));
    for (enum mem_kind kind = 0; kind < MEM_KINDS; kind++)
        ret->memory_bytes[PLACE_CPU] += kind == MEM_TENSORS ? 0 : memory.kinds[kind].now_bytes;
    return model_statistics(ret->model, &ret->sums);
}

struct status *server_statistics(struct server *s, const char *name, size_t name_length,
                                 int64_t version, struct server_statistics *ret)
{
    struct model **models;
    struct status *st = refuse_unless_serving(s);
    if (!st)
        st = repository_serving(s->repository, name, name_length, version, &models);
    if (st)
        return st;
    struct server_statistics all = {0};
    while (models[all.n])
        all.n++;
    all.list = mem_zalloc((all.n + 1) * sizeof(*all.list));
    for (size_t i = 0; i < all.n; i++)
        all.list[i].model = models[i];
    mem_free(models);
    for (size_t i = 0; i < all.n && !st; i++)
        st = read_statistics(&all.list[i]);
    if (st)
        server_statistics_done(&all);
    else
        *ret = all;
    return st;
}

void server_statistics_done(struct server_statistics *statistics)
{
    for (size_t i = 0; i < statistics->n; i++) {
        statistics_done(&statistics->list[i].sums);
        model_unref(statistics->list[i].model);
    }
    mem_free(TAKE(statistics->list));
    statistics->n = 0;
}

bool server_has_metrics(const struct server *s)
{
    return s->options->metrics;
}

struct status *server_metrics(struct server *s, struct buf *out)
{
    struct page_source source = {.options = s->options,
                                 .clock = s->clock,
                                 .machine = s->machine,
                                 .connections = s->budget,
                                 .server = s};
    struct model **models;
    struct status *st = s->options->metrics ? repository_serving(s->repository, "", 0,
                                                                 CONCH_VERSION_LATEST, &models)
                                            : NULL;
    bool has_models = s->options->metrics && !st;
    status_free(st); /* there are none yet, or none any more */
    source.models = has_models ? models : NULL;
    st = page_print(&source, out);
    if (has_models)
        repository_unref_models(models);
    return st;
}

struct status *server_check(struct request *r)
{
    if (UNLIKELY((uint32_t)atomic_load_explicit(&r->life.senders, memory_order_acquire) != 0))
        return status_new(STATUS_INVALID_ARG, "[request id: %s] request is in flight already",
                          request_log_name(r));
    return request_admit(r);
}

void server_watch(struct server *s, struct inline_budget *budget)
{
    inline_watch_open(&budget->watch, &s->watchdog);
}

static enum refusal_reason refusal_reason_of(struct model *m, const struct status *st)
{
    if (status_code(st) == STATUS_INVALID_ARG)
        return REFUSED_INVALID;
    if (status_code(st) != STATUS_UNAVAILABLE || st == status_no_memory())
        return REFUSED_OTHER;
    bool stops = atomic_load(&m->stopping) || atomic_load(&m->is_closing);
    return stops ? REFUSED_STOPPING : REFUSED_QUEUE_FULL;
}

/* Returns the error. */
NODISCARD static struct status *note_refusal(struct model *m, struct status *st)
{
    model_count_refusal(m, refusal_reason_of(m, st));
    return st;
}

struct status *server_infer(struct server *s, struct request *r)
{
    (void)s;
    struct model *m = r->model;
    struct status *st = server_check(r);
    if (UNLIKELY(st != NULL))
        return note_refusal(m, st);

    r->admitted.start_ns = r->admitted.queue_ns = clock_now_ns(m->clock);
    request_begin(r);
    trace_begin(r);
    /* Counted first, then checked: so an unload either waits for this request, or the request is
     * refused (model_stop()). */
    if (UNLIKELY(atomic_load(&m->stopping)) && !r->maker.goes_on)
        st = request_too_late(r);
    else
        st = scheduler_submit(m->scheduler, r);
    if (LIKELY(!st))
        return NULL;
    request_unbegin(r);
    return note_refusal(m, st);
}
