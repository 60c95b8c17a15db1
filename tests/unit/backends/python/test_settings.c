/* SPDX-License-Identifier: Apache-2.0 */
#include "common/backend.c"
#include "common/doc.c"
#include "python/settings.c"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define MIB_ (UINT64_C(1) << 20)

static TRITONSERVER_Error *read_from(const char *settings, struct settings *ret_settings)
{
    char text[500];
    const char *why;

    snprintf(text, sizeof text, "{\"cmdline\":{%s}}", settings);
    struct doc *d = doc_parse(text, strlen(text), &why);
    assert_non_null(d);
    TRITONSERVER_Error *err = settings_read(d, ret_settings);
    doc_free(d);
    return err;
}

static void each_has_its_default(void **state)
{
    struct settings s;

    (void)state;
    assert_null(read_from("\"auto-complete-config\":\"true\"", &s));
    assert_int_equal(s.first_bytes, MIB_);
    assert_int_equal(s.growth_bytes, MIB_);
    assert_int_equal(s.timeout_ns, 30 * NS_PER_S);
    assert_true(s.max_bytes >= 64 * MIB_);
    assert_null(s.backend_directory);
    settings_done(&s);
}

static void what_is_given_counts(void **state)
{
    struct settings s;

    (void)state;
    assert_null(read_from("\"shm-default-byte-size\":\"2097152\",\"shm-growth-byte-size\":\"1\","
                          "\"stub-timeout-seconds\":\"7\",\"backend-directory\":\"/b\","
                          "\"shm-region-prefix-name\":\"p\",\"shm_message_queue_size\":\"1\","
                          "\"thread-pool-size\":\"1\",\"unknown\":\"warned of\"",
                          &s));
    assert_int_equal(s.first_bytes, 2 * MIB_);
    assert_int_equal(s.growth_bytes, 1);
    assert_int_equal(s.timeout_ns, 7 * NS_PER_S);
    assert_string_equal(s.backend_directory, "/b");
    settings_done(&s);
}

static void what_is_out_of_range_is_refused(void **state)
{
    static const struct {
        const char *setting, *text;
    } cases[] = {
        {"\"shm-default-byte-size\":\"1048575\"",
         "shm-default-byte-size can't be smaller than 4 MiBs"},
        {"\"shm-growth-byte-size\":\"0\"",
         "shm-growth-byte-size can't be smaller than or equal to zero."},
        {"\"stub-timeout-seconds\":\"-1\"",
         "stub-timeout-seconds can't be smaller than or equal to zero."},
        {"\"shm_message_queue_size\":\"0\"",
         "shm_message_queue_size can't be smaller than or equal to zero."},
        {"\"thread-pool-size\":\"0\"", "thread-pool-size can't be less than 1."},
        {"\"shm-region-prefix-name\":\"\"",
         "shm-region-prefix-name must at least contain one character."},
        {"\"stub-timeout-seconds\":\"1s\"", "stub-timeout-seconds is no whole number: '1s'"},
        {"\"stub-timeout-seconds\":\"99999999999999999999\"",
         "stub-timeout-seconds is no whole number: '99999999999999999999'"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct settings s;
        TRITONSERVER_Error *err = read_from(cases[i].setting, &s);

        assert_non_null(err);
        assert_string_equal(TRITONSERVER_ErrorMessage(err), cases[i].text);
        TRITONSERVER_ErrorDelete(err);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_has_its_default),
        cmocka_unit_test(what_is_given_counts),
        cmocka_unit_test(what_is_out_of_range_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
