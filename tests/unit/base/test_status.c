/* SPDX-License-Identifier: Apache-2.0 */
#include "base/status.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/thread.h"
#include "lib/death.h"

static void a_status_holds_code_and_message(void **state)
{
    (void)state;
    struct status *st = status_new(STATUS_INVALID_ARG, "input '%s': %d", "x", 7);
    assert_int_equal(status_code(st), STATUS_INVALID_ARG);
    assert_string_equal(status_message(st), "input 'x': 7");
    st = status_prefix(st, "model '%s': ", "m");
    assert_int_equal(status_code(st), STATUS_INVALID_ARG);
    assert_string_equal(status_message(st), "model 'm': input 'x': 7");
    st = status_suffix(st, " (step %u)", 1U);
    assert_int_equal(status_code(st), STATUS_INVALID_ARG);
    assert_string_equal(status_message(st), "model 'm': input 'x': 7 (step 1)");
    status_free(st);
    status_free(NULL);
    assert_null(status_prefix(NULL, "nothing"));
    assert_null(status_suffix(NULL, "nothing"));
    assert_null(status_ref(NULL));
}

static void a_status_has_the_systems_reason(void **state)
{
    (void)state;
    static const struct {
        int err;
        enum status_code code;
    } cases[] = {
        {ENOENT, STATUS_NOT_FOUND},       {ENOTDIR, STATUS_NOT_FOUND},
        {EMFILE, STATUS_UNAVAILABLE},     {ENOMEM, STATUS_UNAVAILABLE},
        {EADDRINUSE, STATUS_UNAVAILABLE}, {EINVAL, STATUS_INVALID_ARG},
        {EIO, STATUS_INTERNAL},           {EACCES, STATUS_INTERNAL},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct status *st = status_from_errno(cases[i].err, "opening '%s'", "f");
        assert_int_equal(status_code(st), cases[i].code);
        assert_memory_equal(status_message(st), "opening 'f': ", 13);
        assert_string_equal(status_message(st) + 13, strerror(cases[i].err));
        status_free(st);
    }
}

static int allocations_left;

static bool few(size_t size_bytes)
{
    (void)size_bytes;
    return allocations_left-- > 0;
}

static void lack_of_memory_needs_no_memory(void **state)
{
    (void)state;
    mem_set_test_hook(few);
    allocations_left = 0;
    struct status *st = status_new(STATUS_INTERNAL, "lost");
    struct status *from_errno = status_from_errno(EIO, "lost");
    mem_set_test_hook(NULL);
    assert_ptr_equal(st, status_no_memory());
    assert_ptr_equal(from_errno, status_no_memory());
    assert_int_equal(status_code(st), STATUS_UNAVAILABLE);
    assert_string_equal(status_message(st), "out of memory");
    assert_ptr_equal(status_prefix(st, "x"), st);
    assert_ptr_equal(status_suffix(st, "x"), st);
    assert_ptr_equal(status_ref(st), st);
    for (int i = 0; i < 3; i++)
        status_free(st); /* may be freed any number of times */
    assert_string_equal(status_message(st), "out of memory");
}

static void not_found_is_one_object(void **state)
{
    (void)state;
    struct status *st = status_not_found();
    assert_int_equal(status_code(st), STATUS_NOT_FOUND);
    status_free(status_ref(st));
    status_free(st);
    assert_ptr_equal(status_not_found(), st);
    st = status_prefix(st, "model: ");
    assert_int_equal(status_code(st), STATUS_NOT_FOUND);
    assert_string_equal(status_message(st), "model: not found");
    status_free(st);
    assert_string_equal(status_message(status_not_found()), "not found");
}

static void a_prefix_that_finds_no_memory_keeps_the_cause(void **state)
{
    (void)state;
    for (int n = 0; n < 2; n++) {
        struct status *st = status_new(STATUS_NOT_FOUND, "cause");
        allocations_left = n;
        mem_set_test_hook(few);
        st = status_prefix(st, "where: ");
        allocations_left = n;
        st = status_suffix(st, " (where)");
        mem_set_test_hook(NULL);
        assert_int_equal(status_code(st), STATUS_NOT_FOUND);
        assert_string_equal(status_message(st), "cause");
        status_free(st);
    }
}

static void free_many(void *arg)
{
    struct status *st = arg;
    for (int i = 0; i < 10000; i++)
        status_free(st);
}

/* The sanitizers see a use after free, a double free and a leak. */
static void many_threads_share_a_status(void **state)
{
    (void)state;
    struct status *st = status_new(STATUS_INTERNAL, "shared");
    struct thread threads[2];
    for (int i = 0; i < 20000; i++)
        assert_ptr_equal(status_ref(st), st);
    for (int i = 0; i < 2; i++)
        assert_null(thread_start(&threads[i], "freer", free_many, st));
    assert_string_equal(status_message(st), "shared");
    for (int i = 0; i < 2; i++)
        thread_join(&threads[i]);
    assert_string_equal(status_message(st), "shared");
    status_free(st);
}

static void each_code_has_its_name(void **state)
{
    (void)state;
    static const char *const names[] = {"Unknown",          "Internal",    "Not found",
                                        "Invalid argument", "Unavailable", "Unsupported",
                                        "Already exists",   "Cancelled"};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        assert_string_equal(status_code_name((enum status_code)i), names[i]);
    assert_string_equal(status_code_name((enum status_code)99), "<invalid code>");
}

static void a_reason_is_utf8(void **state)
{
    (void)state;
    struct status *st = status_new(STATUS_NOT_FOUND, "no '%s'", "\xff\xc3\xa9");
    char *reason = status_reason(st);
    assert_string_equal(reason, "Not found: no '\\xFF\xc3\xa9'");
    mem_free(reason);
    status_free(st);
}

static void a_huge_message_is_cut(void **state)
{
    (void)state;
    size_t n = 10000000;
    char *name = mem_alloc(n + 1);
    memset(name, 'x', n);
    name[n] = '\0';
    struct status *st = status_new(STATUS_INVALID_ARG, "unknown '%s' in m", name);
    mem_free(name);
    st = status_prefix(st, "model '%s': ", "m");
    const char *text = status_message(st);
    assert_memory_equal(text, "model 'm': unknown 'xxx", 23);
    const char *mark = strstr(text, "…(10000015 bytes)");
    assert_non_null(mark);
    assert_int_equal(mark - text, strlen("model 'm': ") + STATUS_MAX_BYTES);
    assert_int_equal(strlen(mark), strlen("…(10000015 bytes)"));
    status_free(st);
}

static void fall_into_bug(void *arg)
{
    BUG_ON(arg == NULL);
}

static void a_bug_aborts(void **state)
{
    (void)state;
    assert_aborts(fall_into_bug, NULL, "test_status.c");
    assert_aborts(fall_into_bug, NULL, ": arg == NULL\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_status_holds_code_and_message),
        cmocka_unit_test(a_status_has_the_systems_reason),
        cmocka_unit_test(lack_of_memory_needs_no_memory),
        cmocka_unit_test(not_found_is_one_object),
        cmocka_unit_test(a_prefix_that_finds_no_memory_keeps_the_cause),
        cmocka_unit_test(many_threads_share_a_status),
        cmocka_unit_test(each_code_has_its_name),
        cmocka_unit_test(a_reason_is_utf8),
        cmocka_unit_test(a_huge_message_is_cut),
        cmocka_unit_test(a_bug_aborts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
