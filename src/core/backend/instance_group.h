/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes all instances of a model, from the groups of its configuration; and, for other groups,
 * those that the model does not have yet.
 */
#ifndef CONCH_CORE_BACKEND_INSTANCE_GROUP_H
#define CONCH_CORE_BACKEND_INSTANCE_GROUP_H

#include <stdint.h>

#include "base/compiler.h"

struct backend_registry;
struct instance;
struct model;
struct model_config;
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

/* The instances of a model by other groups than it has. */
struct instance_change {
    struct model *model;
    struct model_config *config; /* has the groups */
    uint32_t n, n_new, n_leaving;
    /* In the order of the groups: those that stay, and new ones. It has room for all others of the
     * model, which drain: they go on until their sequences have ended. */
    struct instance **all;
    struct instance **new;     /* the new ones of them */
    struct instance **leaving; /* those of the model that the groups have no place for */
};

/*
 * instances_change_begin - makes the instances that the groups of the configuration ask for and the
 * model does not have yet. An instance stays where a group asks for one like it: only the name of
 * its group and its number may differ (reference/behaviours §13.8). The model does not change.
 *
 * Thread: control, which alone changes the model's instances.
 * @config  its groups are complete (model_config_complete_groups()); borrowed
 * @c       the caller ends it with instances_change_done(), after an error, too
 * Errors:  those of instances_make(); no new instance is left then
 */
NODISCARD struct status *instances_change_begin(struct model *m, struct backend_registry *reg,
                                                struct model_config *config,
                                                struct instance_change *c);

/* instances_change_undo - ends the new instances. instances_change_done - frees the lists that are
 * still in it, and no instance. */
void instances_change_undo(struct instance_change *c);
void instances_change_done(struct instance_change *c);

/*
 * instances_in_service - those that the model has now, each with a reference, which the caller ends
 * with instance_unref(). Thread: any that counts as a request of the model.
 *
 * @room    for n_room of them
 * Returns  room, or a list for the caller to end with mem_free() when there are more
 */
struct instance **instances_in_service(struct model *m, struct instance **room, uint32_t n_room,
                                       uint32_t *ret_n);

#endif
