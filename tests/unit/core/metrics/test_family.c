/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the metrics of families are printed, and that threads lose no counts.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/status.h"
#include "base/thread.h"
#include "core/metrics/family.h"

static void ok(struct status *st)
{
    if (st)
        fail_msg("%s", status_message(st));
}

static void printed(const char *expected)
{
    AUTO(buf) out = BUF_INIT(1 << 20);
    metric_families_print(&out);
    assert_string_equal(buf_text(&out), expected);
}

static struct metric_family *family(enum metric_kind kind, const char *name)
{
    struct metric_family *f;
    ok(metric_family_new(kind, name, "first\nsecond \\", &f));
    return f;
}

static void prints_sorted_and_escaped(void **state)
{
    (void)state;
    const struct metric_label two[] = {{"version", "1"}, {"model", "a\"b\\c\nd"}};
    struct metric_family *gauge = family(METRIC_GAUGE, "z:gauge"),
                         *counter = family(METRIC_COUNTER, "a_counter"),
                         *empty = family(METRIC_COUNTER, "never_printed");
    struct metric *labelled, *plain, *count;
    ok(metric_new(gauge, two, 2, NULL, &labelled));
    ok(metric_new(gauge, NULL, 0, NULL, &plain));
    ok(metric_new(counter, NULL, 0, NULL, &count));
    ok(metric_set(labelled, -0.1));
    ok(metric_set(plain, -(double)INFINITY));
    ok(metric_increment(count, 9007199254740991.0));
    printed("# HELP a_counter first\\nsecond \\\\\n"
            "# TYPE a_counter counter\n"
            "a_counter 9007199254740991\n"
            "# HELP z:gauge first\\nsecond \\\\\n"
            "# TYPE z:gauge gauge\n"
            "z:gauge -Inf\n"
            "z:gauge{model=\"a\\\"b\\\\c\\nd\",version=\"1\"} -0.1\n");
    metric_free(labelled);
    metric_free(plain);
    metric_free(count);
    ok(metric_family_free(gauge));
    ok(metric_family_free(counter));
    ok(metric_family_free(empty));
    printed("");
}

static void prints_histograms_cumulated(void **state)
{
    (void)state;
    double bounds[] = {0.5, 2};
    const struct metric_args args = {.is_histogram = true, .n_buckets = 2, .buckets = bounds};
    const struct metric_label label = {"m", "x"};
    struct metric_family *f = family(METRIC_HISTOGRAM, "h");
    struct metric *m;
    ok(metric_new(f, &label, 1, &args, &m));
    const double seen[] = {0.25, 0.5, 0.75, 2, 3};
    for (size_t i = 0; i < ARRAY_SIZE(seen); i++)
        ok(metric_observe(m, seen[i]));
    printed("# HELP h first\\nsecond \\\\\n"
            "# TYPE h histogram\n"
            "h_count{m=\"x\"} 5\n"
            "h_sum{m=\"x\"} 6.5\n"
            "h_bucket{m=\"x\",le=\"0.5\"} 2\n"
            "h_bucket{m=\"x\",le=\"2\"} 4\n"
            "h_bucket{m=\"x\",le=\"+Inf\"} 5\n");
    metric_free(m);
    ok(metric_family_free(f));
}

static void equal_labels_are_one_metric(void **state)
{
    (void)state;
    const struct metric_label ab[] = {{"a", "1"}, {"b", "2"}}, ba[] = {{"b", "2"}, {"a", "1"}};
    struct metric_family *f = family(METRIC_COUNTER, "c"), *again = family(METRIC_COUNTER, "c");
    struct metric *x, *y;
    double value = 0;
    ok(metric_new(f, ab, 2, NULL, &x));
    ok(metric_new(again, ba, 2, NULL, &y));
    ok(metric_increment(x, 1));
    ok(metric_increment(y, 2));
    ok(metric_value(x, &value));
    assert_true(value == 3);

    /* The metric outlives the handle that made it. */
    metric_free(x);
    ok(metric_family_free(f));
    ok(metric_value(y, &value));
    assert_true(value == 3);
    metric_free(y);

    /* … but not its last handle: the next metric starts from zero. */
    ok(metric_new(again, ab, 2, NULL, &x));
    ok(metric_value(x, &value));
    assert_true(value == 0);
    metric_free(x);
    ok(metric_family_free(again));
}

enum { ROUNDS = 5000, THREADS = 4 };

static void count_up(void *arg)
{
    struct metric_family *f = arg;
    const struct metric_label label = {"t", "x"};
    for (int i = 0; i < ROUNDS; i++) {
        struct metric *m;
        ok(metric_new(f, &label, 1, NULL, &m));
        ok(metric_increment(m, 1));
        metric_free(m);
    }
}

static void threads_lose_no_counts(void **state)
{
    (void)state;
    struct metric_family *f = family(METRIC_COUNTER, "threads");
    const struct metric_label label = {"t", "x"};
    struct thread threads[THREADS];
    struct metric *m;
    double value = 0;
    ok(metric_new(f, &label, 1, NULL, &m));
    for (int i = 0; i < THREADS; i++)
        ok(thread_start(&threads[i], "counter", count_up, f));
    for (int i = 0; i < THREADS; i++)
        thread_join(&threads[i]);
    ok(metric_value(m, &value));
    assert_true(value == ROUNDS * THREADS);
    metric_free(m);
    ok(metric_family_free(f));
}

/* Metrics of one family that are made in order are compared with each other only when they are
 * printed. */
static void a_family_sorts_its_metrics_only_to_print_them(void **state)
{
    (void)state;
    enum { N = 100000 };
    struct metric_family *f = family(METRIC_GAUGE, "many");
    struct metric **all = mem_alloc(N * sizeof(*all));
    size_t before = metric_families_sort_steps();
    for (int i = 0; i < N; i++) {
        char value[16];
        snprintf(value, sizeof(value), "%06d", i * 7 % N);
        const struct metric_label label = {"l", value};
        ok(metric_new(f, &label, 1, NULL, &all[i]));
        ok(metric_set(all[i], i));
    }
    assert_int_equal(metric_families_sort_steps(), before);
    AUTO(buf) out = BUF_INIT(16 << 20);
    metric_families_print(&out);
    assert_in_range(metric_families_sort_steps() - before, N, 20 * N);   /* log2(N) is 17 */
    const char *at = strchr(strchr(buf_text(&out), '\n') + 1, '\n') + 1; /* after HELP and TYPE */
    for (int i = 0; i < N; i++) {
        char expected[32];
        int length = snprintf(expected, sizeof(expected), "many{l=\"%06d\"} ", i);
        assert_memory_equal(at, expected, (size_t)length);
        at = (const char *)memchr(at, '\n', sizeof(expected) + 16) + 1; /* not the whole text */
    }
    for (int i = 0; i < N; i++)
        metric_free(all[i]);
    mem_free(all);
    ok(metric_family_free(f));
    printed("");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prints_sorted_and_escaped),
        cmocka_unit_test(prints_histograms_cumulated),
        cmocka_unit_test(equal_labels_are_one_metric),
        cmocka_unit_test(threads_lose_no_counts),
        cmocka_unit_test(a_family_sorts_its_metrics_only_to_print_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
