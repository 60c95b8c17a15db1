/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A home is an instance's thread for life: all calls of the backend for the instance are made on
 * it, from initialisation to finalisation. It is for models that ask for it (CONCH_EXECUTION
 * "thread"), and for backends whose attributes ask for it, since they have state per thread. Other
 * instances have a thread only while there is work (core/sched/instance_thread.h).
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
 * home_new - starts the thread, which waits for work. The caller ends it with home_free().
 *
 * Errors: STATUS_UNAVAILABLE  the system has no room for another thread
 */
NODISCARD struct status *home_new(const char *name, struct home **ret_home);

/* home_free - joins the thread, which has no work left. NULL is fine. */
void home_free(struct home *h);

/*
 * home_post - has the thread call run(arg). The last posted call must have been waited for.
 * home_wait - waits until that call has returned.
 * home_call - posts and waits.
 *
 * Thread: any but the home's; one at a time. home_post() takes a leaf lock only.
 */
void home_post(struct home *h, void (*run)(void *arg), void *arg);
void home_wait(struct home *h);
void home_call(struct home *h, void (*run)(void *arg), void *arg);

#endif
