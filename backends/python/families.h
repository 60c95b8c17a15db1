/* SPDX-License-Identifier: Apache-2.0 */
/*
 * families - the metric families and metrics that a child has made. They go with it.
 *
 * Threads: the child's reader; families_free() the last user of the child.
 * families_count_restart(): the watcher.
 */
#ifndef BACKENDS_PYTHON_FAMILIES_H
#define BACKENDS_PYTHON_FAMILIES_H

#include <stdbool.h>
#include <stdint.h>

#include "python/pack.h"

struct child;
struct families;

/* NULL without memory. */
struct families *families_new(void);
void families_free(struct families *f);

/* families_ask - NOTE_FAMILY_NEW … NOTE_METRIC_VALUE: does it and replies. False: the message is
 * impossible. */
bool families_ask(struct child *c, uint32_t kind, uint64_t id, struct unpacker *u);

/* families_count_restart - adds one to conch_python_restarts_total of this model. */
void families_count_restart(const char *model, const char *version);

/* families_forget_restarts - that metric goes with the backend. */
void families_forget_restarts(void);

#endif
