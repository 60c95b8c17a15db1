/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections to one Redis server, and whether it is there.
 *
 * A thread takes a connection for one command, and gives it back; when all are taken it waits for
 * at most wait_timeout. When a connection fails, Redis counts as away: for a while, which doubles
 * with each failure up to POOL_MOST_AWAY_MS, no thread gets a connection, so that nothing waits for
 * a server that is not there. Then one thread at a time tries to connect.
 */
#ifndef CONCH_CACHES_REDIS_POOL_H
#define CONCH_CACHES_REDIS_POOL_H

#include <stdbool.h>
#include <stdint.h>

struct pool;
struct redisReply;

enum { POOL_LEAST_AWAY_MS = 100, POOL_MOST_AWAY_MS = 5000 };

struct pool_settings {
    const char *host, *user, *password; /* borrowed; user and password may be NULL */
    unsigned int port, db, size;
    uint64_t connect_timeout_ms, socket_timeout_ms, wait_timeout_ms;
};

/* pool_new - connects to nothing yet. NULL: there is no memory. */
struct pool *pool_new(const struct pool_settings *s);
/* pool_free - no thread uses it any more; NULL is fine. */
void pool_free(struct pool *p);

enum pool_result {
    POOL_OK,
    POOL_AWAY,    /* Redis is not there; the log has said so */
    POOL_REFUSED, /* it answers the login or the choice of the database with an error */
};

/*
 * pool_command - sends a command of n_args parts, and waits for the reply, which may be an error of
 * the command; the caller ends it with freeReplyObject(). Thread: any.
 *
 * @error  POOL_REFUSED: the text of the error
 */
enum pool_result pool_command(struct pool *p, int n_args, const char **args, const size_t *lengths,
                              struct redisReply **ret_reply, char *error, size_t error_bytes);

#endif
