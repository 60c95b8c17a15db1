/* SPDX-License-Identifier: Apache-2.0 */
/*
 * instance - see instance.h.
 *
 * The first child's failure is the load's; later ones are logged, and the next child starts after a
 * pause: at once, then after 0.1 s, 0.2 s and so on up to 30 s, until one lives for 10 s.
 */
#include "python/instance.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "conch/backend.h"
#include "python/families.h"

#define NS_PER_MS UINT64_C(1000000)
#define NS_PER_S  UINT64_C(1000000000)

#define FIRST_PAUSE_NS   (100 * NS_PER_MS)
#define LONGEST_PAUSE_NS (30 * NS_PER_S)
#define LONG_LIFE_NS     (10 * NS_PER_S)
enum { READINESS_LIMIT_S = 5 };

/* Functions of Conch only; in other servers the loader leaves NULL. */
extern __typeof__(conch_model_instance_readiness_changed) conch_model_instance_readiness_changed
    __attribute__((weak));

extern __typeof__(conch_model_instance_set_finish) conch_model_instance_set_finish
    __attribute__((weak));

static void tell_readiness(const struct instance *in)
{
    if (conch_model_instance_readiness_changed)
        backend_ignore(conch_model_instance_readiness_changed(in->handle), in->name);
}

/* ---- What the child says -------------------------------------------------------------------- */

static void on_greeted(void *owner, struct child *c)
{
    struct instance *in = owner;

    if (!model_command(c, &in->arguments))
        child_condemn(c, "had no memory for a message");
}

static void become_ready(struct instance *in, struct child *c, bool has_is_ready)
{
    TRITONSERVER_Error *err = in->arguments.is_decoupled ? child_read_apart(c) : NULL;

    if (err) {
        child_condemn(c, "cannot be read: %s", TRITONSERVER_ErrorMessage(err));
        TRITONSERVER_ErrorDelete(err);
        return;
    }
    pthread_mutex_lock(&in->mu);
    const bool again = in->was_ready;
    if (in->stage == STARTING) {
        if (!in->child) /* start_child() has not come so far */
            in->child = child_ref(c);
        in->stage = READY;
        in->was_ready = true;
        in->has_is_ready = has_is_ready;
        in->is_overdue = false;
        in->ready_ns = backend_now_ns();
    }
    pthread_cond_broadcast(&in->changed);
    pthread_mutex_unlock(&in->mu);
    if (again) {
        BACKEND_LOG(INFO, "'%s' has a new process and serves again", in->name);
        tell_readiness(in);
    }
}

static bool on_reported(void *owner, struct child *c, uint32_t kind, struct unpacker *u)
{
    struct instance *in = owner;
    const uint8_t failed = unpack_u8(u);
    size_t len = 0;
    bool has_is_ready = false;
    const char *text = "";

    if (failed)
        text = unpack_str(u, &len);
    else
        has_is_ready = unpack_u8(u) != 0;
    if (u->failed || failed > 1 || kind != NOTE_INITIALIZED)
        return false;
    if (!failed) {
        become_ready(in, c, has_is_ready);
        return true;
    }
    pthread_mutex_lock(&in->mu);
    free(in->why);
    in->why = strndup(text, len);
    pthread_mutex_unlock(&in->mu);
    child_dismiss(c, "could not initialize the model");
    return true;
}

static bool on_readiness(void *owner, struct child *c, uint64_t id, struct unpacker *u)
{
    struct instance *in = owner;
    const uint8_t failed = unpack_u8(u);
    size_t len = 0;
    bool ready = false;
    const char *text = "";

    if (failed)
        text = unpack_str(u, &len);
    else
        ready = unpack_u8(u) != 0;
    if (u->failed || failed > 1)
        return false;
    if (failed)
        BACKEND_LOG(ERROR, "is_ready() of '%s' failed: %.*s", c->name, (int)(len & INT32_MAX),
                    text);
    pthread_mutex_lock(&in->mu);
    if (id <= in->question && id > in->answered) {
        in->answered = id;
        in->is_ready = ready;
        in->is_overdue = false;
        pthread_cond_broadcast(&in->changed);
    }
    pthread_mutex_unlock(&in->mu);
    return true;
}

/* ---- Restarts ------------------------------------------------------------------------------- */

static uint64_t find_pause_ns(struct instance *in, uint64_t life_ns)
{
    uint64_t pause_ns = 0;

    if (life_ns >= LONG_LIFE_NS)
        in->n_ended_early = 0;
    if (in->n_ended_early > 0) {
        const unsigned int doublings = in->n_ended_early - 1 < 9 ? in->n_ended_early - 1 : 9;

        pause_ns = FIRST_PAUSE_NS << doublings;
    }
    in->n_ended_early++;
    return pause_ns < LONGEST_PAUSE_NS ? pause_ns : LONGEST_PAUSE_NS;
}

static void on_ended(void *owner, struct child *c)
{
    struct instance *in = owner;
    const uint64_t now_ns = backend_now_ns();

    pthread_mutex_lock(&in->mu);
    const bool starts_anew = in->was_ready && in->stage != CLOSING;
    const bool served = in->stage == READY;
    const uint64_t life_ns = served ? now_ns - in->ready_ns : 0;
    char *why = in->why;
    if (starts_anew) {
        in->why = NULL;
        in->stage = WAITING;
    } else if (in->stage == STARTING) {
        in->stage = FAILED;
        if (!in->why && asprintf(&in->why, "Stub process '%s' is not healthy: it %s", in->name,
                                 child_cause(c)) < 0)
            in->why = NULL;
    }
    in->child_lives = false;
    pthread_cond_broadcast(&in->changed);
    pthread_mutex_unlock(&in->mu);
    if (!starts_anew)
        return;
    if (served)
        tell_readiness(in);
    BACKEND_LOG(ERROR, "the process of '%s' %s%s%s; another one starts", in->name, child_cause(c),
                why ? ": " : "", why ? why : "");
    free(why);
    watcher_set_timer(&in->restart, now_ns + find_pause_ns(in, life_ns));
}

static const struct child_owner instance_ops = {
    .greeted = on_greeted, .reported = on_reported, .readiness = on_readiness, .ended = on_ended};

static TRITONSERVER_Error *start_child(struct instance *in)
{
    struct child_start start;

    model_start(in->model, &start);
    start.name = in->name;
    start.instance = in->handle;
    start.ops = &instance_ops;
    start.owner = in;
    start.processors = in->has_processors ? &in->processors : NULL;
    pthread_mutex_lock(&in->mu);
    struct child *before = in->child;
    in->child = NULL;
    if (in->stage == CLOSING) {
        pthread_mutex_unlock(&in->mu);
        child_unref(before);
        return NULL;
    }
    in->stage = STARTING;
    in->child_lives = true;
    pthread_mutex_unlock(&in->mu);
    child_unref(before);
    struct child *c = model_give_child(in->model, &start);
    TRITONSERVER_Error *err = c ? NULL : child_start(&start, &c);
    pthread_mutex_lock(&in->mu);
    const bool known = !err && in->child == c;
    if (err)
        in->child_lives = false;
    else
        in->child = c;
    pthread_cond_broadcast(&in->changed);
    pthread_mutex_unlock(&in->mu);
    if (known)
        child_unref(c);
    return err;
}

static void on_restart(struct timer *t)
{
    struct instance *in = (struct instance *)((char *)t - offsetof(struct instance, restart));

    families_count_restart(in->model->name, in->model->version);
    TRITONSERVER_Error *err = start_child(in);
    if (!err)
        return;
    BACKEND_LOG(ERROR, "'%s' has no process: %s", in->name, TRITONSERVER_ErrorMessage(err));
    TRITONSERVER_ErrorDelete(err);
    watcher_set_timer(t, backend_now_ns() + find_pause_ns(in, 0));
}

/* ---- Readiness ------------------------------------------------------------------------------ */

struct child *instance_child(struct instance *in)
{
    pthread_mutex_lock(&in->mu);
    struct child *c = in->stage == READY ? child_ref(in->child) : NULL;
    pthread_mutex_unlock(&in->mu);
    return c;
}

static bool await_readiness(struct instance *in, uint64_t question)
{
    struct timespec until;
    bool in_time = true;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += READINESS_LIMIT_S;
    pthread_mutex_lock(&in->mu);
    while (in->answered < question && in->stage == READY && in_time)
        in_time = pthread_cond_timedwait(&in->changed, &in->mu, &until) == 0;
    const bool ready = in->answered >= question && in->is_ready;
    if (!in_time && in->answered < question)
        in->is_overdue = true;
    pthread_mutex_unlock(&in->mu);
    return ready;
}

/* ask_is_ready - not while an answer is overdue: a thread would wait again, and questions would
 * pile up in the child. */
static bool ask_is_ready(struct instance *in, struct child *c)
{
    pthread_mutex_lock(&in->mu);
    const bool asks = !in->is_overdue;
    const uint64_t question = asks ? ++in->question : 0;
    pthread_mutex_unlock(&in->mu);
    return asks && channel_say(&c->channel, NOTE_IS_READY, question, NULL, NULL) &&
           await_readiness(in, question);
}

TRITONSERVER_Error *instance_ready(struct instance *in)
{
    struct child *c = instance_child(in);
    bool ready = c != NULL;

    if (c && in->has_is_ready)
        ready = ask_is_ready(in, c);
    const bool lives = c && !atomic_load(&c->ended);
    child_unref(c);
    if (ready)
        return NULL;
    return lives ? backend_error(TRITONSERVER_ERROR_UNAVAILABLE,
                                 "Model instance '%s' is not ready.", in->name)
                 : backend_error(TRITONSERVER_ERROR_UNAVAILABLE,
                                 "Stub process '%s' is not healthy.", in->name);
}

/* ---- Executions that leave ------------------------------------------------------------------- */

static int finish_execution(TRITONBACKEND_ModelInstance *instance, bool may_wait)
{
    void *state = NULL;

    TRITONSERVER_ErrorDelete(TRITONBACKEND_ModelInstanceState(instance, &state));
    return execute_finish(state, may_wait);
}

TRITONSERVER_Error *instance_set_event(struct instance *in, const struct child *c)
{
    TRY(conch_model_instance_set_finish(in->handle, c->channel.event_fd, finish_execution));
    in->event_of = c->number;
    return NULL;
}

/* A thread has to wait where time counts or is spun, and where a client that reads slowly may make
 * the child's reader wait. */
static TRITONSERVER_Error *leave_if_possible(struct instance *in)
{
    const struct model *m = in->model;

    if (!conch_model_instance_set_finish || m->execute_timeout_ns || m->spin_ns ||
        in->arguments.is_decoupled)
        return NULL;
    struct child *c = instance_child(in);
    TRITONSERVER_Error *err = c ? instance_set_event(in, c) : NULL;
    in->leaves = c && !err;
    child_unref(c);
    return err;
}

/* ---- Opening and closing -------------------------------------------------------------------- */

static TRITONSERVER_Error *await_start(struct instance *in)
{
    pthread_mutex_lock(&in->mu);
    while (in->stage == STARTING)
        pthread_cond_wait(&in->changed, &in->mu);
    const bool ready = in->was_ready;
    char *why = in->why;
    in->why = NULL;
    pthread_mutex_unlock(&in->mu);
    TRITONSERVER_Error *err =
        ready ? NULL
              : backend_error(TRITONSERVER_ERROR_INTERNAL, "%s", why ? why : "out of memory");
    free(why);
    return err;
}

/* On the watcher's thread: no child starts after it. */
static void on_close(struct job *j)
{
    struct instance *in = (struct instance *)((char *)j - offsetof(struct instance, close));

    watcher_clear_timer(&in->restart);
    pthread_mutex_lock(&in->mu);
    in->may_close = true;
    pthread_cond_broadcast(&in->changed);
    pthread_mutex_unlock(&in->mu);
}

static TRITONSERVER_Error *fill_instance(struct instance *in)
{
    TRITONBACKEND_Model *model;
    void *state;

    in->made_mu =
        pthread_mutex_init(&in->mu, NULL) == 0 && pthread_cond_init(&in->changed, NULL) == 0;
    if (!in->made_mu)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    TRY(TRITONBACKEND_ModelInstanceModel(in->handle, &model));
    TRY(TRITONBACKEND_ModelState(model, &state));
    in->model = state;
    TRY(TRITONBACKEND_ModelInstanceName(in->handle, &in->name));
    TRY(model_arguments(in->model, in->handle, &in->arguments));
    in->has_processors = sched_getaffinity(0, sizeof in->processors, &in->processors) == 0;
    TRY(watcher_ref());
    in->has_watcher = true;
    TRY(start_child(in));
    TRY(await_start(in));
    return leave_if_possible(in);
}

TRITONSERVER_Error *instance_open(TRITONBACKEND_ModelInstance *handle,
                                  struct instance **ret_instance)
{
    struct instance *in = calloc(1, sizeof *in);

    if (!in)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    in->handle = handle;
    in->restart.due = on_restart;
    in->close.run = on_close;
    TRITONSERVER_Error *err = fill_instance(in);
    if (err)
        instance_close(in);
    else
        *ret_instance = in;
    return err;
}

/* ask_to_end - the model's finalize(), if the child is able to call it. */
static void ask_to_end(struct child *c)
{
    static const uint32_t command = COMMAND_FINALIZE;
    uint64_t at;
    char *to = arena_take(c->channel.down, sizeof command, &at);

    if (!to) {
        child_condemn(c, "had no memory for a message");
        return;
    }
    memcpy(to, &command, sizeof command);
    block_hand(c->channel.down, at);
    channel_ring(&c->channel, at, sizeof command);
}

/* Waits for the end of the child. False: it has not come in time. */
static bool await_child_end(struct instance *in, uint64_t timeout_ns)
{
    struct timespec until;
    bool in_time = true;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += (time_t)(timeout_ns / NS_PER_S);
    pthread_mutex_lock(&in->mu);
    while (in->child_lives && in_time)
        in_time = pthread_cond_timedwait(&in->changed, &in->mu, &until) == 0;
    const bool ended = !in->child_lives;
    pthread_mutex_unlock(&in->mu);
    return ended;
}

static void await_sweep(struct child *c)
{
    pthread_mutex_lock(&c->mu);
    while (!c->is_swept)
        pthread_cond_wait(&c->changed, &c->mu);
    pthread_mutex_unlock(&c->mu);
}

static void stop_child(struct instance *in)
{
    pthread_mutex_lock(&in->mu);
    const bool serves = in->stage == READY;
    in->stage = CLOSING;
    pthread_mutex_unlock(&in->mu);
    watcher_post(&in->close);
    pthread_mutex_lock(&in->mu);
    while (!in->may_close)
        pthread_cond_wait(&in->changed, &in->mu);
    struct child *c = in->child;
    pthread_mutex_unlock(&in->mu);
    if (!c)
        return;
    if (serves)
        ask_to_end(c);
    if (!serves)
        child_dismiss(c, "is not needed any more");
    else if (!await_child_end(in, in->model->python->settings.timeout_ns))
        child_condemn(c, "has not ended within its time");
    (void)await_child_end(in, UINT64_C(1) << 62);
    await_sweep(c);
}

void instance_close(struct instance *in)
{
    if (in->has_watcher) {
        stop_child(in);
        child_unref(in->child);
        watcher_unref();
    }
    execution_done(&in->execution);
    arguments_done(&in->arguments);
    if (in->made_mu) {
        pthread_cond_destroy(&in->changed);
        pthread_mutex_destroy(&in->mu);
    }
    free(in->why);
    free(in);
}
