/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parameters of the agent `checksum`. That it checks files is in system/test_repository_agents.
 */
#include "checksum/rule.c"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void rules_are_read(void **state)
{
    struct checksum_rule rule;
    (void)state;
    assert_int_equal(checksum_rule_read("MD5:1/model.onnx", &rule), RULE_FINE);
    assert_int_equal(rule.algorithm, CHECKSUM_MD5);
    assert_string_equal(rule.file, "1/model.onnx");
    assert_int_equal(checksum_rule_read("SHA256:a:b", &rule), RULE_FINE);
    assert_int_equal(rule.algorithm, CHECKSUM_SHA256);
    assert_string_equal(rule.file, "a:b");
    assert_int_equal(checksum_rule_read("MD5:..a/b..", &rule), RULE_FINE);
}

static void wrong_rules_are_told_apart(void **state)
{
    static const struct {
        const char *name;
        enum rule_fault fault;
    } cases[] = {
        {"", RULE_NO_COLON},
        {"1/model.onnx", RULE_NO_COLON},
        {":1/model.onnx", RULE_UNKNOWN_ALGORITHM},
        {"md5:1/x", RULE_UNKNOWN_ALGORITHM},
        {"MD55:1/x", RULE_UNKNOWN_ALGORITHM},
        {"SHA512:1/x", RULE_UNKNOWN_ALGORITHM},
        {"MD5:", RULE_NO_FILE},
        {"MD5:/etc/passwd", RULE_OUTSIDE},
        {"MD5:..", RULE_OUTSIDE},
        {"MD5:../x", RULE_OUTSIDE},
        {"MD5:1/../../x", RULE_OUTSIDE},
        {"MD5:1//..", RULE_OUTSIDE},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct checksum_rule rule = {0};
        assert_int_equal(checksum_rule_read(cases[i].name, &rule), cases[i].fault);
        assert_null(rule.file);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rules_are_read),
        cmocka_unit_test(wrong_rules_are_told_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
