/* SPDX-License-Identifier: Apache-2.0 */
#include "core/storage/storage.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/status.h"
#include "lib/repository.h"

static struct test_repository repo; /* root/ is the repository; the rest lies outside */

static const char *at(const char *name)
{
    static char path[2][256];
    static int turn;
    turn = !turn;
    snprintf(path[turn], sizeof(path[0]), "%s/%s", repo.path, name);
    return path[turn];
}

static void put(const char *name, const char *text)
{
    FILE *f = fopen(at(name), "we");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void put_link(const char *name, const char *to)
{
    assert_int_equal(symlink(to, at(name)), 0);
}

static int make(void **state)
{
    (void)state;
    repository_make(&repo);
    mkdir(at("root"), 0755);
    mkdir(at("root/m"), 0755);
    mkdir(at("rooted"), 0755); /* its name begins like the root's, but it lies outside */
    put("root/m/file", "inside");
    put("rooted/file", "outside");
    put_link("root/m/in", "file");
    put_link("root/m/absolute", at("root/m/file"));
    put_link("root/m/out", "../../rooted/file");
    put_link("root/m/behind", "out");
    put_link("root/m/nowhere", "nothing");
    put_link("root/m/loop", "loop");
    put_link("root/outside", "../rooted");
    put_link("link", "root");
    return mkfifo(at("root/m/fifo"), 0644);
}

static int clean(void **state)
{
    (void)state;
    repository_remove(&repo);
    return 0;
}

static struct storage *open_root(const char *name, bool follow_links)
{
    struct storage *s = NULL;
    assert_null(storage_open(at(name), follow_links, &s));
    return s;
}

static void assert_says(struct status *st, enum status_code code, const char *fmt, ...)
    PRINTF_LIKE(3, 4);
static void assert_says(struct status *st, enum status_code code, const char *fmt, ...)
{
    char expected[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(expected, sizeof(expected), fmt, ap);
    va_end(ap);
    assert_non_null(st);
    assert_string_equal(status_message(st), expected);
    assert_int_equal(status_code(st), code);
    status_free(st);
}

static void assert_reads(const struct storage *s, const char *path, const char *text)
{
    AUTO(buf) b = BUF_INIT(100);
    assert_null(storage_read(s, path, &b));
    assert_string_equal(buf_text(&b), text);
}

static void assert_kind(const struct storage *s, const char *path, enum file_kind kind)
{
    struct file_info info = {.kind = FILE_LINK};
    assert_null(storage_stat(s, path, &info));
    assert_int_equal(info.kind, kind);
}

static void a_local_storage_reads_lists_and_stats(void **state)
{
    (void)state;
    struct storage *s = open_root("root", false);
    assert_reads(s, "m/file", "inside");
    assert_reads(s, "m/in", "inside");
    assert_reads(s, "m/absolute", "inside");
    assert_kind(s, "", FILE_FOLDER);
    assert_kind(s, "m", FILE_FOLDER);
    assert_kind(s, "m/in", FILE_REGULAR);
    assert_kind(s, "m/fifo", FILE_OTHER);
    assert_kind(s, "m/none", FILE_MISSING);
    assert_kind(s, "m/file/none", FILE_MISSING);

    struct file_list list;
    assert_null(storage_list(s, "", &list));
    assert_int_equal(list.count, 2);
    assert_string_equal(list.entries[0].name, "m");
    assert_int_equal(list.entries[0].kind, FILE_FOLDER);
    assert_string_equal(list.entries[1].name, "outside");
    assert_int_equal(list.entries[1].kind, FILE_LINK);
    file_list_done(&list);

    char *folder;
    assert_null(storage_fetch(s, "m", &folder));
    assert_string_equal(folder, at("root/m"));
    storage_release(s, folder);
    storage_unref(s);
}

static void links_that_lead_out_are_errors(void **state)
{
    (void)state;
    struct storage *s = open_root("root", false);
    char link[256], to[256];
    struct file_info info;
    struct file_list list;
    AUTO(buf) b = BUF_INIT(100);
    static const char text[] = "link '%s' leads to '%s', out of the model repository; "
                               "--repository-follow-symlinks=true permits that";

    snprintf(to, sizeof(to), "%s", at("rooted/file"));
    static const char *const names[] = {"m/out", "m/behind"};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        snprintf(link, sizeof(link), "%s/%s", at("root"), names[i]);
        assert_says(storage_read(s, names[i], &b), STATUS_INVALID_ARG, text, link, to);
        assert_int_equal(b.size, 0);
        assert_says(storage_stat(s, names[i], &info), STATUS_INVALID_ARG, text, link, to);
        assert_int_equal(info.kind, FILE_REGULAR);
    }
    /* The error names the link, not the file behind it. */
    snprintf(link, sizeof(link), "%s", at("root/outside"));
    snprintf(to, sizeof(to), "%s", at("rooted"));
    assert_says(storage_read(s, "outside/file", &b), STATUS_INVALID_ARG, text, link, to);
    assert_says(storage_list(s, "outside", &list), STATUS_INVALID_ARG, text, link, to);
    storage_unref(s);

    s = open_root("root", true);
    assert_reads(s, "m/behind", "outside");
    assert_reads(s, "outside/file", "outside");
    assert_kind(s, "outside", FILE_FOLDER);
    storage_unref(s);
}

static void links_to_nothing_are_errors(void **state)
{
    (void)state;
    struct storage *s = open_root("root", false);
    struct file_info info = {.kind = FILE_LINK};
    assert_says(storage_stat(s, "m/nowhere", &info), STATUS_NOT_FOUND,
                "link '%s' leads to 'nothing', which does not exist", at("root/m/nowhere"));
    assert_int_equal(info.kind, FILE_MISSING);
    info.kind = FILE_LINK;
    assert_says(storage_stat(s, "m/loop", &info), STATUS_INTERNAL,
                "failed to open '%s': Too many levels of symbolic links", at("root/m/loop"));
    assert_int_equal(info.kind, FILE_LINK); /* the kind behind the link is unknown */
    storage_unref(s);
}

static void only_regular_files_are_read(void **state)
{
    (void)state;
    struct storage *s = open_root("root", false);
    AUTO(buf) b = BUF_INIT(3);
    assert_says(storage_read(s, "m/fifo", &b), STATUS_INVALID_ARG,
                "'%s' is something special, not a regular file", at("root/m/fifo"));
    assert_says(storage_read(s, "m", &b), STATUS_INVALID_ARG,
                "'%s' is a folder, not a regular file", at("root/m"));
    assert_says(storage_read(s, "m/file", &b), STATUS_INVALID_ARG,
                "'%s' has 6 bytes, the maximum is 3", at("root/m/file"));
    storage_unref(s);
}

/* git-sync and ConfigMaps exchange a folder by replacing the link to it. */
static void the_root_may_be_a_link_that_is_replaced(void **state)
{
    (void)state;
    struct storage *s = open_root("link", false);
    assert_reads(s, "m/file", "inside");
    mkdir(at("new"), 0755);
    mkdir(at("new/m"), 0755);
    put("new/m/file", "newer");
    put_link("turned", "new");
    assert_int_equal(rename(at("turned"), at("link")), 0);
    assert_reads(s, "m/file", "newer");
    storage_unref(s);
}

static void invalid_roots_are_refused(void **state)
{
    (void)state;
    struct storage *s;
    assert_says(storage_open(at("none"), false, &s), STATUS_INTERNAL, "failed to stat file %s",
                at("none"));
    assert_says(storage_open(at("root/m/file"), false, &s), STATUS_INVALID_ARG,
                "repository path is not a valid directory: '%s'", at("root/m/file"));
    assert_says(storage_open("s3://bucket/m", true, &s), STATUS_INTERNAL,
                "s3:// file-system not supported. Repositories are folders: copy this one to a "
                "folder, or mount it.");
}

/* A name from a configuration is refused before the file system is asked, so the answer is the
 * same whatever exists there. */
static void names_stay_in_their_folder(void **state)
{
    (void)state;
    static const char *const names[] = {"..", "../m/file", "../m/none", "in/../../m/file",
                                        "/m/file"};
    for (int follow_links = 0; follow_links < 2; follow_links++) {
        struct storage *s = open_root("root", follow_links);
        for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
            AUTO(buf) b = BUF_INIT(100);
            struct file_info info;
            assert_says(storage_read_named(s, "m", names[i], &b), STATUS_INVALID_ARG,
                        "file '%s' is outside the folder 'm'", names[i]);
            assert_says(storage_stat_named(s, "m", names[i], &info), STATUS_INVALID_ARG,
                        "file '%s' is outside the folder 'm'", names[i]);
            assert_says(storage_check_named(s, "m", names[i]), STATUS_INVALID_ARG,
                        "file '%s' is outside the folder 'm'", names[i]);
            assert_int_equal(b.size, 0);
        }
        AUTO(buf) b = BUF_INIT(100);
        struct file_info info;
        assert_null(storage_read_named(s, "m", "./file", &b));
        assert_string_equal(buf_text(&b), "inside");
        assert_null(storage_stat_named(s, "m", "..file", &info));
        assert_int_equal(info.kind, FILE_MISSING);
        assert_null(storage_check_named(s, "m", "file"));
        storage_unref(s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_local_storage_reads_lists_and_stats),
        cmocka_unit_test(links_that_lead_out_are_errors),
        cmocka_unit_test(links_to_nothing_are_errors),
        cmocka_unit_test(only_regular_files_are_read),
        cmocka_unit_test(the_root_may_be_a_link_that_is_replaced),
        cmocka_unit_test(invalid_roots_are_refused),
        cmocka_unit_test(names_stay_in_their_folder),
    };
    return cmocka_run_group_tests(tests, make, clean);
}
