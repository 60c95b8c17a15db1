/* SPDX-License-Identifier: Apache-2.0 */
#include "base/table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/status.h"

static struct table_text *models(void)
{
    static const char *const titles[] = {"Model", "Version", "Status"};
    return table_text_new(3, titles);
}

static void a_table_has_a_frame(void **state)
{
    (void)state;
    static const char *const rows[][3] = {{"add_sub", "1", "READY"}, {"m", "", "UNAVAILABLE: x"}};
    AUTO(buf) out = BUF_INIT(10000);
    struct table_text *t = models();
    table_text_row(t, rows[0]);
    table_text_row(t, rows[1]);
    table_text_print(t, 0, &out);
    assert_string_equal(buf_text(&out), "+---------+---------+----------------+\n"
                                        "| Model   | Version | Status         |\n"
                                        "+---------+---------+----------------+\n"
                                        "| add_sub | 1       | READY          |\n"
                                        "| m       |         | UNAVAILABLE: x |\n"
                                        "+---------+---------+----------------+\n");
    table_text_free(t);
    table_text_free(NULL);
}

/* As the genuine server prints it. */
static void an_empty_table_has_its_titles(void **state)
{
    (void)state;
    AUTO(buf) out = BUF_INIT(10000);
    struct table_text *t = models();
    table_text_print(t, 0, &out);
    assert_string_equal(buf_text(&out), "+-------+---------+--------+\n"
                                        "| Model | Version | Status |\n"
                                        "+-------+---------+--------+\n"
                                        "+-------+---------+--------+\n");
    table_text_free(t);
}

static void a_cell_cannot_forge_a_row(void **state)
{
    (void)state;
    static const char *const row[] = {"a\n| b", "\t\x1b[2J", "c\r"};
    AUTO(buf) out = BUF_INIT(10000);
    struct table_text *t = models();
    table_text_row(t, row);
    table_text_print(t, 0, &out);
    assert_non_null(strstr(buf_text(&out), "\n| a | b |   [2J   | c      |\n"));
    for (const char *p = buf_text(&out); *p; p++)
        assert_true(*p == '\n' || *p >= ' ');
    table_text_free(t);
}

static void a_table_ends_at_the_buffers_maximum(void **state)
{
    (void)state;
    AUTO(buf) out = BUF_INIT(50);
    struct table_text *t = models();
    table_text_print(t, 0, &out);
    struct status *st = buf_status(&out);
    assert_non_null(st);
    status_free(st);
    table_text_free(t);
}

/* ---- On a terminal --------------------------------------------------------------------------- */

static void a_terminal_has_no_empty_table(void **state)
{
    (void)state;
    AUTO(buf) out = BUF_INIT(10000);
    struct table_text *t = models();
    table_text_print(t, 80, &out);
    assert_int_equal(out.size, 0);
    table_text_free(t);
}

static void a_terminal_has_no_empty_column(void **state)
{
    (void)state;
    static const char *const row[] = {"add_sub", "", "READY"};
    AUTO(buf) out = BUF_INIT(10000);
    struct table_text *t = models();
    table_text_row(t, row);
    table_text_print(t, 80, &out);
    assert_string_equal(buf_text(&out), "+---------+--------+\n"
                                        "| Model   | Status |\n"
                                        "+---------+--------+\n"
                                        "| add_sub | READY  |\n"
                                        "+---------+--------+\n");
    table_text_free(t);
}

static void a_reason_is_wrapped_below(void **state)
{
    (void)state;
    static const char *const rows[][3] = {
        {"m", "1", "UNAVAILABLE: no file /models/m/1/model.onnx, says 'the backend'"},
        {"größe", "12", "READY"}};
    AUTO(buf) out = BUF_INIT(10000);
    struct table_text *t = models();
    table_text_row(t, rows[0]);
    table_text_row(t, rows[1]);
    table_text_print(t, 44, &out);
    assert_string_equal(buf_text(&out), "+-------+---------+------------------------+\n"
                                        "| Model | Version | Status                 |\n"
                                        "+-------+---------+------------------------+\n"
                                        "| m     | 1       | UNAVAILABLE: no file / |\n"
                                        "|       |         | models/m/1/model.onnx, |\n"
                                        "|       |         | says 'the backend'     |\n"
                                        "| größe | 12      | READY                  |\n"
                                        "+-------+---------+------------------------+\n");
    table_text_free(t);
}

/* Two long cells share the width; a word without a place to break is broken anywhere. */
static void long_columns_share_the_width(void **state)
{
    (void)state;
    static const char *const row[] = {"äbcdefghijklmnopqrst", "1", "ABCDEFGHIJKLMNOPQRSTUVWXYZ"};
    AUTO(buf) out = BUF_INIT(10000);
    struct table_text *t = models();
    table_text_row(t, row);
    table_text_print(t, 40, &out);
    assert_string_equal(buf_text(&out), "+-------------+---------+-------------+\n"
                                        "| Model       | Version | Status      |\n"
                                        "+-------------+---------+-------------+\n"
                                        "| äbcdefghijk | 1       | ABCDEFGHIJK |\n"
                                        "| lmnopqrst   |         | LMNOPQRSTUV |\n"
                                        "|             |         | WXYZ        |\n"
                                        "+-------------+---------+-------------+\n");
    table_text_free(t);
}

/* Below eight characters no column is narrowed; the table is wider than the terminal then. */
static void the_narrowest_terminal_ends(void **state)
{
    (void)state;
    static const char *const row[] = {"abcdefghijkl", "1", "abcdefghijkl"};
    AUTO(buf) out = BUF_INIT(10000);
    struct table_text *t = models();
    table_text_row(t, row);
    table_text_print(t, 1, &out);
    assert_non_null(strstr(buf_text(&out), "| abcdefgh | 1       | abcdefgh |\n"
                                           "| ijkl     |         | ijkl     |\n"));
    table_text_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_table_has_a_frame),
        cmocka_unit_test(an_empty_table_has_its_titles),
        cmocka_unit_test(a_cell_cannot_forge_a_row),
        cmocka_unit_test(a_table_ends_at_the_buffers_maximum),
        cmocka_unit_test(a_terminal_has_no_empty_table),
        cmocka_unit_test(a_terminal_has_no_empty_column),
        cmocka_unit_test(a_reason_is_wrapped_below),
        cmocka_unit_test(long_columns_share_the_width),
        cmocka_unit_test(the_narrowest_terminal_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
