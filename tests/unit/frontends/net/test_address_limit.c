/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections by address: what counts as one address, and when it has too many.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cmocka.h>

#include "base/thread.h"
#include "frontends/net/address_limit.h"

static struct sockaddr_storage address_of(const char *text)
{
    struct sockaddr_storage made = {0};
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(4711)};
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_port = htons(4711)};
    if (inet_pton(AF_INET, text, &in.sin_addr) == 1) {
        memcpy(&made, &in, sizeof(in));
    } else {
        assert_int_equal(inet_pton(AF_INET6, text, &in6.sin6_addr), 1);
        memcpy(&made, &in6, sizeof(in6));
    }
    return made;
}

static bool take(struct address_limit *l, const char *text, struct address_count **ret)
{
    struct sockaddr_storage from = address_of(text);
    return address_limit_take(l, (const struct sockaddr *)&from, ret);
}

static void an_address_has_so_many_connections_and_others_have_theirs(void **state)
{
    (void)state;
    struct address_count *a[2], *b, *c;
    struct address_limit *l = address_limit_new(2);
    assert_true(take(l, "10.0.0.1", &a[0]));
    assert_true(take(l, "10.0.0.1", &a[1]));
    assert_false(take(l, "10.0.0.1", &c));
    assert_true(take(l, "10.0.0.2", &b));
    address_limit_give(l, a[0]);
    assert_true(take(l, "10.0.0.1", &a[0]));
    assert_false(take(l, "10.0.0.1", &c));
    address_limit_give(l, a[0]);
    address_limit_give(l, a[1]);
    assert_true(take(l, "10.0.0.1", &a[0])); /* the address was forgotten, and comes again */
    address_limit_give(l, a[0]);
    address_limit_give(l, b);
    address_limit_free(l);
}

static void a_network_of_64_bits_is_one_address(void **state)
{
    (void)state;
    struct address_count *a, *b, *c;
    struct address_limit *l = address_limit_new(1);
    assert_true(take(l, "2001:db8:0:1::1", &a));
    assert_false(take(l, "2001:db8:0:1:ffff::2", &b));
    assert_true(take(l, "2001:db8:0:2::1", &b));
    assert_true(take(l, "::ffff:10.0.0.1", &c)); /* is the IPv4 address */
    struct address_count *d;
    assert_false(take(l, "10.0.0.1", &d));
    assert_true(take(l, "::ffff:10.0.0.2", &d));
    address_limit_give(l, a);
    address_limit_give(l, b);
    address_limit_give(l, c);
    address_limit_give(l, d);
    address_limit_free(l);
}

static void a_client_without_an_address_is_not_limited(void **state)
{
    (void)state;
    struct address_limit *l = address_limit_new(1);
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    for (int i = 0; i < 3; i++) {
        struct address_count *count = (struct address_count *)&un;
        assert_true(address_limit_take(l, (const struct sockaddr *)&un, &count));
        assert_null(count);
        address_limit_give(l, count);
    }
    address_limit_free(l);
}

static void an_address_is_printed_as_it_counts(void **state)
{
    (void)state;
    static const struct {
        const char *address, *printed;
    } cases[] = {
        {"10.1.2.3", "10.1.2.3"},
        {"::ffff:10.1.2.3", "10.1.2.3"},
        {"2001:db8:0:1:2:3:4:5", "2001:db8:0:1::/64"},
    };
    char text[ADDRESS_TEXT_BYTES];
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct sockaddr_storage from = address_of(cases[i].address);
        address_limit_print((const struct sockaddr *)&from, text);
        assert_string_equal(text, cases[i].printed);
    }
}

static void come_and_go(void *arg)
{
    static const char *const addresses[] = {"10.0.0.1", "10.0.0.2", "::1"};
    for (int i = 0; i < 3000; i++) {
        struct address_count *count;
        if (take(arg, addresses[i % 3], &count))
            address_limit_give(arg, count);
    }
}

static void several_loops_count_together(void **state)
{
    (void)state;
    struct thread threads[4];
    struct address_limit *l = address_limit_new(2);
    for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
        assert_null(thread_start(&threads[i], "loop", come_and_go, l));
    for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
        thread_join(&threads[i]);
    address_limit_free(l); /* aborts when a connection is still counted */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_address_has_so_many_connections_and_others_have_theirs),
        cmocka_unit_test(a_network_of_64_bits_is_one_address),
        cmocka_unit_test(a_client_without_an_address_is_not_limited),
        cmocka_unit_test(an_address_is_printed_as_it_counts),
        cmocka_unit_test(several_loops_count_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
