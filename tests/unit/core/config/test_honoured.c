/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/map.h"
#include "base/status.h"
#include "core/config/honoured.h"

/* Every message whose fields are examined has a table, and each table has a line per field. */
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
    st = model_config_validate_honoured(c);
    model_config_free(c);
    return st;
}

/* A field at its default asks for nothing. */
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

/* ---- every field of the schema */

static const ProtobufCMessageDescriptor *const top = &inference__model_config__descriptor;

/* A field, and the text that reaches it: `before` opens the messages around it, `after` closes
 * them. */
struct spot {
    char before[400], after[100], path[200];
    const char *refused; /* the enclosing field that is refused as soon as it is set, or NULL */
};

/* Returns the text that sets a field to its default, or to another value. */
static const char *word(const ProtobufCFieldDescriptor *f, bool is_default)
{
    if (f->label == PROTOBUF_C_LABEL_REPEATED && is_default)
        return "[ ]";
    switch (f->type) {
    case PROTOBUF_C_TYPE_MESSAGE:
        return "{ }";
    case PROTOBUF_C_TYPE_STRING:
        return is_default ? "''" : "'x'";
    case PROTOBUF_C_TYPE_BOOL:
        return is_default ? "false" : "true";
    default:
        return is_default ? "0" : "1";
    }
}

static enum config_answer answer_of(const ProtobufCMessageDescriptor *type, const char *field,
                                    enum config_answer outer)
{
    const struct config_table *t = outer == CONFIG_LOOK ? config_table_of(type) : NULL;
    for (const struct config_line *l = t ? t->lines : NULL; l && l->field; l++) {
        if (strcmp(l->field, field) == 0)
            return l->answer;
    }
    assert_null(t);
    return outer; /* inside a field whose members are not examined */
}

/* Sets one field in a text, and compares the fault with the expected one. */
static void expect(const struct spot *spot, const ProtobufCFieldDescriptor *f, bool is_default,
                   const char *refused)
{
    char text[700], expected[400] = "";
    snprintf(text, sizeof(text), "%s %s: %s %s", spot->before, f->name, word(f, is_default),
             spot->after);
    if (refused)
        snprintf(expected, sizeof(expected),
                 "model '': field '%s' is not supported yet by Conch (f:1:", refused);
    struct status *st = check(text);
    if (!st != !refused || (st && strncmp(status_message(st), expected, strlen(expected)) != 0))
        fail_msg("%s\n    expected: %s...\n    got: %s", text, expected,
                 st ? status_message(st) : "nothing");
    status_free(st);
}

/* Message types and fields met so far; map entries and empty messages do not count. */
struct tally {
    struct map seen;
    size_t n_types, n_fields;
};

static void count(struct tally *t, const ProtobufCMessageDescriptor *type)
{
    if (type->n_fields && !strstr(type->name, "Entry") && !map_puts(&t->seen, type->name, t)) {
        t->n_types++;
        t->n_fields += type->n_fields;
    }
}

/* Visits all fields of a message and of the messages inside it, on every path. */
static void walk(const ProtobufCMessageDescriptor *type, const struct spot *outer,
                 enum config_answer outer_answer, struct tally *tally)
{
    count(tally, type);
    for (unsigned i = 0; i < type->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &type->fields[i];
        enum config_answer answer = answer_of(type, f->name, outer_answer);
        struct spot here = *outer;
        snprintf(here.path, sizeof(here.path), "%s%s%s", outer->path, *outer->path ? "." : "",
                 f->name);
        if (!here.refused && answer == CONFIG_NO)
            here.refused = here.path;

        bool asked_by_presence = f->type == PROTOBUF_C_TYPE_MESSAGE &&
                                 f->label != PROTOBUF_C_LABEL_REPEATED && answer == CONFIG_NO;
        bool in_oneof = f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF; /* it has no default */
        bool default_asks = asked_by_presence || (in_oneof && answer == CONFIG_NO);
        expect(outer, f, true, outer->refused || default_asks ? here.refused : NULL);
        expect(outer, f, false, here.refused);
        if (f->type == PROTOBUF_C_TYPE_MESSAGE) {
            snprintf(here.before, sizeof(here.before), "%s %s {", outer->before, f->name);
            snprintf(here.after, sizeof(here.after), "%s }", outer->after);
            walk(f->descriptor, &here, answer, tally);
        }
    }
}

/* A harmless value is never refused. A value that asks for a missing feature is always refused,
 * by its name. */
static void every_field_is_honoured_or_refused(void **state)
{
    struct tally tally = {.seen = MAP_INIT};
    const struct spot outside = {.refused = NULL};
    walk(top, &outside, CONFIG_LOOK, &tally);
    map_done(&tally.seen);
    assert_int_equal(tally.n_types, 45);
    assert_int_equal(tally.n_fields, 164);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tables_are_complete),
        cmocka_unit_test(defaults_are_fine),
        cmocka_unit_test(every_field_is_honoured_or_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
