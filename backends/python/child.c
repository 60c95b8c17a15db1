/* SPDX-License-Identifier: Apache-2.0 */
/*
 * child - see child.h. First its requests, then its notes, then its end, then its start.
 *
 * Two threads may finish a request: the one that executes it and the reader. The one that sets
 * is_final under mu sends the final response; the last of the two that uses the entry frees it.
 */
#include "python/child.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "python/call.h"
#include "python/control.h"
#include "python/families.h"
#include "python/reply.h"
#include "python/respond.h"
#include "python/tensor.h"

/* Free memory of large blocks goes back to the system after this time without another one. */
#define IDLE_NS UINT64_C(1000000000)

enum { NOTES_AT_ONCE = 256, MOST_LAST_NOTES = 65536, FIRST_PENDINGS = 64 };

/* ---- Requests ------------------------------------------------------------------------------- */

/* They come in blocks of the size of all before, so that none ever moves. */
static bool add_pendings_locked(struct child *c)
{
    const uint32_t more = c->n_pendings ? c->n_pendings : FIRST_PENDINGS;
    struct pending *block = calloc(more, sizeof *block);
    struct pending **all = block && more <= PROTOCOL_MAX_REQUESTS
                               ? realloc(c->pendings, (size_t)(c->n_pendings + more) * sizeof *all)
                               : NULL;

    if (!all) {
        free(block);
        return false;
    }
    c->pendings = all;
    for (uint32_t i = 0; i < more; i++) {
        all[c->n_pendings + i] = &block[i];
        block[i].next_free = i + 1 < more ? c->n_pendings + i + 1 : UINT32_MAX;
    }
    c->free_pending = c->n_pendings;
    c->n_pendings += more;
    return true;
}

static void free_pendings(struct child *c)
{
    /* The first of each block: 0, 64, 128, 256, … */
    for (uint32_t i = 0; i < c->n_pendings; i = i ? i * 2 : FIRST_PENDINGS)
        free(c->pendings[i]);
    free(c->pendings);
}

static uint64_t make_key(const struct child *c, uint32_t i)
{
    return (uint64_t)c->pendings[i]->generation << 32 | (i + 1);
}

struct pending *child_find_locked(struct child *c, uint64_t key)
{
    const uint64_t i = (key & UINT32_MAX) - 1;

    if (i >= c->n_pendings || !c->pendings[i]->used || c->pendings[i]->generation != key >> 32)
        return NULL;
    return c->pendings[i];
}

static uint32_t find_index(const struct child *c, const struct pending *p)
{
    /* The block of an entry begins where the sum of all blocks before ends. */
    for (uint32_t first = 0, n = FIRST_PENDINGS; first < c->n_pendings;) {
        const struct pending *block = c->pendings[first];

        if (p >= block && p < block + n)
            return first + (uint32_t)(p - block);
        n = first ? n * 2 : n;
        first = first ? first * 2 : FIRST_PENDINGS;
    }
    abort(); /* an entry of another child */
}

void child_forget_locked(struct child *c, struct pending *p)
{
    if (p->executes || p->busy)
        return;
    if (p->factory)
        backend_ignore(TRITONBACKEND_ResponseFactoryDelete(p->factory), "a response factory");
    p->factory = NULL;
    p->request = NULL;
    p->used = p->is_final = false;
    p->generation++;
    p->next_free = c->free_pending;
    c->free_pending = find_index(c, p);
}

bool child_register(struct child *c, TRITONBACKEND_Request **requests, uint32_t n,
                    uint64_t *ret_keys)
{
    const uint64_t now_ns = backend_now_ns();
    uint32_t i = 0;

    pthread_mutex_lock(&c->mu);
    for (; i < n; i++) {
        if (c->free_pending == UINT32_MAX && !add_pendings_locked(c))
            break;
        const uint32_t free_one = c->free_pending;
        struct pending *p = c->pendings[free_one];

        c->free_pending = p->next_free;
        p->used = p->executes = true;
        p->is_final = p->busy = p->dropped = false;
        p->request = requests[i];
        p->since_ns = now_ns;
        ret_keys[i] = make_key(c, free_one);
    }
    const bool all = i == n;
    while (!all && i-- > 0) {
        struct pending *p = child_find_locked(c, ret_keys[i]);

        p->executes = false;
        child_forget_locked(c, p);
    }
    pthread_mutex_unlock(&c->mu);
    return all;
}

void child_fail(struct child *c, TRITONBACKEND_ResponseFactory *factory, TRITONSERVER_Error *err)
{
    TRITONBACKEND_Response *response;
    TRITONSERVER_Error *wrong = TRITONBACKEND_ResponseNewFromFactory(&response, factory);

    if (!wrong)
        wrong = TRITONBACKEND_ResponseSend(response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, err);
    backend_ignore(wrong, c->name);
    TRITONSERVER_ErrorDelete(err);
}

/* sweep_pending - fails a request that no execution will finish. Under mu, which is released
 * meanwhile. */
static void sweep_pending(struct child *c, struct pending *p)
{
    TRITONBACKEND_ResponseFactory *factory = p->factory;

    p->is_final = p->busy = true;
    pthread_mutex_unlock(&c->mu);
    if (factory)
        child_fail(c, factory, child_ended_error(c));
    pthread_mutex_lock(&c->mu);
    p->busy = false;
    child_forget_locked(c, p);
}

/* The reader's last deed. What the server has made for the child goes before the instance does. */
static void sweep_pendings(struct child *c)
{
    families_free(c->families);
    c->families = NULL;
    pthread_mutex_lock(&c->mu);
    c->is_swept = true;
    for (uint32_t i = 0; i < c->n_pendings; i++) {
        struct pending *p = c->pendings[i];

        if (p->used && !p->executes && !p->is_final)
            sweep_pending(c, p);
        respond_forget_statistics(p);
    }
    c->drained = UINT64_MAX;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->mu);
}

/* ---- Notes ---------------------------------------------------------------------------------- */

static bool write_log(struct child *c, struct unpacker *u)
{
    size_t len, file_len;
    const uint8_t level = unpack_u8(u);
    const char *file = unpack_str(u, &file_len);
    const uint32_t line = unpack_u32(u);
    const char *text = unpack_str(u, &len);

    (void)c;
    if (u->failed || level > TRITONSERVER_LOG_VERBOSE)
        return false;
    if (!TRITONSERVER_LogIsEnabled((TRITONSERVER_LogLevel)level))
        return true;
    char *file_copy = strndup(file, file_len), *copy = strndup(text, len);
    if (file_copy && copy)
        TRITONSERVER_ErrorDelete(TRITONSERVER_LogMessage((TRITONSERVER_LogLevel)level, file_copy,
                                                         (int)(line & INT32_MAX), copy));
    free(file_copy);
    free(copy);
    return true;
}

static bool answer_is_cancelled(struct child *c, uint64_t id, struct unpacker *u)
{
    const uint64_t key = unpack_u64(u);
    bool cancelled = false;

    if (u->failed)
        return false;
    pthread_mutex_lock(&c->mu);
    const struct pending *p = child_find_locked(c, key);
    if (p && p->request)
        backend_ignore(TRITONBACKEND_RequestIsCancelled(p->request, &cancelled), c->name);
    else if (p && p->factory)
        backend_ignore(TRITONBACKEND_ResponseFactoryIsCancelled(p->factory, &cancelled), c->name);
    pthread_mutex_unlock(&c->mu);
    reply_flag(c, id, cancelled);
    return true;
}

static bool greet(struct child *c, uint64_t version)
{
    if (c->has_greeted || version != PROTOCOL_VERSION)
        return false;
    c->has_greeted = true;
    watcher_clear_timer(&c->hello);
    c->ops->greeted(c->owner, c);
    return true;
}

static bool read_note_message(struct child *c, const struct note *n, struct unpacker *u)
{
    switch (n->kind) {
    case NOTE_COMPLETED:
    case NOTE_INITIALIZED:
        return c->has_greeted && c->ops->reported(c->owner, c, n->kind, u);
    case NOTE_RESPONSE:
        return respond_by_sender(c, n->id, u);
    case NOTE_LOG:
        return write_log(c, u);
    case NOTE_IS_CANCELLED:
        return answer_is_cancelled(c, n->id, u);
    case NOTE_CALL:
        return call_start(c, n->id, u, n->at);
    case NOTE_LOAD_MODEL:
    case NOTE_UNLOAD_MODEL:
    case NOTE_IS_MODEL_READY:
        return control_ask(c, n->kind, n->id, u);
    case NOTE_READINESS:
        return !c->ops->readiness || c->ops->readiness(c->owner, c, n->id, u);
    default:
        return n->kind >= NOTE_FAMILY_NEW && n->kind <= NOTE_METRIC_VALUE &&
               families_ask(c, n->kind, n->id, u);
    }
}

static bool read_note(struct child *c, const struct note *n)
{
    struct unpacker u;

    switch (n->kind) {
    case NOTE_HELLO:
        return greet(c, n->id);
    case NOTE_DROP_REQUEST:
        respond_never(c, n->id);
        return true;
    case NOTE_CALL_CANCEL:
        call_cancel(c, n->id);
        return true;
    default:
        break;
    }
    if (n->n_blocks != 1 || !channel_open_message(&c->channel, n->at, n->size_bytes, &u))
        return false;
    const bool possible = read_note_message(c, n, &u);
    /* A call's inputs lie in its message until it ends. */
    if (n->kind != NOTE_CALL)
        channel_give_back(&c->channel, n->at);
    return possible;
}

/* read_notes - reads what has come. False: no note will come any more. The watcher stops when a
 * note has made it leave the rest to a reader apart. */
static bool read_notes(struct child *c, unsigned int most)
{
    const bool is_apart = c->is_apart;
    struct note n;

    for (unsigned int i = 0; i < most && c->is_apart == is_apart; i++) {
        switch (channel_receive(&c->channel, &n)) {
        case CHANNEL_NO_NOTE:
            return true;
        case CHANNEL_CLOSED:
            return false;
        case CHANNEL_IMPOSSIBLE:
            n.kind = 0;
            break;
        default:
            if (read_note(c, &n))
                continue;
        }
        child_condemn(c, "has sent an impossible message (%u)", (unsigned int)n.kind);
        return false;
    }
    return true;
}

static uint64_t note_drain(struct child *c)
{
    pthread_mutex_lock(&c->mu);
    const uint64_t wanted = c->drain_wanted;
    pthread_mutex_unlock(&c->mu);
    return wanted;
}

static void report_drain(struct child *c, uint64_t wanted)
{
    pthread_mutex_lock(&c->mu);
    if (c->drained < wanted) {
        c->drained = wanted;
        pthread_cond_broadcast(&c->changed);
    }
    pthread_mutex_unlock(&c->mu);
}

static void kick_reader(struct child *c)
{
    const uint64_t one = 1;

    if (c->kick >= 0)
        (void)!write(c->kick, &one, sizeof one);
}

/* ---- Trimming -------------------------------------------------------------------------------- */

static void on_large(void *arg)
{
    struct child *c = arg;

    atomic_store(&c->large_ns, backend_now_ns());
    if (atomic_exchange(&c->is_trim_due, true))
        return;
    child_ref(c); /* of the job */
    watcher_post(&c->trim_due);
}

static void on_trim_due(struct job *j)
{
    struct child *c = (struct child *)((char *)j - offsetof(struct child, trim_due));

    if (!atomic_load(&c->ended))
        watcher_set_timer(&c->trim, atomic_load(&c->large_ns) + IDLE_NS);
    child_unref(c);
}

static void on_idle(struct timer *t)
{
    struct child *c = (struct child *)((char *)t - offsetof(struct child, trim));
    const uint64_t idle_at_ns = atomic_load(&c->large_ns) + IDLE_NS;

    if (backend_now_ns() < idle_at_ns) {
        watcher_set_timer(t, idle_at_ns);
        return;
    }
    atomic_store(&c->is_trim_due, false);
    channel_trim(&c->channel);
}

/* ---- A reader apart ------------------------------------------------------------------------- */

static void *read_apart(struct child *c)
{
    struct pollfd fds[2] = {{.fd = c->channel.socket}, {.fd = c->kick, .events = POLLIN}};
    bool more = true;

    while (more || !atomic_load(&c->ended)) {
        uint64_t count;

        fds[0].fd = more ? c->channel.socket : -1;
        fds[0].events = (short)(POLLIN | (atomic_load(&c->channel.n_waiting) ? POLLOUT : 0));
        if (poll(fds, 2, -1) < 0)
            continue;
        (void)!read(c->kick, &count, sizeof count);
        const bool last = atomic_load(&c->ended);
        const uint64_t wanted = note_drain(c);
        if (atomic_load(&c->channel.n_waiting))
            (void)channel_flush(&c->channel);
        if (more && !read_notes(c, UINT32_MAX)) {
            more = false;
            if (!last)
                child_condemn(c, "has closed its socket");
        }
        report_drain(c, wanted);
        if (last)
            break;
    }
    return NULL;
}

static void read_until_end(void *arg)
{
    struct child *c = arg;

    read_apart(c);
    sweep_pendings(c);
    child_unref(c);
}

TRITONSERVER_Error *child_read_apart(struct child *c)
{
    c->kick = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (c->kick < 0)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "no descriptor for a reader: %s",
                             strerror(errno));
    watcher_remove(&c->socket);
    c->is_apart = true;
    TRITONSERVER_Error *err = watcher_run(read_until_end, child_ref(c));
    if (!err)
        return NULL;
    child_unref(c);
    c->is_apart = false;
    if (!watcher_add(&c->socket, c->channel.socket, EPOLLIN))
        child_condemn(c, "cannot be watched");
    return err;
}

static void on_blocked(void *arg)
{
    struct child *c = arg;

    if (c->is_apart)
        kick_reader(c);
    else
        watcher_change(&c->socket, EPOLLIN | EPOLLOUT);
}

void child_drain(struct child *c)
{
    if (!c->is_apart)
        return;
    pthread_mutex_lock(&c->mu);
    const uint64_t wanted = ++c->drain_wanted;
    pthread_mutex_unlock(&c->mu);
    kick_reader(c);
    pthread_mutex_lock(&c->mu);
    while (c->drained < wanted)
        pthread_cond_wait(&c->changed, &c->mu);
    pthread_mutex_unlock(&c->mu);
}

/* ---- Its end -------------------------------------------------------------------------------- */

/* kill_child - false: it has been killed before, or has ended. The cause is taken. */
static bool kill_child(struct child *c, char *cause)
{
    pthread_mutex_lock(&c->mu);
    const bool first = !c->is_killed && !c->is_reaped;
    if (first) {
        c->is_killed = true;
        c->cause = cause;
        process_kill(&c->process);
    }
    pthread_mutex_unlock(&c->mu);
    if (!first)
        free(cause);
    return first;
}

void child_condemn(struct child *c, const char *fmt, ...)
{
    char *cause = NULL;
    va_list args;

    va_start(args, fmt);
    if (vasprintf(&cause, fmt, args) < 0)
        cause = NULL;
    va_end(args);
    if (kill_child(c, cause))
        BACKEND_LOG(ERROR, "the process of '%s' %s; it is killed", c->name, child_cause(c));
}

void child_dismiss(struct child *c, const char *cause)
{
    (void)kill_child(c, strdup(cause));
}

const char *child_cause(struct child *c)
{
    pthread_mutex_lock(&c->mu);
    const char *cause = c->cause ? c->cause : c->process.cause;
    pthread_mutex_unlock(&c->mu);
    return cause;
}

TRITONSERVER_Error *child_ended_error(struct child *c)
{
    return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "Stub process '%s' is not healthy: it %s",
                         c->name, child_cause(c));
}

static void on_last_job(struct job *j)
{
    child_unref((struct child *)((char *)j - offsetof(struct child, release)));
}

static void end_child(struct child *c)
{
    watcher_remove(&c->pidfd);
    watcher_clear_timer(&c->hello);
    watcher_clear_timer(&c->trim);
    pthread_mutex_lock(&c->mu);
    process_reap(&c->process);
    c->is_reaped = true;
    pthread_mutex_unlock(&c->mu);
    if (!c->is_apart && c->socket.fd >= 0)
        (void)read_notes(c, MOST_LAST_NOTES);
    atomic_store(&c->ended, true);
    channel_end(&c->channel);
    calls_cancel(c);
    if (c->is_apart) {
        kick_reader(c);
    } else {
        watcher_remove(&c->socket);
        sweep_pendings(c);
    }
    c->ops->ended(c->owner, c);
    watcher_post(&c->release);
}

static void on_pidfd(struct watch *w, uint32_t events)
{
    struct child *c = (struct child *)((char *)w - offsetof(struct child, pidfd));

    (void)events;
    if (process_has_ended(&c->process))
        end_child(c);
}

static void on_socket(struct watch *w, uint32_t events)
{
    struct child *c = (struct child *)((char *)w - offsetof(struct child, socket));

    if (events & EPOLLOUT && channel_flush(&c->channel))
        watcher_change(w, EPOLLIN);
    if (!(events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
        return;
    if (read_notes(c, NOTES_AT_ONCE) || w->fd < 0)
        return;
    watcher_remove(w);
    /* It ends its life line when it ends itself; one that goes on without it is killed. */
    if (!process_has_ended(&c->process))
        watcher_set_timer(&c->hello, backend_now_ns() + UINT64_C(100000000));
}

static void on_hello_due(struct timer *t)
{
    struct child *c = (struct child *)((char *)t - offsetof(struct child, hello));

    child_condemn(c, "%s",
                  c->has_greeted ? "has closed its socket" : "has not started within its time");
}

/* ---- Its start ------------------------------------------------------------------------------ */

struct child *child_ref(struct child *c)
{
    atomic_fetch_add(&c->n_refs, 1);
    return c;
}

void child_unref(struct child *c)
{
    if (!c || atomic_fetch_sub(&c->n_refs, 1) != 1)
        return;
    process_done(&c->process);
    channel_close(&c->channel);
    calls_free(c->calls);
    families_free(c->families);
    free_pendings(c);
    if (c->kick >= 0)
        close(c->kick);
    if (c->made_mu) {
        pthread_cond_destroy(&c->changed);
        pthread_mutex_destroy(&c->mu);
    }
    free(c->cause);
    free(c->former_name);
    free(c->name);
    free(c);
}

static TRITONSERVER_Error *spawn_process(struct child *c, const struct child_start *start)
{
    const char *const arguments[] = {start->script, start->name, NULL};
    const struct process_start how = {
        .python = environment_python(start->environment),
        .arguments = arguments,
        .changes = environment_variables(start->environment),
        .more = start->variable,
        .processors = start->processors,
        .socket = c->channel.their_socket,
        .page = c->channel.page_fd,
        .down = c->channel.down_fd,
        .up = c->channel.up_fd,
        .event = c->channel.event_fd,
    };

    TRY(process_spawn(&c->process, &how));
    channel_started(&c->channel);
    return NULL;
}

struct watching {
    struct job job;
    struct child *child;
    uint64_t hello_by_ns;
};

/* On the watcher's thread, on which its times are. */
static void watch_started(struct job *j)
{
    struct watching *w = (struct watching *)j;
    struct child *c = w->child;

    if (!c->has_greeted)
        watcher_set_timer(&c->hello, w->hello_by_ns);
    if (!watcher_add(&c->socket, c->channel.socket, EPOLLIN) ||
        !watcher_add(&c->pidfd, c->process.pidfd, EPOLLIN)) {
        child_condemn(c, "cannot be watched");
        end_child(c);
    }
    free(w);
}

static TRITONSERVER_Error *watch_child(struct child *c, const struct settings *settings)
{
    struct watching *w = malloc(sizeof *w);

    if (!w)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    *w = (struct watching){.job.run = watch_started,
                           .child = child_ref(c),
                           .hello_by_ns = backend_now_ns() + settings->timeout_ns};
    watcher_post(&w->job);
    return NULL;
}

static TRITONSERVER_Error *fill_child(struct child *c, const struct child_start *start)
{
    const struct settings *s = start->settings;

    c->name = strdup(start->name);
    c->made_mu = pthread_mutex_init(&c->mu, NULL) == 0 && pthread_cond_init(&c->changed, NULL) == 0;
    c->calls = calls_new();
    c->families = families_new();
    if (!c->name || !c->made_mu || !c->calls || !c->families)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    TRY(channel_open(&c->channel, s->first_bytes, s->growth_bytes, s->max_bytes));
    TRY(spawn_process(c, start));
    return watch_child(c, s);
}

struct adoption {
    struct job job;
    struct child *child;
    char *name;
    TRITONBACKEND_ModelInstance *instance;
    const struct child_owner *ops;
    void *owner;
};

/* On the watcher's thread, which alone calls the owner and reads the instance's notes so far. */
static void on_adopted(struct job *j)
{
    struct adoption *a = (struct adoption *)j;
    struct child *c = a->child;

    c->former_name = atomic_exchange(&c->name, a->name);
    c->instance = a->instance;
    c->ops = a->ops;
    c->owner = a->owner;
    if (atomic_load(&c->ended))
        c->ops->ended(c->owner, c);
    else
        c->ops->greeted(c->owner, c);
    child_unref(c);
    free(a);
}

bool child_adopt(struct child *c, const struct child_start *start)
{
    struct adoption *a = malloc(sizeof *a);
    char *name = strdup(start->name);

    if (!a || !name) {
        free(a);
        free(name);
        return false;
    }
    *a = (struct adoption){.job.run = on_adopted,
                           .child = child_ref(c),
                           .name = name,
                           .instance = start->instance,
                           .ops = start->ops,
                           .owner = start->owner};
    watcher_post(&a->job);
    return true;
}

TRITONSERVER_Error *child_start(const struct child_start *start, struct child **ret_child)
{
    static _Atomic uint64_t n_started;
    struct child *c = calloc(1, sizeof *c);

    if (!c)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    c->n_refs = 1;
    c->number = atomic_fetch_add(&n_started, 1) + 1;
    c->instance = start->instance;
    c->server = start->server;
    c->ops = start->ops;
    c->owner = start->owner;
    c->kick = c->process.pidfd = c->channel.socket = c->channel.page_fd = -1;
    c->channel.down_fd = c->channel.up_fd = c->channel.their_socket = c->channel.event_fd = -1;
    c->channel.blocked = on_blocked;
    c->channel.large = on_large;
    c->channel.arg = c;
    c->free_pending = UINT32_MAX;
    c->pidfd = (struct watch){.fd = -1, .ready = on_pidfd};
    c->socket = (struct watch){.fd = -1, .ready = on_socket};
    c->release.run = on_last_job;
    c->hello.due = on_hello_due;
    c->trim.due = on_idle;
    c->trim_due.run = on_trim_due;
    TRITONSERVER_Error *err = fill_child(c, start);
    if (err)
        child_unref(c);
    else
        *ret_child = c;
    return err;
}
