/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The response cache, with the library `local` and with `odd`, which breaks rules
 * (tests/caches/odd). The backend answers OUT = IN, and counts; one element of -1 is an error. One
 * of LATE_FINAL has its final flag alone, one of NO_FINAL has none.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/pool.h"
#include "core/cache/attach.h"
#include "core/cache/cache.h"
#include "core/cache/cache_key.h"
#include "core/cache/response_image.h"
#include "core/model/model_statistics.h"
#include "core/options/server_options.h"
#include "core/sched/scheduler.h"
#include "lib/fake_model.h"
#include "lib/fault.h"

static const char config[] =
    "max_batch_size: 8 input { name: \"IN\" data_type: TYPE_INT32 dims: [ -1 ] }\n"
    "input { name: \"MORE\" data_type: TYPE_STRING dims: [ -1 ] optional: true }\n"
    "output { name: \"OUT\" data_type: TYPE_INT32 dims: [ -1 ] }\n"
    "output { name: \"TEXT\" data_type: TYPE_STRING dims: [ 1 ] }\n"
    "response_cache { enable: true } instance_group { kind: KIND_CPU }\n";

enum { LATE_FINAL = -2, NO_FINAL = -3 };

static atomic_int n_executed;
static atomic_bool is_held; /* executions wait */

/* A string of BYTES, "hi". */
static const char text_output[] = {2, 0, 0, 0, 'h', 'i'};

static struct status *copy_output(struct response *resp, const char *name, enum dtype dtype,
                                  const int64_t *shape, size_t n_dims, const void *bytes, size_t n)
{
    struct output *out;
    struct status *st = response_add_output(resp, name, dtype, shape, n_dims, &out);
    if (!st)
        st = output_alloc(out, n);
    if (!st)
        memcpy(out->base, bytes, n);
    return st;
}

static struct status *fill(struct response *resp, const struct input *in)
{
    const int64_t one[2] = {1, 1};
    const struct parameter p[] = {
        {.name = "s", .type = PARAMETER_STRING, .string = "text"},
        {.name = "b", .type = PARAMETER_BOOL, .boolean = true},
        {.name = "i", .type = PARAMETER_INT, .int64 = -7},
        {.name = "d", .type = PARAMETER_DOUBLE, .float64 = 0.5},
    };
    struct status *st = copy_output(resp, "OUT", DTYPE_INT32, in->shape, in->n_dims,
                                    in->buffers[0].base, in->size_bytes);
    if (!st)
        st = copy_output(resp, "TEXT", DTYPE_BYTES, one, 2, text_output, sizeof(text_output));
    for (size_t i = 0; !st && i < ARRAY_SIZE(p); i++)
        st = response_add_parameter(resp, &p[i]);
    return st;
}

static struct status *execute(struct instance *instance, struct request **requests, uint32_t n)
{
    (void)instance;
    while (atomic_load(&is_held))
        sched_yield();
    for (uint32_t i = 0; i < n; i++) {
        struct request *r = requests[i];
        const struct input *in = request_find_input(r, "IN");
        struct response *resp;
        atomic_fetch_add(&n_executed, 1);
        struct status *st = response_new(r, &resp);
        if (!st)
            st = fill(resp, in);
        int32_t value = in->size_bytes == 4 ? *(const int32_t *)in->buffers[0].base : 0;
        if (!st && value == -1)
            st = status_new(STATUS_INTERNAL, "minus one");
        bool is_final = value != LATE_FINAL && value != NO_FINAL;
        status_free(response_send(resp, is_final ? RESPONSE_FINAL : 0, st));
        if (value == LATE_FINAL)
            status_free(request_send_flags(r, RESPONSE_FINAL));
        assert_null(request_release(r));
    }
    return NULL;
}

struct fixture {
    struct fake_model f;
    struct cache *cache;
};

static void make(struct fixture *x, const char *more, const char *name, const char *json)
{
    char *folder =
        mem_printf("%s/%s", CONCH_BUILD_DIR, strcmp(name, "odd") == 0 ? "tests/caches" : "caches");
    char *text = mem_printf("%s%s", config, more);
    struct server_options *o = server_options_new();
    server_options_set_string(&o->cache_directory, folder);
    server_options_set_cache_config(o, name, json);
    assert_null(cache_open(o, &x->cache));
    fake_model_make_with(&x->f, o, text, 1, execute);
    cache_attach(x->f.model, x->cache);
    atomic_store(&n_executed, 0);
    atomic_store(&is_held, false);
    mem_free(text);
    mem_free(folder);
}

static void unmake(struct fixture *x)
{
    fake_model_end(&x->f);
    cache_close(x->cache);
}

/* A request that keeps a copy of its response. */
struct asked {
    struct fake_request fr;
    int64_t shape[2];
    int32_t values[64];
    int32_t got[64];
    uint32_t n_got, n_parameters;
};

/* Asks for these values, in one row; returns how many executions there were. */
static void ask(struct asked *a, struct fixture *x, const int32_t *values, uint32_t n, bool waits)
{
    struct input *in;
    memset(a, 0, sizeof(*a));
    fake_request_make(&a->fr, &x->f);
    struct request *r = &a->fr.request;
    a->shape[0] = 1;
    a->shape[1] = n;
    memcpy(a->values, values, n * sizeof(*values));
    assert_null(request_add_input(r, "IN", 2, DTYPE_INT32, a->shape, 2, &in));
    const struct tensor_buffer b = {.base = a->values, .size_bytes = n * sizeof(*values)};
    assert_null(request_add_data(r, in, &b));
    r->maker.may_wait = waits;
}

static void submit(struct asked *a, struct fixture *x)
{
    struct request *r = &a->fr.request;
    assert_null(server_infer(&x->f.server, r));
}

/* A request in flight: others may answer it now. */
static bool is_answered(struct asked *a)
{
    pthread_mutex_lock(&a->fr.mu);
    bool is = a->fr.n_final > 0;
    pthread_mutex_unlock(&a->fr.mu);
    return is;
}

static void end(struct asked *a)
{
    fake_request_wait(&a->fr);
    fake_request_end(&a->fr);
}

static int executed_by(struct fixture *x, const int32_t *values, uint32_t n)
{
    struct asked a;
    int before = atomic_load(&n_executed);
    ask(&a, x, values, n, true);
    submit(&a, x);
    fake_request_wait(&a.fr);
    assert_int_equal(a.fr.n_responses, 1);
    assert_int_equal(a.fr.n_final, 1);
    assert_int_equal(a.fr.n_released, 1);
    fake_request_end(&a.fr);
    return atomic_load(&n_executed) - before;
}

static struct statistics totals_of(struct fixture *x)
{
    struct statistics s;
    model_totals(x->f.model, &s);
    return s;
}

static void test_the_second_of_two_equal_requests_executes_nothing(void **state)
{
    static const struct {
        const char *library, *json;
    } caches[] = {{"local", "{\"size\":\"1048576\"}"}, {"odd", "{}"}};
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(caches); i++) {
        struct fixture x;
        make(&x, "", caches[i].library, caches[i].json);
        assert_int_equal(executed_by(&x, (const int32_t[]){1, 2}, 2), 1);
        helpers_done(&x.cache->threads); /* what `odd` keeps is kept by a thread */
        helpers_init(&x.cache->threads);
        assert_int_equal(executed_by(&x, (const int32_t[]){1, 2}, 2), 0);
        assert_int_equal(executed_by(&x, (const int32_t[]){1, 3}, 2), 1);
        assert_int_equal(executed_by(&x, (const int32_t[]){1}, 1), 1);
        struct statistics s = totals_of(&x);
        assert_int_equal(s.cache_hit.count, 1);
        assert_int_equal(s.cache_miss.count, 3);
        unmake(&x);
    }
}

static void test_an_error_is_not_kept(void **state)
{
    struct fixture x;
    (void)state;
    make(&x, "", "local", "{\"size\":\"1048576\"}");
    assert_int_equal(executed_by(&x, (const int32_t[]){-1}, 1), 1);
    assert_int_equal(executed_by(&x, (const int32_t[]){-1}, 1), 1);
    unmake(&x);
}

/* How many executions two equal requests cause. */
static int executed_by_two(struct fixture *x, int32_t value)
{
    int before = atomic_load(&n_executed);
    for (int i = 0; i < 2; i++) {
        struct asked a;
        ask(&a, x, &value, 1, true);
        submit(&a, x);
        fake_request_wait(&a.fr);
        assert_int_equal(a.fr.n_final, 1);
        fake_request_end(&a.fr);
    }
    return atomic_load(&n_executed) - before;
}

static void test_a_response_waits_for_its_final_flag_to_be_kept(void **state)
{
    static const char *const libraries[] = {"local", "odd"};
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(libraries); i++) {
        struct fixture x;
        make(&x, "", libraries[i], i == 0 ? "{\"size\":\"1048576\"}" : "{}");
        assert_int_equal(executed_by_two(&x, NO_FINAL), 2);
        if (i == 0)
            assert_int_equal(executed_by_two(&x, LATE_FINAL), 1);
        else
            executed_by_two(&x, LATE_FINAL); /* a thread keeps it, sooner or later */
        unmake(&x);
    }
}

static struct cache_key key_of(struct fixture *x, int64_t rows, int64_t columns, const char *output,
                               const char *parameter, bool in_parts)
{
    static const int32_t values[4] = {1, 2, 3, 4};
    const int64_t shape[2] = {rows, columns};
    struct fake_request fr;
    struct input *in;
    struct cache_key key;
    fake_request_make(&fr, &x->f);
    assert_null(request_add_input(&fr.request, "IN", 2, DTYPE_INT32, shape, 2, &in));
    size_t n = (size_t)(rows * columns) * sizeof(*values);
    const struct tensor_buffer all = {.base = values, .size_bytes = n};
    const struct tensor_buffer first = {.base = values, .size_bytes = 5};
    const struct tensor_buffer rest = {.base = (const char *)values + 5, .size_bytes = n - 5};
    assert_null(request_add_data(&fr.request, in, in_parts ? &first : &all));
    if (in_parts)
        assert_null(request_add_data(&fr.request, in, &rest));
    if (output)
        assert_null(request_add_output(&fr.request, output, strlen(output)));
    const struct parameter p = {.name = "p", .type = PARAMETER_STRING, .string = parameter};
    if (parameter)
        assert_null(request_add_parameter(&fr.request, &p));
    assert_null(server_check(&fr.request));
    assert_true(cache_key_of(&fr.request, &key));
    fake_request_end(&fr);
    return key;
}

static bool same(struct cache_key a, struct cache_key b)
{
    return a.low == b.low && a.high == b.high;
}

static void test_the_key_has_all_that_the_response_depends_on(void **state)
{
    struct fixture x;
    (void)state;
    make(&x, "", "local", "{\"size\":\"1048576\"}");
    struct cache_key key = key_of(&x, 1, 4, NULL, NULL, false);
    assert_true(same(key, key_of(&x, 1, 4, NULL, NULL, false)));
    assert_true(same(key, key_of(&x, 1, 4, NULL, NULL, true)));
    assert_false(same(key, key_of(&x, 2, 2, NULL, NULL, false)));
    assert_false(same(key, key_of(&x, 1, 3, NULL, NULL, false)));
    assert_false(same(key, key_of(&x, 1, 4, "OUT", NULL, false)));
    assert_false(same(key_of(&x, 1, 4, "TEXT", NULL, false), key_of(&x, 1, 4, "OUT", NULL, false)));
    assert_false(same(key, key_of(&x, 1, 4, NULL, "", false)));
    assert_false(same(key_of(&x, 1, 4, NULL, "a", false), key_of(&x, 1, 4, NULL, "b", false)));
    struct cache_key load = x.f.model->cached->load;
    assert_false(same(load, cache_key_of_load(x.f.model)));
    unmake(&x);
}

static void test_loads_with_an_id_share_their_responses(void **state)
{
    struct fixture x;
    (void)state;
    make(&x, "parameters { key: \"CONCH_CACHE_ID\" value { string_value: \"v7\" } }", "local",
         "{\"size\":\"1048576\"}");
    assert_true(same(x.f.model->cached->load, cache_key_of_load(x.f.model)));
    unmake(&x);
}

static void test_a_key_has_32_digits(void **state)
{
    char text[CACHE_KEY_TEXT_BYTES];
    (void)state;
    cache_key_print((struct cache_key){.high = 0x0123456789abcdef, .low = 0xfedcba98765432f0},
                    text);
    assert_string_equal(text, "0123456789abcdeffedcba98765432f0");
}

/* Parts of more than fit into the buffer that gathers them. */
static void test_long_tensors_and_many_parameters_count_too(void **state)
{
    struct fixture x;
    struct cache_key keys[3];
    static int32_t values[512];
    (void)state;
    make(&x, "", "local", "{\"size\":\"1048576\"}");
    for (int i = 0; i < 3; i++) {
        const int64_t shape[2] = {1, ARRAY_SIZE(values)};
        struct fake_request fr;
        struct input *in;
        values[511] = i == 1;
        fake_request_make(&fr, &x.f);
        assert_null(request_add_input(&fr.request, "IN", 2, DTYPE_INT32, shape, 2, &in));
        const struct tensor_buffer b = {.base = values, .size_bytes = sizeof(values)};
        assert_null(request_add_data(&fr.request, in, &b));
        for (int p = 0; p < 100; p++) {
            const struct parameter one = {
                .name = "name", .type = PARAMETER_INT, .int64 = i == 2 && p == 0};
            assert_null(request_add_parameter(&fr.request, &one));
        }
        assert_null(server_check(&fr.request));
        assert_true(cache_key_of(&fr.request, &keys[i]));
        fake_request_end(&fr);
    }
    assert_false(same(keys[0], keys[1]));
    assert_false(same(keys[0], keys[2]));
    unmake(&x);
}

/* Whatever the cache does, each request has its answer, and is executed if need be. */
static void test_what_a_cache_does_wrong_is_a_miss(void **state)
{
    static const char *const wrongs[] = {"lie",     "cut",   "garble", "long", "empty",
                                         "several", "null",  "twice",  "fail", "refuse",
                                         "full",    "short", "many"};
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(wrongs); i++) {
        struct fixture x;
        char json[64];
        snprintf(json, sizeof(json), "{\"do\":\"%s\"}", wrongs[i]);
        make(&x, "", "odd", json);
        assert_int_equal(executed_by(&x, (const int32_t[]){1, 2, 3}, 3), 1);
        helpers_done(&x.cache->threads);
        helpers_init(&x.cache->threads);
        assert_int_equal(executed_by(&x, (const int32_t[]){1, 2, 3}, 3), 1);
        assert_int_equal(totals_of(&x).cache_hit.count, 0);
        unmake(&x);
    }
}

/* `odd` has not said that it never waits, so a loop does not wait for it. */
static void test_a_cache_that_may_wait_is_asked_on_a_thread_of_its_own(void **state)
{
    struct fixture x;
    struct asked a[3];
    char file[] = "/tmp/conch-test-cache-XXXXXX", json[128];
    (void)state;
    int fd = mkstemp(file);
    assert_true(fd >= 0);
    close(fd);
    snprintf(json, sizeof(json), "{\"do\":\"hold\",\"file\":\"%s\"}", file);
    make(&x, "", "odd", json);
    for (int i = 0; i < 3; i++) {
        ask(&a[i], &x, (const int32_t[]){1, i}, 2, false);
        submit(&a[i], &x); /* returns, though the cache holds the look-up */
        assert_false(is_answered(&a[i]));
    }
    request_cancel(&a[1].fr.request); /* it ends, though the cache has not answered */
    fake_request_wait(&a[1].fr);
    assert_true(a[1].fr.failed);
    assert_int_equal(a[1].fr.last_code, STATUS_CANCELLED);
    fake_request_end(&a[1].fr);
    assert_int_equal(totals_of(&x).failures[FAILURE_CANCELED], 1);
    assert_false(is_answered(&a[0]) || is_answered(&a[2]));
    assert_int_equal(unlink(file), 0);
    for (int i = 0; i < 3; i += 2) {
        fake_request_wait(&a[i].fr);
        assert_false(a[i].fr.failed);
        fake_request_end(&a[i].fr);
    }
    assert_int_equal(atomic_load(&n_executed), 2);
    char reached[64];
    snprintf(reached, sizeof(reached), "%s.reached", file);
    unlink(reached);
    unmake(&x);
}

static void *cancel_request(void *arg)
{
    request_cancel(arg);
    return NULL;
}

/* The look-up and a canceller meet in each order: hits, misses and cancelled ones, each once. */
static void test_a_cancel_and_the_end_of_a_look_up_give_one_answer(void **state)
{
    enum { N = 400 };
    struct fixture x;
    int n_failed = 0;
    (void)state;
    make(&x, "", "odd", "{}");
    for (int i = 0; i < N; i++) {
        struct asked a;
        pthread_t thread;
        ask(&a, &x, (const int32_t[]){i / 8}, 1, false);
        submit(&a, &x);
        assert_int_equal(pthread_create(&thread, NULL, cancel_request, &a.fr.request), 0);
        fake_request_wait(&a.fr);
        pthread_join(thread, NULL);
        assert_int_equal(a.fr.n_final, 1);
        assert_int_equal(a.fr.n_released, 1);
        n_failed += a.fr.failed;
        fake_request_end(&a.fr);
    }
    helpers_done(&x.cache->threads);
    helpers_init(&x.cache->threads);
    assert_int_equal(atomic_load(&x.cache->n_posted), 0);
    struct statistics s = totals_of(&x);
    assert_int_equal(s.failures[FAILURE_CANCELED], n_failed);
    assert_int_equal((int)s.cache_hit.count + atomic_load(&n_executed) + n_failed, N);
    unmake(&x);
}

/* Each request gets the answer to itself, and in the order of acceptance. */
static void test_a_hit_has_its_place_in_the_order(void **state)
{
    struct fixture x;
    struct asked miss, hit;
    (void)state;
    make(&x, "dynamic_batching { preserve_ordering: true }", "local", "{\"size\":\"1048576\"}");
    assert_int_equal(executed_by(&x, (const int32_t[]){5}, 1), 1);
    atomic_store(&is_held, true);
    ask(&miss, &x, (const int32_t[]){6}, 1, true);
    submit(&miss, &x);
    ask(&hit, &x, (const int32_t[]){5}, 1, true);
    submit(&hit, &x);
    assert_int_equal(totals_of(&x).cache_hit.count, 1);
    assert_false(is_answered(&hit)); /* the miss has not been answered */
    atomic_store(&is_held, false);
    end(&miss);
    end(&hit);
    assert_int_equal(atomic_load(&n_executed), 2);
    unmake(&x);
}

static void test_the_least_recently_used_ones_are_dropped(void **state)
{
    struct fixture x;
    (void)state;
    make(&x, "", "local", "{\"size\":\"1200\"}"); /* of three entries, two fit */
    assert_int_equal(executed_by(&x, (const int32_t[]){1}, 1), 1);
    assert_int_equal(executed_by(&x, (const int32_t[]){2}, 1), 1);
    assert_int_equal(executed_by(&x, (const int32_t[]){1}, 1), 0);
    assert_int_equal(executed_by(&x, (const int32_t[]){3}, 1), 1);
    assert_int_equal(executed_by(&x, (const int32_t[]){1}, 1), 0);
    assert_int_equal(executed_by(&x, (const int32_t[]){2}, 1), 1);
    unmake(&x);
}

static void test_a_response_larger_than_the_cache_is_served(void **state)
{
    struct fixture x;
    (void)state;
    make(&x, "", "local", "{\"size\":\"200\"}");
    assert_int_equal(executed_by(&x, (const int32_t[]){1}, 1), 1);
    assert_int_equal(executed_by(&x, (const int32_t[]){1}, 1), 1);
    assert_int_equal(totals_of(&x).cache_miss.count, 2);
    unmake(&x);
}

/* ---- Threads ----------------------------------------------------------------------------------
 */

enum { THREADS = 4, ASKS = 2000, KEYS = 37 };

static void *ask_again_and_again(void *arg)
{
    struct fixture *x = arg;
    unsigned int seed = (unsigned int)(uintptr_t)&seed;
    for (int i = 0; i < ASKS; i++) {
        struct asked a;
        const int32_t value = rand_r(&seed) % KEYS;
        ask(&a, x, &value, 1, true);
        submit(&a, x);
        end(&a);
        assert_false(a.fr.failed);
        assert_int_equal(a.fr.n_responses, 1);
    }
    return NULL;
}

static void test_threads_find_insert_and_drop_at_the_same_time(void **state)
{
    struct fixture x;
    pthread_t threads[THREADS];
    (void)state;
    make(&x, "", "local", "{\"size\":\"8000\"}");
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, ask_again_and_again, &x), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    struct statistics s = totals_of(&x);
    assert_int_equal(s.cache_hit.count + (uint64_t)atomic_load(&n_executed), THREADS * ASKS);
    unmake(&x);
}

/* ---- Lack of memory ----------------------------------------------------------------------------
 */

/* The response is kept before, in full; each time it is found and copied. */
static struct status *hit_scenario(void *arg)
{
    struct fixture *x = arg;
    struct asked a;
    struct status *st = NULL;
    ask(&a, x, (const int32_t[]){1, 2}, 2, true);
    a.fr.request.pool = pool_new("of the scenario", 0, 0);
    submit(&a, x);
    fake_request_wait(&a.fr);
    if (a.fr.failed)
        st = status_no_memory();
    struct pool *own = a.fr.request.pool;
    fake_request_end(&a.fr);
    pool_free(own);
    return st;
}

static void test_without_memory_a_request_still_ends(void **state)
{
    struct fixture x;
    (void)state;
    make(&x, "", "local", "{\"size\":\"1048576\"}");
    assert_int_equal(executed_by(&x, (const int32_t[]){1, 2}, 2), 1);
    fault_each_allocation(hit_scenario, &x);
    unmake(&x);
}

/* ---- Opening -----------------------------------------------------------------------------------
 */

static void expect_refused(const char *folder, const char *name, const char *json, const char *text)
{
    struct server_options *o = server_options_new();
    struct cache *c;
    server_options_set_string(&o->cache_directory, folder);
    server_options_set_cache_config(o, name, json);
    struct status *st = cache_open(o, &c);
    assert_non_null(st);
    assert_non_null(strstr(status_message(st), text));
    status_free(st);
    server_options_free(o);
}

static void test_what_cannot_be_opened_is_named(void **state)
{
    static const char own[] = CONCH_BUILD_DIR "/caches", tests[] = CONCH_BUILD_DIR "/tests/caches";
    (void)state;
    expect_refused(own, "none", "{}",
                   "unable to find 'libtritoncache_none.so' for cache. Searched: ");
    expect_refused(own, "../caches/local", "{}",
                   "unable to find 'libtritoncache_../caches/local.so'");
    expect_refused("", "local", "{}", "cache directory can not be empty");
    expect_refused(tests, "odd", "{\"do\":\"no_cache\"}", "has initialised no cache");
    expect_refused(tests, "odd", "[]", "the odd cache says no");
    expect_refused(own, "local", "{}",
                   "Failed to initialize LocalCache: config didn't contain a "
                   "valid 'size' field.");
    expect_refused(own, "local", "{\"size\":true}",
                   "Failed to initialize LocalCache: 'size' config must be a string or uint type");
    expect_refused(own, "local", "{\"size\":\"12 MB\"}", "'size' is '12 MB', expected a number");
    expect_refused(own, "local", "{\"size\":\"99999999999999999999\"}", "expected a number");
    expect_refused(own, "local", "{\"size\":0}", "expected a number of bytes above 0");
    expect_refused(own, "local", "{\"size\" 1}", "the config is no object of JSON");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_second_of_two_equal_requests_executes_nothing),
        cmocka_unit_test(test_an_error_is_not_kept),
        cmocka_unit_test(test_a_response_waits_for_its_final_flag_to_be_kept),
        cmocka_unit_test(test_the_key_has_all_that_the_response_depends_on),
        cmocka_unit_test(test_loads_with_an_id_share_their_responses),
        cmocka_unit_test(test_a_key_has_32_digits),
        cmocka_unit_test(test_long_tensors_and_many_parameters_count_too),
        cmocka_unit_test(test_what_a_cache_does_wrong_is_a_miss),
        cmocka_unit_test(test_a_cache_that_may_wait_is_asked_on_a_thread_of_its_own),
        cmocka_unit_test(test_a_cancel_and_the_end_of_a_look_up_give_one_answer),
        cmocka_unit_test(test_a_hit_has_its_place_in_the_order),
        cmocka_unit_test(test_the_least_recently_used_ones_are_dropped),
        cmocka_unit_test(test_a_response_larger_than_the_cache_is_served),
        cmocka_unit_test(test_threads_find_insert_and_drop_at_the_same_time),
        cmocka_unit_test(test_without_memory_a_request_still_ends),
        cmocka_unit_test(test_what_cannot_be_opened_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
