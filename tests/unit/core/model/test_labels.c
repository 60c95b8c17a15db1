/* SPDX-License-Identifier: Apache-2.0 */
#include "core/model/labels.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/storage/storage.h"

/* A storage that has no folders, only one file. */
struct one_file {
    struct storage storage;
    const char *path, *bytes;
    size_t size;
};

static struct status *read_one(const struct storage *s, const char *path, struct buf *ret_content)
{
    const struct one_file *f = (const struct one_file *)s;
    if (strcmp(path, f->path) != 0)
        return status_new(STATUS_NOT_FOUND, "no %s", path);
    buf_add(ret_content, f->bytes, f->size);
    return buf_status(ret_content);
}

static char root[] = "root";
static const struct storage_ops ops = {.read = read_one};

static struct one_file make(const char *bytes, size_t size)
{
    return (struct one_file){
        .storage = {.ops = &ops, .root = root},
        .path = "m/l",
        .bytes = bytes,
        .size = size,
    };
}

static void a_line_is_a_label(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *lines[4];
    } cases[] = {
        {"", {NULL}},
        {"\n", {"", NULL}},
        {"one", {"one", NULL}},
        {"one\n", {"one", NULL}},
        {"a\r\nb\r\n\nc", {"a", "b", "", "c"}},
        {"a\rb\n\r\n", {"a\rb", "", NULL}},
        {"\xff\n", {"\xff", NULL}},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct one_file f = make(cases[i].text, strlen(cases[i].text));
        struct labels *l = NULL;
        assert_null(labels_read("m", "O", &f.storage, "m", "l", &l));
        size_t n = 0;
        while (n < 4 && cases[i].lines[n])
            n++;
        assert_int_equal(l->count, n);
        struct labels *copy = NULL;
        assert_null(labels_copy(l, &copy));
        for (size_t j = 0; j < n; j++)
            assert_string_equal(l->lines[j], cases[i].lines[j]);
        labels_free(l);
        assert_int_equal(copy->count, n);
        for (size_t j = 0; j < n; j++)
            assert_string_equal(copy->lines[j], cases[i].lines[j]);
        labels_free(copy);
    }
}

static void assert_refused(const char *bytes, size_t size, const char *name, const char *text)
{
    struct one_file f = make(bytes, size);
    struct labels *l = NULL;
    struct status *st = labels_read("m", "O", &f.storage, "m", name, &l);
    assert_non_null(st);
    assert_null(l);
    assert_string_equal(status_message(st), text);
    status_free(st);
}

static void a_file_that_is_no_text_is_refused(void **state)
{
    (void)state;
    assert_refused("a\0b", 3, "l",
                   "'root/m/l' has a NUL byte, so it is no text (labels of output 'O' of model "
                   "'m')");
    assert_refused("", 0, "k",
                   "failed to open text file for read root/m/k: No such file or directory (labels "
                   "of output 'O' of model 'm')");
    assert_refused("", 0, "../l",
                   "label file path '../l' for output 'O' in model 'm' is outside model directory");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_is_a_label),
        cmocka_unit_test(a_file_that_is_no_text_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
