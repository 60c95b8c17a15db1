/* SPDX-License-Identifier: Apache-2.0 */
/* No state of its own. Thread: the loop's. */
#include "frontends/http/client.h"

#include "base/status.h"
#include "frontends/http/call.h"
#include "frontends/net/http1.h"
#include "frontends/net/tls.h"
#include "frontends/ops/forwarding.h"

static const char *find_http_header(const void *head, const char *name, size_t name_length,
                                    size_t *ret_length)
{
    struct span value = head_find_only(head, name, name_length);
    *ret_length = value.length;
    return value.at;
}

static bool has_http_peer_name(const void *peer, const char *name, size_t length)
{
    return tls_peer_has_name((struct tls *)(uintptr_t)peer, name, length);
}

bool client_is_allowed(struct exchange *x, const struct http_head *head, enum ops_api api,
                       struct span model)
{
    struct http_ctx *ctx = call_ctx(x);
    if (LIKELY(!ctx->access.source))
        return true;
    struct access_client client = {.head = head,
                                   .find_header = find_http_header,
                                   .peer = x->connection->session.tls,
                                   .has_name = has_http_peer_name};
    return access_allows(access_view_get(&ctx->access), api, &client, model.at, model.length);
}

void client_find_trace(struct exchange *x, const struct http_head *head)
{
    struct http_call *call = exchange_part(x);
    struct trace_parent *parent = arena_alloc(&x->arena, sizeof(*parent));
    if (!parent)
        return; /* the request is served as one of no trace */
    *parent = (struct trace_parent){0};
    for (unsigned int i = 0; i < head->n_headers; i++) {
        struct span name, value;
        head_get_header(head, i, &name, &value);
        trace_parent_take(parent, name.at, name.length, value.at, value.length);
    }
    call->trace_parent = parent;
}

void client_find_forwarded(struct exchange *x, const struct http_head *head)
{
    struct http_call *call = exchange_part(x);
    const struct regex *pattern = call_ctx(x)->settings->forward_pattern;
    struct status *st = NULL;
    for (unsigned int i = 0; i < head->n_headers && !st; i++) {
        struct span name, value;
        head_get_header(head, i, &name, &value);
        st = forwarding_add(pattern, name.at, name.length, value.at, value.length, &x->arena,
                            &call->forwarded);
    }
    call->no_memory |= st != NULL;
    status_free(st);
}
