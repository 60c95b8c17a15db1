/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes all instances of a model, from the groups of its configuration.
 */
#ifndef CONCH_CORE_BACKEND_INSTANCE_GROUP_H
#define CONCH_CORE_BACKEND_INSTANCE_GROUP_H

#include "base/compiler.h"

struct backend_registry;
struct model;
struct status;

/*
 * instances_make - fills m->instances in the order of the groups, with instances that are warmed up
 * (model_warmup). It makes them one after another on this thread. If the backend allows it, or
 * TRITON_PARALLEL_INSTANCE_LOADING=1 is set, helper threads make several at a time; all loading
 * models together have at most --model-load-thread-count such threads.
 *
 * Thread: control.
 * Errors: STATUS_INVALID_ARG  more instances than a model may have
 *         and those of warmup_new(), instance_new() and warmup_run(): of the first instance that
 *         failed. m->instances then has the instances that were made, and NULL for the others
 */
NODISCARD struct status *instances_make(struct model *m, struct backend_registry *reg);

#endif
