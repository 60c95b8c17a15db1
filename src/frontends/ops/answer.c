/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first response is kept, others are only counted. The message `answered` is posted once, with
 * the final flag. Threads: as the header says.
 */
#include "frontends/ops/answer.h"

#include "base/loop.h"
#include "base/status.h"
#include "core/request/life.h"
#include "core/request/request.h"
#include "core/request/response.h"

void answer_init(struct answer *a, void (*on_answered)(struct message *m),
                 void (*on_destroyed)(struct message *m))
{
    a->answered.deliver = on_answered;
    a->destroyed.deliver = on_destroyed;
    atomic_init(&a->response, NULL);
    atomic_init(&a->n_responses, 0);
}

bool answer_take(struct answer *a, struct loop *loop, struct response *resp, uint32_t flags)
{
    if (resp) {
        struct response *none = NULL;
        if (!atomic_compare_exchange_strong(&a->response, &none, resp))
            response_free(resp); /* the protocol carries one; more are an error */
        atomic_fetch_add(&a->n_responses, 1);
    }
    if (!(flags & RESPONSE_FINAL))
        return false;
    if (loop_is_on_thread(loop))
        return true;
    loop_post(loop, &a->answered);
    return false;
}

struct status *answer_read(struct answer *a, struct response **ret_resp)
{
    unsigned int n = atomic_load(&a->n_responses);
    struct response *resp = atomic_load(&a->response);
    if (UNLIKELY(n != 1))
        return status_new(STATUS_INTERNAL, "expected a single response, got %u", n);
    if (resp->error)
        return status_ref(resp->error);
    *ret_resp = resp;
    return NULL;
}

void answer_drop(struct answer *a)
{
    response_free(atomic_exchange(&a->response, NULL));
}

bool answer_destroyed(struct answer *a, struct loop *loop)
{
    if (loop_is_on_thread(loop))
        return true;
    loop_post(loop, &a->destroyed);
    return false;
}
