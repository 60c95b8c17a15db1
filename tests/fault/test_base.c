/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every part of base that allocates memory for sizes from outside, with each allocation failing
 * once.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/dl.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/status.h"
#include "lib/fault.h"

static struct status *fill_a_buffer(void *arg)
{
    (void)arg;
    AUTO(buf) b = BUF_INIT(100000);
    for (int i = 0; i < 3000; i++)
        buf_addf(&b, "line %d\n", i);
    struct status *st = buf_status(&b);
    if (!st)
        assert_true(b.size > 3000 * 6);
    return st;
}

static void buffers_survive_lack_of_memory(void **state)
{
    (void)state;
    assert_true(fault_each_allocation(fill_a_buffer, NULL) >= 8);
}

/* A request's memory: an arena over a pool, beside a tensor from the same pool. */
static struct status *live_like_a_request(void *arg)
{
    struct pool *p = arg;
    struct mem_owner *owner = mem_owner_new("test");
    struct status *st = NULL;
    char first[128];
    struct arena a;
    arena_init(&a, first, sizeof(first), 100000, p, owner);
    void *tensor = pool_alloc(p, 50000, owner);
    if (!tensor)
        st = status_no_memory();
    for (int i = 0; i < 100 && !st; i++) {
        if (!arena_strndup(&a, "some name or other", 18) || !arena_alloc(&a, 200))
            st = status_no_memory();
    }
    pool_release(tensor);
    arena_reset(&a);
    assert_int_equal(mem_owner_bytes(owner, MEM_TENSORS), 0);
    assert_int_equal(mem_owner_blocks(owner), 0);
    mem_owner_free(owner);
    struct pool_stats stats;
    pool_stats(p, &stats);
    assert_int_equal(stats.used_bytes, 0);
    return st;
}

static void arenas_and_pools_survive_lack_of_memory(void **state)
{
    (void)state;
    struct pool *p = pool_new("test", 0, 0); /* keeps no block: every run asks the system again */
    assert_true(fault_each_allocation(live_like_a_request, p) >= 8);
    pool_free(p);
}

static struct status *read_and_list(void *arg)
{
    (void)arg;
    AUTO(buf) b = BUF_INIT(1 << 20);
    struct file_list names = {0};
    struct status *st = file_read(CONCH_SOURCE_DIR "/LICENSE", &b);
    if (!st)
        st = file_list(CONCH_SOURCE_DIR "/src/base", &names);
    if (!st)
        assert_true(names.count > 10);
    file_list_done(&names);
    return st;
}

static void files_survive_lack_of_memory(void **state)
{
    (void)state;
    assert_true(fault_each_allocation(read_and_list, NULL) >= 20);
}

/* The error itself finds no memory, which then is the error. */
static struct status *report_an_error(void *arg)
{
    (void)arg;
    AUTO(buf) b = BUF_INIT(100);
    struct status *st = file_read("/nonexistent/file", &b);
    assert_non_null(st);
    st = status_prefix(st, "model 'm': ");
    assert_non_null(st);
    bool told = strstr(status_message(st), "No such file") != NULL;
    assert_true(told || st == status_no_memory());
    if (told) {
        status_free(st);
        st = NULL;
    }
    return st;
}

static void errors_survive_lack_of_memory(void **state)
{
    (void)state;
    assert_true(fault_each_allocation(report_an_error, NULL) >= 4);
}

static struct status *parse_and_print(void *arg)
{
    const char *text = arg;
    struct arena a;
    struct json j;
    AUTO(buf) out = BUF_INIT(100000);
    arena_init(&a, NULL, 0, 100000, NULL, NULL);
    json_init(&j, text, strlen(text), &a);
    struct json_str s;
    if (json_enter_array(&j)) {
        while (json_next_element(&j)) {
            if (json_peek(&j) != JSON_STRING) {
                json_skip_value(&j);
            } else if (json_read_string(&j, &s)) {
                buf_add(&out, s.at, s.length);
            }
        }
    }
    struct status *st = NULL;
    if (!json_end(&j)) {
        assert_int_equal(j.failure, JSON_OUT_OF_MEMORY);
        st = status_no_memory();
    }
    arena_reset(&a);
    return st ? st : buf_status(&out);
}

static void json_survives_lack_of_memory(void **state)
{
    (void)state;
    static char text[200000];
    size_t n = 0;
    text[n++] = '[';
    for (int i = 0; i < 500; i++)
        n += (size_t)snprintf(text + n, 40, "\"escaped \\\"string\\\" %d\",", i);
    for (int i = 0; i < 6000; i++) /* deeper than json_skip_value() keeps on the stack */
        text[n++] = '[';
    for (int i = 0; i < 6000; i++)
        text[n++] = ']';
    text[n++] = ']';
    text[n] = '\0';
    assert_true(fault_each_allocation(parse_and_print, text) >= 5);
}

static struct status *open_a_library(void *arg)
{
    (void)arg;
    struct dl *dl;
    struct status *st = dl_open("/nonexistent/library.so", &dl);
    assert_non_null(st);
    if (st == status_no_memory())
        return st;
    assert_non_null(strstr(status_message(st), "unable to load shared library: "));
    status_free(st);
    return NULL;
}

static void libraries_survive_lack_of_memory(void **state)
{
    (void)state;
    fault_each_allocation(open_a_library, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buffers_survive_lack_of_memory),
        cmocka_unit_test(arenas_and_pools_survive_lack_of_memory),
        cmocka_unit_test(files_survive_lack_of_memory),
        cmocka_unit_test(errors_survive_lack_of_memory),
        cmocka_unit_test(json_survives_lack_of_memory),
        cmocka_unit_test(libraries_survive_lack_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
