/* SPDX-License-Identifier: Apache-2.0 */
#include "core/repo/fingerprint.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/status.h"
#include "core/storage/storage.h"
#include "lib/repository.h"

struct fixture {
    struct test_repository repo;
    struct storage *storage;
    struct fingerprint before;
};

static struct fingerprint now(const struct fixture *f)
{
    return fingerprint_take(f->storage, "m");
}

static void set_up(struct fixture *f)
{
    repository_make(&f->repo);
    repository_add(&f->repo, "m", "", 1);
    repository_add_file(&f->repo, "m/1/model", "one", 3);
    repository_add_file(&f->repo, "m/1/part/weights", "one", 3);
    repository_add_file(&f->repo, "m/2/model", "two", 3);
    assert_null(storage_local_open(f->repo.path, false, &f->storage));
    f->before = now(f);
}

static void tear_down(struct fixture *f)
{
    fingerprint_done(&f->before);
    storage_unref(f->storage);
    repository_remove(&f->repo);
}

/* Returns which of the versions 1 and 2 have changed since the last call, as bits; 4: anything
 * has changed. */
static int changed(struct fixture *f)
{
    struct fingerprint after = now(f);
    assert_true(after.known);
    int bits = fingerprint_same_version(&f->before, &after, 1) ? 0 : 1;
    bits |= fingerprint_same_version(&f->before, &after, 2) ? 0 : 2;
    bits |= fingerprint_same(&f->before, &after) ? 0 : 4;
    fingerprint_done(&f->before);
    f->before = after;
    return bits;
}

static void path_of(const struct fixture *f, const char *name, char path[512])
{
    snprintf(path, 512, "%s/%s", f->repo.path, name);
}

static void touch(const struct fixture *f, const char *name, long second)
{
    char path[512];
    path_of(f, name, path);
    const struct timespec times[2] = {{.tv_sec = second}, {.tv_sec = second}};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static void each_change_is_seen_in_its_version(void **state)
{
    (void)state;
    struct fixture f;
    char path[512], other[512];
    set_up(&f);
    assert_int_equal(changed(&f), 0);
    repository_add_file(&f.repo, "m/1/model", "ONE!", 4);
    assert_int_equal(changed(&f), 1 | 4);
    repository_add_file(&f.repo, "m/1/part/weights", "ONE!", 4);
    assert_int_equal(changed(&f), 1 | 4);
    touch(&f, "m/2/model", 4000000000);
    assert_int_equal(changed(&f), 2 | 4);
    touch(&f, "m/2/model", 3900000000); /* a file that is older than before has changed, too */
    assert_int_equal(changed(&f), 2 | 4);
    repository_add_file(&f.repo, "m/config.pbtxt", "backend: 'x'", 12);
    assert_int_equal(changed(&f), 1 | 2 | 4);
    repository_add_file(&f.repo, "m/labels", "", 0);
    assert_int_equal(changed(&f), 1 | 2 | 4);
    path_of(&f, "m/labels", path);
    path_of(&f, "m/names", other);
    assert_int_equal(rename(path, other), 0);
    assert_int_equal(changed(&f), 1 | 2 | 4);
    path_of(&f, "m/3", path);
    assert_int_equal(mkdir(path, 0755), 0);
    assert_int_equal(changed(&f), 4);
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(changed(&f), 4);

    repository_add_file(&f.repo, "m/1/__pycache__/x.pyc", "x", 1); /* Python's cache is ignored */
    path_of(&f, "m/1/__pycache__", path);
    assert_int_equal(chmod(path, 0700), 0);
    assert_int_equal(changed(&f), 0);
    tear_down(&f);
}

/* Kubernetes changes a mounted volume by replacing one link; the files
 * are links through it. */
static void a_replaced_link_changes_what_is_behind_it(void **state)
{
    (void)state;
    struct fixture f;
    char path[512], other[512];
    set_up(&f);
    repository_add_file(&f.repo, "m/..v1/config", "old", 3);
    repository_add_file(&f.repo, "m/..v2/config", "new", 3);
    path_of(&f, "m/..data", path);
    path_of(&f, "m/config", other);
    assert_int_equal(symlink("..v1", path), 0);
    assert_int_equal(symlink("..data/config", other), 0);
    changed(&f);
    assert_int_equal(changed(&f), 0);
    touch(&f, "m/..v2/config", 4000000000);
    assert_int_equal(changed(&f), 0);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink("..v2", path), 0);
    assert_int_equal(changed(&f), 1 | 2 | 4);
    tear_down(&f);
}

/* A file that cannot be examined counts as changed, and must not make the server hang. */
static void a_folder_that_cannot_be_read_counts_as_changed(void **state)
{
    (void)state;
    struct fixture f;
    char path[512];
    set_up(&f);
    path_of(&f, "m/1/again", path);
    assert_int_equal(symlink("..", path), 0);
    struct fingerprint round = now(&f), none = fingerprint_take(f.storage, "nobody");
    assert_false(round.known);
    assert_false(none.known);
    assert_false(fingerprint_same(&round, &round));
    assert_false(fingerprint_same(&none, &none));
    assert_false(fingerprint_same_version(&none, &f.before, 1));
    fingerprint_done(&round);
    fingerprint_done(&none);
    tear_down(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_change_is_seen_in_its_version),
        cmocka_unit_test(a_replaced_link_changes_what_is_behind_it),
        cmocka_unit_test(a_folder_that_cannot_be_read_counts_as_changed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
