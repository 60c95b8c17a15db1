/* SPDX-License-Identifier: Apache-2.0 */
#include "core/sched/batch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/compiler.h"

/* Requests of these sizes (0 ends them) arrived at 100, 101, … ns. Expected: how many of them
 * form the batch at now_ns. */
struct sample {
    int32_t preferred[3]; /* 0 ends them; without any, max_size is preferred */
    uint32_t max_size;
    uint64_t delay_ns;
    uint32_t sizes[12];
    uint64_t now_ns;
    uint32_t due;
    uint64_t until_ns; /* expected if no batch is sent */
};

static const struct sample samples[] = {
    /* No request waits. */
    {{0}, 8, 0, {0}, 100, 0, UINT64_MAX},
    {{0}, 8, 50, {0}, 100, 0, UINT64_MAX},
    /* Without a delay the batch takes all waiting requests that fit. */
    {{0}, 8, 0, {1}, 100, 1, 0},
    {{0}, 8, 0, {1, 1, 1}, 100, 3, 0},
    {{0}, 8, 0, {3, 3, 3}, 100, 2, 0},
    {{0}, 8, 0, {1, 1, 1, 1, 1, 1, 1, 1, 1}, 100, 8, 0},
    /* With preferred sizes it takes the largest preferred size that was reached. */
    {{4, 8}, 16, 0, {1, 1, 1, 1, 1, 1}, 100, 4, 0},
    {{8, 4}, 16, 0, {1, 1, 1, 1, 1, 1}, 100, 4, 0},
    {{4, 8}, 16, 0, {1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, 100, 8, 0},
    {{4, 8}, 16, 0, {1, 1, 1}, 100, 3, 0},
    {{4, 8}, 16, 0, {3, 3, 3}, 100, 2, 0}, /* 6: a ninth would exceed the largest preferred size */
    /* A request that is larger than all preferred sizes is a batch of its own. */
    {{4, 8}, 16, 0, {10, 1}, 100, 1, 0},
    {{4, 8}, 16, 0, {10}, 100, 1, 0},
    {{4, 8}, 16, 0, {1, 10}, 100, 1, 0},
    {{2}, 16, 0, {16, 16}, 100, 1, 0},
    /* With a delay the batch waits for a preferred size … */
    {{4, 8}, 16, 50, {1, 1, 1}, 149, 0, 150},
    {{4, 8}, 16, 50, {1, 1, 1, 1}, 149, 4, 0},
    {{4, 8}, 16, 50, {1, 1, 1, 1, 1}, 149, 4, 0},
    {{0}, 4, 50, {1, 1, 1}, 102, 0, 150},
    {{0}, 4, 50, {1, 1, 1, 1}, 103, 4, 0},
    {{0}, 4, 50, {1, 1, 1, 1, 1}, 104, 4, 0},
    {{0}, 4, 50, {3, 3}, 101, 1, 0}, /* … or until no more requests fit … */
    {{2}, 8, 50, {3}, 101, 1, 0},    /* … or until its size is preferred … */
    /* … but no longer than the delay. After the delay, preferred sizes do not matter. */
    {{4, 8}, 16, 50, {1, 1, 1}, 150, 3, 0},
    {{4, 8}, 16, 50, {1, 1, 1, 1, 1, 1}, 150, 6, 0},
    {{4, 8}, 16, 50, {1, 1, 1, 1, 1, 1, 1, 1, 1}, 150, 9, 0},
    /* A delay that ends beyond the largest time. */
    {{0}, 4, UINT64_MAX, {1}, UINT64_MAX - 1, 0, UINT64_MAX},
    /* Sizes whose sum exceeds 32 bits. */
    {{0}, INT32_MAX, 0, {INT32_MAX, INT32_MAX, INT32_MAX}, 100, 1, 0},
};

static struct batch_rule rule_of(const struct sample *s)
{
    struct batch_rule rule = {.max_size = s->max_size,
                              .max_requests = 4096,
                              .delay_ns = s->delay_ns,
                              .preferred = s->preferred,
                              .max_preferred = 0};
    while (rule.n_preferred < 3 && s->preferred[rule.n_preferred]) {
        rule.max_preferred = MAX(rule.max_preferred, (uint32_t)s->preferred[rule.n_preferred]);
        rule.n_preferred++;
    }
    if (rule.n_preferred == 0)
        rule.max_preferred = rule.max_size;
    return rule;
}

static struct batch offered(const struct sample *s, const struct batch_rule *rule)
{
    struct batch b = {0};
    for (uint32_t i = 0; s->sizes[i]; i++) {
        if (batch_has_room(&b, rule, s->sizes[i]))
            batch_add(&b, rule, s->sizes[i], 100 + i);
    }
    return b;
}

static void batch_size_follows_the_rule(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(samples); i++) {
        const struct sample *s = &samples[i];
        struct batch_rule rule = rule_of(s);
        struct batch b = offered(s, &rule);
        uint64_t until_ns = 0;
        uint32_t due = batch_due(&b, &rule, s->now_ns, false, &until_ns);
        if (due != s->due || (due == 0 && until_ns != s->until_ns))
            fail_msg("sample %zu: %u due until %llu", i, due, (unsigned long long)until_ns);
    }
}

static void a_flush_sends_a_batch_without_delay(void **state)
{
    (void)state;
    static const struct sample s = {{4}, 16, 50, {1, 1, 1, 1, 1}, 100, 0, 0};
    struct batch_rule rule = rule_of(&s);
    struct batch b = offered(&s, &rule);
    uint64_t until_ns;
    assert_int_equal(batch_due(&b, &rule, 101, true, &until_ns), 5);
}

static void a_batch_that_is_closed_is_sent(void **state)
{
    (void)state;
    static const struct sample s = {{4}, 16, 50, {1, 1}, 100, 0, 0};
    struct batch_rule rule = rule_of(&s);
    struct batch b = offered(&s, &rule);
    uint64_t until_ns;
    assert_int_equal(batch_due(&b, &rule, 101, false, &until_ns), 0);
    batch_close(&b);
    assert_false(batch_has_room(&b, &rule, 1));
    assert_int_equal(batch_due(&b, &rule, 101, false, &until_ns), 2);
}

static void a_batch_has_at_most_max_requests(void **state)
{
    (void)state;
    struct batch_rule rule = {.max_size = INT32_MAX, .max_requests = 3, .max_preferred = INT32_MAX};
    struct batch b = {0};
    for (int i = 0; i < 3; i++) {
        assert_true(batch_has_room(&b, &rule, 1));
        batch_add(&b, &rule, 1, 100);
    }
    assert_false(batch_has_room(&b, &rule, 1));
    assert_true(b.closed);
}

/* Priorities may put a younger request in front, but the oldest request begins the delay. */
static void the_oldest_request_begins_the_delay(void **state)
{
    (void)state;
    struct batch_rule rule = {.max_size = 8, .max_requests = 8, .max_preferred = 8, .delay_ns = 50};
    struct batch b = {0};
    uint64_t until_ns;
    batch_add(&b, &rule, 1, 120);
    batch_add(&b, &rule, 1, 100);
    assert_int_equal(batch_due(&b, &rule, 149, false, &until_ns), 0);
    assert_int_equal(until_ns, 150);
    assert_int_equal(batch_due(&b, &rule, 150, false, &until_ns), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batch_size_follows_the_rule),
        cmocka_unit_test(a_flush_sends_a_batch_without_delay),
        cmocka_unit_test(a_batch_that_is_closed_is_sent),
        cmocka_unit_test(a_batch_has_at_most_max_requests),
        cmocka_unit_test(the_oldest_request_begins_the_delay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
