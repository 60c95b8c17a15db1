/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONCH_CORE_SERVER_PRIV_H
#define CONCH_CORE_SERVER_PRIV_H

#include <stdatomic.h>

#include "base/mutex.h"
#include "core/backend/backend.h"
#include "core/repo/repository.h"
#include "core/server.h"

struct pool;
struct server_options;

enum server_state { SERVER_INITIALIZING, SERVER_READY, SERVER_EXITING, SERVER_FAILED };

struct server {
    /* Constant once made. */
    struct server_options *options;
    struct backend_registry backends;
    struct repository repository;
    struct pool *pool; /* for requests of the C API */

    atomic_int state; /* enum server_state */
    atomic_uint exit_timeout_s;

    struct mutex drain_mu; /* level 300 in core/README.md */
    struct cond drained;
    /* Under drain_mu. */
    unsigned int n_drained; /* how often a stopping model has become empty */
};

#endif
