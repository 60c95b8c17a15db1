/* SPDX-License-Identifier: Apache-2.0 */
#include "base/file.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/status.h"

static char folder[] = "/tmp/test-file-XXXXXX";
static char path[128];

static const char *in_folder(const char *name)
{
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

static void make(const char *name, const void *bytes, size_t size)
{
    FILE *f = fopen(in_folder(name), "w");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, size, f), size);
    assert_int_equal(fclose(f), 0);
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    char command[64];
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    return system(command);
}

static void assert_says(struct status *st, enum status_code code, const char *words)
{
    assert_non_null(st);
    if (!strstr(status_message(st), words))
        fail_msg("'%s' is not in: %s", words, status_message(st));
    assert_int_equal(status_code(st), code);
    status_free(st);
}

static void a_file_is_read_whole(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 63, 64, 65, 100000};
    char *bytes = mem_zalloc(100000); /* zero bytes are content, too */
    for (size_t i = 0; i < 100000; i += 3)
        bytes[i] = (char)i;
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        make("f", bytes, sizes[i]);
        for (size_t more = 0; more < 2; more++) { /* exactly the maximum is allowed */
            AUTO(buf) b = BUF_INIT(sizes[i] + more);
            assert_null(file_read(in_folder("f"), &b));
            assert_int_equal(b.size, sizes[i]);
            assert_memory_equal(buf_text(&b), bytes, sizes[i]);
            assert_int_equal(buf_text(&b)[sizes[i]], '\0');
        }
    }
    mem_free(bytes);

    AUTO(buf) b = BUF_INIT(100);
    buf_adds(&b, "before ");
    make("f", "after", 5);
    assert_null(file_read(in_folder("f"), &b));
    assert_string_equal(buf_text(&b), "before after");
}

static void a_file_without_a_known_size_is_read(void **state)
{
    (void)state;
    AUTO(buf) b = BUF_INIT(1 << 20);
    assert_null(file_read("/proc/self/status", &b));
    assert_non_null(strstr(buf_text(&b), "VmRSS"));
    AUTO(buf) small = BUF_INIT(100);
    assert_says(file_read("/proc/self/status", &small), STATUS_INVALID_ARG,
                "'/proc/self/status': text exceeds the maximum of 100 bytes");
}

static void the_error_names_the_file_that_cannot_be_read(void **state)
{
    (void)state;
    AUTO(buf) b = BUF_INIT(4);
    make("f", "12345", 5);
    assert_says(file_read(in_folder("f"), &b), STATUS_INVALID_ARG,
                "/f' has 5 bytes, the maximum is 4");
    assert_says(file_read(in_folder("none"), &b), STATUS_NOT_FOUND, "/none': No such file");
    assert_says(file_read(folder, &b), STATUS_INVALID_ARG, "is a folder, not a regular file");
    assert_int_equal(mkfifo(in_folder("pipe"), 0600), 0);
    assert_says(file_read(in_folder("pipe"), &b), STATUS_INVALID_ARG, "is something special");
    assert_says(file_read("/dev/zero", &b), STATUS_INVALID_ARG, "is something special");
}

static bool refuse(size_t size_bytes)
{
    (void)size_bytes;
    return false;
}

static void lack_of_memory_is_an_error(void **state)
{
    (void)state;
    make("f", "12345", 5);
    AUTO(buf) b = BUF_INIT(100);
    struct file_list names;
    mem_set_test_hook(refuse);
    struct status *read = file_read(in_folder("f"), &b);
    struct status *listed = file_list(folder, &names);
    mem_set_test_hook(NULL);
    assert_says(read, STATUS_UNAVAILABLE, "out of memory");
    assert_says(listed, STATUS_UNAVAILABLE, "out of memory");
}

static void a_folder_is_listed_in_order(void **state)
{
    (void)state;
    assert_int_equal(mkdir(in_folder("d"), 0700), 0);
    char inner[160];
    snprintf(inner, sizeof(inner), "%s/d", folder);
    struct file_list names;
    assert_null(file_list(inner, &names));
    assert_int_equal(names.count, 0);
    file_list_done(&names);

    for (int i = 39; i >= 0; i--) {
        char name[16];
        snprintf(name, sizeof(name), "d/n%02d", i);
        make(name, "", 0);
    }
    make("d/.hidden", "", 0);
    make("d/N", "", 0);
    assert_int_equal(mkdir(in_folder("d/o"), 0700), 0);
    assert_int_equal(symlink("o", in_folder("d/p")), 0);
    assert_int_equal(mkfifo(in_folder("d/q"), 0600), 0);
    assert_null(file_list(inner, &names));
    assert_int_equal(names.count, 45);
    assert_string_equal(names.entries[0].name, ".hidden");
    assert_string_equal(names.entries[1].name, "N");
    assert_string_equal(names.entries[2].name, "n00");
    assert_string_equal(names.entries[41].name, "n39");
    assert_int_equal(names.entries[41].kind, FILE_REGULAR);
    assert_int_equal(names.entries[42].kind, FILE_FOLDER);
    assert_int_equal(names.entries[43].kind, FILE_LINK);
    assert_int_equal(names.entries[44].kind, FILE_OTHER);
    file_list_done(&names);
    assert_int_equal(names.count, 0);

    assert_says(file_list(in_folder("none"), &names), STATUS_NOT_FOUND,
                "/none': No such file or directory");
    make("f", "", 0);
    assert_says(file_list(in_folder("f"), &names), STATUS_NOT_FOUND, "Not a directory");
}

static void each_kind_of_file_is_recognised(void **state)
{
    (void)state;
    struct file_info info;
    struct timespec now;
    make("f", "12345", 5);
    assert_null(file_stat(in_folder("f"), &info));
    assert_int_equal(info.kind, FILE_REGULAR);
    assert_int_equal(info.size_bytes, 5);
    clock_gettime(CLOCK_REALTIME, &now); /* which is not quite the clock of file times */
    assert_in_range(info.modified_ns / 1000000000 - now.tv_sec + 60, 0, 61);
    assert_null(file_stat(folder, &info));
    assert_int_equal(info.kind, FILE_FOLDER);
    assert_null(file_stat("/dev/null", &info));
    assert_int_equal(info.kind, FILE_OTHER);
    assert_null(file_stat(in_folder("none"), &info));
    assert_int_equal(info.kind, FILE_MISSING);
    assert_null(file_stat(in_folder("f/below"), &info));
    assert_int_equal(info.kind, FILE_MISSING);

    assert_int_equal(symlink(folder, in_folder("link")), 0);
    assert_null(file_stat(in_folder("link"), &info));
    assert_int_equal(info.kind, FILE_FOLDER);
    assert_int_equal(symlink("loop", in_folder("loop")), 0);
    assert_says(file_stat(in_folder("loop"), &info), STATUS_INTERNAL, "/loop': Too many levels");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_is_read_whole),
        cmocka_unit_test(a_file_without_a_known_size_is_read),
        cmocka_unit_test(the_error_names_the_file_that_cannot_be_read),
        cmocka_unit_test(lack_of_memory_is_an_error),
        cmocka_unit_test(a_folder_is_listed_in_order),
        cmocka_unit_test(each_kind_of_file_is_recognised),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
