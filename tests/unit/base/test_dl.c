/* SPDX-License-Identifier: Apache-2.0 */
#include "base/dl.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/status.h"

/* Every process has loaded a C library; its path differs. */
static const char *c_library(void)
{
    Dl_info info;
    assert_int_not_equal(dladdr(dlsym(RTLD_DEFAULT, "strtoull"), &info), 0);
    assert_non_null(strchr(info.dli_fname, '/'));
    return info.dli_fname;
}

static void finds_symbols(void **state)
{
    (void)state;
    struct dl *dl = NULL;
    void *address = NULL;
    assert_null(dl_open(c_library(), &dl));
    assert_null(dl_symbol(dl, "qsort", &address));
    assert_non_null(address);
    assert_ptr_equal(dl_optional_symbol(dl, "qsort"), address);
    assert_null(dl_optional_symbol(dl, "no_such_symbol"));
    dl_close(dl);
    dl_close(NULL);
}

static void says_which_entrypoint_is_missing(void **state)
{
    (void)state;
    struct dl *dl = NULL;
    void *address = &dl;
    assert_null(dl_open(c_library(), &dl));
    (void)dl_optional_symbol(dl, "another_one"); /* the earlier error does not appear again */
    struct status *st = dl_symbol(dl, "TRITONBACKEND_Nothing", &address);
    assert_non_null(st);
    assert_int_equal(status_code(st), STATUS_NOT_FOUND);
    const char *start = "unable to find required entrypoint 'TRITONBACKEND_Nothing' in shared "
                        "library: ";
    assert_memory_equal(status_message(st), start, strlen(start));
    assert_non_null(strstr(status_message(st), "undefined symbol: TRITONBACKEND_Nothing"));
    assert_ptr_equal(address, &dl); /* untouched */
    status_free(st);
    dl_close(dl);
}

static void assert_not_loaded(const char *path, const char *words)
{
    struct dl *dl = (struct dl *)&path;
    struct status *st = dl_open(path, &dl);
    assert_non_null(st);
    assert_int_equal(status_code(st), STATUS_NOT_FOUND);
    const char *start = "unable to load shared library: ";
    assert_memory_equal(status_message(st), start, strlen(start));
    if (!strstr(status_message(st), words))
        fail_msg("'%s' is not in: %s", words, status_message(st));
    assert_ptr_equal(dl, &path);
    status_free(st);
}

static void says_why_a_library_is_not_loaded(void **state)
{
    (void)state;
    assert_not_loaded("/nonexistent/libx.so",
                      "/nonexistent/libx.so: cannot open shared object file");
    assert_not_loaded(CONCH_SOURCE_DIR "/LICENSE", "invalid ELF header");
    /* The linker would find a library of this name, but not the file that the user named. */
    assert_not_loaded("libc.so.6", "./libc.so.6: cannot open");
}

static void a_name_alone_means_this_folder(void **state)
{
    (void)state;
    char folder[] = "/tmp/test-dl-XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/libcopy.so", folder);
    Dl_info info;
    assert_int_not_equal(dladdr(dlsym(RTLD_DEFAULT, "cmocka_set_message_output"), &info), 0);

    AUTO(buf) bytes = BUF_INIT(64 << 20);
    assert_null(file_read(info.dli_fname, &bytes));
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes.data, 1, bytes.size, f), bytes.size);
    fclose(f);

    char before[4096];
    assert_non_null(getcwd(before, sizeof(before)));
    assert_int_equal(chdir(folder), 0);
    struct dl *dl = NULL;
    struct status *st = dl_open("libcopy.so", &dl);
    assert_int_equal(chdir(before), 0);
    unlink(path);
    rmdir(folder);
    assert_null(st);
    assert_non_null(dl_optional_symbol(dl, "cmocka_set_message_output"));
    dl_close(dl);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_symbols),
        cmocka_unit_test(says_which_entrypoint_is_missing),
        cmocka_unit_test(says_why_a_library_is_not_loaded),
        cmocka_unit_test(a_name_alone_means_this_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
