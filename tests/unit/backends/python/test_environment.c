/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Archives are written by hand here, since no tool writes those that lead out of their folder.
 */
#include "common/backend.c"
#include "common/doc.c"
#include "common/libarchive.c"
#include "python/environment.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static char work[] = "/tmp/conch-environment-XXXXXX"; /* of one test program */
static char cache[64];                                /* the cache's folder, in it */

/* ---- Archives -------------------------------------------------------------------------------- */

struct entry {
    const char *name;
    char type; /* of tar: '0' a file, '1' a hard link, '2' a link, '5' a folder, '6' a pipe */
    const char *content; /* of a file; the target of a link */
    unsigned int mode;   /* 0: 0755 */
};

static void write_octal(char *to, size_t size, unsigned long value)
{
    snprintf(to, size, "%0*lo", (int)size - 1, value);
}

static void write_entry(FILE *to, const struct entry *e)
{
    char block[512] = {0};
    size_t len = e->type == '0' ? strlen(e->content) : 0;
    unsigned long sum = 0;

    memcpy(block, e->name, strnlen(e->name, 100));
    write_octal(block + 100, 8, e->mode ? e->mode : 0755);
    write_octal(block + 108, 8, 0);
    write_octal(block + 116, 8, 0);
    write_octal(block + 124, 12, len);
    write_octal(block + 136, 12, 1000000000);
    block[156] = e->type;
    if (e->type == '1' || e->type == '2')
        memcpy(block + 157, e->content, strnlen(e->content, 100));
    memcpy(block + 257, "ustar\00000", 8);
    memset(block + 148, ' ', 8);
    for (size_t i = 0; i < sizeof(block); i++)
        sum += (unsigned char)block[i];
    write_octal(block + 148, 7, sum);
    fwrite(block, 1, sizeof(block), to);
    if (len > 0) {
        char padding[512] = {0};
        fwrite(e->content, 1, len, to);
        fwrite(padding, 1, (512 - len % 512) % 512, to);
    }
}

/* The path of an archive with these entries; valid until the next call. */
static const char *pack(const struct entry *entries, size_t n)
{
    static char path[128];
    char end[1024] = {0};
    FILE *to;

    snprintf(path, sizeof(path), "%s/environment.tar", work);
    to = fopen(path, "w");
    assert_non_null(to);
    for (size_t i = 0; i < n; i++)
        write_entry(to, &entries[i]);
    fwrite(end, 1, sizeof(end), to);
    fclose(to);
    return path;
}

#define E(name, type, content)                                                                     \
    {                                                                                              \
        name, type, content, 0                                                                     \
    }
#define PACK(...)                                                                                  \
    pack((const struct entry[]){__VA_ARGS__},                                                      \
         sizeof((const struct entry[]){__VA_ARGS__}) / sizeof(struct entry))

static const struct entry python3 = {"bin/python3", '0', "#!/bin/sh\n", 0755};

/* ---- Helpers --------------------------------------------------------------------------------- */

static size_t count_files(const char *folder)
{
    DIR *dir = opendir(folder);
    size_t n = 0;

    while (dir && readdir(dir))
        n++;
    if (dir)
        closedir(dir);
    return n > 2 ? n - 2 : 0;
}

static const char *variable(const struct environment *e, const char *name)
{
    size_t len = strlen(name);

    for (const char *const *v = environment_variables(e); *v; v++)
        if (strncmp(*v, name, len) == 0 && ((*v)[len] == '=' || !(*v)[len]))
            return (*v)[len] ? *v + len + 1 : "(unset)";
    return NULL;
}

static struct environment *must_open(const char *model_dir, const char *setting)
{
    struct environment *e = NULL;
    TRITONSERVER_Error *err = environment_open(model_dir, setting, &e);

    if (err)
        fail_msg("%s", TRITONSERVER_ErrorMessage(err));
    return e;
}

/* The setting is refused with this code, and a text that has this part. Nothing stays behind. */
static void assert_refused(const char *setting, TRITONSERVER_Error_Code code, const char *part)
{
    struct environment *e = NULL;
    TRITONSERVER_Error *err = environment_open(work, setting, &e);

    assert_non_null(err);
    assert_null(e);
    if (!strstr(TRITONSERVER_ErrorMessage(err), part))
        fail_msg("'%s' is not in: %s", part, TRITONSERVER_ErrorMessage(err));
    assert_int_equal(TRITONSERVER_ErrorCode(err), code);
    TRITONSERVER_ErrorDelete(err);
    assert_int_equal(count_files(cache), 0);
}

static void assert_starts_with(const char *text, const char *start)
{
    assert_non_null(text);
    if (strncmp(text, start, strlen(start)) != 0)
        fail_msg("'%s' does not begin with '%s'", text, start);
}

/* ---- Interpreters and folders ---------------------------------------------------------------- */

static void without_a_setting_the_first_python3_of_the_path_runs(void **state)
{
    char path[256], program[128], *before = strdup(getenv("PATH"));
    struct environment *e;

    (void)state;
    snprintf(program, sizeof(program), "%s/python3", work);
    fclose(fopen(program, "w"));
    snprintf(path, sizeof(path), "relative:%s:/usr/bin", work);
    setenv("PATH", path, 1);
    e = must_open(work, NULL);
    assert_string_equal(environment_python(e), "/usr/bin/python3"); /* ours may not be executed */
    assert_null(environment_variables(e)[0]);
    environment_close(e);

    chmod(program, 0755);
    e = must_open(work, "");
    assert_string_equal(environment_python(e), program);
    environment_close(e);
    unlink(program);

    setenv("PATH", "relative", 1);
    e = must_open(work, "");
    assert_string_equal(environment_python(e), "/usr/bin/python3");
    environment_close(e);
    setenv("PATH", before, 1);
    free(before);
}

static void make_file(const char *root, const char *name, mode_t mode)
{
    char path[256];
    FILE *file;

    snprintf(path, sizeof(path), "%s/%s", root, name);
    file = fopen(path, "w");
    assert_non_null(file);
    fclose(file);
    chmod(path, mode);
}

static void a_folder_is_used_where_it_is(void **state)
{
    char folder[128], expected[256], *before = getenv("PATH");
    struct environment *e;

    (void)state;
    snprintf(folder, sizeof(folder), "%s/env", work);
    mkdir(folder, 0755);
    snprintf(expected, sizeof(expected), "%s/bin", folder);
    mkdir(expected, 0755);
    make_file(folder, "bin/python", 0755);
    make_file(folder, "bin/activate", 0755);
    e = must_open(work, "$$TRITON_MODEL_DIRECTORY/env");
    snprintf(expected, sizeof(expected), "%s/bin/python", folder);
    assert_string_equal(environment_python(e), expected);
    snprintf(expected, sizeof(expected), "%s/bin:%s", folder, before);
    assert_string_equal(variable(e, "PATH"), expected);
    snprintf(expected, sizeof(expected), "%s/lib", folder);
    assert_starts_with(variable(e, "LD_LIBRARY_PATH"), expected);
    assert_string_equal(variable(e, "VIRTUAL_ENV"), folder);
    assert_null(variable(e, "CONDA_PREFIX"));
    assert_string_equal(variable(e, "PYTHONHOME"), "(unset)");
    environment_close(e);

    snprintf(expected, sizeof(expected), "%s/conda-meta", folder);
    mkdir(expected, 0755);
    make_file(folder, "bin/python3", 0755);
    e = must_open(work, folder);
    snprintf(expected, sizeof(expected), "%s/bin/python3", folder);
    assert_string_equal(environment_python(e), expected);
    assert_string_equal(variable(e, "CONDA_PREFIX"), folder);
    assert_null(variable(e, "VIRTUAL_ENV"));
    environment_close(e);
    snprintf(expected, sizeof(expected), "%s/bin/python", folder);
    assert_int_equal(access(expected, F_OK), 0); /* a folder is the user's: it stays */
}

static void what_is_no_environment_is_refused(void **state)
{
    char path[128];

    (void)state;
    assert_refused("/nowhere/at/all", TRITONSERVER_ERROR_NOT_FOUND,
                   "EXECUTION_ENV_PATH '/nowhere/at/all': No such file");
    assert_refused("/dev/null", TRITONSERVER_ERROR_INVALID_ARG,
                   "'/dev/null' is neither a folder nor an archive");
    snprintf(path, sizeof(path), "%s/text", work);
    make_file(work, "text", 0644);
    assert_refused(path, TRITONSERVER_ERROR_INVALID_ARG, "cannot be unpacked: ");
    FILE *file = fopen(path, "w");
    for (int i = 0; i < 1000; i++)
        fputs("this is no archive\n", file);
    fclose(file);
    assert_refused(path, TRITONSERVER_ERROR_INVALID_ARG,
                   "cannot be unpacked: Unrecognized archive");
    unlink(path);
    assert_refused(pack(NULL, 0), TRITONSERVER_ERROR_INVALID_ARG, "is empty");
}

/* ---- Archives -------------------------------------------------------------------------------- */

static void an_archive_is_unpacked_while_it_is_used(void **state)
{
    const char *path =
        PACK({"bin/", '5', "", 0555}, {"./bin/python3.11", '0', "#!/bin/sh\n", 04755},
             E("bin/python3", '2', "python3.11"), E("bin/python", '1', "bin/python3.11"),
             E("lib/a/b/link", '2', "../../../bin/python"), {"lib/none", '0', "", 0001},
             E("lib/self", '2', "."));
    struct environment *e = must_open(work, path);
    struct stat st;
    char file[PATH_MAX], root[PATH_MAX];

    (void)state;
    snprintf(root, sizeof(root), "%s", variable(e, "VIRTUAL_ENV"));
    assert_starts_with(root, cache);
    snprintf(file, sizeof(file), "%s/bin/python3", root);
    assert_string_equal(environment_python(e), file);
    assert_int_equal(stat(file, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0755); /* nothing runs with another user's rights */
    assert_int_equal(st.st_mtime, 1000000000);
    assert_int_equal(st.st_nlink, 2);
    snprintf(file, sizeof(file), "%s/lib/a/b/link", root);
    assert_int_equal(access(file, X_OK), 0);

    /* Another user of the same content, by another name, has the same folder. */
    char copy[256];
    snprintf(copy, sizeof(copy), "%s/copy.tar", work);
    assert_int_equal(link(path, copy), 0);
    struct environment *other = must_open(work, copy);
    assert_string_equal(variable(other, "VIRTUAL_ENV"), root);
    assert_int_equal(count_files(cache), 2);
    environment_close(e);
    assert_int_equal(access(root, F_OK), 0);
    environment_close(other);
    assert_int_equal(count_files(cache), 0);
    unlink(copy);
}

static void archives_that_lead_out_are_refused(void **state)
{
#define REFUSED(part, ...)                                                                         \
    assert_refused(PACK(python3, __VA_ARGS__), TRITONSERVER_ERROR_INVALID_ARG, part)
    char link[128];

    (void)state;
    REFUSED("entry '/evil' would lie outside of it", E("/evil", '0', "x"));
    REFUSED("entry '../evil' would lie outside of it", E("../evil", '0', "x"));
    REFUSED("entry 'a/../../evil' would lie outside of it", E("a/../../evil", '0', "x"));
    REFUSED("entry 'l' is a link that leads out", E("l", '2', "/etc/passwd"));
    REFUSED("entry 'l' is a link that leads out", E("l", '2', ".."));
    REFUSED("entry 'a/l' is a link that leads out", E("a/l", '2', "../.."));
    REFUSED("entry 'a/l' is a link that leads out", E("a/l", '2', ".././../x"));
    REFUSED("entry 'a/./l' is a link that leads out", E("a/./l", '2', "../../x"));
    REFUSED("entry 'l' is a link that leads out", E("l", '2', "bin/../../x"));
    /* By way of another link, which is a good one by itself. */
    REFUSED("entry 'e' is a link that leads out", E("a/b/up", '2', ".."),
            E("e", '2', "a/b/up/../.."));
    REFUSED("entry 'h' is a link that leads out", E("h", '1', "/etc/passwd"));
    REFUSED("entry 'h' is a link that leads out", E("h", '1', "../x"));
    REFUSED("entry 'pipe' is neither a file, a folder nor a link", E("pipe", '6', ""));
    REFUSED("entry 'device' is neither a file, a folder nor a link", E("device", '3', ""));
    /* Nothing is written through a link, even through one that stays inside. */
    REFUSED("at entry b/x: Cannot extract through symlink", E("a", '5', ""), E("b", '2', "a"),
            E("b/x", '0', "y"));
    snprintf(link, sizeof(link), "%s/evil", work);
    assert_int_equal(access(link, F_OK), -1);
#undef REFUSED
}

static void a_torn_archive_is_refused(void **state)
{
    static char big[8192];
    const char *path;

    (void)state;
    memset(big, 'x', sizeof(big) - 1);
    path = PACK(python3, E("big", '0', big));
    assert_int_equal(truncate(path, 4096), 0);
    assert_refused(path, TRITONSERVER_ERROR_INVALID_ARG, "cannot be unpacked, at entry big: ");
}

static TRITONSERVER_Error *unpack_within(const char *path, int64_t max_entries, int64_t max_bytes)
{
    char folder[128];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct unpacking u = {
        .file = "it", .folder = folder, .max_entries = max_entries, .max_bytes = max_bytes};
    TRITONSERVER_Error *err = need_libarchive(path, &u.lib);

    assert_null(err);
    snprintf(folder, sizeof(folder), "%s/limited", work);
    mkdir(folder, 0700);
    err = unpack_archive(&u, fd);
    close(fd);
    remove_folder(folder);
    return err;
}

static void an_archive_is_bounded(void **state)
{
    const char *path = PACK(E("a", '0', "123"), E("b", '0', "4567"), E("c", '5', ""));
    TRITONSERVER_Error *err;

    (void)state;
    assert_null(unpack_within(path, 3, 7));
    err = unpack_within(path, 2, 7);
    assert_string_equal(TRITONSERVER_ErrorMessage(err), "environment 'it' has more than 2 entries");
    TRITONSERVER_ErrorDelete(err);
    err = unpack_within(path, 3, 6);
    assert_string_equal(TRITONSERVER_ErrorMessage(err), "environment 'it' has more than 6 bytes");
    TRITONSERVER_ErrorDelete(err);
}

/* ---- The cache ------------------------------------------------------------------------------- */

static void what_a_killed_server_left_is_removed(void **state)
{
    char path[256];
    struct environment *e;

    (void)state;
    assert_true(mkdir(cache, 0700) == 0 || errno == EEXIST);
    make_file(cache, "0123.lock", 0600);
    snprintf(path, sizeof(path), "%s/0123.part", cache);
    mkdir(path, 0700);
    make_file(path, "half", 0400);
    make_file(cache, "unrelated", 0600);
    e = must_open(work, PACK(python3));
    assert_int_equal(access(path, F_OK), -1);
    environment_close(e);
    assert_int_equal(count_files(cache), 1); /* what is not of the cache stays */
    snprintf(path, sizeof(path), "%s/unrelated", cache);
    unlink(path);
}

static void *open_and_close(void *path)
{
    for (int i = 0; i < 25; i++) {
        struct environment *e = must_open(work, path);
        if (access(environment_python(e), X_OK) != 0)
            fail_msg("the interpreter is not there");
        environment_close(e);
    }
    return NULL;
}

static void threads_share_what_one_of_them_unpacks(void **state)
{
    char path[128];
    pthread_t threads[8];

    (void)state;
    snprintf(path, sizeof(path), "%s", PACK(E("lib/a", '0', "1"), E("lib/b", '0', "2"), python3));
    for (size_t i = 0; i < 8; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, open_and_close, path), 0);
    for (size_t i = 0; i < 8; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(count_files(cache), 0);
}

static void anothers_folder_is_no_cache(void **state)
{
    char path[256], tmp[128];

    (void)state;
    snprintf(tmp, sizeof(tmp), "%s/tmp", work);
    mkdir(tmp, 0700);
    setenv("TMPDIR", tmp, 1);
    unsetenv("CONCH_PYTHON_CACHE");
    snprintf(path, sizeof(path), "%s/conch-python-%u", tmp, (unsigned int)geteuid());
    assert_int_equal(symlink(work, path), 0);
    assert_refused(PACK(python3), TRITONSERVER_ERROR_INTERNAL, "another user's folder");
    unlink(path);
    mkdir(path, 0700);
    chmod(path, 0777);
    assert_refused(PACK(python3), TRITONSERVER_ERROR_INTERNAL, "another user's folder");
    chmod(path, 0700);
    struct environment *e = must_open(work, PACK(python3));
    assert_starts_with(environment_python(e), path);
    environment_close(e);
    setenv("CONCH_PYTHON_CACHE", cache, 1);
    unsetenv("TMPDIR");
}

static int make_work(void **state)
{
    (void)state;
    if (!mkdtemp(work))
        return -1;
    snprintf(cache, sizeof(cache), "%s/cache", work);
    setenv("CONCH_PYTHON_CACHE", cache, 1);
    return 0;
}

static int remove_work(void **state)
{
    (void)state;
    remove_folder(work);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_setting_the_first_python3_of_the_path_runs),
        cmocka_unit_test(a_folder_is_used_where_it_is),
        cmocka_unit_test(what_is_no_environment_is_refused),
        cmocka_unit_test(an_archive_is_unpacked_while_it_is_used),
        cmocka_unit_test(archives_that_lead_out_are_refused),
        cmocka_unit_test(a_torn_archive_is_refused),
        cmocka_unit_test(an_archive_is_bounded),
        cmocka_unit_test(what_a_killed_server_left_is_removed),
        cmocka_unit_test(threads_share_what_one_of_them_unpacks),
        cmocka_unit_test(anothers_folder_is_no_cache),
    };

    return cmocka_run_group_tests(tests, make_work, remove_work);
}
