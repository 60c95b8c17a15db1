/* SPDX-License-Identifier: Apache-2.0 */
/* The sockets for a name with several addresses. The test itself resolves the names. */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/status.h"
#include "frontends/net/listener.h"

/* ---- Names and ports as the tests need them -------------------------------------------------- */

/* The addresses of a name: IPv4, separated by blanks. */
static const struct {
    const char *name, *addresses;
} names[] = {
    {"one", "127.0.0.1"},
    {"two", "127.0.0.1 127.0.0.2"},
    {"twice", "127.0.0.1 127.0.0.1 127.0.0.2 127.0.0.1 127.0.0.2"},
    {"partly", "192.0.2.1 127.0.0.1"}, /* addresses of this machine begin with 127 */
    {"elsewhere", "192.0.2.1 192.0.2.2"},
    {"many", "127.0.0.1 127.0.0.2 127.0.0.3 127.0.0.4 127.0.0.5 127.0.0.6 127.0.0.7 127.0.0.8 "
             "127.0.0.9"},
};

static int asked_family,
    in_use_at; /* the bind, counted from 1, that finds its port in use; 0: none */

int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints,
                struct addrinfo **ret)
{
    struct addrinfo **end = ret;
    asked_family = hints->ai_family;
    *ret = NULL;
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        char text[128], *rest = text, *word;
        snprintf(text, sizeof(text), "%s", names[i].addresses);
        while (strcmp(name, names[i].name) == 0 && (word = strsep(&rest, " ")) != NULL) {
            struct addrinfo *ai = calloc(1, sizeof(*ai));
            struct sockaddr_in *in = calloc(1, sizeof(*in));
            in->sin_family = AF_INET;
            in->sin_port = htons((uint16_t)strtol(service, NULL, 10));
            assert_int_equal(inet_pton(AF_INET, word, &in->sin_addr), 1);
            *ai = (struct addrinfo){.ai_family = AF_INET,
                                    .ai_socktype = SOCK_STREAM,
                                    .ai_addr = (struct sockaddr *)in,
                                    .ai_addrlen = sizeof(*in)};
            *end = ai;
            end = &ai->ai_next;
        }
    }
    return *ret ? 0 : EAI_NONAME;
}

void freeaddrinfo(struct addrinfo *ai)
{
    while (ai) {
        struct addrinfo *next = ai->ai_next;
        free(ai->ai_addr);
        free(ai);
        ai = next;
    }
}

int bind(int fd, const struct sockaddr *address, socklen_t length)
{
    if (in_use_at && --in_use_at == 0) {
        errno = EADDRINUSE;
        return -1;
    }
    const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)address;
    if ((ntohl(in->sin_addr.s_addr) >> 24) != 127) {
        errno = EADDRNOTAVAIL;
        return -1;
    }
    return (int)syscall(SYS_bind, fd, address, length);
}

/* A socket whose own port is the one that it connects to, with no listener, connects to itself. */
static bool is_itself(int fd, const struct sockaddr_in *to)
{
    struct sockaddr_in own = {.sin_family = AF_UNSPEC};
    socklen_t length = sizeof(own);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&own, &length), 0);
    return own.sin_port == to->sin_port && own.sin_addr.s_addr == to->sin_addr.s_addr;
}

static bool answers(const char *address, int port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    assert_int_equal(inet_pton(AF_INET, address, &to.sin_addr), 1);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    bool yes = connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0 && !is_itself(fd, &to);
    close(fd);
    return yes;
}

static void assert_refused(struct status *st, int code, const char *text)
{
    assert_non_null(st);
    assert_int_equal(status_code(st), code);
    assert_string_equal(status_message(st), text);
    status_free(st);
}

/* ---- Tests ----------------------------------------------------------------------------------- */

static void all_addresses_of_a_name_have_the_same_port(void **state)
{
    (void)state;
    static const char *const both[] = {"two", "twice"};
    for (int i = 0; i < 2; i++) {
        struct listener l;
        assert_null(listener_open(&l, both[i], 0, false));
        assert_int_equal(l.n_sockets, 2);
        assert_true(l.port > 0);
        assert_true(answers("127.0.0.1", l.port));
        assert_true(answers("127.0.0.2", l.port));
        assert_false(answers("127.0.0.3", l.port));
        int port = l.port;
        listener_close(&l);
        assert_false(answers("127.0.0.1", port));
        assert_false(answers("127.0.0.2", port));
        listener_close(&l); /* a second call has no effect */
    }
}

static void addresses_of_other_machines_are_skipped(void **state)
{
    (void)state;
    struct listener l;
    assert_null(listener_open(&l, "partly", 0, false));
    assert_int_equal(l.n_sockets, 1);
    assert_true(answers("127.0.0.1", l.port));
    listener_close(&l);
    assert_refused(listener_open(&l, "elsewhere", 5, false), STATUS_INTERNAL,
                   "failed to listen on 'elsewhere:5': Cannot assign requested address");
    listener_close(&l);
}

/* Port 0: another port is chosen, until one is free on all addresses. */
static void a_free_port_is_free_on_all_addresses(void **state)
{
    (void)state;
    struct listener l;
    in_use_at = 2;
    assert_null(listener_open(&l, "two", 0, false));
    assert_int_equal(in_use_at, 0);
    assert_int_equal(l.n_sockets, 2);
    assert_true(answers("127.0.0.1", l.port) && answers("127.0.0.2", l.port));
    listener_close(&l);
}

static void a_port_that_is_in_use_on_one_address_is_in_use(void **state)
{
    (void)state;
    struct listener taken, l;
    char text[64];
    assert_null(listener_open(&taken, "one", 0, false));
    listener_close(&taken);
    in_use_at = 2;
    snprintf(text, sizeof(text), "Socket 'two:%d' already in use ", taken.port);
    assert_refused(listener_open(&l, "two", taken.port, false), STATUS_UNAVAILABLE, text);
    assert_false(answers("127.0.0.1", taken.port)); /* its open sockets are closed */
}

static void too_many_addresses_are_refused(void **state)
{
    (void)state;
    struct listener l;
    assert_refused(listener_open(&l, "many", 5, false), STATUS_INVALID_ARG,
                   "cannot listen on 'many:5': it has 9 addresses, 8 at most");
    listener_close(&l);
}

static void a_family_before_the_address_is_understood(void **state)
{
    (void)state;
    static const struct {
        const char *address;
        int family;
    } cases[] = {{"one", AF_UNSPEC}, {"ipv4:one", AF_INET}, {"ipv6:one", AF_INET6}};
    for (int i = 0; i < 3; i++) {
        struct listener l;
        assert_null(listener_open(&l, cases[i].address, 0, false));
        assert_int_equal(asked_family, cases[i].family);
        listener_close(&l);
    }
}

/* So the kernel finds clients that are gone while nothing is sent to them. */
static void accepted_connections_are_kept_alive(void **state)
{
    (void)state;
    struct listener l;
    assert_null(listener_open(&l, "one", 0, false));
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)l.port)};
    assert_int_equal(inet_pton(AF_INET, "127.0.0.1", &to.sin_addr), 1);
    int client = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(client, (struct sockaddr *)&to, sizeof(to)), 0);
    int fd = accept(l.fds[0], NULL, NULL), kept = 0, idle_s = 0;
    socklen_t length = sizeof(int);
    assert_true(fd >= 0);
    assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &kept, &length), 0);
    assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, &length), 0);
    assert_int_equal(kept, 1);
    assert_int_equal(idle_s, 60);
    close(fd);
    close(client);
    listener_close(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_addresses_of_a_name_have_the_same_port),
        cmocka_unit_test(addresses_of_other_machines_are_skipped),
        cmocka_unit_test(a_free_port_is_free_on_all_addresses),
        cmocka_unit_test(a_port_that_is_in_use_on_one_address_is_in_use),
        cmocka_unit_test(too_many_addresses_are_refused),
        cmocka_unit_test(a_family_before_the_address_is_understood),
        cmocka_unit_test(accepted_connections_are_kept_alive),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
