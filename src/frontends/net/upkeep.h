/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The upkeep of a worker's connections, beside their own events: time limits, memory, portions of a
 * loop iteration, descriptors.
 */
#ifndef CONCH_FRONTENDS_NET_UPKEEP_H
#define CONCH_FRONTENDS_NET_UPKEEP_H

#include <stdint.h>

struct worker;

/* upkeep_begin - the worker has been made, and has no connection yet. Thread: any. */
void upkeep_begin(struct worker *w);

/*
 * upkeep_close_idle - closes up to n connections, those that have been idle for longest, if they
 * have been since before_ns. Sets idle_since_ns to what is true then.
 *
 * Thread: the worker's.
 * Returns how many; fewer than n: connections of another worker may be the ones that should go
 */
unsigned int upkeep_close_idle(struct worker *w, unsigned int n, uint64_t before_ns);

/* upkeep_ask_close_idle - the same soon; once, if it is asked again before that. Thread: any. */
void upkeep_ask_close_idle(struct worker *w, unsigned int n, uint64_t before_ns);

#endif
