/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A backend may call the server from inside an execution, and even wait for the answer. What its
 * request sets going must not wait for the end of that execution. So each level of executions on a
 * thread's stack does what is posted inside it; `level` is that of the innermost run.
 */
#include "core/sched/afterwards.h"

#include <stdbool.h>
#include <stddef.h>

#include "base/mutex.h"
#include "core/backend/instance.h"

THREAD_WORD struct afterwards *afterwards_last;

/* The execution inside which this thread runs what is posted; NULL: in none. */
static THREAD_WORD const struct instance *level;
static THREAD_WORD bool is_running;

static struct afterwards *take_first(void)
{
    struct afterwards *last = afterwards_last, *first = last->next;
    if (first == last)
        afterwards_last = NULL;
    else
        last->next = first->next;
    return first;
}

/* Is this thread inside a run, and in no execution that has begun in it? */
static bool runs_here(void)
{
    return is_running && instance_executing() == level;
}

void afterwards_run_all(struct inline_budget *budget)
{
    const struct instance *outer = level;
    bool was_running = is_running;
    if (runs_here())
        return;
    mutex_assert_none_held();
    level = instance_executing();
    is_running = true;
    while (afterwards_last) {
        struct afterwards *a = take_first();
        a->run(a, budget);
    }
    level = outer;
    is_running = was_running;
}

bool afterwards_is_soon(void)
{
    const struct instance *in = instance_executing();
    if (!in || in->runner == RUNNER_NONE)
        return false; /* no execution, or that of a warm-up */
    return in->runner == RUNNER_CALLER || in->ends_soon;
}

bool afterwards_waits(void)
{
    return afterwards_is_soon() || runs_here();
}

void afterwards_post(struct afterwards *a)
{
    if (afterwards_last) {
        a->next = afterwards_last->next;
        afterwards_last->next = a;
    } else {
        a->next = a;
    }
    afterwards_last = a;
    if (!afterwards_is_soon())
        afterwards_run_all(NULL);
}
