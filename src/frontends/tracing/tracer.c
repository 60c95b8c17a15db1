/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A view has all settings of a moment and never changes. The present one is found under mu; each
 * loop keeps a reference to the one that it has seen last, and compares numbers, so that requests
 * take no lock. A setting that is replaced is told so when its view is; a loop that still has it
 * begins no trace by it. A change makes the next view without the lock, and makes it again when
 * another change came first.
 *
 * Threads: any; samplers are their loop's.
 */
#include "frontends/tracing/tracer.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/list.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/mutex.h"
#include "base/status.h"
#include "frontends/tracing/otlp_exporter.h"
#include "frontends/tracing/otlp_settings.h"
#include "frontends/tracing/trace_writer.h"

enum { TRACERS_LEVEL = 60, TRACER_LEVEL = 840 }; /* in the table of core/README.md */

struct named_setting {
    char *model_name;
    struct trace_setting *setting; /* a reference */
};

struct trace_view {
    atomic_uint refs;
    struct trace_setting *global; /* a reference */
    size_t n_models;
    struct named_setting models[]; /* by name */
};

struct tracer_priv {
    struct list link; /* in `all` */
    struct server *server;
    unsigned int n_users; /* under the lock of `all` */
    struct tracer tracer;
    char *path;                 /* NULL in mode opentelemetry */
    struct otlp_settings *otlp; /* NULL in mode triton */
    struct trace_values initial;
    struct mutex mu; /* level 840 */
    /* Under mu. */
    struct trace_view *view;
    uint64_t n_changes;
    struct trace_home *home; /* NULL until something is to be traced; then constant */
    bool is_stopped;
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct mutex all_mu;
static struct list all; /* under all_mu */

static void init_tracers(void)
{
    mutex_init(&all_mu, TRACERS_LEVEL, "tracers.mu");
    list_init(&all);
}

/* ---- Views ----------------------------------------------------------------------------------- */

static struct trace_view *view_new(size_t max_models)
{
    MEM_CHARGE(NULL, 0);
    struct trace_view *v = mem_zalloc(sizeof(*v) + max_models * sizeof(v->models[0]));
    atomic_init(&v->refs, 1);
    return v;
}

static struct trace_view *view_ref(struct trace_view *v)
{
    atomic_fetch_add_explicit(&v->refs, 1, memory_order_relaxed);
    return v;
}

static void view_unref(struct trace_view *v)
{
    if (!v || atomic_fetch_sub(&v->refs, 1) != 1)
        return;
    for (size_t i = 0; i < v->n_models; i++) {
        mem_free(v->models[i].model_name);
        trace_setting_unref(v->models[i].setting);
    }
    trace_setting_unref(v->global);
    mem_free(v);
}

/* Adds the setting, whose reference is taken, behind those of earlier names. */
static void view_add(struct trace_view *v, const char *model_name, struct trace_setting *s)
{
    v->models[v->n_models++] = (struct named_setting){mem_strdup(model_name), s};
}

static int compare_model_name(const void *name, const void *item)
{
    return strcmp(name, ((const struct named_setting *)item)->model_name);
}

/* NULL: the model has no setting of its own. */
static struct trace_setting *view_find_own(const struct trace_view *v, const char *model_name)
{
    const struct named_setting *found = v->n_models ? bsearch(model_name, v->models, v->n_models,
                                                              sizeof(*found), compare_model_name)
                                                    : NULL;
    return found ? found->setting : NULL;
}

static struct trace_setting *view_find(const struct trace_view *v, const char *model_name)
{
    struct trace_setting *own = view_find_own(v, model_name);
    return own ? own : v->global;
}

static bool traces_anything(const struct trace_view *v)
{
    bool traces = !v->global->is_off;
    for (size_t i = 0; i < v->n_models && !traces; i++)
        traces = !v->models[i].setting->is_off;
    return traces;
}

static bool has_setting(const struct trace_view *v, const struct trace_setting *s)
{
    bool has = v->global == s;
    for (size_t i = 0; i < v->n_models && !has; i++)
        has = v->models[i].setting == s;
    return has;
}

/* ---- Changes --------------------------------------------------------------------------------- */

static struct status *refuse_values(const char *fault)
{
    return status_new(STATUS_INVALID_ARG, "Attempting to set invalid trace setting :%s", fault);
}

/*
 * Makes the setting that a change leads to.
 *
 * @ret  NULL: nothing of it is set for the model itself, which follows the server's
 */
static struct status *make_setting(struct tracer_priv *p, const struct trace_change *change,
                                   const struct trace_setting *present,
                                   const struct trace_setting *global, bool may_be_over,
                                   struct trace_setting **ret)
{
    MEM_CHARGE(NULL, 0);
    struct trace_values values, fallback = global ? trace_setting_now(global) : p->initial;
    bool is_own[N_TRACE_FIELDS], any = !global;
    trace_change_apply(change, present, &fallback, &values, is_own);
    for (int i = 0; i < N_TRACE_FIELDS; i++)
        any |= is_own[i];
    *ret = NULL;
    if (!any)
        return NULL;
    const char *fault = trace_fault(&values, p->path);
    bool is_over = values.of[TRACE_COUNT] == 0; /* the reference has no reason for this */
    if (!may_be_over && values.of[TRACE_LEVEL] != TRACE_DISABLED && (fault || is_over))
        return refuse_values(fault ? fault : "");
    *ret = trace_setting_new(&values, is_own, p->path);
    return NULL;
}

/* The view after a change of the server's setting: models follow in what they do not set. */
static struct status *change_global(struct tracer_priv *p, const struct trace_view *now,
                                    const struct trace_change *change, struct trace_view *v)
{
    static const struct trace_change none;
    struct status *st = make_setting(p, change, now->global, NULL, false, &v->global);
    for (size_t i = 0; i < now->n_models && !st; i++) {
        struct trace_setting *s = NULL;
        st = make_setting(p, &none, now->models[i].setting, v->global, true, &s);
        if (s)
            view_add(v, now->models[i].model_name, s);
    }
    return st;
}

static struct status *change_model(struct tracer_priv *p, const struct trace_view *now,
                                   const char *model_name, const struct trace_change *change,
                                   struct trace_view *v)
{
    struct trace_setting *s, *present = view_find_own(now, model_name);
    struct status *st = make_setting(p, change, present, now->global, false, &s);
    if (st)
        return st;
    v->global = now->global;
    trace_setting_ref(v->global);
    size_t i = 0;
    for (; i < now->n_models && strcmp(now->models[i].model_name, model_name) < 0; i++) {
        trace_setting_ref(now->models[i].setting);
        view_add(v, now->models[i].model_name, now->models[i].setting);
    }
    if (s)
        view_add(v, model_name, s);
    for (i += present != NULL; i < now->n_models; i++) {
        trace_setting_ref(now->models[i].setting);
        view_add(v, now->models[i].model_name, now->models[i].setting);
    }
    return NULL;
}

static struct status *start_home_locked(struct tracer_priv *p, const struct trace_view *v)
{
    if (p->home || !traces_anything(v))
        return NULL;
    return p->otlp ? otlp_exporter_start(p->otlp, &p->home) : trace_writer_start(p->path, &p->home);
}

static void replace_setting(struct trace_home *home, struct trace_setting *s)
{
    atomic_store(&s->is_replaced, true);
    home->end(home, s);
}

/* Tells the settings that the next view does not have. */
static void end_settings_locked(struct tracer_priv *p, const struct trace_view *was,
                                const struct trace_view *next)
{
    if (!p->home)
        return;
    if (!has_setting(next, was->global))
        replace_setting(p->home, was->global);
    for (size_t i = 0; i < was->n_models; i++) {
        if (!has_setting(next, was->models[i].setting))
            replace_setting(p->home, was->models[i].setting);
    }
}

/* Takes the reference to the view. */
static void set_view_locked(struct tracer_priv *p, struct trace_view *next)
{
    struct trace_view *was = p->view;
    p->view = next;
    p->n_changes++;
    atomic_store(&p->tracer.version, traces_anything(next) ? p->n_changes : 0);
    if (was)
        end_settings_locked(p, was, next);
    view_unref(was);
}

static struct tracer_settings settings_in(const struct tracer_priv *p, const struct trace_view *v,
                                          const char *model_name)
{
    return (struct tracer_settings){trace_setting_now(view_find(v, model_name)), p->path, p->otlp};
}

/* The present view, with a reference, and its number. */
static struct trace_view *present_view(struct tracer_priv *p, uint64_t *ret_number)
{
    mutex_lock(&p->mu);
    struct trace_view *v = view_ref(p->view);
    *ret_number = p->n_changes;
    mutex_unlock(&p->mu);
    return v;
}

/* Makes the view that a change of the present one leads to, and the answer that tells it. Without
 * locks: the answer is a frontend's. */
static struct status *prepare_change(struct tracer_priv *p, const struct trace_view *now,
                                     const char *model_name, const struct trace_change *change,
                                     const struct trace_answer *answer,
                                     struct trace_view **ret_next)
{
    MEM_CHARGE(NULL, 0);
    struct trace_view *next = view_new(now->n_models + 1);
    struct status *st = *model_name ? change_model(p, now, model_name, change, next)
                                    : change_global(p, now, change, next);
    if (!st && answer) {
        struct tracer_settings settings = settings_in(p, next, model_name);
        st = answer->make(answer->arg, &settings);
    }
    if (st)
        view_unref(next);
    else
        *ret_next = next;
    return st;
}

/* Takes the reference to the next view, unless another change came first: then *ret_is_late. */
static struct status *replace_view(struct tracer_priv *p, uint64_t number, struct trace_view *next,
                                   bool *ret_is_late)
{
    struct status *st = NULL;
    mutex_lock(&p->mu);
    *ret_is_late = p->n_changes != number;
    if (p->is_stopped)
        st = status_new(STATUS_UNAVAILABLE, "the server is stopping");
    else if (!*ret_is_late)
        st = start_home_locked(p, next);
    bool is_taken = !st && !*ret_is_late;
    if (is_taken)
        set_view_locked(p, next);
    mutex_unlock(&p->mu);
    if (!is_taken)
        view_unref(next);
    return st;
}

struct status *tracer_change(struct tracer *t, const char *model_name,
                             const struct trace_change *change, const struct trace_answer *answer)
{
    struct tracer_priv *p = t->priv;
    struct status *st;
    bool is_late = false;
    do {
        uint64_t number;
        struct trace_view *next = NULL, *now = present_view(p, &number);
        st = prepare_change(p, now, model_name, change, answer, &next);
        view_unref(now);
        if (!st)
            st = replace_view(p, number, next, &is_late);
    } while (!st && is_late);
    return st;
}

struct tracer_settings tracer_settings(struct tracer *t, const char *model_name)
{
    struct tracer_priv *p = t->priv;
    mutex_lock(&p->mu);
    struct tracer_settings now = settings_in(p, p->view, model_name);
    mutex_unlock(&p->mu);
    return now;
}

bool tracer_reads_heads(const struct tracer *t)
{
    return t->priv->otlp != NULL;
}

/* ---- Start and stop ------------------------------------------------------------------------- */

static struct tracer_priv *find_tracer_locked(const struct server *server)
{
    mutex_assert_held(&all_mu);
    LIST_FOR_EACH (link, &all) {
        struct tracer_priv *p = LIST_ENTRY(link, struct tracer_priv, link);
        if (p->server == server)
            return p;
    }
    return NULL;
}

static struct tracer_priv *make_tracer_locked(struct server *server,
                                              const struct tracer_options *options)
{
    static const bool is_own[N_TRACE_FIELDS];
    MEM_CHARGE(NULL, 0);
    mutex_assert_held(&all_mu);
    struct tracer_priv *p = mem_zalloc(sizeof(*p));
    p->server = server;
    p->tracer.priv = p;
    p->otlp = options->otlp;
    p->path = p->otlp ? NULL : mem_strdup(options->path);
    p->initial = options->values;
    p->view = view_new(0);
    p->view->global = trace_setting_new(&p->initial, is_own, p->path);
    mutex_init(&p->mu, TRACER_LEVEL, "tracer.mu");
    p->n_users = 1;
    list_push(&all, &p->link);
    return p;
}

/* Finds out at the start, and not with the first trace, that there will be no file. */
static struct status *check_path(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *folder = slash ? mem_strndup(path, (size_t)(slash - path) + 1) : mem_strdup(".");
    int failed = access(folder, W_OK | X_OK) != 0 ? errno : 0;
    if (!failed && access(path, W_OK) != 0 && errno != ENOENT)
        failed = errno;
    mem_free(folder);
    return failed ? status_from_errno(failed, "trace file '%s' cannot be written", path) : NULL;
}

static struct status *begin_tracing(struct tracer_priv *p)
{
    const char *fault = trace_fault(&p->initial, p->path);
    struct status *st = p->path && *p->path ? check_path(p->path) : NULL;
    if (st)
        return st;
    if (fault && p->initial.of[TRACE_LEVEL] != 0 && p->path)
        log_warn("nothing is traced: %s", fault);
    mutex_lock(&p->mu);
    st = start_home_locked(p, p->view);
    if (!st)
        set_view_locked(p, view_ref(p->view));
    mutex_unlock(&p->mu);
    return st;
}

struct status *tracer_start(struct server *server, const struct tracer_options *options,
                            struct tracer **ret)
{
    struct status *st = NULL;
    struct tracer_priv *p = NULL;
    pthread_once(&once, init_tracers);
    mutex_lock(&all_mu);
    if (find_tracer_locked(server))
        st = status_new(STATUS_ALREADY_EXISTS, "the server has settings of traces already");
    else
        p = make_tracer_locked(server, options);
    mutex_unlock(&all_mu);
    if (st)
        return st;
    st = begin_tracing(p);
    if (st) {
        p->otlp = NULL; /* the caller's, still */
        tracer_put(&p->tracer);
    } else {
        *ret = &p->tracer;
    }
    return st;
}

struct tracer *tracer_get(struct server *server)
{
    static const struct tracer_options nothing = {
        .path = "", .values.of = {[TRACE_RATE] = 1000, [TRACE_COUNT] = -1}};
    pthread_once(&once, init_tracers);
    mutex_lock(&all_mu);
    struct tracer_priv *p = find_tracer_locked(server);
    if (p)
        p->n_users++;
    else
        p = make_tracer_locked(server, &nothing);
    mutex_unlock(&all_mu);
    return &p->tracer;
}

/* Traces no more; what was traced is written. */
static void stop_tracing(struct tracer_priv *p)
{
    mutex_lock(&p->mu);
    struct trace_home *home = p->is_stopped ? NULL : p->home;
    p->is_stopped = true;
    atomic_store(&p->tracer.version, 0);
    if (home) {
        replace_setting(home, p->view->global);
        for (size_t i = 0; i < p->view->n_models; i++)
            replace_setting(home, p->view->models[i].setting);
    }
    mutex_unlock(&p->mu);
    if (home)
        home->stop(home);
}

void tracer_put(struct tracer *t)
{
    struct tracer_priv *p = t->priv;
    mutex_lock(&all_mu);
    bool is_last = --p->n_users == 0;
    if (is_last)
        list_remove(&p->link);
    mutex_unlock(&all_mu);
    if (!is_last)
        return;
    stop_tracing(p);
    view_unref(p->view);
    if (p->home)
        trace_home_unref(p->home);
    mutex_done(&p->mu);
    mem_free(p->path);
    otlp_settings_free(p->otlp);
    mem_free(p);
}

void tracer_stop(struct tracer *t)
{
    stop_tracing(t->priv);
    tracer_put(t);
}

/* ---- Requests -------------------------------------------------------------------------------- */

void trace_sampler_init(struct trace_sampler *s, struct tracer *tracer, struct pool *pool)
{
    static struct tracer nothing;
    *s = (struct trace_sampler){.tracer = tracer ? tracer : &nothing, .pool = pool};
}

void trace_sampler_done(struct trace_sampler *s)
{
    view_unref(s->view);
}

/* Takes over the present settings. */
static void update_sampler(struct trace_sampler *s)
{
    struct tracer_priv *p = s->tracer->priv;
    struct trace_view *was = s->view;
    mutex_lock(&p->mu);
    s->view = view_ref(p->view);
    s->version = p->n_changes;
    s->home = p->home;
    mutex_unlock(&p->mu);
    view_unref(was);
}

struct traced *trace_sample_slow(struct trace_sampler *s, const char *model_name,
                                 const struct trace_parent *parent)
{
    if (atomic_load(&s->tracer->version) != s->version)
        update_sampler(s);
    struct trace_setting *setting =
        LIKELY(s->view->n_models == 0) ? s->view->global : view_find(s->view, model_name);
    if (LIKELY(!trace_setting_hits(setting, parent && parent->has_span)) ||
        !trace_setting_begin(setting))
        return NULL;
    if (!trace_setting_take(setting)) {
        s->home->end(s->home, setting);
        return NULL;
    }
    struct traced *t = traced_new(s->home, setting, s->pool, parent);
    if (UNLIKELY(!t)) {
        s->home->lose(s->home);
        s->home->end(s->home, setting);
    }
    return t;
}
