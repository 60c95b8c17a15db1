/* SPDX-License-Identifier: Apache-2.0 */
/* Pages of one format in the other. tests/system/test_metrics.py reads a server's page. */
#include "core/metrics/openmetrics.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"

static void expect(const char *page, const char *wanted)
{
    AUTO(buf) out = BUF_INIT(1 << 16);
    openmetrics_write(page, strlen(page), &out);
    assert_string_equal(buf_text(&out), wanted);
}

static void only_the_heads_of_families_differ(void **state)
{
    (void)state;
    expect("", "# EOF\n");
    expect("# HELP a What \"it\" is, \\\\ and \\n\n# TYPE a gauge\na{x=\"1\"} 2\na{x=\"2\"} 3\n",
           "# HELP a What \\\"it\\\" is, \\\\ and \\n\n# TYPE a gauge\na{x=\"1\"} 2\na{x=\"2\"} 3\n"
           "# EOF\n");
    expect("# HELP h_total x\n# TYPE h_total histogram\nh_total_sum 1\n",
           "# HELP h_total x\n# TYPE h_total histogram\nh_total_sum 1\n# EOF\n");
}

static void a_counter_has_its_suffix_or_no_type(void **state)
{
    (void)state;
    expect("# HELP c_total x\n# TYPE c_total counter\nc_total 1\n",
           "# HELP c x\n# TYPE c counter\nc_total 1\n# EOF\n");
    expect("# HELP c y\n# TYPE c counter\nc 1\n", "# HELP c y\n# TYPE c unknown\nc 1\n# EOF\n");
    expect("# HELP _total y\n# TYPE _total counter\n_total 1\n",
           "# HELP _total y\n# TYPE _total unknown\n_total 1\n# EOF\n");
}

static void an_unfinished_page_is_read_to_its_end(void **state)
{
    (void)state;
    expect("# HELP", "# HELP\n# EOF\n");
    expect("# HELP a\n# TYPE a", "# HELP a \n# TYPE a \n# EOF\n");
    expect("a 1", "a 1\n# EOF\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_the_heads_of_families_differ),
        cmocka_unit_test(a_counter_has_its_suffix_or_no_type),
        cmocka_unit_test(an_unfinished_page_is_read_to_its_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
