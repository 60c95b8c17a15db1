/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sockets of this machine: names, files, and what is in their way.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/status.h"
#include "frontends/net/listener.h"
#include "frontends/net/unix_socket.h"

static char folder[64], address[128];

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof(folder), "/tmp/test_unix_socket.XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(address, sizeof(address), "unix:%s/s", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    unlink(address + 5);
    return rmdir(folder);
}

/* Connects as a client does, and closes the connection. */
static bool answers(const char *path, size_t length)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    memcpy(to.sun_path, path, length);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    bool yes = connect(fd, (struct sockaddr *)&to,
                       (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length)) == 0;
    close(fd);
    return yes;
}

static bool file_answers(void)
{
    return answers(address + 5, strlen(address + 5) + 1);
}

static void assert_refused(const char *where, int code, const char *text)
{
    struct listener l;
    struct status *st = listener_open(&l, where, 5, false);
    assert_non_null(st);
    assert_int_equal(status_code(st), code);
    if (!strstr(status_message(st), text))
        fail_msg("%s", status_message(st));
    status_free(st);
    listener_close(&l);
}

static void a_file_is_served_and_removed(void **state)
{
    (void)state;
    struct listener l;
    assert_null(listener_open(&l, address, 8001, false));
    assert_int_equal(l.port, 0);
    assert_string_equal(l.place, address);
    assert_true(file_answers());
    listener_shut(&l);
    assert_false(file_answers());
    assert_int_not_equal(access(address + 5, F_OK), 0);
    listener_close(&l);
}

static void a_name_needs_no_file(void **state)
{
    (void)state;
    struct listener l;
    char name[64], where[80];
    int length = snprintf(name, sizeof(name), "@test_unix_socket-%d", getpid());
    snprintf(where, sizeof(where), "unix:%s", name);
    name[0] = '\0';
    assert_null(listener_open(&l, where, 0, false));
    assert_true(answers(name, (size_t)length));
    char text[128];
    snprintf(text, sizeof(text), "Socket '%s' already in use ", where);
    assert_refused(where, STATUS_UNAVAILABLE, text);
    listener_close(&l);
    assert_false(answers(name, (size_t)length));
}

/* The umask decides who may connect, from the first moment on. */
static void a_file_has_the_permissions_of_the_umask(void **state)
{
    (void)state;
    struct listener l;
    struct stat info;
    mode_t before = umask(0117);
    assert_null(listener_open(&l, address, 0, false));
    umask(before);
    assert_int_equal(stat(address + 5, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0660);
    listener_close(&l);
}

static void a_file_in_use_is_left_alone(void **state)
{
    (void)state;
    struct listener l;
    assert_null(listener_open(&l, address, 0, false));
    assert_refused(address, STATUS_UNAVAILABLE, "already in use ");
    assert_true(file_answers());
    listener_close(&l);
}

static void a_stale_file_is_replaced(void **state)
{
    (void)state;
    struct listener l;
    assert_null(listener_open(&l, address, 0, false));
    close(l.fds[0]); /* as when the process crashes */
    assert_int_equal(access(address + 5, F_OK), 0);
    assert_null(listener_open(&l, address, 0, false));
    assert_true(file_answers());
    listener_close(&l);
    assert_int_not_equal(access(address + 5, F_OK), 0);
}

static void a_file_of_another_server_is_not_removed(void **state)
{
    (void)state;
    struct listener l, other;
    assert_null(listener_open(&l, address, 0, false));
    unlink(address + 5);
    assert_null(listener_open(&other, address, 0, false));
    listener_close(&l);
    assert_true(file_answers());
    listener_close(&other);
}

static void a_file_that_is_no_socket_is_left_alone(void **state)
{
    (void)state;
    FILE *f = fopen(address + 5, "w");
    assert_non_null(f);
    fclose(f);
    assert_refused(address, STATUS_INVALID_ARG, "the file exists and is not a socket");
    assert_int_equal(access(address + 5, F_OK), 0);
}

static void impossible_addresses_are_refused(void **state)
{
    (void)state;
    char longest[200] = "unix:", where[256];
    snprintf(where, sizeof(where), "%s/none", address);
    assert_refused(where, STATUS_NOT_FOUND, "No such file or directory");
    assert_refused("unix:", STATUS_INVALID_ARG, "it has no path");
    assert_refused("unix:@", STATUS_INVALID_ARG, "it has no name");
    memset(longest + 5, 'x', 108);
    assert_refused(longest, STATUS_INVALID_ARG, "it is longer than 112 characters");
    struct listener l;
    struct status *st = listener_open(&l, address, 0, true);
    assert_int_equal(status_code(st), STATUS_INVALID_ARG);
    status_free(st);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_file_is_served_and_removed, make_folder, remove_folder),
        cmocka_unit_test(a_name_needs_no_file),
        cmocka_unit_test_setup_teardown(a_file_has_the_permissions_of_the_umask, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(a_file_in_use_is_left_alone, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(a_stale_file_is_replaced, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(a_file_of_another_server_is_not_removed, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(a_file_that_is_no_socket_is_left_alone, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(impossible_addresses_are_refused, make_folder,
                                        remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
