/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of a request, with backends that keep the rules and backends that break them. Whatever
 * they do, there is one final response, one release, and all memory is freed (under asan).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/status.h"
#include "core/server/server.h"
#include "lib/fake_model.h"

static const char config[] = "input { name: \"A\" data_type: TYPE_FP32 dims: [ 1 ] }\n"
                             "output { name: \"X\" data_type: TYPE_FP32 dims: [ 1 ] }\n";

/* What the backend does with the one request of a test, and the errors that it got. */
static void (*deed)(struct request *r);
static struct status *execute_result;
static struct status *told[4];
static int n_told;

static void tell(struct status *st)
{
    told[n_told++] = st;
}

static struct status *execute(struct instance *in, struct request **requests, uint32_t n)
{
    (void)in;
    assert_int_equal(n, 1);
    deed(requests[0]);
    return TAKE(execute_result);
}

static void run(struct fake_request *fr, void (*what)(struct request *r))
{
    struct fake_model f;
    struct input *in;
    int64_t one = 1;
    static const float value = 1;
    struct tensor_buffer data = {.base = &value, .size_bytes = sizeof(value)};

    n_told = 0;
    deed = what;
    fake_model_make(&f, config, 1, execute);
    fake_request_make(fr, &f);
    assert_null(request_add_input(&fr->request, "A", 1, DTYPE_FP32, &one, 1, &in));
    assert_null(request_add_data(&fr->request, in, &data));
    assert_null(server_infer(&f.server, &fr->request));
    fake_request_wait(fr);
    fake_model_end(&f); /* after this no callback can be called */
    assert_int_equal(fr->n_final, 1);
    assert_int_equal(fr->n_released, 1);
    fake_request_end(fr);
    assert_int_equal(fr->n_destroyed, 1);
}

static void expect_told(int i, const char *text)
{
    assert_true(i < n_told);
    assert_non_null(told[i]);
    assert_string_equal(status_message(told[i]), text);
    status_free(told[i]);
}

static void good(struct request *r)
{
    fake_answer(r);
}

static void a_good_backend_answers_once(void **state)
{
    (void)state;
    struct fake_request fr;
    run(&fr, good);
    assert_int_equal(fr.n_responses, 1);
    assert_false(fr.failed);
}

static void silent(struct request *r)
{
    tell(request_release(r));
}

static void the_core_answers_a_request_released_without_a_response(void **state)
{
    (void)state;
    struct fake_request fr;
    run(&fr, silent);
    assert_null(told[0]);
    assert_int_equal(fr.n_responses, 1);
    assert_true(fr.failed);
    assert_int_equal(fr.last_code, STATUS_INTERNAL);
    assert_string_equal(fr.last_error, "model 'm' released the request without a final response");
}

static void deletes_its_response(struct request *r)
{
    struct response *resp;
    assert_null(response_new(r, &resp));
    response_free(resp);
    tell(request_release(r));
}

static void the_core_answers_for_a_deleted_response(void **state)
{
    (void)state;
    struct fake_request fr;
    run(&fr, deletes_its_response);
    assert_true(fr.failed);
    assert_int_equal(fr.n_responses, 1);
}

static void answers_twice(struct request *r)
{
    struct response *resp;
    assert_null(response_new(r, &resp));
    tell(response_send(resp, RESPONSE_FINAL, NULL));
    assert_null(response_new(r, &resp));
    tell(response_send(resp, RESPONSE_FINAL, NULL));
    tell(request_send_flags(r, RESPONSE_FINAL));
    tell(request_release(r));
}

static void only_the_first_final_response_counts(void **state)
{
    (void)state;
    struct fake_request fr;
    run(&fr, answers_twice);
    assert_int_equal(fr.n_responses, 1);
    assert_false(fr.failed);
    assert_null(told[0]);
    expect_told(1, "[request id: <id_unknown>] model 'm' sent a response after the final one");
    expect_told(2, "[request id: <id_unknown>] model 'm' sent a response after the final one");
    assert_null(told[3]);
}

static void releases_twice(struct request *r)
{
    struct response *resp;
    assert_null(response_new(r, &resp));
    tell(request_release(r)); /* the response may still be sent */
    tell(request_release(r));
    tell(response_send(resp, RESPONSE_FINAL, NULL));
}

static void a_second_release_is_refused(void **state)
{
    (void)state;
    struct fake_request fr;
    run(&fr, releases_twice);
    assert_null(told[0]);
    expect_told(1, "[request id: <id_unknown>] request is released, but not held by a backend");
    assert_null(told[2]);
    assert_int_equal(fr.n_responses, 1);
    assert_false(fr.failed);
}

static void nothing(struct request *r)
{
    (void)r;
}

static void an_error_of_execute_is_the_answer(void **state)
{
    (void)state;
    struct fake_request fr;
    execute_result = status_new(STATUS_UNAVAILABLE, "no coffee");
    run(&fr, nothing);
    assert_true(fr.failed);
    assert_int_equal(fr.last_code, STATUS_UNAVAILABLE);
    assert_string_equal(fr.last_error, "no coffee");
}

static void an_error_after_the_answer_is_ignored(void **state)
{
    (void)state;
    struct fake_request fr;
    execute_result = status_new(STATUS_UNAVAILABLE, "no coffee");
    run(&fr, good);
    assert_int_equal(fr.n_responses, 1);
    assert_false(fr.failed);
}

static void invents_an_output(struct request *r)
{
    struct response *resp;
    struct output *out;
    int64_t one = 1;
    assert_null(response_new(r, &resp));
    assert_null(response_add_output(resp, "Z", DTYPE_FP32, &one, 1, &out));
    assert_null(output_alloc(out, 4));
    struct status *st = output_alloc(out, 4);
    assert_int_equal(status_code(st), STATUS_ALREADY_EXISTS);
    status_free(st);
    tell(response_send(resp, RESPONSE_FINAL, NULL));
    tell(request_release(r));
}

static void an_undeclared_output_is_an_error(void **state)
{
    (void)state;
    struct fake_request fr;
    run(&fr, invents_an_output);
    assert_true(fr.failed);
    assert_int_equal(fr.last_code, STATUS_INVALID_ARG);
    assert_string_equal(fr.last_error, "unexpected inference output 'Z' for model 'm'");
}

/* ------------------------------------------------------------------------------------------ */

/* Small outputs lie in the response, as many as fit. A backend that writes them sees no
 * difference. */
static void outputs_of_every_size(struct request *r)
{
    static const size_t sizes[] = {1, 64, 250, 256, 257, 200, 200, 200, 100000, 16, 3, 0};
    char *data[ARRAY_SIZE(sizes)];
    struct response *resp;
    int64_t one = 1;
    unsigned int n_inside = 0;

    assert_null(response_new(r, &resp));
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        struct output *out;
        assert_null(response_add_output(resp, "X", DTYPE_INT8, &one, 1, &out));
        assert_null(output_alloc(out, sizes[i]));
        assert_string_equal(out->name, "X");
        assert_int_equal(out->shape[0], 1);
        assert_int_equal((uintptr_t)out->base % MEM_ALIGNMENT, 0);
        data[i] = out->base;
        if (data[i])
            memset(data[i], 'a' + (int)i, sizes[i]);
        n_inside += data[i] && (uintptr_t)data[i] - (uintptr_t)resp < 1024;
    }
    assert_in_range(n_inside, 2, ARRAY_SIZE(sizes) - 4);
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++)
        for (size_t k = 0; k < sizes[i]; k++)
            assert_int_equal(data[i][k], 'a' + i);
    response_free(resp);
    assert_null(response_new(r, &resp));
    assert_null(response_send(resp, RESPONSE_FINAL, NULL));
    assert_null(request_release(r));
}

static void small_outputs_behave_like_large_ones(void **state)
{
    (void)state;
    struct fake_request fr;
    run(&fr, outputs_of_every_size);
    assert_false(fr.failed);
}

static bool lies_in_the_request(const struct request *r, const struct response *resp)
{
    const char *memory = CONTAINER_OF((uintptr_t)r, struct fake_request, request)->memory;
    return (uintptr_t)resp - (uintptr_t)memory < sizeof(((struct fake_request *)0)->memory);
}

static void add_output(struct response *resp, int value)
{
    static const int64_t shape[] = {16};
    struct output *out;
    assert_null(response_add_output(resp, "X", DTYPE_FP32, shape, 1, &out));
    assert_null(output_alloc(out, 64));
    memset(out->base, value, 64);
}

static void expect_output(const struct response *resp, int value)
{
    const char *bytes = resp->outputs[0]->base;
    for (int i = 0; i < 64; i++)
        assert_int_equal(bytes[i], value);
}

/* One response lies in the request itself; a second one at the same time does not. */
static void has_two_responses(struct request *r)
{
    struct response *first, *second, *third;
    assert_null(response_new(r, &first));
    assert_null(response_new(r, &second));
    assert_true(lies_in_the_request(r, first));
    assert_false(lies_in_the_request(r, second));
    add_output(first, 1);
    add_output(second, 2);
    expect_output(first, 1);
    expect_output(second, 2);
    response_free(first);
    assert_null(response_new(r, &third));
    assert_true(lies_in_the_request(r, third));
    add_output(third, 3);
    expect_output(second, 2);
    response_free(second);
    expect_output(third, 3);
    assert_null(response_send(third, RESPONSE_FINAL, NULL));
    tell(request_release(r));
}

static void one_response_takes_no_block_from_the_pool(void **state)
{
    (void)state;
    struct fake_request fr;
    run(&fr, has_two_responses);
    assert_null(told[0]);
    assert_int_equal(fr.n_responses, 1);
    assert_false(fr.failed);
}

static void a_stopping_model_refuses_requests(void **state)
{
    (void)state;
    struct fake_model f;
    struct fake_request fr;
    struct input *in;
    int64_t one = 1;
    float value = 1;
    struct tensor_buffer data = {.base = &value, .size_bytes = sizeof(value)};
    fake_model_make(&f, config, 1, execute);
    fake_request_make(&fr, &f);
    assert_null(request_add_input(&fr.request, "A", 1, DTYPE_FP32, &one, 1, &in));
    assert_null(request_add_data(&fr.request, in, &data));
    model_stop(f.model);
    struct status *st = server_infer(&f.server, &fr.request);
    assert_int_equal(status_code(st), STATUS_UNAVAILABLE);
    assert_string_equal(status_message(st),
                        "[request id: <id_unknown>] Server is stopping, scheduler for model has "
                        "stopped accepting new inference requests");
    status_free(st);
    assert_int_equal(fr.n_responses, 0);
    assert_int_equal(fr.n_released, 0);
    fake_model_end(&f);
    fake_request_end(&fr);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_good_backend_answers_once),
        cmocka_unit_test(the_core_answers_a_request_released_without_a_response),
        cmocka_unit_test(the_core_answers_for_a_deleted_response),
        cmocka_unit_test(only_the_first_final_response_counts),
        cmocka_unit_test(a_second_release_is_refused),
        cmocka_unit_test(an_error_of_execute_is_the_answer),
        cmocka_unit_test(an_error_after_the_answer_is_ignored),
        cmocka_unit_test(an_undeclared_output_is_an_error),
        cmocka_unit_test(small_outputs_behave_like_large_ones),
        cmocka_unit_test(one_response_takes_no_block_from_the_pool),
        cmocka_unit_test(a_stopping_model_refuses_requests),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
