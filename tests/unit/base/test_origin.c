/* SPDX-License-Identifier: Apache-2.0 */
/* Which texts are origins as browsers send them, and which item of a list is none. */
#include "base/origin.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* The text has no byte behind it, so that a sanitizer sees a read beyond its end. */
static const char *check_exactly(const char *text)
{
    size_t length = strlen(text);
    char *copy = malloc(length + !length);
    assert_non_null(copy);
    memcpy(copy, text, length);
    const char *wrong = origin_check(copy, length);
    free(copy);
    return wrong;
}

static void what_browsers_send_is_an_origin(void **state)
{
    (void)state;
    static const char *const origins[] = {
        "https://example.com",
        "http://localhost:8080",
        "http://a",
        "http://a:1",
        "https://a_b-c.d:65535",
        "http://a:443",
        "https://a:80",
        "http://[::1]",
        "http://[fe80::1]:8080",
        "http://192.0.2.1:8000",
        "https://xn--bcher-kva.example",
        "moz-extension://0f-e1",
        "capacitor://localhost",
    };
    for (size_t i = 0; i < sizeof(origins) / sizeof(origins[0]); i++)
        assert_null(check_exactly(origins[i]));
}

static void other_texts_are_refused_with_the_reason(void **state)
{
    (void)state;
    static const struct {
        const char *text, *reason;
    } cases[] = {
        {"", "missing"},
        {"*", "stands alone"},
        {"null", "'null'"},
        {"https://Example.com", "lower case"},
        {"HTTPS://example.com", "lower case"},
        {"example.com", "scheme"},
        {"example.com:80", "scheme"},
        {"http:/a", "scheme"},
        {"http:", "scheme"},
        {"://a", "scheme"},
        {"1http://a", "scheme"},
        {"ht tp://a", "scheme"},
        {"http://", "the host is missing"},
        {"http://:80", "the host is missing"},
        {"http:///", "the host is missing"},
        {"http://[", "the host is missing"},
        {"http://[]", "the host is missing"},
        {"http://[::1", "the host is missing"},
        {"http://a/", "without a '/'"},
        {"http://a/b", "without a '/'"},
        {"http://a?b", "without a '/'"},
        {"http://a b", "a host has"},
        {"http://user@a", "a host has"},
        {"http://*.a", "the host is missing"},
        {"http://b\xc3\xbc"
         "cher.example",
         "xn--"},
        {"http://a:", "a port"},
        {"http://a:0", "a port"},
        {"http://a:08", "a port"},
        {"http://a:65536", "a port"},
        {"http://a:100000", "a port"},
        {"http://a:8x", "a port"},
        {"http://a:80/", "a port"},
        {"http://a:80", "default port"},
        {"https://a:443", "default port"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *wrong = check_exactly(cases[i].text);
        assert_non_null(wrong);
        assert_non_null(strstr(wrong, cases[i].reason));
    }
}

static void long_origins_are_refused(void **state)
{
    (void)state;
    char text[ORIGIN_MAX_BYTES + 2];
    memset(text, 'a', sizeof(text));
    memcpy(text, "http://", strlen("http://"));
    assert_null(origin_check(text, ORIGIN_MAX_BYTES));
    assert_non_null(strstr(origin_check(text, ORIGIN_MAX_BYTES + 1), "512 bytes"));
}

static void a_list_names_its_first_fault(void **state)
{
    (void)state;
    static const struct {
        const char *list, *item; /* NULL: the list is fine */
    } cases[] = {
        {"", NULL},
        {"*", NULL},
        {"http://a", NULL},
        {"http://a,https://b:1", NULL},
        {"http://a,", ""},
        {",http://a", ""},
        {"http://a,,http://b", ""},
        {"http://a, http://b", " http://b"},
        {"http://a,*", "*"},
        {"*,http://a", "*"},
        {"http://a,null,b", "null"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *item = NULL;
        size_t length = 0;
        const char *wrong = origin_list_check(cases[i].list, &item, &length);
        assert_int_equal(wrong != NULL, cases[i].item != NULL);
        if (!wrong)
            continue;
        assert_int_equal(length, strlen(cases[i].item));
        assert_memory_equal(item, cases[i].item, length);
    }
}

static void a_list_has_255_origins_at_most(void **state)
{
    (void)state;
    static const char origin[] = "http://a,";
    enum { BYTES = sizeof(origin) - 1 };
    char list[BYTES * (ORIGIN_LIST_MAX + 1) + 1];
    for (int i = 0; i <= ORIGIN_LIST_MAX; i++)
        memcpy(list + (ptrdiff_t)i * BYTES, origin, BYTES);
    const char *item = NULL;
    size_t length = 0;
    list[sizeof(list) - 2] = '\0';
    assert_non_null(strstr(origin_list_check(list, &item, &length), "255 origins"));
    assert_ptr_equal(item, list + (ptrdiff_t)BYTES * ORIGIN_LIST_MAX);
    list[BYTES * ORIGIN_LIST_MAX - 1] = '\0';
    assert_null(origin_list_check(list, &item, &length));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_browsers_send_is_an_origin),
        cmocka_unit_test(other_texts_are_refused_with_the_reason),
        cmocka_unit_test(long_origins_are_refused),
        cmocka_unit_test(a_list_names_its_first_fault),
        cmocka_unit_test(a_list_has_255_origins_at_most),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
