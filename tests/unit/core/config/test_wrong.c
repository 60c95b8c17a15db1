/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Wrong configurations and the exact text of their faults: wrong.txt, a block for each:
 *
 *     == title
 *     @strict                     (auto-completion is off)
 *     @all                        (fields that the server does not honour yet are passed over)
 *     the configuration of model 'm'
 *     -- Code: message
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/status.h"
#include "core/config/config.h"

enum { MAX_BLOCK = 1 << 16 };

struct block {
    char title[200];
    char expected[2000];
    struct buf text;
    bool strict, all;
};

static bool read_block(FILE *f, struct block *b)
{
    char line[4096];
    buf_reset(&b->text);
    b->strict = b->all = false;
    b->title[0] = '\0';
    while (fgets(line, sizeof(line), f)) {
        char *end = strchr(line, '\n');
        assert_non_null(end);
        if (strncmp(line, "-- ", 3) == 0) {
            *end = '\0';
            snprintf(b->expected, sizeof(b->expected), "%s", line + 3);
            assert_int_not_equal(b->title[0], '\0');
            return true;
        }
        if (strncmp(line, "== ", 3) == 0) {
            *end = '\0';
            assert_int_equal(b->text.size, 0); /* the block before has its expected fault */
            snprintf(b->title, sizeof(b->title), "%s", line + 3);
        } else if (strcmp(line, "@strict\n") == 0) {
            b->strict = true;
        } else if (strcmp(line, "@all\n") == 0) {
            b->all = true;
        } else if (b->title[0]) {
            buf_adds(&b->text, line);
        }
    }
    assert_int_equal(b->title[0], '\0');
    return false;
}

/* Each step examines last whether its fields are honoured. */
static struct status *pass(const struct block *b, struct status *st)
{
    if (!st || !b->all || status_code(st) != STATUS_UNSUPPORTED)
        return st;
    status_free(st);
    return NULL;
}

static struct status *live(const struct block *b)
{
    struct config_facts facts = {.model_name = "m", .auto_complete = !b->strict};
    struct model_config *c = NULL;
    struct status *st =
        model_config_parse_text(buf_text(&b->text), b->text.size, "config.pbtxt", &c);
    if (!st)
        st = pass(b, model_config_prepare(c, &facts));
    if (!st)
        st = model_config_complete_groups(c, &facts);
    if (!st)
        st = pass(b, model_config_finish(c, &facts));
    model_config_free(c);
    return st;
}

/* Prints a fault as the status would: its position, and the words for a wrong text. */
static void note(void *arg, const struct config_fault *fault)
{
    struct buf *told = arg;
    const char *code = fault->kind == CONFIG_FAULT_TEXT          ? "Internal"
                       : fault->kind == CONFIG_FAULT_UNSUPPORTED ? "Unsupported"
                                                                 : "Invalid argument";
    const char *advice = fault->advice ? fault->advice : "";
    if (fault->kind == CONFIG_FAULT_TEXT) {
        buf_addf(told, "%s: failed to read text proto from config.pbtxt:%u:%u: %s%s%s\n", code,
                 fault->line, fault->column, fault->text, *advice ? ", " : "", advice);
        return;
    }
    buf_addf(told, "%s: %s (config.pbtxt", code, fault->text);
    if (fault->line)
        buf_addf(told, ":%u:%u", fault->line, fault->column);
    buf_addf(told, ")%s%s\n", *advice ? ": " : "", advice);
}

/* Is the same fault reported to a listener, whatever else is wrong? */
static bool is_reported(const struct block *b, const char *expected)
{
    struct config_facts facts = {.model_name = "m", .auto_complete = !b->strict};
    AUTO(buf) told = BUF_INIT(MAX_BLOCK);
    struct config_listener listener = {.on_fault = note, .arg = &told};
    struct model_config *c = NULL;
    struct status *st =
        model_config_parse_all(buf_text(&b->text), b->text.size, "config.pbtxt", &listener, &c);
    if (!st && c)
        st = model_config_validate_all(c, &facts);
    assert_null(st);
    model_config_free(c);
    const char *found = strstr(buf_text(&told), expected);
    if (!found)
        print_error("heard:\n%s", buf_text(&told));
    return found && found[strlen(expected)] == '\n';
}

static void a_wrong_configuration_has_its_fault(void **state)
{
    static struct block b = {.text = BUF_INIT(MAX_BLOCK)};
    FILE *f = fopen(CONCH_SOURCE_DIR "/tests/unit/core/config/wrong.txt", "r");
    size_t n = 0, n_bad = 0;
    assert_non_null(f);
    while (read_block(f, &b)) {
        char got[2000] = "accepted";
        struct status *st = live(&b);
        if (st)
            snprintf(got, sizeof(got), "%s: %s", status_code_name(status_code(st)),
                     status_message(st));
        status_free(st);
        if (strcmp(got, b.expected) != 0) {
            print_error("%s\n    expected %s\n    got      %s\n", b.title, b.expected, got);
            n_bad++;
        }
        if (strcmp(b.expected, "accepted") != 0 && !is_reported(&b, b.expected)) {
            print_error("%s\n    nobody heard of %s\n", b.title, b.expected);
            n_bad++;
        }
        n++;
    }
    fclose(f);
    buf_done(&b.text);
    print_message("%zu wrong configurations\n", n);
    assert_int_equal(n_bad, 0);
    assert_true(n >= 80);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_wrong_configuration_has_its_fault)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
