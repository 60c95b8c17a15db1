/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making all instances of a model, as its configuration's groups say.
 */
#ifndef CONCH_CORE_BACKEND_INSTANCE_GROUP_H
#define CONCH_CORE_BACKEND_INSTANCE_GROUP_H

#include "base/compiler.h"

struct backend_registry;
struct model;
struct status;

/*
 * instances_make - fills m->instances in the order of the groups, warmed up as model_warmup says,
 * whatever the order in which they come up: one after another on this thread, or several at a time
 * where the backend allows it (or TRITON_PARALLEL_INSTANCE_LOADING=1 says so), with the help of
 * threads of which all loading models together have no more than --model-load-thread-count.
 *
 * Thread: control.
 * Errors: STATUS_INVALID_ARG  more instances than a model may have
 *         and those of warmup_new(); of instance_new() and warmup_run(), of the first instance that
 * failed; what came up is in m->instances, the others are NULL
 */
NODISCARD struct status *instances_make(struct model *m, struct backend_registry *reg);

#endif
