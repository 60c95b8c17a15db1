/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a call has of the request that it is made for: deadline, priority, cancel, leave to run
 * while the model stops. The backend executes the parent until the test lets it.
 */
#include "core/request/on_behalf.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lib/fake_model.h"

static const char config[] =
    "input { name: \"A\" data_type: TYPE_FP32 dims: [ 1 ] optional: true }\n"
    "output { name: \"X\" data_type: TYPE_FP32 dims: [ 1 ] }\n"
    "parameters { key: \"CONCH_EXECUTION\" value { string_value: "
    "\"thread\" } }";

enum { ROUNDS = 200, CALLS = 4 };

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct request *held; /* the backend has it */
static bool is_shut;

/* Keeps the first request while the test wants it. */
static struct status *execute(struct instance *in, struct request **requests, uint32_t n)
{
    (void)in;
    pthread_mutex_lock(&mu);
    if (!held) {
        held = requests[0];
        pthread_cond_broadcast(&changed);
        while (is_shut)
            pthread_cond_wait(&changed, &mu);
    }
    pthread_mutex_unlock(&mu);
    for (uint32_t i = 0; i < n; i++)
        fake_answer(requests[i]);
    return NULL;
}

/* Makes a model, and a parent that its one instance executes. */
static void begin(struct fake_model *f, struct fake_request *parent)
{
    held = NULL;
    is_shut = true;
    fake_model_make(f, config, 1, execute);
    fake_request_make(parent, f);
    parent->request.maker.deadline_ns = UINT64_MAX - 1;
    parent->request.maker.priority = 7;
    assert_null(server_infer(&f->server, &parent->request));
    pthread_mutex_lock(&mu);
    while (!held)
        pthread_cond_wait(&changed, &mu);
    pthread_mutex_unlock(&mu);
    assert_ptr_equal(held, &parent->request);
}

static void let_parent_end(struct fake_request *parent)
{
    pthread_mutex_lock(&mu);
    is_shut = false;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mu);
    fake_request_wait(parent);
    fake_request_end(parent);
}

static void end(struct fake_model *f, struct fake_request *parent)
{
    let_parent_end(parent);
    fake_model_end(f);
}

static struct on_behalf *start_call(struct fake_model *f, struct fake_request *parent,
                                    struct fake_request *call)
{
    struct on_behalf *b;
    fake_request_make(call, f);
    assert_null(on_behalf_new(&parent->request, &b));
    assert_null(on_behalf_begin(b, &call->request));
    assert_null(server_infer(&f->server, &call->request));
    return b;
}

static void end_call(struct on_behalf *b, struct fake_request *call)
{
    fake_request_wait(call);
    on_behalf_end(b, &call->request);
    fake_request_end(call);
    on_behalf_free(b);
}

static void a_call_has_deadline_and_priority_for_one_run(void **state)
{
    (void)state;
    struct fake_model f;
    struct fake_request parent, call;
    begin(&f, &parent);
    struct on_behalf *b = start_call(&f, &parent, &call);
    assert_true(call.request.maker.deadline_ns == UINT64_MAX - 1);
    assert_int_equal(call.request.maker.priority, 7);
    let_parent_end(&parent);
    fake_request_wait(&call);
    assert_false(call.failed);
    on_behalf_end(b, &call.request);
    assert_int_equal(call.request.maker.deadline_ns, 0);
    assert_int_equal(call.request.maker.priority, 0);
    assert_false(call.request.maker.goes_on);
    fake_request_end(&call);
    on_behalf_free(b);
    fake_model_end(&f);
}

static void a_calls_own_priority_stays(void **state)
{
    (void)state;
    struct fake_model f;
    struct fake_request parent, call;
    struct on_behalf *b;
    begin(&f, &parent);
    fake_request_make(&call, &f);
    call.request.maker.priority = 3;
    assert_null(on_behalf_new(&parent.request, &b));
    assert_null(on_behalf_begin(b, &call.request));
    assert_int_equal(call.request.maker.priority, 3);
    on_behalf_end(b, &call.request);
    assert_int_equal(call.request.maker.priority, 3);
    on_behalf_free(b);
    fake_request_end(&call);
    end(&f, &parent);
}

static void a_request_that_no_backend_has_is_no_parent(void **state)
{
    (void)state;
    struct fake_model f;
    struct fake_request parent, idle;
    struct on_behalf *b;
    begin(&f, &parent);
    fake_request_make(&idle, &f);
    struct status *st = on_behalf_new(&idle.request, &b);
    assert_int_equal(status_code(st), STATUS_INVALID_ARG);
    status_free(st);
    fake_request_end(&idle);
    end(&f, &parent);
}

static void a_cancel_reaches_calls_that_wait(void **state)
{
    (void)state;
    struct fake_model f;
    struct fake_request parent, calls[CALLS];
    struct on_behalf *b[CALLS];
    begin(&f, &parent);
    for (int i = 0; i < CALLS; i++)
        b[i] = start_call(&f, &parent, &calls[i]);
    request_cancel(&parent.request);
    for (int i = 0; i < CALLS; i++) {
        fake_request_wait(&calls[i]); /* while the instance is busy */
        assert_int_equal(calls[i].last_code, STATUS_CANCELLED);
        end_call(b[i], &calls[i]);
    }
    struct on_behalf *late; /* a call that begins after the cancel is not made */
    fake_request_make(&calls[0], &f);
    assert_null(on_behalf_new(&parent.request, &late));
    struct status *st = on_behalf_begin(late, &calls[0].request);
    assert_int_equal(status_code(st), STATUS_CANCELLED);
    status_free(st);
    on_behalf_end(late, &calls[0].request);
    on_behalf_free(late);
    fake_request_end(&calls[0]);
    end(&f, &parent);
}

static void a_call_is_accepted_while_its_model_stops(void **state)
{
    (void)state;
    struct fake_model f;
    struct fake_request parent, call, other;
    struct on_behalf *b;
    begin(&f, &parent);
    assert_null(on_behalf_new(&parent.request, &b));
    model_stop(f.model);
    fake_request_make(&other, &f);
    struct status *st = server_infer(&f.server, &other.request);
    assert_int_equal(status_code(st), STATUS_UNAVAILABLE);
    status_free(st);
    fake_request_end(&other);
    let_parent_end(&parent);
    assert_int_equal(model_inflight(f.model), 1); /* the stop waits for the call to come */
    fake_request_make(&call, &f);
    assert_null(on_behalf_begin(b, &call.request));
    assert_null(server_infer(&f.server, &call.request));
    fake_request_wait(&call);
    assert_false(call.failed);
    end_call(b, &call);
    assert_int_equal(model_inflight(f.model), 0);
    fake_model_end(&f);
}

/* The cancel comes while the maker submits the call: after it begins, before it waits. */
static void a_call_that_is_cancelled_before_it_waits_does_not_wait(void **state)
{
    (void)state;
    struct fake_model f;
    struct fake_request parent, call;
    struct on_behalf *b;
    begin(&f, &parent);
    fake_request_make(&call, &f);
    assert_null(on_behalf_new(&parent.request, &b));
    assert_null(on_behalf_begin(b, &call.request));
    request_cancel(&parent.request);
    assert_null(server_infer(&f.server, &call.request));
    fake_request_wait(&call); /* while the instance is busy */
    assert_int_equal(call.last_code, STATUS_CANCELLED);
    end_call(b, &call);
    end(&f, &parent);
}

static void *cancel(void *arg)
{
    request_cancel(arg);
    return NULL;
}

/* A thread cancels the parent while another one makes the first call for it: no call is missed. */
static void no_cancel_is_lost(void **state)
{
    (void)state;
    struct fake_model f;
    for (int round = 0; round < ROUNDS; round++) {
        struct fake_request parent, call;
        pthread_t thread;
        begin(&f, &parent);
        assert_int_equal(pthread_create(&thread, NULL, cancel, &parent.request), 0);
        struct on_behalf *b;
        fake_request_make(&call, &f);
        assert_null(on_behalf_new(&parent.request, &b));
        struct status *st = on_behalf_begin(b, &call.request);
        if (!st) {
            assert_null(server_infer(&f.server, &call.request));
            fake_request_wait(&call); /* for ever, if the cancel is lost */
            assert_int_equal(call.last_code, STATUS_CANCELLED);
        }
        status_free(st);
        on_behalf_end(b, &call.request);
        fake_request_end(&call);
        on_behalf_free(b);
        pthread_join(thread, NULL);
        end(&f, &parent);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_call_has_deadline_and_priority_for_one_run),
        cmocka_unit_test(a_calls_own_priority_stays),
        cmocka_unit_test(a_request_that_no_backend_has_is_no_parent),
        cmocka_unit_test(a_cancel_reaches_calls_that_wait),
        cmocka_unit_test(a_call_is_accepted_while_its_model_stops),
        cmocka_unit_test(a_call_that_is_cancelled_before_it_waits_does_not_wait),
        cmocka_unit_test(no_cancel_is_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
