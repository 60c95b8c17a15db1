/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/status.h"
#include "core/config/honoured.h"

/* Every message of which fields are looked into has a table, and a table has a line per field. */
static void tables_are_complete(void **state)
{
    for (size_t i = 0; i < config_n_tables; i++) {
        const struct config_table *t = &config_tables[i];
        unsigned n = 0;
        for (const struct config_line *l = t->lines; l->field; l++, n++) {
            assert_true(n < t->type->n_fields);
            const ProtobufCFieldDescriptor *f = &t->type->fields[n];
            assert_string_equal(l->field, f->name);
            if (l->answer != CONFIG_LOOK)
                continue;
            assert_int_equal(f->type, PROTOBUF_C_TYPE_MESSAGE);
            assert_non_null(config_table_of(f->descriptor));
        }
        assert_int_equal(n, t->type->n_fields);
    }
    assert_non_null(config_table_of(&inference__model_config__descriptor));
    assert_null(config_table_of(&inference__model_ensembling__descriptor));
}

static struct status *check(const char *text)
{
    struct model_config *c = NULL;
    struct status *st = model_config_parse_text(text, strlen(text), "f", &c);
    assert_null(st);
    st = model_config_check_honoured(c);
    model_config_free(c);
    return st;
}

/* What stands at its default asks for nothing. */
static void defaults_are_fine(void **state)
{
    assert_null(check("response_cache { enable: false } model_transaction_policy { }"
                      "instance_group { passive: false host_policy: '' rate_limiter { } }"
                      "input { format: FORMAT_NONE allow_ragged_batch: false }"
                      "model_operations { } model_repository_agents { } model_metrics { }"
                      "version_policy { latest { num_versions: 1 } } metric_tags: []"
                      "batch_input: [] optimization { execution_accelerators { } }"));
    assert_null(check("version_policy { latest { num_versions: 0 } }"));
    assert_null(check("version_policy { }"));
}

static void a_scheduler_is_asked_for_by_its_presence(void **state)
{
    struct status *st = check("name: 'm'\n\n  dynamic_batching { }");
    assert_non_null(st);
    assert_int_equal(status_code(st), STATUS_UNSUPPORTED);
    assert_string_equal(
        status_message(st),
        "model 'm': field 'dynamic_batching' is not supported yet by Conch (f:3:3)");
    status_free(st);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tables_are_complete),
        cmocka_unit_test(defaults_are_fine),
        cmocka_unit_test(a_scheduler_is_asked_for_by_its_presence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
