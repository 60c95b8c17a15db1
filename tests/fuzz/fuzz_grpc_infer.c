/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A ModelInferRequest, read by our codec and by protobuf-c: a message that both accept must have
 * the same meaning. A known field of a wrong wire type is not compared: protobuf skips it,
 * protobuf-c accepts it. An accepted message is decoded into a request of the core for a model of
 * four inputs.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/pool.h"
#include "base/status.h"
#include "core/model/model.h"
#include "core/request/request.h"
#include "frontends/grpc/infer_decode.h"
#include "frontends/grpc/infer_message.h"
#include "frontends/ops/tensor_blocks.h"
#include "frontends/ops/tensor_regions.h"
#include "proto/inference.pb-c.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const int64_t any[] = {-1};
static struct tensor_spec inputs[] = {
    {.name = "A", .dtype = DTYPE_FP32, .n_dims = 1, .dims = any},
    {.name = "B", .dtype = DTYPE_BYTES, .n_dims = 1, .dims = any},
    {.name = "C", .dtype = DTYPE_INT8, .n_dims = 1, .dims = any},
    {.name = "D", .dtype = DTYPE_BOOL, .n_dims = 1, .dims = any},
};
static struct tensor_spec outputs[] = {
    {.name = "O", .dtype = DTYPE_FP32, .n_dims = 1, .dims = any}};
static char model_name[] = "m", version_text[] = "1";
static struct model model = {
    .name = model_name,
    .version_text = version_text,
    .n_inputs = ARRAY_SIZE(inputs),
    .inputs = inputs,
    .n_outputs = ARRAY_SIZE(outputs),
    .outputs = outputs,
};
static struct pool *pool;

static void destroy(struct request *r)
{
    (void)r;
}

static void expect(bool fine)
{
    if (!fine)
        abort();
}

static enum pbwire_type wire_type(const ProtobufCFieldDescriptor *f)
{
    switch (f->type) {
    case PROTOBUF_C_TYPE_FLOAT:
        return PBWIRE_FIXED32;
    case PROTOBUF_C_TYPE_DOUBLE:
        return PBWIRE_FIXED64;
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_BYTES:
    case PROTOBUF_C_TYPE_MESSAGE:
        return PBWIRE_BYTES;
    default:
        return PBWIRE_VARINT;
    }
}

/* Do all known fields, also those of messages inside the message, have the right wire type? */
static bool has_right_types(const ProtobufCMessageDescriptor *d, struct pbwire_bytes bytes)
{
    struct pbwire in = pbwire_of(bytes.at, bytes.length);
    struct pbwire_field f;
    while (pbwire_next(&in, &f)) {
        const ProtobufCFieldDescriptor *field =
            protobuf_c_message_descriptor_get_field(d, f.number);
        if (!field)
            continue;
        bool packed = field->label == PROTOBUF_C_LABEL_REPEATED && f.type == PBWIRE_BYTES;
        if (f.type != wire_type(field) && !packed)
            return false;
        if (field->type == PROTOBUF_C_TYPE_MESSAGE && !has_right_types(field->descriptor, f.bytes))
            return false;
    }
    return true;
}

static bool same_text(struct pbwire_bytes ours, const char *theirs)
{
    /* protobuf-c ends a text at the first zero byte. */
    return strnlen(ours.at, ours.length) == strlen(theirs) &&
           strncmp(ours.at, theirs, ours.length) == 0;
}

static void compare_input(const struct infer_tensor *t,
                          const Inference__ModelInferRequest__InferInputTensor *in)
{
    const Inference__InferTensorContents *c = in->contents;
    expect(same_text(t->name, in->name) && same_text(t->datatype, in->datatype));
    expect(t->n_dims == in->n_shape && t->parameters.count == in->n_parameters);
    for (uint32_t i = 0; i < t->n_dims; i++)
        expect(t->shape[i] == in->shape[i]);
    expect((t->n_parts > 0) == (c != NULL));
    if (!c)
        return;
    expect(t->n_elements[CONTENTS_BOOL] == c->n_bool_contents &&
           t->n_elements[CONTENTS_INT] == c->n_int_contents &&
           t->n_elements[CONTENTS_INT64] == c->n_int64_contents &&
           t->n_elements[CONTENTS_UINT] == c->n_uint_contents &&
           t->n_elements[CONTENTS_UINT64] == c->n_uint64_contents &&
           t->n_elements[CONTENTS_FP32] == c->n_fp32_contents &&
           t->n_elements[CONTENTS_FP64] == c->n_fp64_contents &&
           t->n_elements[CONTENTS_BYTES] == c->n_bytes_contents);
}

static void compare(const struct infer_message *m, const Inference__ModelInferRequest *theirs)
{
    expect(same_text(m->model_name, theirs->model_name) && same_text(m->id, theirs->id) &&
           same_text(m->model_version, theirs->model_version));
    expect(m->inputs.count == theirs->n_inputs && m->outputs.count == theirs->n_outputs &&
           m->parameters.count == theirs->n_parameters && m->n_raw == theirs->n_raw_input_contents);
    for (uint32_t i = 0; i < m->n_raw; i++)
        expect(m->raw[i].length == theirs->raw_input_contents[i].len);
    for (uint32_t i = 0; i < m->inputs.count; i++)
        compare_input(&m->inputs.items[i], theirs->inputs[i]);
}

/* Compares the decoded values with those that protobuf-c has as 32-bit integers or floats. */
static void compare_values(const struct request *r, const Inference__ModelInferRequest *theirs)
{
    for (uint32_t i = 0; i < r->maker.n_inputs; i++) {
        const struct input *in = r->maker.inputs[i];
        const Inference__InferTensorContents *c = theirs->inputs[i]->contents;
        if (!c || in->size_bytes == 0)
            continue;
        const void *values = in->dtype == DTYPE_INT32  ? (const void *)c->int_contents
                             : in->dtype == DTYPE_FP32 ? (const void *)c->fp32_contents
                                                       : NULL;
        if (values)
            expect(memcmp(in->buffers[0].base, values, in->size_bytes) == 0);
    }
}

static void decode(const struct infer_message *m, const Inference__ModelInferRequest *theirs)
{
    static const struct request_ops ops = {.destroy = destroy};
    char memory[1024];
    struct tensor_blocks blocks = {NULL};
    struct tensor_regions regions;
    struct infer_asks asks;
    struct request r;
    tensor_regions_init(&regions, NULL); /* which knows no name */
    model_ref(&model);
    request_init(&r, &ops, &model, memory, sizeof(memory), pool);
    struct status *st = infer_decode(m, &r, &blocks, &regions, &asks);
    if (!st && theirs)
        compare_values(&r, theirs);
    status_free(st);
    tensor_blocks_release(&blocks);
    request_unref(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char memory[2048];
    struct infer_message m;
    struct arena arena;

    if (!pool) {
        pool = pool_new("fuzz", 1 << 20, 64 << 20);
        atomic_init(&model.refs, 1);
    }
    arena_init(&arena, memory, sizeof(memory), 16 << 20, pool, NULL);
    Inference__ModelInferRequest *theirs = NULL;
    struct pbwire_bytes bytes = {(const char *)data, size};
    if (has_right_types(&inference__model_infer_request__descriptor, bytes))
        theirs = inference__model_infer_request__unpack(NULL, size, data);
    struct status *st = infer_message_read(&m, data, size, &arena);
    if (!st) {
        if (theirs)
            compare(&m, theirs);
        decode(&m, theirs);
    }
    status_free(st);
    if (theirs)
        inference__model_infer_request__free_unpacked(theirs, NULL);
    arena_reset(&arena);
    return 0;
}
