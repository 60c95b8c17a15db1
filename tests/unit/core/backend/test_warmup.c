/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Warm-up with a backend that notes what it gets: bytes, order, counts. Other backends answer late,
 * with errors, several times, or not before the server stops.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/thread.h"
#include "core/backend/warmup.h"
#include "core/request/response.h"
#include "core/model/model_statistics.h"
#include "core/storage/storage.h"
#include "lib/fake_model.h"
#include "lib/repository.h"

#define IO                                                                                         \
    "input { name: 'A' data_type: TYPE_INT32 dims: [ -1 ] }\n"                                     \
    "output { name: 'X' data_type: TYPE_INT32 dims: [ -1 ] }\n"

enum { MAX_SEEN = 64 };

/* The backend's inputs, one line per request: "<instance> <name>[<shape>]=<bytes> …" */
static struct {
    pthread_mutex_t mu;
    int n_executions;
    uint32_t sizes[MAX_SEEN]; /* of the executions */
    char text[1 << 16];
} seen = {.mu = PTHREAD_MUTEX_INITIALIZER};

static void note_input(const struct input *in, struct buf *line)
{
    buf_addf(line, " %s:%s", in->name, dtype_name(in->dtype));
    shape_print(line, in->backend_shape, in->n_backend_dims);
    buf_adds(line, "=");
    for (uint32_t b = 0; b < in->n_buffers; b++) {
        const unsigned char *bytes = in->buffers[b].base;
        for (size_t i = 0; i < in->buffers[b].size_bytes; i++)
            buf_addf(line, "%02x", bytes[i]);
    }
}

static void note(struct instance *in, struct request **requests, uint32_t n)
{
    pthread_mutex_lock(&seen.mu);
    assert_true(seen.n_executions < MAX_SEEN);
    seen.sizes[seen.n_executions++] = n;
    for (uint32_t i = 0; i < n; i++) {
        AUTO(buf) line = BUF_INIT(1 << 16);
        buf_adds(&line, in->name);
        for (uint32_t k = 0; k < requests[i]->maker.n_inputs; k++)
            note_input(requests[i]->maker.inputs[k], &line);
        buf_addc(&line, '\n');
        assert_true(strlen(seen.text) + line.size < sizeof(seen.text));
        strncat(seen.text, buf_text(&line), line.size);
    }
    pthread_mutex_unlock(&seen.mu);
}

static struct status *execute(struct instance *in, struct request **requests, uint32_t n)
{
    static const struct execution_times times = {1, 2, 3, 4};
    note(in, requests, n);
    for (uint32_t i = 0; i < n; i++) {
        instance_report_statistics(in, requests[i], true, &times);
        fake_answer(requests[i]);
    }
    instance_report_batch(in, n, &times);
    return NULL;
}

/* Overwrites the whole array, as public backends do. */
static struct status *execute_and_zero(struct instance *in, struct request **requests, uint32_t n)
{
    struct status *st = execute(in, requests, n);
    memset(requests, 0, n * sizeof(*requests));
    return st;
}

/* ------------------------------------------------------------------------------------------ */

static struct fake_model f;

static void make(const char *config, uint32_t n_instances, fake_execute_fn fn)
{
    seen.n_executions = 0;
    seen.text[0] = '\0';
    fake_model_make(&f, config, n_instances, fn);
}

static struct status *warm_up(void)
{
    struct warmup *w = NULL;
    struct status *st = warmup_new(f.model, &w);
    for (uint32_t i = 0; i < f.model->n_instances && !st; i++)
        st = warmup_run(w, f.model->instances[i]);
    warmup_free(w);
    return st;
}

/* Expects that the warm-up succeeds, and that the backend has seen these requests. */
static void expect_of(fake_execute_fn fn, const char *config, uint32_t n_instances,
                      const char *text)
{
    make(config, n_instances, fn);
    struct status *st = warm_up();
    if (st)
        fail_msg("%s", status_message(st));
    assert_string_equal(seen.text, text);
    assert_int_equal(model_inflight(f.model), 0);
    assert_int_equal(mem_owner_bytes(f.model->owner, MEM_TENSORS), 0);
    fake_model_end(&f);
}

static void expect(const char *config, uint32_t n_instances, const char *text)
{
    expect_of(execute, config, n_instances, text);
}

static void expect_error(const char *config, fake_execute_fn fn, enum status_code code,
                         const char *text)
{
    make(config, 1, fn);
    struct status *st = warm_up();
    assert_non_null(st);
    assert_string_equal(status_message(st), text);
    assert_int_equal(status_code(st), code);
    status_free(st);
    assert_int_equal(model_inflight(f.model), 0);
    fake_model_end(&f);
}

#define SAMPLE(name, more, inputs) "model_warmup { name: '" name "' " more " " inputs " }\n"
#define INPUT(key, type, dims, data)                                                               \
    "inputs { key: '" key "' value { data_type: " type " dims: [ " dims " ] " data " } }"
#define ZERO "zero_data: true"
#define ONE  "batch_size: 1"
#define A2   INPUT("A", "TYPE_INT32", "2", ZERO)

static void a_backend_may_overwrite_the_array_of_requests(void **state)
{
    (void)state;
    expect_of(execute_and_zero, IO "max_batch_size: 4\n" SAMPLE("s", "batch_size: 3 count: 2", A2),
              1,
              "m_0 A:INT32[1,2]=0000000000000000\nm_0 A:INT32[1,2]=0000000000000000\n"
              "m_0 A:INT32[1,2]=0000000000000000\nm_0 A:INT32[1,2]=0000000000000000\n"
              "m_0 A:INT32[1,2]=0000000000000000\nm_0 A:INT32[1,2]=0000000000000000\n");
}

static void a_model_without_samples_executes_nothing(void **state)
{
    (void)state;
    expect(IO, 1, "");
}

static void a_sample_of_zeros_is_executed(void **state)
{
    (void)state;
    expect(IO SAMPLE("s", ONE, A2), 1, "m_0 A:INT32[2]=0000000000000000\n");
    /* The field is set; as in the reference, its value false has no meaning. */
    expect(IO SAMPLE("s", ONE, INPUT("A", "TYPE_INT32", "1", "zero_data: false")), 1,
           "m_0 A:INT32[1]=00000000\n");
    expect(IO SAMPLE("s", ONE, INPUT("A", "TYPE_INT32", "0", ZERO)), 1, "m_0 A:INT32[0]=\n");
}

static void every_instance_executes_samples_in_order_with_counts(void **state)
{
    (void)state;
    expect(IO "max_batch_size: 4\n" /* three copies of b; c is skipped */
           SAMPLE("a", ONE " count: 2", A2)
               SAMPLE("b", "batch_size: 3", INPUT("A", "TYPE_INT32", "1", ZERO))
                   SAMPLE("c", "batch_size: 0 count: 7", ""),
           2,
           "m_0 A:INT32[1,2]=0000000000000000\n"
           "m_0 A:INT32[1,2]=0000000000000000\n"
           "m_0 A:INT32[1,1]=00000000\nm_0 A:INT32[1,1]=00000000\nm_0 A:INT32[1,1]=00000000\n"
           "m_1 A:INT32[1,2]=0000000000000000\n"
           "m_1 A:INT32[1,2]=0000000000000000\n"
           "m_1 A:INT32[1,1]=00000000\nm_1 A:INT32[1,1]=00000000\nm_1 A:INT32[1,1]=00000000\n");
    assert_int_equal(seen.n_executions, 6);
    const uint32_t sizes[] = {1, 1, 3, 1, 1, 3};
    assert_memory_equal(seen.sizes, sizes, sizeof(sizes));
}

static void warm_up_counts_in_the_statistics(void **state)
{
    (void)state;
    make(IO SAMPLE("s", "batch_size: 2 count: 3", A2), 1, execute);
    assert_null(warm_up());
    struct statistics sums = {0};
    assert_null(model_statistics(f.model, &sums));
    assert_int_equal(sums.success.count, 6);
    assert_int_equal(sums.inference_count, 6);
    assert_int_equal(sums.execution_count, 3);
    statistics_done(&sums);
    fake_model_end(&f);
}

static void a_sample_is_reshaped_as_a_request_is(void **state)
{
    (void)state;
    expect("max_batch_size: 4\n"
           "input { name: 'A' data_type: TYPE_INT8 dims: [ 4 ] reshape { shape: [ 2, 2 ] } }\n"
           "output { name: 'X' data_type: TYPE_INT8 dims: [ 4 ] }\n" SAMPLE(
               "s", ONE, INPUT("A", "TYPE_INT8", "4", ZERO)),
           1, "m_0 A:INT8[1,2,2]=00000000\n");
}

static void samples_may_omit_optional_and_add_undeclared_inputs(void **state)
{
    (void)state;
    const char *const io = "input { name: 'A' data_type: TYPE_INT8 dims: [ 1 ] }\n"
                           "input { name: 'B' data_type: TYPE_INT8 dims: [ 1 ] optional: true }\n"
                           "output { name: 'X' data_type: TYPE_INT8 dims: [ 1 ] }\n"
                           "max_batch_size: 2\n";
    char *config = mem_printf("%s%s", io,
                              SAMPLE("s", ONE,
                                     INPUT("START", "TYPE_INT32", "1", ZERO)
                                         INPUT("A", "TYPE_INT8", "1", ZERO)));
    expect(config, 1, "m_0 A:INT8[1,1]=00 START:INT32[1,1]=00000000\n");
    mem_free(config);
}

/* ---- Random data ----------------------------------------------------------------------------- */

static const char *const all_types[] = {"BOOL", "UINT8", "UINT16", "UINT32", "UINT64",
                                        "INT8", "INT16", "INT32",  "INT64",  "FP16",
                                        "FP32", "FP64",  "STRING", "BF16"};

/* The bytes of each element, the least significant first. */
static unsigned int byte(const char *hex, size_t i)
{
    unsigned int value = 0;
    assert_int_equal(sscanf(hex + 2 * i, "%2x", &value), 1);
    return value;
}

static void check_element(const char *type, const char *hex, size_t size)
{
    if (strcmp(type, "BOOL") == 0)
        assert_in_range(byte(hex, 0), 0, 1);
    else if (strcmp(type, "STRING") == 0)
        assert_memory_equal(hex, "00000000", 8);
    else if (strcmp(type, "FP16") == 0) /* 1 <= x < 2: sign 0, the exponent of 1 */
        assert_int_equal(byte(hex, 1) & 0xfc, 0x3c);
    else if (strcmp(type, "BF16") == 0 || strcmp(type, "FP32") == 0)
        assert_int_equal(byte(hex, size - 1) << 1 | byte(hex, size - 2) >> 7, 0x7f);
    else if (strcmp(type, "FP64") == 0)
        assert_int_equal(byte(hex, 7) << 4 | byte(hex, 6) >> 4, 0x3ff);
}

static void random_data_fits_each_type(void **state)
{
    (void)state;
    enum { N = 37 };
    for (size_t i = 0; i < ARRAY_SIZE(all_types); i++) {
        const char *type = all_types[i];
        char *config = mem_printf("input { name: 'A' data_type: TYPE_%s dims: [ -1 ] }\n"
                                  "output { name: 'X' data_type: TYPE_%s dims: [ -1 ] }\n"
                                  "model_warmup { name: 's' batch_size: 1 inputs { key: 'A' value "
                                  "{ data_type: TYPE_%s dims: %d random_data: true } } }",
                                  type, type, type, N);
        make(config, 1, execute);
        assert_null(warm_up());
        size_t size = strcmp(type, "STRING") == 0 ? 4 : dtype_size(f.model->inputs[0].dtype);
        const char *hex = strchr(seen.text, '=') + 1;
        assert_int_equal(strcspn(hex, "\n"), 2 * N * size);
        bool differ = false;
        for (size_t k = 0; k < N; k++) {
            check_element(type, hex + 2 * k * size, size);
            differ |= memcmp(hex, hex + 2 * k * size, 2 * size) != 0;
        }
        assert_int_equal(differ, strcmp(type, "STRING") != 0);
        fake_model_end(&f);
        mem_free(config);
    }
}

/* ---- Files ----------------------------------------------------------------------------------- */

static struct test_repository repository;
static struct storage *storage;

static int make_repository(void **state)
{
    (void)state;
    repository_make(&repository);
    repository_add(&repository, "m", "", 1);
    return storage_open(repository.path, false, &storage) != NULL;
}

static int remove_repository(void **state)
{
    (void)state;
    storage_unref(storage);
    repository_remove(&repository);
    return 0;
}

static void write_file(const char *name, const void *bytes, size_t n)
{
    char *path = mem_printf("m/warmup/%s", name);
    repository_add_file(&repository, path, bytes, n);
    mem_free(path);
}

/* Loads a model of this type and shape whose sample is the file; returns NULL or the error. */
static struct status *load_file(const char *type, const char *dims, const char *file)
{
    char *config = mem_printf("input { name: 'A' data_type: TYPE_%s dims: [ -1 ] }\n"
                              "output { name: 'X' data_type: TYPE_%s dims: [ -1 ] }\n"
                              "model_warmup { name: 's' batch_size: 2 inputs { key: 'A' value { "
                              "data_type: TYPE_%s dims: [ %s ] input_data_file: '%s' } } }",
                              type, type, type, dims, file);
    make(config, 1, execute);
    mem_free(config);
    f.model->storage = storage;
    struct status *st = warm_up();
    fake_model_end(&f);
    return st;
}

static void expect_file_error(const char *type, const char *dims, const char *file,
                              const char *text)
{
    struct status *st = load_file(type, dims, file);
    assert_non_null(st);
    if (!strstr(status_message(st), text))
        fail_msg("%s", status_message(st));
    status_free(st);
    assert_int_equal(seen.n_executions, 0);
}

static void a_sample_is_read_from_a_file(void **state)
{
    (void)state;
    write_file("twelve", "abcdefghijkl", 12);
    assert_null(load_file("INT32", "3", "twelve"));
    assert_string_equal(seen.text, "m_0 A:INT32[3]=6162636465666768696a6b6c\n"
                                   "m_0 A:INT32[3]=6162636465666768696a6b6c\n");
    assert_null(load_file("INT32", "2", "./twelve")); /* more bytes are ignored, with a warning */
    assert_string_equal(seen.text, "m_0 A:INT32[2]=6162636465666768\n"
                                   "m_0 A:INT32[2]=6162636465666768\n");
    expect_file_error("INT32", "4", "twelve",
                      "warmup setting expects 16 bytes, but the data provided from twelve only has "
                      "12 bytes (warmup sample 's')");
    expect_file_error("INT32", "4", "none",
                      "/m/warmup/none: No such file or directory (warmup sample 's')");
    expect_file_error("INT32", "4", "none", "failed to open text file for read /");
    expect_file_error("INT32", "4", ".", "is a folder");
}

static void strings_are_read_from_a_file(void **state)
{
    (void)state;
    write_file("two", "\1\0\0\0a\2\0\0\0bc", 11);
    write_file("cut", "\1\0\0\0a\5\0\0\0bc", 11);
    write_file("raw", "hello", 5);
    write_file("empty", "", 0);
    assert_null(load_file("STRING", "2", "two"));
    assert_string_equal(seen.text, "m_0 A:BYTES[2]=010000006102000000"
                                   "6263\n"
                                   "m_0 A:BYTES[2]=010000006102000000"
                                   "6263\n");
    assert_null(load_file("STRING", "0", "empty"));
    expect_file_error("STRING", "3", "two",
                      "expected 3 string elements for inference input 'A' for model 'm', got 2 "
                      "(warmup sample 's')");
    expect_file_error("STRING", "2", "cut", "incomplete string data for inference input 'A'");
    expect_file_error("STRING", "1", "raw", "incomplete string data for inference input 'A'");
    expect_file_error("STRING", "1", "empty", "expected 1 string elements");
}

/* ---- Samples that do not fit ----------------------------------------------------------------- */

static void samples_that_do_not_fit_fail_the_load(void **state)
{
    (void)state;
    expect_error(IO SAMPLE("s", ONE, ""), execute, STATUS_INVALID_ARG,
                 "[request id: <id_unknown>] expected 1 inputs but got 0 inputs for model 'm'. Got "
                 "input(s) [], but missing required input(s) ['A']. Please provide all required "
                 "input(s). (warmup sample 's')");
    expect_error(IO SAMPLE("s", ONE, INPUT("A", "TYPE_FP32", "2", ZERO)), execute,
                 STATUS_INVALID_ARG,
                 "[request id: <id_unknown>] inference input 'A' data-type is 'FP32', but model "
                 "'m' expects 'INT32' (warmup sample 's')");
    expect_error(IO SAMPLE("s", ONE, INPUT("A", "TYPE_INT32", "2, 2", ZERO)), execute,
                 STATUS_INVALID_ARG,
                 "[request id: <id_unknown>] unexpected shape for input 'A' for model 'm'. "
                 "Expected [-1], got [2,2].  (warmup sample 's')");
    expect_error(IO SAMPLE("s", ONE, A2 INPUT("B", "TYPE_INVALID", "1", ZERO)), execute,
                 STATUS_INVALID_ARG,
                 "warmup setting expects input 'B' to have data_type (warmup sample 's')");
}

static void huge_samples_are_refused(void **state)
{
    (void)state;
    expect_error(IO SAMPLE("s", ONE, INPUT("A", "TYPE_INT32", "1099511627776", ZERO)), execute,
                 STATUS_INVALID_ARG,
                 "warmup setting of input 'A': [1099511627776] of INT32 take more than 4294967296 "
                 "bytes (warmup sample 's')");
    expect_error(IO SAMPLE("s", ONE,
                           INPUT("A", "TYPE_INT32", "4611686018427387904, 4", "random_data: true")),
                 execute, STATUS_INVALID_ARG,
                 "warmup setting of input 'A': [4611686018427387904,4] of INT32 take more than "
                 "4294967296 bytes (warmup sample 's')");
    expect_error(
        IO SAMPLE("s", ONE, INPUT("A", "TYPE_FP64", "2305843009213693952", "random_data: true")),
        execute, STATUS_INVALID_ARG,
        "warmup setting of input 'A': [2305843009213693952] of FP64 take more than "
        "4294967296 bytes (warmup sample 's')");
}

/* ---- Backends that fail ---------------------------------------------------------------------- */

static struct status *execute_fails(struct instance *in, struct request **requests, uint32_t n)
{
    (void)in;
    (void)requests;
    (void)n;
    return status_new(STATUS_UNAVAILABLE, "no coffee");
}

/* Answers each request with a different error. */
static struct status *answers_errors(struct instance *in, struct request **requests, uint32_t n)
{
    (void)in;
    for (uint32_t i = 0; i < n; i++) {
        struct response *resp;
        assert_null(response_new(requests[i], &resp));
        assert_null(response_send(resp, RESPONSE_FINAL,
                                  status_new(STATUS_INTERNAL, "cup %u is empty", i / 2)));
        assert_null(request_release(requests[i]));
    }
    return NULL;
}

static struct status *answers_at_length(struct instance *in, struct request **requests, uint32_t n)
{
    AUTO(buf) text = BUF_INIT(1 << 20);
    (void)in;
    for (int i = 0; i < 100000; i++)
        buf_addc(&text, 'x');
    struct response *resp;
    assert_int_equal(n, 1);
    assert_null(response_new(requests[0], &resp));
    assert_null(
        response_send(resp, RESPONSE_FINAL, status_new(STATUS_INTERNAL, "%s", buf_text(&text))));
    return request_release(requests[0]);
}

static struct status *forgets(struct instance *in, struct request **requests, uint32_t n)
{
    (void)in;
    for (uint32_t i = 0; i < n; i++)
        assert_null(request_release(requests[i]));
    return NULL;
}

static struct status *answers_with_flags(struct instance *in, struct request **requests, uint32_t n)
{
    (void)in;
    for (uint32_t i = 0; i < n; i++) {
        assert_null(request_send_flags(requests[i], RESPONSE_FINAL));
        assert_null(request_release(requests[i]));
    }
    return NULL;
}

static void a_backends_error_fails_the_load(void **state)
{
    (void)state;
    expect_error(IO SAMPLE("zero sample", "batch_size: 3", A2), execute_fails, STATUS_INVALID_ARG,
                 "failed to run warmup sample 'zero sample': no coffee; ");
    expect_error(IO SAMPLE("s", "batch_size: 5", A2), answers_errors, STATUS_INVALID_ARG,
                 "failed to run warmup sample 's': cup 0 is empty; cup 1 is empty; cup 2 is "
                 "empty; ");
    expect_error(IO SAMPLE("s", ONE, A2), forgets, STATUS_INVALID_ARG,
                 "failed to run warmup sample 's': model 'm' released the request without a final "
                 "response; ");
    expect_error(IO SAMPLE("s", ONE, A2), answers_with_flags, STATUS_INVALID_ARG,
                 "failed to run warmup sample 's': expected a single response, got 0; ");
}

static void a_long_error_is_cut(void **state)
{
    (void)state;
    make(IO SAMPLE("s", ONE, A2), 1, answers_at_length);
    struct status *st = warm_up();
    assert_non_null(st);
    const char *text = status_message(st);
    assert_memory_equal(text, "failed to run warmup sample 's': xxx", 36);
    assert_in_range(strlen(text), 8192, 8192 + 64);
    status_free(st);
    fake_model_end(&f);
}

/* The first failure ends the warm-up. */
static int n_left;

static struct status *fails_later(struct instance *in, struct request **requests, uint32_t n)
{
    return n_left-- ? execute(in, requests, n) : execute_fails(in, requests, n);
}

static void the_first_failure_ends_the_warm_up(void **state)
{
    (void)state;
    n_left = 3;
    expect_error(IO SAMPLE("a", ONE " count: 2", A2) SAMPLE("b", ONE " count: 9", A2), fails_later,
                 STATUS_INVALID_ARG, "failed to run warmup sample 'b': no coffee; ");
    assert_int_equal(seen.n_executions, 3);
}

/* ---- Backends that answer late, and several times -------------------------------------------- */

static struct thread late_thread;
static struct request *late_request;

static void answer_late(void *arg)
{
    struct response *resp;
    (void)arg;
    for (int i = 0; i < 3; i++) {
        assert_null(response_new(late_request, &resp));
        assert_null(response_send(resp, 0, NULL));
    }
    assert_null(request_send_flags(late_request, RESPONSE_FINAL));
    assert_null(request_release(late_request));
}

static struct status *executes_later(struct instance *in, struct request **requests, uint32_t n)
{
    note(in, requests, n);
    if (seen.n_executions > 1)
        thread_join(&late_thread);
    late_request = requests[0];
    return thread_start(&late_thread, "late", answer_late, NULL);
}

static void answers_may_be_late_and_several(void **state)
{
    (void)state;
    make(IO SAMPLE("s", ONE " count: 20", A2), 1, executes_later);
    assert_null(warm_up());
    assert_int_equal(seen.n_executions, 20);
    thread_join(&late_thread);
    fake_model_end(&f);
}

/* Returns only when its request is cancelled, as a stop of the server does. */
static struct status *waits_for_a_stop(struct instance *in, struct request **requests, uint32_t n)
{
    note(in, requests, n);
    atomic_store(&f.server.state, SERVER_EXITING);
    while (!request_is_cancelled(requests[0]))
        sched_yield();
    return status_new(STATUS_CANCELLED, "told to stop");
}

static void a_stop_cancels_the_warm_up(void **state)
{
    (void)state;
    expect_error(IO SAMPLE("s", ONE " count: 4294967295", A2), waits_for_a_stop, STATUS_UNAVAILABLE,
                 "the server stops: instance 'm_0' gave up warmup sample 's'");
    assert_int_equal(seen.n_executions, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_backend_may_overwrite_the_array_of_requests),
        cmocka_unit_test(a_model_without_samples_executes_nothing),
        cmocka_unit_test(a_sample_of_zeros_is_executed),
        cmocka_unit_test(every_instance_executes_samples_in_order_with_counts),
        cmocka_unit_test(warm_up_counts_in_the_statistics),
        cmocka_unit_test(a_sample_is_reshaped_as_a_request_is),
        cmocka_unit_test(samples_may_omit_optional_and_add_undeclared_inputs),
        cmocka_unit_test(random_data_fits_each_type),
        cmocka_unit_test(a_sample_is_read_from_a_file),
        cmocka_unit_test(strings_are_read_from_a_file),
        cmocka_unit_test(samples_that_do_not_fit_fail_the_load),
        cmocka_unit_test(huge_samples_are_refused),
        cmocka_unit_test(a_backends_error_fails_the_load),
        cmocka_unit_test(a_long_error_is_cut),
        cmocka_unit_test(the_first_failure_ends_the_warm_up),
        cmocka_unit_test(answers_may_be_late_and_several),
        cmocka_unit_test(a_stop_cancels_the_warm_up),
    };
    return cmocka_run_group_tests(tests, make_repository, remove_repository);
}
