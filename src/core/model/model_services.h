/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a server provides for its models: they, their instances and schedulers see no more of the
 * server than this.
 */
#ifndef CONCH_CORE_MODEL_MODEL_SERVICES_H
#define CONCH_CORE_MODEL_MODEL_SERVICES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cache;
struct changes;
struct clock;
struct deadline_timers;
struct helpers;
struct limiter;
struct model;
struct readiness_watch;
struct server;
struct server_options;
struct status;
struct watchdog;

/* Constant. All of it outlives the models. */
struct model_services {
    struct server *server; /* whom backends are told to belong to; nothing below looks into it */
    const struct server_options *options;
    struct clock *clock; /* whose time models read, and wait for */
    struct deadline_timers *deadline_timers;
    struct helpers *helpers;
    struct readiness_watch *readiness_watch;
    struct changes *changes; /* to be announced: of what a question for readiness is answered by */
    struct watchdog *watchdog;
    struct limiter *limiter; /* of executions; NULL: there is none */
    struct cache *cache;     /* of responses; NULL: there is none */

    /* Is the server about to stop, so that nothing long may begin? Thread: any, without locks. */
    bool (*is_stopping)(const struct model_services *services);
    /*
     * The model that a client's look-up finds now: for the steps of an ensemble. The caller ends
     * the reference with model_unref(). Until then the model serves and is not unloaded, even if
     * another version or none is found from now on; only a server that stops refuses its requests.
     * Thread: any; takes no lock. Errors: as server_find_model() has them.
     * @version  CONCH_VERSION_LATEST: the latest of those that its version policy has made READY
     */
    struct status *(*find_model)(const struct model_services *services, const char *name,
                                 size_t name_length, int64_t version, struct model **ret_model);
    /*
     * The last request of a stopping model ends: calls model_count_last_end() under the lock of
     * those who wait for that, and wakes them. Model and server may be gone when this returns.
     * Thread: any.
     */
    void (*on_drained)(const struct model_services *services, struct model *m);
};

#endif
