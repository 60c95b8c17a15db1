/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Schedulers and instances that work, but perhaps not as the configuration's author expects.
 */
#include <inttypes.h>

#include "lint/model_check.h"

/* ---- the dynamic batcher --------------------------------------------------------------------- */

/*
 * Triton's guide to its dynamic batcher raises the delay from 0 as far as the latency may rise; its
 * example is 100 µs. Preferred sizes are no cure there: "for most models" they are to be left out.
 */
enum { NOTABLE_DELAY_US = 1000 };

static void check_queue_delay(struct model_check *l, const Inference__ModelDynamicBatching *b)
{
    const Inference__ModelQueuePolicy *policy = b->default_queue_policy;
    uint64_t delay_us = b->max_queue_delay_microseconds;
    struct lint_position position = lint_at(l, b, "max_queue_delay_microseconds", 0);
    int32_t least = INT32_MAX;

    if (!delay_us || l->pb->max_batch_size <= 1)
        return; /* without batches there is no wait */
    for (size_t i = 0; i < b->n_preferred_batch_size; i++)
        least = MIN(least, b->preferred_batch_size[i]);
    bool has_sizes = model_config_is_given(l->config, b, "preferred_batch_size");
    if (!has_sizes && delay_us < NOTABLE_DELAY_US)
        return;
    if (!has_sizes)
        lint_add(l->found, LINT_DELAY, position,
                 "shorten the delay (Triton's guide begins with 100), or leave it out: what waits "
                 "while an instance works becomes a batch anyway",
                 "without preferred_batch_size each request waits %" PRIu64
                 " µs, unless a batch of max_batch_size %d comes together sooner",
                 delay_us, l->pb->max_batch_size);
    else if (policy && policy->max_queue_size && least > 0 &&
             policy->max_queue_size < (uint32_t)least)
        lint_add(l->found, LINT_DELAY, position, NULL,
                 "each request waits %" PRIu64 " µs: no preferred_batch_size, from %d, can come "
                 "together where max_queue_size %u requests may wait",
                 delay_us, least, policy->max_queue_size);
}

static void check_queue_policy(struct model_check *l, const Inference__ModelQueuePolicy *policy)
{
    if (policy && policy->allow_timeout_override && !policy->default_timeout_microseconds)
        lint_add(l->found, LINT_TIMEOUT, lint_at(l, policy, "allow_timeout_override", 0),
                 "set default_timeout_microseconds",
                 "allow_timeout_override has no effect: requests may only shorten "
                 "default_timeout_microseconds, which is 0");
}

static void check_priority_levels(struct model_check *l, const Inference__ModelDynamicBatching *b)
{
    const char *field = b->default_priority_level    ? "default_priority_level"
                        : b->n_priority_queue_policy ? "priority_queue_policy"
                                                     : NULL;
    if (!b->priority_levels && field)
        lint_add(l->found, LINT_PRIORITY, lint_at(l, b, field, 0), "set priority_levels",
                 "%s has no effect without priority_levels", field);
}

static void check_dynamic_batching(struct model_check *l)
{
    const Inference__ModelDynamicBatching *b = l->pb->dynamic_batching;
    int32_t batch = lint_batch_size(l);
    if (batch == 0 || batch == 1)
        lint_add(l->found, LINT_NO_BATCHING, lint_at(l, l->pb, "dynamic_batching", 0),
                 "raise max_batch_size", "dynamic_batching with max_batch_size %d makes no batches",
                 batch);
    check_queue_delay(l, b);
    check_queue_policy(l, b->default_queue_policy);
    for (size_t i = 0; i < b->n_priority_queue_policy; i++)
        check_queue_policy(l, b->priority_queue_policy[i]->value);
    check_priority_levels(l, b);
    if (b->preserve_ordering && model_config_decoupled(l->config))
        lint_add(l->found, LINT_ORDERING, lint_at(l, b, "preserve_ordering", 0), NULL,
                 "preserve_ordering of a decoupled model: a request that goes on sending responses "
                 "holds back those of all later ones");
}

/* ---- sequences ------------------------------------------------------------------------------- */

static void check_sequence_batching(struct model_check *l)
{
    const Inference__ModelSequenceBatching *s = l->pb->sequence_batching;
    bool direct =
        s->strategy_choice_case != INFERENCE__MODEL_SEQUENCE_BATCHING__STRATEGY_CHOICE_OLDEST;
    if (direct && lint_batch_size(l) == 0)
        lint_add(l->found, LINT_SEQUENCE_SLOTS, lint_at(l, l->pb, "sequence_batching", 0),
                 "raise max_batch_size, or choose the strategy oldest",
                 "direct sequence batching has max_batch_size slots in each instance; with 0 each "
                 "serves one sequence at a time");
}

/* ---- instances ------------------------------------------------------------------------------- */

static void check_instance_groups(struct model_check *l)
{
    const Inference__ModelInstanceGroup *first = NULL; /* whose count is in the text */
    int64_t n = 0;
    for (size_t i = 0; i < l->pb->n_instance_group; i++) {
        const Inference__ModelInstanceGroup *g = l->pb->instance_group[i];
        if (g->kind != INFERENCE__MODEL_INSTANCE_GROUP__KIND__KIND_CPU || g->passive)
            continue;
        n += g->count;
        if (!first && model_config_is_given(l->config, g, "count"))
            first = g;
    }
    if (first && n > l->run->n_cpus)
        lint_add(l->found, LINT_INSTANCES, lint_at(l, first, "count", 0), NULL,
                 "%" PRId64 " instances on CPUs, of which this machine has %d", n, l->run->n_cpus);
}

void lint_check_batching(struct model_check *l)
{
    switch (l->pb->scheduling_choice_case) {
    case INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE_DYNAMIC_BATCHING:
        check_dynamic_batching(l);
        break;
    case INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE_SEQUENCE_BATCHING:
        check_sequence_batching(l);
        break;
    default:
        break;
    }
    check_instance_groups(l);
}
