/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread for life: all that the backend does for one instance is done on it, from its
 * initialisation to its end. For models that ask for it (CONCH_EXECUTION "thread"), and for
 * backends whose attributes do, since they have state per thread. Other instances have a thread
 * only while there is work (core/sched/instance_thread.h).
 *
 *     load thread      home_new  home_call(initialise)  home_post(warm up)  home_wait
 *     a request        home_post(the instance's worker)
 *     unload thread    … stops the worker  home_wait  home_call(finalise)  home_free
 */
#ifndef CONCH_CORE_BACKEND_HOME_H
#define CONCH_CORE_BACKEND_HOME_H

#include "base/compiler.h"

struct home;
struct status;

/*
 * home_new - the thread runs, and waits for what it is to do.
 *
 * Errors: STATUS_UNAVAILABLE  the system has no room for another thread
 */
NODISCARD struct status *home_new(const char *name, struct home **ret_home);

/* home_free - when nothing is left to do. Joins the thread. NULL is fine. */
void home_free(struct home *h);

/*
 * home_post - has the thread run run(arg); what was posted before has been waited for.
 * home_wait - until that has been done.
 * home_call - both.
 *
 * Thread: any but the home's; one at a time. home_post() takes a leaf lock only.
 */
void home_post(struct home *h, void (*run)(void *arg), void *arg);
void home_wait(struct home *h);
void home_call(struct home *h, void (*run)(void *arg), void *arg);

#endif
