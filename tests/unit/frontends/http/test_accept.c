/* SPDX-License-Identifier: Apache-2.0 */
#include "frontends/http/accept.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/compiler.h"

static void media_types_are_found_in_a_list(void **state)
{
    (void)state;
    static const struct {
        const char *value;
        struct accepted named;
    } rows[] = {
        {"", {0}},
        {",", {0}},
        {"*/*", {0}},
        {"text/htm", {0}},
        {"text/html", {.html = true}},
        {"TEXT/Html;q=0.1", {.html = true}},
        {"text/html2, xtext/html, text /html", {0}},
        {"text/html,application/xhtml+xml,*/*;q=0.8", {.html = true}},
        {"application/json", {.json = true}},
        {"\tapplication/json\t;\tfloats = Shortest\t", {.json = true, .shortest_floats = true}},
        {"application/json;q=1;floats=\"shortest\"", {.json = true, .shortest_floats = true}},
        {"application/json;floats=short, */*;floats=shortest", {.json = true}},
        {"application/json;floats=shortest=1", {.json = true, .shortest_floats = true}},
        {"application/json;floats", {.json = true}},
        {"application/jsonl;floats=shortest", {0}},
        {"text/html, application/json", {.html = true, .json = true}},
    };
    assert_false(accept_read((struct span){NULL, 0}).json);
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        const char *value = rows[i].value;
        struct accepted a = accept_read((struct span){value, strlen(value)});
        if (a.json != rows[i].named.json || a.html != rows[i].named.html ||
            a.shortest_floats != rows[i].named.shortest_floats)
            fail_msg("'%s': json %d, html %d, shortest %d", value, a.json, a.html,
                     a.shortest_floats);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(media_types_are_found_in_a_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
