/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection's requests with each allocation failing. Every request is answered correctly,
 * refused with 503, or ends with the connection; and all memory is freed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/status.h"
#include "lib/fault.h"
#include "lib/http1_driver.h"

enum { BODY_BYTES = 20000, N_REQUESTS = 5 };

struct way {
    size_t portion; /* bytes per read */
    bool later;     /* replies are given after all requests have arrived, the newest first */
};

static char input[4 * BODY_BYTES];
static size_t input_size;

static void add(const char *text)
{
    size_t length = strlen(text);
    memcpy(input + input_size, text, length);
    input_size += length;
}

static void add_letters(size_t n)
{
    memset(input + input_size, 'x', n);
    input_size += n;
}

static int make_input(void **state)
{
    (void)state;
    add("GET /first HTTP/1.1\r\nHost: x\r\n\r\n");
    add("POST /second HTTP/1.1\r\nHost: x\r\nContent-Length: 20000\r\n\r\n");
    add_letters(BODY_BYTES);
    add("POST /third HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
    for (int i = 0; i < 20; i++) {
        add("3e8\r\n");
        add_letters(1000);
        add("\r\n");
    }
    add("0\r\n\r\n");
    add("POST /fourth HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello");
    add("GET /fifth HTTP/1.1\r\nHost: x\r\n");
    for (int i = 0; i < 20; i++) /* a head that arrives in pieces */
        add("X-Filler: 0123456789\r\n");
    add("\r\n");
    return 0;
}

/* Returns how many replies are 200. All must be whole, in order, and 200 or 503. */
static int check_replies(const char *out, size_t size, int *ret_n_replies)
{
    static const char *const paths[N_REQUESTS] = {"/first 0", "/second 20000", "/third 20000",
                                                  "/fourth 5", "/fifth 0"};
    const char *at = out, *end = out + size;
    int n_good = 0;
    while (at < end) {
        assert_true(end - at > 12);
        assert_memory_equal(at, "HTTP/1.1 ", 9);
        long status = strtol(at + 9, NULL, 10);
        char *head_end = memmem(at, (size_t)(end - at), "\r\n\r\n", 4);
        assert_non_null(head_end);
        char *length = strcasestr(at, "\r\ncontent-length:");
        assert_non_null(length);
        assert_true(length < head_end);
        size_t body_size = strtoul(length + 17, NULL, 10);
        char *body = head_end + 4;
        assert_true(body_size <= (size_t)(end - body));
        if (status == 200) {
            /* The driver's line: method, path, size of the body, hash. In order, none twice. */
            int i = 0;
            while (i < N_REQUESTS && !memmem(body, body_size, paths[i], strlen(paths[i])))
                i++;
            assert_in_range(i, n_good, N_REQUESTS - 1);
            n_good++;
        } else {
            assert_int_equal(status, 503);
            assert_non_null(memmem(body, body_size, "out of memory", 13));
        }
        at = body + body_size;
        (*ret_n_replies)++;
    }
    return n_good;
}

static struct status *serve(void *arg)
{
    const struct way *way = arg;
    struct driver d;
    driver_init(&d);
    d.limits.max_pipeline = N_REQUESTS;
    d.defer = way->later;
    size_t fed = 0;
    while (fed < input_size) {
        size_t n = input_size - fed < way->portion ? input_size - fed : way->portion;
        size_t taken = driver_feed(&d, input + fed, n);
        driver_flush(&d);
        if (taken == 0)
            break; /* refused, or the end */
        fed += taken;
    }
    while (d.n_waiting > 0)
        driver_reply(&d, d.n_waiting - 1);
    driver_flush(&d);

    int n_replies = 0;
    char *out = calloc(1, d.out_size + 1); /* ended by a zero byte for string functions */
    assert_non_null(out);
    if (d.out_size)
        memcpy(out, d.out, d.out_size);
    int n_good = check_replies(out, d.out_size, &n_replies);
    free(out);
    if (d.http1.input != HTTP1_DONE) /* it goes on: each request needs its reply */
        assert_int_equal(n_replies, N_REQUESTS);
    assert_true(driver_done(&d));
    return n_good == N_REQUESTS ? NULL : status_no_memory();
}

static void requests_at_once_survive_lack_of_memory(void **state)
{
    (void)state;
    struct way way = {.portion = sizeof(input)};
    assert_true(fault_each_allocation(serve, &way) >= 5);
}

static void requests_in_portions_survive_lack_of_memory(void **state)
{
    (void)state;
    struct way way = {.portion = 97};
    assert_true(fault_each_allocation(serve, &way) >= 5);
}

static void late_replies_survive_lack_of_memory(void **state)
{
    (void)state;
    struct way way = {.portion = 1000, .later = true};
    assert_true(fault_each_allocation(serve, &way) >= 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_at_once_survive_lack_of_memory),
        cmocka_unit_test(requests_in_portions_survive_lack_of_memory),
        cmocka_unit_test(late_replies_survive_lack_of_memory),
    };
    return cmocka_run_group_tests(tests, make_input, NULL);
}
