/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Readiness: can a model's backend serve now (TRITONBACKEND_ModelInstanceReady)? The core keeps the
 * backend's last answer, for threads that must not wait for a backend. It asks when the model has
 * been loaded, when the backend says that its answer has changed, when a client wants to know, and
 * then once a second for half a minute; never twice at a time. A backend without that function is
 * never asked and always ready; neither is a model without a backend, an ensemble.
 *
 * Threads of the backend ask (`backend.askers`); they are joined before its library is unloaded.
 * A model that does not answer blocks one of them. After five seconds another thread may take its
 * place, so that the other models of the backend get their turn, however many do not answer.
 */
#ifndef CONCH_CORE_BACKEND_READINESS_H
#define CONCH_CORE_BACKEND_READINESS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/mutex.h"
#include "core/threads/control.h"
#include "core/threads/deadline_timer.h"

struct helpers;
struct model;

/* A server's: asks again, once a second, the models that a client has wanted to know of, and looks
 * at the questions in progress. */
struct readiness_watch {
    /* Constant. */
    struct deadline_timers *deadline_timers;
    struct helpers *helpers;
    /* Asks the models that somebody wants to know of, with readiness_ask_if_wanted(). False: there
     * is none. Thread: a helper, without locks. */
    bool (*ask_wanted)(struct readiness_watch *w);

    struct control_job job;
    struct mutex mu; /* level 310 in core/README.md */
    /* A client has wanted to know since the last look began. Then the timer is set, or the watch
     * is looking. Written under mu. */
    atomic_bool is_wanted;
    struct cond changed;
    /* Under mu. */
    struct deadline_timer deadline_timer;
    bool is_at_it, ending;
    unsigned int n_asking;    /* questions in progress */
    uint64_t asking_since_ns; /* since when there has been one without a pause */
};

/* readiness_watch_init - @ask_wanted  see above. readiness_watch_end() ends it. */
void readiness_watch_init(struct readiness_watch *w, struct deadline_timers *deadline_timers,
                          struct helpers *helpers, bool (*ask_wanted)(struct readiness_watch *w));
/* readiness_watch_end - ends the repeated questions. Thread: control; models may still be loaded.
 */
void readiness_watch_end(struct readiness_watch *w);
/* readiness_watch_done - after the end, when no model is left. */
void readiness_watch_done(struct readiness_watch *w);

/* readiness_is_asked - does the model have a backend that can say whether it is ready? */
bool readiness_is_asked(const struct model *m);

/*
 * readiness_begin - asks for the first time, and waits for the answer for up to a second. If it
 * comes later, the model is not ready until then. Thread: control, at the end of the load.
 */
void readiness_begin(struct model *m);

/*
 * readiness_end - waits until no question is in progress; none begins any more. For a model that
 * is stopped, though no thread waits until it is drained: it has never served. Without effect on a
 * model whose backend is not asked. Thread: control, before the instances are finalised.
 */
void readiness_end(struct model *m);

/*
 * readiness_changed - has the backend asked now, and once more if a question is in progress: the
 * backend says that its answer is another one (conch_model_instance_readiness_changed()).
 *
 * Thread: any, also one of the backend with locks of its own, between the initialisation and the
 * finalisation of an instance.
 */
void readiness_changed(struct model *m);

/* readiness_ask_if_wanted - starts a question, if somebody has lately wanted to know, and looks
 * whether questions in progress take too long; returns whether there is anything to look at again.
 * Thread: any that has a reference to the model, without locks. */
bool readiness_ask_if_wanted(struct model *m, uint64_t now_ns);

/* readiness_known - the backend's last answer. Thread: any that has a reference to the model,
 * without locks; does not wait. */
bool readiness_known(struct model *m);

/* readiness_ask - asks now, after the question in progress, and returns the answer. Thread: any
 * that has a reference to the model and may wait for the backend, without locks. */
bool readiness_ask(struct model *m);

#endif
