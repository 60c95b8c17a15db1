/* SPDX-License-Identifier: Apache-2.0 */
#include "core/storage/source.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/storage/storage.h"
#include "lib/repository.h"

static void reads(const struct source *s, const char *path, const char *expected)
{
    AUTO(buf) text = BUF_INIT(100);
    assert_null(storage_read(s->storage, path, &text));
    assert_string_equal(buf_text(&text), expected);
}

static void temporary_files_are_made_and_removed(void **state)
{
    (void)state;
    static const struct source_file files[] = {
        {"1/model", "first", 5}, {"1/more/labels", "second", 6}, {"config", "", 0}};
    struct source *s;
    struct stat info;
    assert_null(source_of_files("m", files, 3, &s));
    reads(s, "m/1/model", "first");
    reads(s, "m/1/more/labels", "second");
    reads(s, "m/config", "");
    assert_null(source_fetch(s));
    char *directory = mem_strdup(s->directory);
    assert_int_equal(stat(directory, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0700); /* readable only for the server's user */
    char *link = mem_printf("%s/link", directory);
    assert_int_equal(symlink("/etc", link), 0);
    mem_free(link);
    source_ref(s);
    source_unref(s);
    assert_int_equal(access(directory, F_OK), 0);
    source_unref(s);
    assert_int_not_equal(access(directory, F_OK), 0);
    assert_int_equal(access("/etc/passwd", F_OK), 0);
    mem_free(directory);
}

static void impossible_files_are_refused(void **state)
{
    (void)state;
    static const struct source_file clash[][2] = {{{"a", "", 0}, {"a", "", 0}},
                                                  {{"a", "", 0}, {"a/b", "", 0}},
                                                  {{"a/b", "", 0}, {"a", "", 0}}};
    struct source *s;
    for (size_t i = 0; i < ARRAY_SIZE(clash); i++) {
        struct status *st = source_of_files("m", clash[i], 2, &s);
        assert_non_null(st);
        status_free(st);
    }
    char name[300];
    memset(name, 'n', sizeof(name));
    name[sizeof(name) - 1] = '\0';
    struct status *st = source_of_files(name, NULL, 0, &s);
    assert_non_null(strstr(status_message(st), "File name too long"));
    status_free(st);
}

static struct source *source_in(const char *root, const char *folder)
{
    struct storage *storage;
    assert_null(storage_open(root, false, &storage));
    struct source *s = source_of_folder(storage, folder);
    storage_unref(storage);
    return s;
}

/* A folder that two repositories reach is one folder; the same name in another one is not. */
static void a_folder_is_compared_before_it_is_fetched(void **state)
{
    (void)state;
    struct test_repository repo, other;
    repository_make(&repo);
    repository_make(&other);
    repository_add_file(&repo, "digits/x", "", 0);
    const char *name = strrchr(repo.path, '/') + 1;
    char *parent = mem_strndup(repo.path, (size_t)(name - repo.path));
    char *folder = mem_printf("%s/digits", name);
    struct source *deep = source_in(parent, folder), *flat = source_in(repo.path, "digits");
    struct source *elsewhere = source_in(other.path, "digits");
    assert_true(source_is_same_folder(deep, flat));
    assert_false(source_is_same_folder(deep, elsewhere));
    assert_null(deep->directory);

    assert_null(source_fetch(deep));
    char *expected = mem_printf("%s/digits", repo.path);
    const char *fetched = deep->directory;
    assert_string_equal(fetched, expected);
    assert_null(source_fetch(deep));
    assert_ptr_equal(deep->directory, fetched); /* only the first call fetches */
    mem_free(expected);
    mem_free(folder);
    mem_free(parent);
    source_unref(deep);
    source_unref(flat);
    source_unref(elsewhere);
    repository_remove(&repo);
    repository_remove(&other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(temporary_files_are_made_and_removed),
        cmocka_unit_test(impossible_files_are_refused),
        cmocka_unit_test(a_folder_is_compared_before_it_is_fetched),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
