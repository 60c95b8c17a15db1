/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loops of each server in the process, in one list. mu is held while loops start and end, so
 * that each server has one set of loops.
 *
 * Thread: any but a loop's.
 */
#include "frontends/serve/server_loops.h"

#include <pthread.h>

#include "base/cpu_count.h"
#include "base/list.h"
#include "base/mem.h"
#include "base/mutex.h"
#include "base/status.h"
#include "conch/conch.h"
#include "core/options/server_options.h"
#include "core/server/server.h"
#include "frontends/ops/loop_share.h"
#include "frontends/shm/regions.h"

struct server_loops {
    struct list link; /* in `all` */
    struct server *server;
    struct loops *loops;
    struct regions *regions;
    unsigned int n_users;
    bool goes_on; /* a service could not be freed: its loops go on, and are never freed */
};

enum { LOOPS_LEVEL = 50 }; /* in the table of core/README.md */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct mutex mu;
static struct list all; /* under mu */

static void init_list(void)
{
    mutex_init(&mu, LOOPS_LEVEL, "server_loops.mu");
    list_init(&all);
}

static struct server_loops *find_locked(const struct server *server)
{
    LIST_FOR_EACH (link, &all) {
        struct server_loops *s = LIST_ENTRY(link, struct server_loops, link);
        if (s->server == server)
            return s;
    }
    return NULL;
}

static void *new_share(void *arg, struct loop *loop)
{
    return loop_share_new(arg, loop);
}

static void stop_share(void *ctx)
{
    loop_share_stop(ctx);
}

static void free_share(void *ctx)
{
    loop_share_free(ctx);
}

static struct regions *make_regions(struct server *server)
{
    const struct server_options *o = server_get_options(server);
    struct regions_options options = {.allowed = o->allow_client_shm,
                                      .max_regions = o->client_shm_max_regions,
                                      .max_bytes = o->client_shm_max_bytes};
    return regions_new(&options, server);
}

static struct status *start_loops_locked(struct server *server, unsigned int n_threads,
                                         struct server_loops **ret)
{
    struct loops *loops;
    struct status *st = loops_new(&(struct loops_options){.name = "http",
                                                          .n_threads = n_threads,
                                                          .max_threads = server_loops_count(0),
                                                          .budget = server_budget(server),
                                                          .ctx_new = new_share,
                                                          .ctx_stop = stop_share,
                                                          .ctx_free = free_share,
                                                          .ctx_arg = server},
                                  &loops);
    if (st)
        return st;
    struct server_loops *s = mem_zalloc(sizeof(*s));
    s->server = server;
    s->loops = loops;
    s->regions = make_regions(server);
    list_push(&all, &s->link);
    *ret = s;
    return NULL;
}

struct status *server_loops_get(struct server *server, unsigned int n_threads,
                                struct loops **ret_loops)
{
    struct status *st = NULL;
    pthread_once(&once, init_list);
    mutex_lock(&mu);
    struct server_loops *s = find_locked(server);
    if (s)
        st = loops_grow(s->loops, n_threads);
    else
        st = start_loops_locked(server, n_threads, &s);
    if (!st) {
        s->n_users++;
        *ret_loops = s->loops;
    }
    mutex_unlock(&mu);
    return st;
}

void server_loops_put(struct server *server, enum net_end end)
{
    mutex_lock(&mu);
    struct server_loops *s = find_locked(server);
    BUG_ON(!s);
    s->goes_on |= end != NET_FREED;
    if (--s->n_users == 0) {
        list_remove(&s->link);
        if (!s->goes_on) {
            loops_unref(s->loops);
            regions_free(s->regions);
        }
        mem_free(s);
    }
    mutex_unlock(&mu);
}

bool server_loops_turned(struct server *server)
{
    pthread_once(&once, init_list);
    mutex_lock(&mu);
    struct server_loops *s = find_locked(server);
    bool turned = !s || loops_turned(s->loops);
    mutex_unlock(&mu);
    return turned;
}

bool conch_server_loops_turned(TRITONSERVER_Server *server)
{
    return !server || server_loops_turned((struct server *)server);
}

struct regions *server_loops_regions(struct server *server)
{
    mutex_lock(&mu);
    struct server_loops *s = find_locked(server);
    BUG_ON(!s);
    struct regions *regions = s->regions;
    mutex_unlock(&mu);
    return regions;
}

unsigned int server_loops_count(int n_threads)
{
    int n_cpus = cpu_count_usable();
    return (unsigned int)(n_threads > 0 && n_threads < n_cpus ? n_threads : n_cpus);
}
