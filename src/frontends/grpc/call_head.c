/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The head of a call: method, encodings, deadline, restrictions, metadata for the model. A head
 * that the client repeats is read once; its note has what it said. Thread: the loop's.
 */
#include "frontends/grpc/call_priv.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/base64.h"
#include "base/loop.h"
#include "base/status.h"
#include "frontends/net/tls.h"
#include "frontends/ops/forwarding.h"

static struct span find_header(const struct http2_head *head, const char *name)
{
    return http2_head_find(head, name, strlen(name));
}

/* Refuses with a status of HTTP a request that is no gRPC call. Returns whether it did. */
static bool refuse_http(struct grpc_call *c, const struct http2_head *head)
{
    const char *status = NULL;
    if (head->is_too_large)
        status = "431";
    else if (!span_is(head->method, "POST"))
        status = "405";
    else if (!grpc_is_content_type(find_header(head, "content-type")))
        status = "415";
    if (!status)
        return false;
    c->has_ended = true;
    if (head->is_too_large)
        net_count(&c->ctx->env->net.counts, NET_REFUSED_HEAD, 1);
    net_count_answer(&c->ctx->env->net.counts, (unsigned int)strtoul(status, NULL, 10) - 100);
    http2_stream_respond(c->stream, status, NULL, 0, true);
    return true;
}

/* False: the value is invalid. gRPC's own library resets such a stream, whatever its method. */
static bool read_grpc_timeout(struct grpc_call *c, const struct http2_head *head)
{
    struct span value = find_header(head, "grpc-timeout");
    uint64_t timeout_ns, deadline_ns;
    if (LIKELY(!value.at))
        return true;
    if (!grpc_parse_timeout(value, &timeout_ns))
        return false;
    if (__builtin_add_overflow(*c->ctx->env->now_ns, timeout_ns, &deadline_ns))
        return true; /* a time beyond the clock's range is no deadline */
    c->deadline_ns = MAX(deadline_ns, (uint64_t)1);
    timers_set(&c->ctx->loop->timers, &c->deadline, deadline_ns);
    return true;
}

static struct status *read_encodings(struct grpc_call *c, const struct http2_head *head)
{
    struct span value = find_header(head, "grpc-encoding");
    c->accepted = grpc_accepted_encodings(find_header(head, "grpc-accept-encoding"));
    c->encoding = value.at ? grpc_encoding_of(value) : GRPC_IDENTITY;
    if (c->encoding)
        return NULL;
    return status_new(STATUS_UNSUPPORTED, "Compression algorithm '%.*s' is not supported",
                      (int)MIN(value.length, (size_t)32), value.at);
}

/* Checks that the client has sent the header that this part of the protocol needs, if any. */
static struct status *check_restriction(const struct grpc_call *c, enum ops_api api,
                                        const struct http2_head *head)
{
    const struct restriction *r = restrictions_find(&c->ctx->settings->restrictions, api);
    if (LIKELY(!r))
        return NULL;
    struct span value = http2_head_find(head, r->wire_name, r->name_length);
    if (restriction_admits(r, value.at, value.length))
        return NULL;
    return status_new(STATUS_UNAVAILABLE, "This protocol is restricted, expecting header '%s'",
                      r->name);
}

static const char *find_only_header(const void *head, const char *name, size_t name_length,
                                    size_t *ret_length)
{
    struct span value = http2_head_find_only(head, name, name_length);
    *ret_length = value.length;
    return value.at;
}

static bool has_grpc_peer_name(const void *peer, const char *name, size_t length)
{
    return tls_peer_has_name((struct tls *)(uintptr_t)peer, name, length);
}

/* What the access rules allow. They may change, so that it is no part of a note. */
static struct status *find_rights(struct grpc_call *c, const struct http2_head *head)
{
    struct access_client client = {.head = head,
                                   .find_header = find_only_header,
                                   .peer = http2_stream_peer(c->stream),
                                   .has_name = has_grpc_peer_name};
    return access_find(access_view_get(&c->ctx->access), c->api, &client, &c->rights);
}

static struct status *find_method(struct grpc_call *c, const struct http2_head *head)
{
    struct span path = head->path;
    struct found_method m = method_find(&c->ctx->settings->methods, path);
    c->kind = m.kind;
    c->unary = m.unary;
    c->api = m.api;
    if (m.kind)
        return check_restriction(c, m.api, head);
    return status_new(STATUS_UNSUPPORTED, "unknown method '%.*s'",
                      (int)MIN(path.length, (size_t)256), path.at);
}

/* What a head says, in its note: a head that the client repeats is read once (net/http2.h). */
struct head_note {
    const struct grpc_kind *kind; /* NULL: the head was not read yet */
    const struct unary_method *unary;
    enum ops_api api;
    unsigned int encoding, accepted;
    bool wants_true_status, has_timeout;
};

static_assert(sizeof(struct head_note) <= HTTP2_NOTE_BYTES, "a note has room");

static struct status *take_note(struct grpc_call *c, const struct head_note *note,
                                const struct http2_head *head)
{
    c->kind = note->kind;
    c->unary = note->unary;
    c->api = note->api;
    c->encoding = note->encoding;
    c->accepted = note->accepted;
    c->wants_true_status = note->wants_true_status;
    return LIKELY(!c->ctx->access.source) ? NULL : find_rights(c, head);
}

static struct status *read_head_fields(struct grpc_call *c, const struct http2_head *head)
{
    struct status *st = find_method(c, head);
    if (!st && UNLIKELY(c->ctx->access.source != NULL))
        st = find_rights(c, head);
    if (!st)
        st = read_encodings(c, head);
    if (st)
        return st;
    c->wants_true_status = span_is(find_header(head, "triton_grpc_error"), "true");
    if (head->note)
        *(struct head_note *)head->note =
            (struct head_note){c->kind,
                               c->unary,
                               c->api,
                               c->encoding,
                               c->accepted,
                               c->wants_true_status,
                               find_header(head, "grpc-timeout").at != NULL};
    return NULL;
}

bool call_read_head(struct grpc_call *c, const struct http2_head *head, struct status **ret_error)
{
    const struct head_note *note = head->note;
    bool is_read = note && note->kind;
    *ret_error = NULL;
    if (!is_read && refuse_http(c, head))
        return false;
    if (!(is_read && !note->has_timeout) && !read_grpc_timeout(c, head)) {
        c->has_ended = true;
        net_count(&c->ctx->env->net.counts, NET_CANCELLED, 1);
        http2_stream_reset(c->stream, HTTP2_INTERNAL_ERROR);
        return false;
    }
    if (is_read)
        *ret_error = take_note(c, note, head);
    else
        *ret_error = read_head_fields(c, head);
    if (!*ret_error && UNLIKELY(c->deadline_ns > 0 && c->deadline_ns <= *c->ctx->env->now_ns))
        *ret_error = status_new(STATUS_TIMED_OUT, CALL_DEADLINE_TEXT); /* it has passed already */
    return true;
}

/*
 * The value of metadata as the model gets it: binary ones are base64 in a head. A copy is in the
 * arena; a value that is not base64 stays as it is.
 */
static struct span decode_metadata(struct grpc_call *c, struct span name, struct span value)
{
    static const char suffix[] = "-bin";
    size_t n = sizeof(suffix) - 1, length;
    if (name.length < n || memcmp(name.at + name.length - n, suffix, n) != 0)
        return value;
    uint8_t *bytes = arena_alloc(&c->arena, base64_room(value.length));
    if (!bytes || !base64_decode(value.at, value.length, bytes, &length))
        return value;
    return (struct span){(const char *)bytes, length};
}

static struct status *find_forwarded_metadata(struct grpc_call *c, const struct http2_head *head)
{
    const struct regex *pattern = c->ctx->settings->forward_pattern;
    struct status *st = NULL;
    for (size_t i = 0; i < head->n_headers && !st; i++) {
        struct span name = head->headers[i].name, value = head->headers[i].value;
        if (!grpc_is_metadata(name))
            continue;
        value = decode_metadata(c, name, value);
        st = forwarding_add(pattern, name.at, name.length, value.at, value.length, &c->arena,
                            &c->forwarded);
    }
    return st;
}

/* Without memory the call is served as one of no trace. */
static void find_trace(struct grpc_call *c, const struct http2_head *head)
{
    struct trace_parent *parent =
        find_header(head, "traceparent").at ? arena_alloc(&c->arena, sizeof(*parent)) : NULL;
    if (!parent)
        return;
    *parent = (struct trace_parent){0};
    for (size_t i = 0; i < head->n_headers; i++) {
        struct span name = head->headers[i].name, value = head->headers[i].value;
        trace_parent_take(parent, name.at, name.length, value.at, value.length);
    }
    c->trace_parent = parent;
}

struct status *call_read_more(struct grpc_call *c, const struct http2_head *head)
{
    const struct grpc_settings *settings = c->ctx->settings;
    if (settings->tracer && tracer_reads_heads(settings->tracer))
        find_trace(c, head);
    return settings->forward_pattern ? find_forwarded_metadata(c, head) : NULL;
}
