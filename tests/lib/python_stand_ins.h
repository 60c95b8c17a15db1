/* SPDX-License-Identifier: Apache-2.0 */
/*
 * python_stand_ins - functions of model.c and watcher.c of the backend python that do nothing, for
 * a program that tests python/instance.c without them: no process starts, and no thread watches.
 *
 * A test includes this file behind the .c files that it tests.
 */
#ifndef TESTS_LIB_PYTHON_STAND_INS_H
#define TESTS_LIB_PYTHON_STAND_INS_H

#include "python/model.h"
#include "python/watcher.h"

/* ---- model.c --------------------------------------------------------------------------------- */

TRITONSERVER_Error *model_arguments(const struct model *m, TRITONBACKEND_ModelInstance *instance,
                                    struct arguments *ret_arguments)
{
    (void)m;
    (void)instance;
    (void)ret_arguments;
    return NULL;
}

void arguments_done(struct arguments *a)
{
    (void)a;
}

bool model_command(struct child *c, const struct arguments *a)
{
    (void)c;
    (void)a;
    return true;
}

void model_start(const struct model *m, struct child_start *ret_start)
{
    (void)m;
    *ret_start = (struct child_start){0};
}

struct child *model_give_child(const struct model *m, const struct child_start *start)
{
    (void)m;
    (void)start;
    return NULL;
}

/* ---- watcher.c ------------------------------------------------------------------------------- */

TRITONSERVER_Error *watcher_ref(void)
{
    return NULL;
}

void watcher_unref(void)
{
}

void watcher_post(struct job *j)
{
    (void)j;
}

void watcher_set_timer(struct timer *t, uint64_t at_ns)
{
    (void)t;
    (void)at_ns;
}

void watcher_clear_timer(struct timer *t)
{
    (void)t;
}

#endif
