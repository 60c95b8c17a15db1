/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A backend sends two responses, and ends the request by the final flag alone when there is no
 * memory for the second one. The maker gets both responses or an error, never the first response
 * alone.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/status.h"
#include "core/server/server.h"
#include "lib/fake_model.h"
#include "lib/fault.h"

static struct fake_model model;

static void send_two_or_end(struct request *r)
{
    struct response *first, *second;
    struct status *st = response_new(r, &first);
    if (!st) {
        st = response_new(r, &second);
        status_free(response_send(first, 0, NULL));
    }
    if (st)
        assert_null(request_send_flags(r, RESPONSE_FINAL));
    else
        assert_null(response_send(second, RESPONSE_FINAL, NULL));
    status_free(st);
    assert_null(request_release(r));
}

static struct status *execute(struct instance *in, struct request **requests, uint32_t n)
{
    (void)in;
    for (uint32_t i = 0; i < n; i++)
        send_two_or_end(requests[i]);
    return NULL;
}

static struct status *ask(void *arg)
{
    (void)arg;
    struct fake_request fr;
    fake_request_make(&fr, &model);
    struct status *st = server_infer(&model.server, &fr.request);
    if (!st) {
        fake_request_wait(&fr);
        if (fr.failed) {
            assert_string_equal(fr.last_error, "out of memory");
            st = status_no_memory();
        } else {
            assert_int_equal(fr.n_responses, 2);
        }
    }
    fake_request_end(&fr);
    return st;
}

static void no_response_is_lost_without_an_error(void **state)
{
    (void)state;
    fake_model_make(&model,
                    "model_transaction_policy { decoupled: true }\n"
                    "output { name: \"X\" data_type: TYPE_FP32 dims: [ 1 ] }",
                    1, execute);
    fault_each_allocation(ask, NULL);
    fake_model_end(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_response_is_lost_without_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
