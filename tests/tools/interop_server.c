/* SPDX-License-Identifier: Apache-2.0 */
/*
 * interop_server [gzip|deflate]: serves grpc.testing.TestService, on a free port of this machine,
 * until stdin ends. Prints the port. Clients of gRPC's interoperability tests ask it. The
 * service is mounted on our framing, beside the protocol's methods.
 *
 * Answers are packed by the encoding of the argument where a request says so, if the client accepts
 * it. Thread: the loop's, but main().
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/loop.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/status.h"
#include "frontends/grpc/call.h"
#include "frontends/net/server.h"
#include "frontends/ops/errors.h"
#include "lib/http2_service.h"
#include "tests/proto/interop.pb-c.h"

enum { MAX_ANSWERS = 64 }; /* that wait in a call */

struct answer {
    size_t n_bytes;
    uint64_t interval_ns; /* from the answer before */
    bool is_packed;
};

struct interop_part {
    struct answer answers[MAX_ANSWERS]; /* the first is the next to be sent */
    unsigned int n_answers;
    struct timer timer; /* of answers[0] */
    struct status *end; /* follows the answers; NULL: OK follows the half-close */
    size_t n_received;  /* bytes of payloads */
    struct grpc_metadata metadata;
};

static struct interop_part *part_of(struct grpc_call *c)
{
    return c->part;
}

/* ---- Sending -------------------------------------------------------------------------------- */

static void must(struct status *st, const char *what)
{
    if (!st)
        return;
    fprintf(stderr, "interop_server: %s: %s\n", what, status_message(st));
    exit(1);
}

static void *must_have(void *p)
{
    if (!p)
        must(status_no_memory(), "memory");
    return p;
}

static void release_packed(void *block)
{
    pool_release(block);
}

/* Sends a message; what is packed at all is decided by choose_encoding() of call.c. */
static void send_message(struct grpc_call *c, const ProtobufCMessage *message, bool is_packed)
{
    struct grpc_framed framed;
    unsigned int accepted = c->accepted;
    size_t n = protobuf_c_message_get_packed_size(message);
    struct iovec piece = {must_have(arena_alloc(&c->arena, n + 1)), n};

    protobuf_c_message_pack(message, piece.iov_base);
    if (!is_packed)
        c->accepted = GRPC_IDENTITY;
    must(call_frame(c, &c->arena, &piece, 1, &framed), "frame");
    c->accepted = accepted;
    framed.pieces[framed.count - 1].release = release_packed;
    framed.pieces[framed.count - 1].owner = framed.packed;
    call_send(c, &framed);
}

/* A payload of that many zeros. */
static Interop__Payload make_payload(struct grpc_call *c, size_t n_bytes)
{
    Interop__Payload payload = INTEROP__PAYLOAD__INIT;
    payload.body.len = n_bytes;
    payload.body.data = must_have(arena_alloc(&c->arena, n_bytes + 1));
    memset(payload.body.data, 0, n_bytes);
    return payload;
}

/* The error that a request asks for; NULL: none. Codes that we have no status for become UNKNOWN.
 */
static struct status *make_status(const Interop__Status *asked)
{
    if (!asked || asked->code == 0)
        return NULL;
    for (enum status_code code = 0; code <= STATUS_EXHAUSTED; code++) {
        if (ops_error_of(code)->grpc_status == asked->code)
            return status_new(code, "%s", asked->message);
    }
    return status_new(STATUS_UNKNOWN, "%s", asked->message);
}

/* Ends the call when all answers are sent and the client, too, has said all. */
static void finish_if_over(struct grpc_call *c)
{
    struct interop_part *p = part_of(c);
    if (p->n_answers > 0 || c->has_ended)
        return;
    if (p->end)
        call_fail(c, TAKE(p->end));
    else if (c->is_half_closed)
        call_finish(c);
}

static void send_answers(struct grpc_call *c)
{
    struct interop_part *p = part_of(c);
    while (p->n_answers > 0 && !p->timer.is_set) {
        struct answer *first = &p->answers[0];
        if (first->interval_ns > 0) {
            timers_set(&c->ctx->loop->timers, &p->timer, *c->ctx->env->now_ns + first->interval_ns);
            return;
        }
        Interop__Payload payload = make_payload(c, first->n_bytes);
        Interop__OutputResponse response = INTEROP__OUTPUT_RESPONSE__INIT;
        response.payload = &payload;
        send_message(c, &response.base, first->is_packed);
        memmove(first, first + 1, --p->n_answers * sizeof(*first));
    }
    finish_if_over(c);
}

static void on_timer(struct timer *t)
{
    struct interop_part *p = CONTAINER_OF(t, struct interop_part, timer);
    p->answers[0].interval_ns = 0;
    send_answers(grpc_call_of(p));
}

/* ---- Metadata ------------------------------------------------------------------------------- */

static void echo_header(struct grpc_call *c, const char *name, struct http2_field *to, uint32_t *n)
{
    struct span value = http2_head_find(c->head, name, strlen(name));
    if (!value.at)
        return;
    to[(*n)++] = (struct http2_field){name, must_have(arena_dup(&c->arena, value.at, value.length)),
                                      strlen(name), value.length, false};
}

static void begin_interop(struct grpc_call *c)
{
    struct interop_part *p = part_of(c);
    memset(p, 0, sizeof(*p));
    timer_init(&p->timer, on_timer);
    echo_header(c, "x-grpc-test-echo-initial", p->metadata.head, &p->metadata.n_head);
    echo_header(c, "x-grpc-test-echo-trailing-bin", p->metadata.trailers, &p->metadata.n_trailers);
    c->metadata = &p->metadata;
}

/* ---- The methods ---------------------------------------------------------------------------- */

/* Reads a message and releases its block. NULL: the call has failed. */
static void *read_message(struct grpc_call *c, const ProtobufCMessageDescriptor *type, char *block,
                          const char *bytes, size_t n_bytes)
{
    void *m = protobuf_c_message_unpack(type, NULL, n_bytes, (const uint8_t *)bytes);
    pool_release(block);
    if (!m)
        call_fail(c, status_new(STATUS_INTERNAL, "not a %s", type->name));
    return m;
}

/* Whether the message just received is packed as the client says. If not, the call has failed. */
static bool is_as_said(struct grpc_call *c, const Interop__Flag *expected)
{
    if (!expected || !expected->value == !c->incoming.compressed)
        return true;
    call_fail(c, status_new(STATUS_INVALID_ARG, "the message is %spacked",
                            c->incoming.compressed ? "" : "not "));
    return false;
}

static size_t count_payload(const Interop__Payload *payload)
{
    return payload ? payload->body.len : 0;
}

static void take_empty(struct grpc_call *c, char *block, const char *bytes, size_t n_bytes)
{
    (void)bytes, (void)n_bytes;
    pool_release(block);
    call_reply(c, NULL, 0);
}

static void answer_simple(struct grpc_call *c, const Interop__SimpleRequest *request)
{
    Interop__SimpleResponse response = INTEROP__SIMPLE_RESPONSE__INIT;
    Interop__Payload payload = make_payload(c, (size_t)request->response_size);
    struct status *st = make_status(request->response_status);
    if (st) {
        call_fail(c, st);
        return;
    }
    response.payload = &payload;
    send_message(c, &response.base,
                 request->response_compressed && request->response_compressed->value);
    call_finish(c);
}

static void take_simple(struct grpc_call *c, char *block, const char *bytes, size_t n_bytes)
{
    Interop__SimpleRequest *request =
        read_message(c, &interop__simple_request__descriptor, block, bytes, n_bytes);
    if (!request)
        return;
    if (is_as_said(c, request->expect_compressed))
        answer_simple(c, request);
    interop__simple_request__free_unpacked(request, NULL);
}

static void take_input(struct grpc_call *c, char *block, const char *bytes, size_t n_bytes)
{
    Interop__InputRequest *request =
        read_message(c, &interop__input_request__descriptor, block, bytes, n_bytes);
    if (!request)
        return;
    if (is_as_said(c, request->expect_compressed))
        part_of(c)->n_received += count_payload(request->payload);
    interop__input_request__free_unpacked(request, NULL);
}

static void end_input(struct grpc_call *c)
{
    Interop__InputResponse response = INTEROP__INPUT_RESPONSE__INIT;
    response.aggregated_payload_size = (int32_t)part_of(c)->n_received;
    send_message(c, &response.base, false);
    call_finish(c);
}

static void queue_answer(struct grpc_call *c, const Interop__OutputParameters *asked)
{
    struct interop_part *p = part_of(c);
    if (p->n_answers == MAX_ANSWERS) {
        call_fail(c, status_new(STATUS_EXHAUSTED, "more than %d answers", MAX_ANSWERS));
        return;
    }
    p->answers[p->n_answers++] = (struct answer){
        .n_bytes = (size_t)asked->size,
        .interval_ns = (uint64_t)asked->interval_us * NS_PER_US,
        .is_packed = asked->compressed && asked->compressed->value,
    };
}

static void take_output(struct grpc_call *c, char *block, const char *bytes, size_t n_bytes)
{
    Interop__OutputRequest *request =
        read_message(c, &interop__output_request__descriptor, block, bytes, n_bytes);
    if (!request)
        return;
    for (size_t i = 0; i < request->n_response_parameters && !c->has_ended; i++)
        queue_answer(c, request->response_parameters[i]);
    if (!part_of(c)->end)
        part_of(c)->end = make_status(request->response_status);
    interop__output_request__free_unpacked(request, NULL);
    send_answers(c);
}

static void cancel_interop(struct grpc_call *c)
{
    struct interop_part *p = part_of(c);
    p->n_answers = 0;
    timers_clear(&c->ctx->loop->timers, &p->timer);
}

static void end_interop(struct grpc_call *c)
{
    cancel_interop(c);
    status_free(part_of(c)->end);
}

#define KIND(name, message, ...)                                                                   \
    static const struct grpc_kind name = {.has_tensors = true, /* so that answers may be packed */ \
                                          .part_bytes = sizeof(struct interop_part),               \
                                          .memory_bytes = GRPC_CALL_MEMORY,                        \
                                          .begin = begin_interop,                                  \
                                          .on_message = message,                                   \
                                          .cancel = cancel_interop,                                \
                                          .end = end_interop,                                      \
                                          __VA_ARGS__}

KIND(empty_kind, take_empty, );
KIND(simple_kind, take_simple, );
KIND(input_kind, take_input, .takes_many = true, .on_half_close = end_input);
KIND(output_kind, take_output, .on_half_close = finish_if_over);
KIND(duplex_kind, take_output, .takes_many = true, .on_half_close = finish_if_over);

static const struct grpc_method methods[] = {
    {"/grpc.testing.TestService/EmptyCall", &empty_kind},
    {"/grpc.testing.TestService/UnaryCall", &simple_kind},
    {"/grpc.testing.TestService/StreamingInputCall", &input_kind},
    {"/grpc.testing.TestService/StreamingOutputCall", &output_kind},
    {"/grpc.testing.TestService/FullDuplexCall", &duplex_kind},
};

/* ---- The program ---------------------------------------------------------------------------- */

static struct grpc_settings settings = {
    .methods = {.further = methods, .n_further = ARRAY_SIZE(methods)},
    .max_message_bytes = 64 << 20,
};

static void *make_ctx(void *arg, struct net_env *env)
{
    struct grpc_ctx *ctx = mem_zalloc(sizeof(*ctx));
    (void)arg;
    grpc_ctx_init(ctx, &settings, CONTAINER_OF(env, struct http2_env, net));
    return ctx;
}

static void free_ctx(void *arg)
{
    struct grpc_ctx *ctx = arg;
    if (!ctx)
        return;
    grpc_ctx_done(ctx);
    mem_free(ctx);
}

int main(int argc, char **argv)
{
    struct http2_settings http2 = {.handler = &grpc_handler};
    struct net_server *server;
    struct net_options o;
    enum net_end end;
    char byte;

    if (argc > 1) /* each level has one of the two as its first choice */
        settings.compression =
            strcmp(argv[1], "gzip") == 0 ? GRPC_COMPRESSION_LOW : GRPC_COMPRESSION_MEDIUM;
    http2_service_options(&o, &http2, "interop");
    o.ctx_new = make_ctx;
    o.ctx_free = free_ctx;
    must(net_server_start(&o, &server), "start");
    printf("port %d\n", net_server_port(server));
    fflush(stdout);
    while (read(STDIN_FILENO, &byte, 1) > 0) {
    }
    unsigned int n_cut = net_server_stop(server, monotonic_ns() + 10 * NS_PER_S, NULL, &end);
    return n_cut == 0 && end == NET_FREED ? 0 : 3;
}
