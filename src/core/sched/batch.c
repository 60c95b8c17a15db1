/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `n` requests have joined; the first `n_preferred` of them would be sent at a preferred size. A
 * closed batch takes no more. No function here allocates or reads the clock.
 */
#include "core/sched/batch.h"

#include "base/clock.h"
#include "base/compiler.h"

void batch_rule_init(struct batch_rule *rule, uint32_t max_batch_size, uint32_t max_requests,
                     size_t n_preferred, const int32_t *preferred, uint64_t delay_us)
{
    rule->max_size = rule->max_preferred = MAX(max_batch_size, 1u);
    rule->max_requests = MIN(rule->max_size, max_requests);
    rule->n_preferred = n_preferred;
    rule->preferred = preferred;
    if (n_preferred)
        rule->max_preferred = 0;
    for (size_t i = 0; i < n_preferred; i++)
        rule->max_preferred = MAX(rule->max_preferred, (uint32_t)preferred[i]);
    if (__builtin_mul_overflow(delay_us, NS_PER_US, &rule->delay_ns))
        rule->delay_ns = UINT64_MAX;
}

bool batch_has_room(struct batch *b, const struct batch_rule *rule, uint32_t size)
{
    if (b->closed)
        return false;
    if (b->n == 0)
        return true;
    uint64_t sum = (uint64_t)b->size + size;
    /* A request that alone exceeds all preferred sizes is sent at once. */
    if (sum > rule->max_preferred && b->n_preferred == 0)
        b->n_preferred = b->n;
    if (sum > rule->max_size || b->n == rule->max_requests)
        batch_close(b);
    return !b->closed;
}

static bool is_preferred(const struct batch_rule *rule, uint32_t size)
{
    for (size_t i = 0; i < rule->n_preferred; i++) {
        if ((uint32_t)rule->preferred[i] == size)
            return true;
    }
    return false;
}

void batch_add(struct batch *b, const struct batch_rule *rule, uint32_t size, uint64_t since_ns)
{
    b->oldest_ns = b->n == 0 ? since_ns : MIN(b->oldest_ns, since_ns);
    b->n++;
    b->size += size;
    if (is_preferred(rule, b->size))
        b->n_preferred = b->n;
}

uint32_t batch_due(const struct batch *b, const struct batch_rule *rule, uint64_t now_ns,
                   bool flushing, uint64_t *ret_until_ns)
{
    *ret_until_ns = UINT64_MAX;
    if (b->n == 0)
        return 0;

    uint64_t until_ns = b->oldest_ns + rule->delay_ns;
    if (until_ns < b->oldest_ns)
        until_ns = UINT64_MAX;
    bool over = rule->delay_ns != 0 && (flushing || now_ns >= until_ns);
    if (b->n_preferred && !over)
        return b->n_preferred;
    if (over || b->closed || b->size >= rule->max_preferred || rule->delay_ns == 0)
        return b->n;
    *ret_until_ns = until_ns;
    return 0;
}
