/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing a ModelInferResponse. The sizes of all parts are added up first, since a message that is
 * a field follows its size. Then the parts are written into one block, and a larger tensor becomes
 * a piece of its own. Each size_of_x() has its put_x(), which writes exactly that many bytes.
 * Threads: no state.
 */
#include "frontends/grpc/infer_encode.h"

#include <string.h>

#include "base/arena.h"
#include "base/pbwire.h"
#include "base/status.h"
#include "core/request/response.h"
#include "frontends/ops/tensor_regions.h"

/* Smaller tensors are copied, which costs less than one more piece. */
enum { COPIED_TENSOR_BYTES = 1024 };

enum response_field { MODEL_NAME = 1, MODEL_VERSION, ID, PARAMETERS, OUTPUTS, RAW };
enum stream_field { ERROR_MESSAGE = 1, INFER_RESPONSE };
enum entry_field { KEY = 1, VALUE };
enum parameter_field { BOOL_PARAM = 1, INT64_PARAM, STRING_PARAM, DOUBLE_PARAM };
enum output_field { OUTPUT_NAME = 1, DATATYPE, SHAPE };

/* ---- Texts ---------------------------------------------------------------------------------- */

/* A string field with its default is omitted. */
static size_t size_of_text(uint32_t number, const char *text)
{
    return text[0] ? pbwire_bytes_size(number, strlen(text)) : 0;
}

static char *put_text(char *at, uint32_t number, const char *text)
{
    return text[0] ? pbwire_put_bytes(at, number, text, strlen(text)) : at;
}

static size_t size_of_identity(const struct infer_identity *identity)
{
    return size_of_text(MODEL_NAME, identity->model_name) +
           size_of_text(MODEL_VERSION, identity->model_version) + size_of_text(ID, identity->id);
}

static char *put_identity(char *at, const struct infer_identity *identity)
{
    at = put_text(at, MODEL_NAME, identity->model_name);
    at = put_text(at, MODEL_VERSION, identity->model_version);
    return put_text(at, ID, identity->id);
}

/* ---- Parameters ----------------------------------------------------------------------------- */

/* The size of an InferParameter. Its choice is written even with the default value. */
static size_t size_of_choice(const struct parameter *p)
{
    switch (p->type) {
    case PARAMETER_BOOL:
        return 2;
    case PARAMETER_INT:
        return 1 + pbwire_varint_size((uint64_t)p->int64);
    case PARAMETER_DOUBLE:
        return 1 + sizeof(double);
    default:
        return pbwire_bytes_size(STRING_PARAM, strlen(p->string));
    }
}

static char *put_choice(char *at, const struct parameter *p)
{
    switch (p->type) {
    case PARAMETER_BOOL:
        return pbwire_put_number(at, BOOL_PARAM, p->boolean);
    case PARAMETER_INT:
        return pbwire_put_number(at, INT64_PARAM, (uint64_t)p->int64);
    case PARAMETER_DOUBLE:
        at = pbwire_put_tag(at, DOUBLE_PARAM, PBWIRE_FIXED64);
        memcpy(at, &p->float64, sizeof(p->float64));
        return at + sizeof(p->float64);
    default:
        return pbwire_put_bytes(at, STRING_PARAM, p->string, strlen(p->string));
    }
}

static size_t size_of_entry(const struct parameter *p)
{
    return pbwire_bytes_size(KEY, strlen(p->name)) + pbwire_bytes_size(VALUE, size_of_choice(p));
}

static size_t size_of_parameter(const struct parameter *p)
{
    return pbwire_bytes_size(PARAMETERS, size_of_entry(p));
}

static char *put_parameter(char *at, const struct parameter *p)
{
    at = pbwire_put_head(at, PARAMETERS, size_of_entry(p));
    at = pbwire_put_bytes(at, KEY, p->name, strlen(p->name));
    at = pbwire_put_head(at, VALUE, size_of_choice(p));
    return put_choice(at, p);
}

/* Makes the parameter triton_final_response. False: the response is not part of a stream. */
static bool make_final_parameter(enum infer_form form, struct parameter *ret)
{
    *ret = (struct parameter){.name = "triton_final_response",
                              .type = PARAMETER_BOOL,
                              .boolean = form == INFER_STREAM_LAST};
    return form != INFER_UNARY;
}

/* ---- Outputs -------------------------------------------------------------------------------- */

static size_t size_of_shape(const struct output *out)
{
    size_t n = 0;
    for (uint32_t i = 0; i < out->n_dims; i++)
        n += pbwire_varint_size((uint64_t)out->shape[i]);
    return n;
}

static size_t size_of_output(const struct output *out)
{
    size_t shape = size_of_shape(out);
    return size_of_text(OUTPUT_NAME, out->name) + size_of_text(DATATYPE, dtype_name(out->dtype)) +
           (shape ? pbwire_bytes_size(SHAPE, shape) : 0);
}

static char *put_output(char *at, const struct output *out)
{
    at = pbwire_put_head(at, OUTPUTS, size_of_output(out));
    at = put_text(at, OUTPUT_NAME, out->name);
    at = put_text(at, DATATYPE, dtype_name(out->dtype));
    if (out->n_dims == 0)
        return at;
    at = pbwire_put_head(at, SHAPE, size_of_shape(out));
    for (uint32_t i = 0; i < out->n_dims; i++)
        at = pbwire_put_varint(at, (uint64_t)out->shape[i]);
    return at;
}

/* The bytes in raw_output_contents: none of an output that lies in shared memory of the client. */
static size_t raw_bytes(const struct output *out)
{
    return tensor_regions_holds(out) ? 0 : out->size_bytes;
}

static bool is_copied(const struct output *out)
{
    return raw_bytes(out) <= COPIED_TENSOR_BYTES;
}

/* ---- The whole message ----------------------------------------------------------------------- */

/* The parts of a message. */
struct parts {
    const struct response *resp; /* NULL: no outputs */
    const struct infer_identity *identity;
    const char *error; /* "": none */
    struct parameter final_parameter;
    bool has_final_parameter, is_stream;
    /* Made by add_sizes(). */
    size_t response_bytes; /* of the ModelInferResponse */
    size_t total_bytes;    /* of the message */
    size_t apart_bytes;    /* … that are pieces of their own */
    uint32_t n_apart;      /* … and how many */
};

static struct status *check_parameters(const struct response *resp)
{
    for (uint32_t i = 0; i < resp->n_parameters; i++) {
        if (resp->parameters[i].type == PARAMETER_BYTES)
            return status_new(STATUS_UNSUPPORTED,
                              "Response parameter of type 'TRITONSERVER_PARAMETER_BYTES' is not "
                              "currently supported");
    }
    return NULL;
}

/* Adds up the sizes. All parts are in memory, so the sums are far below SIZE_MAX. */
static void add_sizes(struct parts *p)
{
    size_t n = size_of_identity(p->identity);
    const struct response *resp = p->resp;
    for (uint32_t i = 0; resp && i < resp->n_parameters; i++)
        n += size_of_parameter(&resp->parameters[i]);
    if (p->has_final_parameter)
        n += size_of_parameter(&p->final_parameter);
    for (uint32_t i = 0; resp && i < resp->n_outputs; i++) {
        const struct output *out = resp->outputs[i];
        n += pbwire_bytes_size(OUTPUTS, size_of_output(out));
        n += pbwire_bytes_size(RAW, raw_bytes(out));
        if (!is_copied(out)) {
            p->apart_bytes += out->size_bytes;
            p->n_apart++;
        }
    }
    p->response_bytes = p->total_bytes = n;
    if (p->is_stream)
        p->total_bytes =
            size_of_text(ERROR_MESSAGE, p->error) + pbwire_bytes_size(INFER_RESPONSE, n);
}

static struct status *refuse_size(const struct parts *p)
{
    return status_new(STATUS_INVALID_ARG,
                      "Response has byte size %zu which exceeds gRPC's byte size limit %zu.",
                      p->total_bytes, INFER_MAX_MESSAGE_BYTES);
}

static char *put_head_of_message(char *at, const struct parts *p)
{
    if (p->is_stream) {
        at = put_text(at, ERROR_MESSAGE, p->error);
        at = pbwire_put_head(at, INFER_RESPONSE, p->response_bytes);
    }
    at = put_identity(at, p->identity);
    for (uint32_t i = 0; p->resp && i < p->resp->n_parameters; i++)
        at = put_parameter(at, &p->resp->parameters[i]);
    if (p->has_final_parameter)
        at = put_parameter(at, &p->final_parameter);
    for (uint32_t i = 0; p->resp && i < p->resp->n_outputs; i++)
        at = put_output(at, p->resp->outputs[i]);
    return at;
}

static void add_piece(struct infer_pieces *pieces, const void *base, size_t n_bytes)
{
    if (n_bytes)
        pieces->items[pieces->count++] = (struct iovec){(void *)(uintptr_t)base, n_bytes};
}

static struct status *put_message(struct parts *p, struct arena *arena,
                                  struct infer_pieces *ret_pieces)
{
    struct infer_pieces pieces = {.total_bytes = p->total_bytes};
    char *begin = arena_alloc(arena, p->total_bytes - p->apart_bytes);
    pieces.items = arena_alloc(arena, (2 * (size_t)p->n_apart + 1) * sizeof(*pieces.items));
    if (!begin || !pieces.items)
        return status_no_memory();

    char *at = put_head_of_message(begin, p);
    for (uint32_t i = 0; p->resp && i < p->resp->n_outputs; i++) {
        const struct output *out = p->resp->outputs[i];
        if (is_copied(out)) {
            at = pbwire_put_bytes(at, RAW, out->base, raw_bytes(out));
            continue;
        }
        at = pbwire_put_head(at, RAW, out->size_bytes);
        add_piece(&pieces, begin, (size_t)(at - begin));
        add_piece(&pieces, out->base, out->size_bytes);
        begin = at;
    }
    add_piece(&pieces, begin, (size_t)(at - begin));
    *ret_pieces = pieces;
    return NULL;
}

struct status *infer_encode(const struct response *resp, const struct infer_identity *identity,
                            enum infer_form form, struct arena *arena,
                            struct infer_pieces *ret_pieces)
{
    struct parts p = {
        .resp = resp, .identity = identity, .error = "", .is_stream = form != INFER_UNARY};
    struct status *st = resp ? check_parameters(resp) : NULL;
    if (st)
        return st;
    p.has_final_parameter = make_final_parameter(form, &p.final_parameter);
    add_sizes(&p);
    if (p.total_bytes > INFER_MAX_MESSAGE_BYTES)
        return refuse_size(&p);
    return put_message(&p, arena, ret_pieces);
}

struct status *infer_encode_error(const char *text, const struct infer_identity *identity,
                                  enum infer_form form, struct arena *arena,
                                  struct infer_pieces *ret_pieces)
{
    struct parts p = {.identity = identity, .error = text, .is_stream = true};
    make_final_parameter(form, &p.final_parameter);
    p.has_final_parameter = form != INFER_EARLY;
    add_sizes(&p);
    return put_message(&p, arena, ret_pieces);
}
