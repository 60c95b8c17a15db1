/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The timer is a part of the exchange's call. Exchanges without the header have none. Thread: the
 * loop's.
 */
#include "frontends/http/deadline.h"

#include "base/loop.h"
#include "base/status.h"
#include "frontends/http/call.h"

bool deadline_parse(const char *at, size_t length, uint32_t *ret_ms)
{
    uint64_t n = 0;
    for (size_t i = 0; i < length; i++) {
        if (at[i] < '0' || at[i] > '9')
            return false;
        n = MIN(n * 10 + (uint64_t)(at[i] - '0'), (uint64_t)UINT32_MAX);
    }
    *ret_ms = (uint32_t)n;
    return length > 0;
}

struct status *deadline_status(void)
{
    return status_new(STATUS_TIMED_OUT, "Deadline Exceeded");
}

static void on_timer(struct timer *t)
{
    struct http_call *call = CONTAINER_OF(t, struct http_call, deadline);
    call->on_deadline(exchange_of_part(call));
}

struct status *deadline_begin(struct exchange *x, void (*on_passed)(struct exchange *x))
{
    struct http_call *call = exchange_part(x);
    struct loop *loop = x->env->net.loop;
    timer_init(&call->deadline, on_timer);
    call->on_deadline = on_passed;
    if (call->timeout_text)
        return status_new(STATUS_INVALID_ARG,
                          "the header Conch-Timeout-Ms must be a number of milliseconds, got '%s'",
                          call->timeout_text);
    if (call->deadline_ns <= loop_now_ns(loop))
        return deadline_status();
    call->request.maker.deadline_ns = call->deadline_ns;
    loop_set_timer(loop, &call->deadline, call->deadline_ns);
    return NULL;
}

void deadline_end(struct exchange *x)
{
    struct http_call *call = exchange_part(x);
    if (UNLIKELY(call->facts.has_timeout))
        loop_clear_timer(x->env->net.loop, &call->deadline);
}
