/* SPDX-License-Identifier: Apache-2.0 */
/* The methods that report whether the server or a model is live or ready. Thread: the loop's. */
#include "base/status.h"
#include "core/server/server.h"
#include "frontends/grpc/unary_priv.h"
#include "proto/health.pb-c.h"
#include "proto/inference.pb-c.h"

struct status *unary_server_live(struct unary_call *c)
{
    bool live = false;
    struct status *st = server_is_live(c->server, &live);
    ((Inference__ServerLiveResponse *)c->answer)->live = live;
    return st;
}

struct status *unary_server_ready(struct unary_call *c)
{
    bool ready = false;
    struct status *st = server_is_ready(c->server, &ready);
    ((Inference__ServerReadyResponse *)c->answer)->ready = ready;
    return st;
}

struct status *unary_model_ready(struct unary_call *c)
{
    const Inference__ModelReadyRequest *asked = (const Inference__ModelReadyRequest *)c->request;
    struct ops_model_ref ref = unary_model_ref(asked->name, asked->version);
    bool ready = false;
    struct status *st = ops_model_ready(c->server, &ref, &ready);
    ((Inference__ModelReadyResponse *)c->answer)->ready = ready;
    return st;
}

/*
 * The answer is that of the server, whatever service the request names (reference/behaviours
 * §6.10). An error means that the server is about to exit.
 */
struct status *unary_health_check(struct unary_call *c)
{
    bool ready = false;
    struct status *st = server_is_ready(c->server, &ready);
    status_free(st);
    ((Grpc__Health__V1__HealthCheckResponse *)c->answer)->status =
        !st && ready ? GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING
                     : GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__NOT_SERVING;
    return NULL;
}
