/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `mu` guards all but the settings; it is not held while a thread talks to Redis.
 */
#include "redis/pool.h"

#include <errno.h>
#include <hiredis/hiredis.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "triton/core/tritonserver.h"

enum { MS = 1000000, TEXT_BYTES = 256 };

struct pool {
    /* Constant; the strings are the pool's own. */
    struct pool_settings settings;
    char *host, *user, *password;

    pthread_mutex_t mu;
    pthread_cond_t given_back;
    /* Under mu. */
    redisContext **idle; /* connections that no thread uses; n_idle of them */
    unsigned int n_idle, n_taken;
    uint64_t away_until_ns; /* no connection is tried before */
    uint64_t away_ms;       /* how long it was away for, the last time; 0: it is there */
    bool is_tried;          /* while it is away: a thread tries to connect */
};

/* ---- Small things -----------------------------------------------------------------------------
 */

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static struct timeval to_timeval(uint64_t ms)
{
    return (struct timeval){.tv_sec = (time_t)(ms / 1000),
                            .tv_usec = (suseconds_t)(ms % 1000 * 1000)};
}

static void log_redis(TRITONSERVER_LogLevel level, const struct pool *p, const char *what,
                      const char *why)
{
    char text[2 * TEXT_BYTES];
    snprintf(text, sizeof(text), "the cache 'redis' %s %s:%u%s%s", what, p->host, p->settings.port,
             *why ? ": " : "", why);
    TRITONSERVER_Error *err = TRITONSERVER_LogMessage(level, __FILE__, __LINE__, text);
    if (err)
        TRITONSERVER_ErrorDelete(err);
}

/*
 * hiredis writes to sockets without MSG_NOSIGNAL, and a program that embeds the server may not
 * ignore SIGPIPE: the signal is blocked meanwhile, and one that has come is taken off.
 */
static void block_sigpipe(sigset_t *before)
{
    sigset_t pipe;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, before);
}

static void unblock_sigpipe(const sigset_t *before)
{
    const struct timespec none = {0};
    sigset_t pipe;
    if (sigismember(before, SIGPIPE))
        return;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    while (sigtimedwait(&pipe, NULL, &none) == SIGPIPE) {
    }
    pthread_sigmask(SIG_SETMASK, before, NULL);
}

struct pool *pool_new(const struct pool_settings *s)
{
    pthread_condattr_t attr;
    struct pool *p = calloc(1, sizeof(*p));
    if (!p)
        return NULL;
    p->settings = *s;
    p->host = strdup(s->host);
    p->user = s->user ? strdup(s->user) : NULL;
    p->password = s->password ? strdup(s->password) : NULL;
    p->idle = calloc(s->size, sizeof(redisContext *));
    pthread_mutex_init(&p->mu, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&p->given_back, &attr);
    pthread_condattr_destroy(&attr);
    if (p->host && p->idle && (p->user || !s->user) && (p->password || !s->password))
        return p;
    pool_free(p);
    return NULL;
}

void pool_free(struct pool *p)
{
    if (!p)
        return;
    for (unsigned int i = 0; i < p->n_idle; i++)
        redisFree(p->idle[i]);
    pthread_cond_destroy(&p->given_back);
    pthread_mutex_destroy(&p->mu);
    free(p->idle);
    free(p->host);
    free(p->user);
    free(p->password);
    free(p);
}

/* ---- Connecting -------------------------------------------------------------------------------
 */

/* Sends a command of the login. False: the connection has failed, or (a text in `error`) Redis has
 * refused it. */
static bool send_login(redisContext *c, int n_args, const char **args, char *error, size_t size)
{
    redisReply *reply = redisCommandArgv(c, n_args, args, NULL);
    if (!reply)
        return false;
    bool is_error = reply->type == REDIS_REPLY_ERROR;
    if (is_error)
        snprintf(error, size, "%s: %s", args[0], reply->str);
    freeReplyObject(reply);
    return !is_error;
}

static bool log_in(const struct pool *p, redisContext *c, char *error, size_t size)
{
    char db[16];
    snprintf(db, sizeof(db), "%u", p->settings.db);
    if (p->password && p->user &&
        !send_login(c, 3, (const char *[]){"AUTH", p->user, p->password}, error, size))
        return false;
    if (p->password && !p->user &&
        !send_login(c, 2, (const char *[]){"AUTH", p->password}, error, size))
        return false;
    return p->settings.db == 0 || send_login(c, 2, (const char *[]){"SELECT", db}, error, size);
}

/* Returns NULL with the reason in `why`, or in `error` if Redis is there and refuses. */
static redisContext *connect_redis(const struct pool *p, char *why, char *error, size_t size)
{
    redisContext *c = redisConnectWithTimeout(p->host, (int)p->settings.port,
                                              to_timeval(p->settings.connect_timeout_ms));
    *why = *error = '\0';
    if (c && !c->err && redisSetTimeout(c, to_timeval(p->settings.socket_timeout_ms)) == REDIS_OK &&
        log_in(p, c, error, size))
        return c;
    if (!*error)
        snprintf(why, TEXT_BYTES, "%s", c && c->err ? c->errstr : "no memory");
    if (c)
        redisFree(c);
    return NULL;
}

/* ---- Taking and giving back --------------------------------------------------------------------
 */

static bool is_away_locked(const struct pool *p)
{
    return p->away_ms > 0 && (p->is_tried || now_ns() < p->away_until_ns);
}

/* Waits until a connection may be taken. False: Redis is away, or none was given back in time. */
static bool wait_for_place_locked(struct pool *p)
{
    uint64_t until_ns = now_ns() + p->settings.wait_timeout_ms * MS;
    const struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000),
                                   .tv_nsec = (long)(until_ns % 1000000000)};
    while (!is_away_locked(p) && p->n_taken == p->settings.size) {
        if (pthread_cond_timedwait(&p->given_back, &p->mu, &until) != 0)
            return false;
    }
    return !is_away_locked(p);
}

/* The connections that are idle are closed: they end at the same server. */
static void note_away(struct pool *p, const char *why)
{
    pthread_mutex_lock(&p->mu);
    bool is_new = p->away_ms == 0;
    if (is_new)
        p->away_ms = POOL_LEAST_AWAY_MS;
    else if (p->is_tried) /* else others have failed together with the first one */
        p->away_ms *= 2;
    if (p->away_ms > POOL_MOST_AWAY_MS)
        p->away_ms = POOL_MOST_AWAY_MS;
    p->away_until_ns = now_ns() + p->away_ms * MS;
    p->is_tried = false;
    p->n_taken--;
    while (p->n_idle > 0)
        redisFree(p->idle[--p->n_idle]);
    pthread_cond_broadcast(&p->given_back);
    pthread_mutex_unlock(&p->mu);
    if (is_new)
        log_redis(TRITONSERVER_LOG_WARN, p, "has lost, and does without,", why);
}

/* @c  NULL: there is none to keep */
static void give_back(struct pool *p, redisContext *c)
{
    pthread_mutex_lock(&p->mu);
    bool is_back = c && p->away_ms > 0;
    if (c)
        p->away_ms = 0;
    p->is_tried = false;
    p->n_taken--;
    if (c)
        p->idle[p->n_idle++] = c;
    pthread_cond_signal(&p->given_back);
    pthread_mutex_unlock(&p->mu);
    if (is_back)
        log_redis(TRITONSERVER_LOG_INFO, p, "is connected again to", "");
}

/* Takes an idle connection, or makes one. */
static enum pool_result take_connection(struct pool *p, redisContext **ret_c, bool *ret_is_used,
                                        char *error, size_t size)
{
    char why[TEXT_BYTES];
    pthread_mutex_lock(&p->mu);
    if (!wait_for_place_locked(p)) {
        pthread_mutex_unlock(&p->mu);
        return POOL_AWAY;
    }
    p->n_taken++;
    p->is_tried = p->away_ms > 0;
    *ret_c = p->n_idle > 0 ? p->idle[--p->n_idle] : NULL;
    *ret_is_used = *ret_c;
    pthread_mutex_unlock(&p->mu);
    if (*ret_is_used)
        return POOL_OK;
    *ret_c = connect_redis(p, why, error, size);
    if (*ret_c)
        return POOL_OK;
    if (*error) {
        give_back(p, NULL);
        return POOL_REFUSED;
    }
    note_away(p, why);
    return POOL_AWAY;
}

/* Redis closes connections that are idle for long, and all when it ends: another one may serve. */
static bool was_closed(const redisContext *c)
{
    return c->err == REDIS_ERR_EOF ||
           (c->err == REDIS_ERR_IO && (errno == EPIPE || errno == ECONNRESET));
}

static enum pool_result send_command(struct pool *p, int n_args, const char **args,
                                     const size_t *lengths, redisReply **ret_reply, char *error,
                                     size_t error_bytes)
{
    char why[TEXT_BYTES];
    redisContext *c;
    bool is_used;
    enum pool_result result = take_connection(p, &c, &is_used, error, error_bytes);
    if (result != POOL_OK)
        return result;
    *ret_reply = redisCommandArgv(c, n_args, args, lengths);
    if (!*ret_reply && is_used && was_closed(c)) {
        redisFree(c);
        c = connect_redis(p, why, error, error_bytes);
        *ret_reply = c ? redisCommandArgv(c, n_args, args, lengths) : NULL;
    }
    if (*ret_reply) {
        give_back(p, c);
        return POOL_OK;
    }
    if (c) {
        snprintf(why, sizeof(why), "%s", c->errstr);
        redisFree(c);
    }
    note_away(p, why);
    return POOL_AWAY;
}

enum pool_result pool_command(struct pool *p, int n_args, const char **args, const size_t *lengths,
                              redisReply **ret_reply, char *error, size_t error_bytes)
{
    sigset_t before;
    block_sigpipe(&before);
    enum pool_result result = send_command(p, n_args, args, lengths, ret_reply, error, error_bytes);
    unblock_sigpipe(&before);
    return result;
}
