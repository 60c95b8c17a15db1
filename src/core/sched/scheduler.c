/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which kind of scheduler a model has, and what not every kind implements.
 */
#include "core/sched/scheduler.h"

#include "core/sched/watch.h"

struct status *scheduler_new(struct model *m, struct scheduler **ret_scheduler)
{
    switch (m->config->pb->scheduling_choice_case) {
    case INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE_SEQUENCE_BATCHING:
        return sequence_scheduler_new(m, ret_scheduler);
    case INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE_DYNAMIC_BATCHING:
        return dynamic_scheduler_new(m, ret_scheduler);
    case INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE_ENSEMBLE_SCHEDULING:
        return ensemble_scheduler_new(m, ret_scheduler);
    default:
        return default_scheduler_new(m, ret_scheduler);
    }
}

void scheduler_use_instances(struct scheduler *s)
{
    if (s->ops->use_instances)
        s->ops->use_instances(s);
}

void scheduler_read_use(struct scheduler *s, uint64_t now_ns, struct watch_use *ret)
{
    *ret = (struct watch_use){0};
    if (s->ops->read_use)
        s->ops->read_use(s, now_ns, ret);
}

char *scheduler_stuck_instance(struct scheduler *s)
{
    return s->ops->stuck_instance ? s->ops->stuck_instance(s) : NULL;
}

bool scheduler_can_change(struct scheduler *s, const struct instance_change *c)
{
    return s->ops->can_change && s->ops->can_change(s, c);
}

void scheduler_change(struct scheduler *s, struct instance_change *c)
{
    s->ops->change(s, c);
}

void scheduler_free(struct scheduler *s)
{
    if (s)
        s->ops->free(s);
}
