/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether a model's backend can serve now (TRITONBACKEND_ModelInstanceReady), for those who must
 * not wait for a backend: what it said last. One question at a time is asked: when the model has
 * been loaded, when somebody wants to know, and then once a second for half a minute. A backend
 * without that function is never asked and always ready.
 *
 * The backend's own threads ask (`backend.askers`), and are joined before its library is unloaded.
 * A model that does not answer keeps one of them, and nobody of another backend waits for it.
 */
#ifndef CONCH_CORE_READINESS_H
#define CONCH_CORE_READINESS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/control.h"
#include "core/sched/deadline_timer.h"

struct model;
struct server;

/* A model's. */
struct readiness {
    struct control_job job; /* of whoever has set is_asking */
    /* Any thread. */
    atomic_bool is_asking;
    atomic_int answer; /* of the last question */
    atomic_uint_least64_t asked_ns, wanted_until_ns;
};

/* A server's: sees to it that those whom somebody wants to know of are asked again. */
struct readiness_watch {
    struct control_job job;
    /* Under server.drain_mu. */
    struct deadline_timer deadline_timer;
    bool is_at_it, ending;
};

/*
 * readiness_begin - asks for the first time, and waits a second for the answer; later, the model is
 * not ready until there is one. Thread: control, when the model has all that it needs.
 */
void readiness_begin(struct model *m);

/* readiness_watch_end - no question follows. Thread: control; models may be there yet. */
void readiness_watch_end(struct server *s);

/* readiness_known - what the backend said last. Thread: any that has a reference to the model,
 * without locks; does not wait. */
bool readiness_known(struct model *m);

/* readiness_ask - asks now. Thread: any that may wait for the backend, without locks. */
bool readiness_ask(struct model *m);

#endif
