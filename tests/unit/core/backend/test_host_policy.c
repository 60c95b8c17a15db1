/* SPDX-License-Identifier: Apache-2.0 */
#include "core/backend/host_policy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/cpu_binding.h"
#include "base/status.h"
#include "core/backend/json_message.h"
#include "core/options/server_options.h"

static const struct host_policy_setting settings[] = {{"cpu", "numa-node", "1"},
                                                      {"cpu", "cpu-cores", "9"},
                                                      {"other", "numa-node", "5"},
                                                      {"cpu", "cpu-cores", "0-3,7"},
                                                      {"a\"b", "numa-node", "x\n"}};

static void document_is(const char *policy, const char *json)
{
    struct json_message m;
    assert_null(host_policy_document(settings, ARRAY_SIZE(settings), policy, &m));
    assert_string_equal(m.json, json);
    assert_int_equal(m.size_bytes, strlen(json));
    mem_free(m.json);
}

static void a_host_policy_is_printed_as_json(void **state)
{
    document_is("cpu", "{\"cpu\":{\"cpu-cores\":\"0-3,7\",\"numa-node\":\"1\"}}");
    document_is("other", "{\"other\":{\"numa-node\":\"5\"}}");
    document_is("model", "{\"model\":{}}");
    document_is("a\"b", "{\"a\\\"b\":{\"numa-node\":\"x\\n\"}}");
}

static void a_host_policy_gives_a_cpu_binding(void **state)
{
    struct cpu_binding *p;
    assert_null(host_policy_cpu_binding(settings, ARRAY_SIZE(settings), "cpu", &p));
    assert_true(p->has_cpus && p->has_memory);
    assert_int_equal(CPU_COUNT(&p->cpus), 5);
    assert_true(CPU_ISSET(0, &p->cpus) && CPU_ISSET(3, &p->cpus) && CPU_ISSET(7, &p->cpus));
    assert_int_equal(p->nodes[0], 2);
    mem_free(p);

    assert_null(host_policy_cpu_binding(settings, ARRAY_SIZE(settings), "other", &p));
    assert_true(!p->has_cpus && p->has_memory);
    mem_free(p);

    assert_null(host_policy_cpu_binding(settings, ARRAY_SIZE(settings), "model", &p));
    assert_null(p);
}

static void refused(const char *setting, const char *value, const char *message)
{
    struct host_policy_setting s = {"p", setting, value};
    struct cpu_binding *p = (struct cpu_binding *)&s;
    struct status *st = host_policy_cpu_binding(&s, 1, "p", &p);
    assert_non_null(st);
    assert_int_equal(status_code(st), STATUS_INVALID_ARG);
    char whole[512];
    snprintf(whole, sizeof(whole), "%s (host policy 'p')", message);
    assert_string_equal(status_message(st), whole);
    assert_null(p);
    status_free(st);
}

#define CORES                                                                                      \
    "host policy setting 'cpu-cores' format is '<lower_cpu_core_id>-<upper_cpu_core_id>'. Got "

static void wrong_values_are_refused(void **state)
{
    static const char *const wrong[] = {"abc",   "3-1", "-1-0",   "0-0x", "1-",
                                        "-",     " 1",  "0-1024", "1024", "99999999999999999999",
                                        "1-2-3", "0x1", "+1"};
    char message[256];
    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
        snprintf(message, sizeof(message), CORES "%s", wrong[i]);
        refused("cpu-cores", wrong[i], message);
    }
    refused("cpu-cores", "0-0,", CORES);
    refused("cpu-cores", "", CORES);
    refused("cpu-cores", "0,x,1", CORES "x");
    refused("numa-node", "x", "Parsing 'numa-node' value: Can't parse 'x' to integer");
    refused("numa-node", "", "Parsing 'numa-node' value: Can't parse '' to integer");
    refused("numa-node", "0-1", "Parsing 'numa-node' value: Can't parse '0-1' to integer");
    refused("numa-node", "-1", "Parsing 'numa-node' value: Can't parse '-1' to integer");
    refused("numa-node", "1024", "Parsing 'numa-node' value: Can't parse '1024' to integer");

    assert_null(host_policy_check_setting("cpu-cores"));
    assert_null(host_policy_check_setting("numa-node"));
    struct status *st = host_policy_check_setting("foo");
    assert_int_equal(status_code(st), STATUS_UNSUPPORTED);
    assert_string_equal(status_message(st), "Unsupported host policy setting 'foo' is specified, "
                                            "supported settings are 'numa-node', 'cpu-cores'");
    status_free(st);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_host_policy_is_printed_as_json),
        cmocka_unit_test(a_host_policy_gives_a_cpu_binding),
        cmocka_unit_test(wrong_values_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
