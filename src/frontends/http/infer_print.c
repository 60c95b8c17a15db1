/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prints a response of the core as a reply (reference/behaviours §3.19 to §4.7): one JSON object,
 * and behind it the bytes of the binary outputs, which are sent from the backend's memory.
 */
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/model/model.h"
#include "core/request/life.h"
#include "core/request/response.h"
#include "frontends/http/dialect.h"
#include "frontends/http/infer.h"
#include "frontends/http/packed.h"
#include "frontends/http/reply.h"

enum { COPIED_JSON = 4096 }; /* larger texts are handed over without a copy */

struct print {
    struct exchange *x;
    struct http_call *call;
    struct buf *out;
    struct iovec *pieces; /* the JSON, then binary outputs */
    int n_pieces;
};

/* Constant parts are added as literals, which saves a third of the cost of writing them as JSON. */
#define ADD(out, literal) buf_add(out, literal, sizeof(literal) - 1)

static void add_string(struct buf *out, const char *text)
{
    json_write_string(out, text, strlen(text));
}

/* A requested output has its own form; the other outputs follow the request's
 * binary_data_output. */
static bool wants_binary(const struct http_call *call, const char *name)
{
    for (uint32_t i = 0; i < call->n_requested_outputs; i++) {
        if (strcmp(call->requested_outputs[i].name, name) == 0)
            return call->requested_outputs[i].form.binary;
    }
    return call->binary_default;
}

static struct status *print_parameters(struct print *p, const struct response *resp)
{
    struct json_writer w = {.out = p->out};
    if (LIKELY(resp->n_parameters == 0))
        return NULL;
    ADD(p->out, ",\"parameters\":");
    json_put_open(&w, '{');
    for (uint32_t i = 0; i < resp->n_parameters; i++) {
        const struct parameter *parameter = &resp->parameters[i];
        json_put_name(&w, parameter->name);
        switch (parameter->type) {
        case PARAMETER_STRING:
            json_put_text(&w, parameter->string);
            break;
        case PARAMETER_INT:
            json_put_int64(&w, parameter->int64);
            break;
        case PARAMETER_BOOL:
            json_put_bool(&w, parameter->boolean);
            break;
        case PARAMETER_DOUBLE:
            json_put_double(&w, parameter->float64);
            break;
        case PARAMETER_BYTES:
            return status_new(STATUS_UNSUPPORTED,
                              "Response parameter of type 'TRITONSERVER_PARAMETER_BYTES' is not "
                              "currently supported");
        }
    }
    json_put_close(&w, '}');
    return NULL;
}

static struct status *status_of_misfit(const struct output *out)
{
    return status_new(STATUS_INTERNAL,
                      "output '%s': its %zu bytes do not fit its shape and its datatype %s",
                      out->name, out->size_bytes, dtype_name(out->dtype));
}

static struct status *print_strings(struct buf *b, const struct output *out, int64_t n_elements)
{
    const char *at = out->base, *end = at + out->size_bytes;
    struct json_writer list = {.out = b};
    json_put_open(&list, '[');
    for (int64_t i = 0; i < n_elements; i++) {
        uint32_t length;
        if ((size_t)(end - at) < sizeof(length))
            return status_of_misfit(out);
        memcpy(&length, at, sizeof(length));
        at += sizeof(length);
        if ((size_t)(end - at) < length)
            return status_of_misfit(out);
        json_put_string(&list, at, length);
        at += length;
    }
    json_put_close(&list, ']');
    return NULL;
}

/* Reserves about as much room as n numbers take, so that the text of a large tensor is not moved
 * several times while it grows. The text may be shorter or longer. */
static void reserve_numbers(struct buf *b, size_t n, enum dtype dtype, bool shortest_floats)
{
    enum { SHORTEST_WIDTH = 12 };
    static const unsigned char widths[N_DTYPES] = {
        [DTYPE_BOOL] = 6,    [DTYPE_UINT8] = 4, [DTYPE_UINT16] = 6, [DTYPE_UINT32] = 11,
        [DTYPE_UINT64] = 20, [DTYPE_INT8] = 5,  [DTYPE_INT16] = 7,  [DTYPE_INT32] = 12,
        [DTYPE_INT64] = 20,  [DTYPE_FP32] = 21, [DTYPE_FP64] = 21,
    };
    size_t wanted, width = widths[dtype];
    if (dtype == DTYPE_FP32 && shortest_floats)
        width = SHORTEST_WIDTH;
    if (!__builtin_mul_overflow(n, width, &wanted) && wanted < b->max - b->size)
        buf_reserve(b, wanted);
}

/* Writes the n elements of a tensor whose size was checked. False: its datatype is not a number. */
static bool write_numbers(struct buf *b, const struct output *out, size_t n, bool shortest_floats)
{
    switch (out->dtype) {
    case DTYPE_BOOL:
        json_write_bools(b, out->base, n);
        break;
    case DTYPE_UINT8:
        json_write_u8s(b, out->base, n);
        break;
    case DTYPE_UINT16:
        json_write_u16s(b, out->base, n);
        break;
    case DTYPE_UINT32:
        json_write_u32s(b, out->base, n);
        break;
    case DTYPE_UINT64:
        json_write_u64s(b, out->base, n);
        break;
    case DTYPE_INT8:
        json_write_i8s(b, out->base, n);
        break;
    case DTYPE_INT16:
        json_write_i16s(b, out->base, n);
        break;
    case DTYPE_INT32:
        json_write_i32s(b, out->base, n);
        break;
    case DTYPE_INT64:
        json_write_i64s(b, out->base, n);
        break;
    case DTYPE_FP32:
        if (shortest_floats)
            json_write_shortest_f32s(b, out->base, n);
        else
            json_write_f32s(b, out->base, n);
        break;
    case DTYPE_FP64:
        json_write_f64s(b, out->base, n);
        break;
    default:
        return false;
    }
    return true;
}

struct status *infer_print_values(struct buf *b, const struct output *out, bool shortest_floats,
                                  int64_t *ret_elements)
{
    size_t n_bytes;
    if (shape_elements(out->shape, out->n_dims, ret_elements))
        return status_of_misfit(out);
    if (out->dtype == DTYPE_BYTES)
        return print_strings(b, out, *ret_elements);
    if (dtype_size(out->dtype) == 0 || /* an invalid data type, from a backend */
        __builtin_mul_overflow((size_t)*ret_elements, dtype_size(out->dtype), &n_bytes) ||
        n_bytes != out->size_bytes)
        return status_of_misfit(out);

    size_t n = (size_t)*ret_elements;
    reserve_numbers(b, n, out->dtype, shortest_floats);
    return write_numbers(b, out, n, shortest_floats) ? NULL : status_of_misfit(out);
}

struct status *infer_check_printable(const struct output *out)
{
    if (out->dtype != DTYPE_FP16 && out->dtype != DTYPE_BF16)
        return NULL;
    return status_new(STATUS_INVALID_ARG,
                      "sending %s data via JSON is not supported. Please use the binary data "
                      "format for output %s",
                      dtype_name(out->dtype), out->name);
}

static struct status *print_data(struct print *p, const struct output *out)
{
    int64_t n_elements;
    struct status *st = infer_check_printable(out);
    if (st)
        return st;
    ADD(p->out, ",\"data\":");
    return infer_print_values(p->out, out, p->call->facts.shortest_floats, &n_elements);
}

static void add_binary_piece(struct print *p, const struct output *out)
{
    if (out->size_bytes > 0 && !tensor_regions_holds(out))
        p->pieces[p->n_pieces++] = (struct iovec){out->base, out->size_bytes};
}

static struct status *print_output(struct print *p, struct output *out)
{
    struct buf *b = p->out;

    ADD(b, "{\"name\":");
    add_string(b, out->name);
    ADD(b, ",\"datatype\":\"");
    buf_adds(b, dtype_name(out->dtype));
    ADD(b, "\",\"shape\":[");
    for (uint32_t i = 0; i < out->n_dims; i++) {
        if (i > 0)
            buf_addc(b, ',');
        json_write_int64(b, out->shape[i]);
    }
    buf_addc(b, ']');
    if (tensor_regions_holds(out)) {
        /* Its bytes are where the client wants them. */
    } else if (wants_binary(p->call, out->name)) {
        ADD(b, ",\"parameters\":{\"binary_data_size\":");
        json_write_uint64(b, out->size_bytes);
        buf_addc(b, '}');
        add_binary_piece(p, out);
    } else {
        struct status *st = print_data(p, out);
        if (st)
            return st;
    }
    buf_addc(b, '}');
    return NULL;
}

static struct status *print_document(struct print *p, struct response *resp)
{
    const struct request *r = &p->call->request;
    struct buf *b = p->out;

    buf_addc(b, '{');
    if (r->maker.id[0]) {
        ADD(b, "\"id\":");
        add_string(b, r->maker.id);
        buf_addc(b, ',');
    }
    ADD(b, "\"model_name\":");
    add_string(b, r->model->name);
    ADD(b, ",\"model_version\":\"");
    buf_adds(b, r->model->version_text);
    buf_addc(b, '"');
    struct status *st = print_parameters(p, resp);
    if (st)
        return st;
    ADD(b, ",\"outputs\":[");
    for (uint32_t i = 0; i < resp->n_outputs; i++) {
        if (i > 0)
            buf_addc(b, ',');
        st = print_output(p, resp->outputs[i]);
        if (st)
            return st;
    }
    ADD(b, "]}");
    return buf_status(b);
}

/* Moves the text from the loop's buffer to the exchange. */
static char *keep_text(struct print *p, size_t size)
{
    struct buf *json = p->out;
    if (size <= COPIED_JSON) /* a copy, so that the buffer keeps its memory */
        return arena_dup(&p->x->arena, json->data, size);
    p->call->json_taken = buf_take(json);
    return p->call->json_taken;
}

/* Whether the text has no values of outputs: all are binary, or lie in regions. */
static bool is_without_values(const struct http_call *call, const struct response *resp)
{
    for (uint32_t i = 0; i < resp->n_outputs; i++) {
        const struct output *out = resp->outputs[i];
        if (!tensor_regions_holds(out) && !wants_binary(call, out->name))
            return false;
    }
    return true;
}

/* Returns the text of a response, newly printed or remembered (memo.h), and its length in
 * *ret_size. */
static struct status *make_reply_text(struct print *p, struct response *resp, char **ret_text,
                                      size_t *ret_size)
{
    struct http_ctx *ctx = call_ctx(p->x);
    const struct request *r = &p->call->request;
    bool plain = !r->maker.id[0] && is_without_values(p->call, resp);
    const struct memo_reply *kept = plain ? memo_find_reply(&ctx->memo, r->model, resp) : NULL;
    if (kept) {
        for (uint32_t i = 0; i < resp->n_outputs; i++)
            add_binary_piece(p, resp->outputs[i]);
        *ret_size = kept->length;
        *ret_text = arena_dup(&p->x->arena, kept->text, kept->length);
        return NULL;
    }
    buf_reset(p->out);
    struct status *st = print_document(p, resp);
    if (st)
        return st;
    *ret_size = p->out->size;
    if (plain)
        memo_keep_reply(&ctx->memo, r->model, resp, p->out->data, *ret_size);
    *ret_text = keep_text(p, *ret_size);
    return NULL;
}

/* The packed reply has all of the response, and the request is answered. */
static void on_reply_packed(struct exchange *x)
{
    struct http_call *call = exchange_part(x);
    pool_release(TAKE(call->json_taken));
    answer_drop(&call->answer);
}

void infer_print(struct exchange *x, struct response *resp)
{
    struct iovec few[EXCHANGE_PIECES];
    struct print p = {
        .x = x, .call = exchange_part(x), .out = &call_ctx(x)->json, .pieces = few, .n_pieces = 1};
    struct status *st = NULL;
    char *text = NULL;
    size_t size = 0;

    if (resp->n_outputs + 1 > EXCHANGE_PIECES)
        p.pieces = arena_alloc(&x->arena, (resp->n_outputs + 1) * sizeof(*p.pieces));
    if (p.pieces)
        st = make_reply_text(&p, resp, &text, &size);
    if (!text) {
        reply_status(x, st ? st : status_no_memory(), content_text);
        return;
    }

    /* Tensors that are all printed are not kept for a client that reads slowly. */
    if (p.n_pieces == 1)
        answer_drop(&p.call->answer);
    const char *binary_type = call_ctx(x)->settings->dialect->binary_reply_type;
    p.pieces[0] = (struct iovec){text, size};
    struct http_reply reply = {
        .status = 200,
        .content_type = p.n_pieces == 1 ? content_json
                        : binary_type   ? binary_type
                                        : "application/octet-stream",
        .json_length = p.n_pieces > 1 ? size : 0,
        .length_in_type = binary_type != NULL,
        .headers = "",
        .body = p.pieces,
        .n_body = p.n_pieces,
    };
    if (LIKELY(p.call->facts.reply_coding == CODING_IDENTITY))
        reply_traced(x, &reply);
    else
        reply_packed(x, &reply, on_reply_packed);
}
