/* SPDX-License-Identifier: Apache-2.0 */
/* libarchive is found and called; a missing file, and one that is another library, are named. */
#include "common/libarchive.c"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

/* They refuse a file that is none, and say why. */
static void its_functions_are_called(void **state)
{
    static const char head[] = "!<arch>\n"; /* of a format that nothing here asks for */
    const struct libarchive *lib = libarchive_load(&(const char *){NULL});
    struct archive_entry *entry;
    struct archive *a;
    int fd = memfd_create("archive", MFD_CLOEXEC);

    (void)state;
    assert_non_null(lib);
    assert_ptr_equal(lib, libarchive_load(&(const char *){NULL}));
    assert_int_equal(write(fd, head, sizeof(head) - 1), sizeof(head) - 1);
    assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
    a = lib->read_new();
    assert_non_null(a);
    assert_int_equal(lib->read_support_format_zip(a), ARCHIVE_OK);
    assert_int_not_equal(lib->read_open_fd(a, fd, 4096) | lib->read_next_header(a, &entry),
                         ARCHIVE_OK);
    assert_non_null(strstr(lib->error_string(a), "Unrecognized archive format"));
    assert_int_equal(lib->read_free(a), ARCHIVE_OK);
    close(fd);
}

static void what_is_missing_is_named(void **state)
{
    struct libarchive lib = {0};
    char why[256] = "";

    (void)state;
    resolve_libarchive("libarchive.so.none", &lib, why, sizeof(why));
    assert_non_null(strstr(why, "libarchive.so.none: cannot open shared object file"));
    why[0] = '\0';
    resolve_libarchive("libm.so.6", &lib, why, sizeof(why));
    assert_string_equal(why, "'libm.so.6' has no archive_entry_set_hardlink()");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(its_functions_are_called),
        cmocka_unit_test(what_is_missing_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
