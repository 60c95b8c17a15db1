/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The specification is made once from the configuration and is constant, so the tensors of a
 * request point into it. Only the sequence's id is written for each request, into memory of the
 * sequence. Nothing is allocated.
 */
#include "core/sched/controls.h"

#include <endian.h>
#include <string.h>

#define KIND(name) INFERENCE__MODEL_SEQUENCE_BATCHING__CONTROL__KIND__CONTROL_SEQUENCE_##name

static const int64_t ones[2] = {1, 1};

/* Sets the pair of values that the configuration gives; exactly one pair exists
 * (config_validate_sequence). */
static void set_values(struct control_spec *to,
                       const Inference__ModelSequenceBatching__Control *from)
{
    for (int i = 0; i < 2; i++) {
        if (from->n_int32_false_true) {
            to->dtype = DTYPE_INT32;
            memcpy(to->value[i], &from->int32_false_true[i], sizeof(int32_t));
        } else if (from->n_fp32_false_true) {
            to->dtype = DTYPE_FP32;
            memcpy(to->value[i], &from->fp32_false_true[i], sizeof(float));
        } else {
            to->dtype = DTYPE_BOOL;
            to->value[i][0] = from->bool_false_true[i] != 0;
        }
    }
}

void controls_init(struct controls *c, const Inference__ModelSequenceBatching *config,
                   bool batching)
{
    *c = (struct controls){.n_dims = batching ? 2 : 1};
    for (size_t i = 0; i < config->n_control_input; i++) {
        const Inference__ModelSequenceBatching__ControlInput *in = config->control_input[i];
        for (size_t k = 0; k < in->n_control && c->n < MAX_CONTROLS; k++) {
            struct control_spec *to = &c->items[c->n++];
            to->name = in->name;
            to->kind = in->control[k]->kind;
            if (to->kind == KIND(CORRID))
                to->dtype = (enum dtype)in->control[k]->data_type; /* the same numbers */
            else
                set_values(to, in->control[k]);
        }
    }
}

/* Writes the id as a tensor: a number, cut to the size of its type, or a string after its
 * length. */
static size_t put_id(enum dtype dtype, const struct request *r, struct control_inputs *to)
{
    if (dtype != DTYPE_BYTES) {
        to->id.number = htole64(r->maker.correlation_id.number);
        return dtype_size(dtype);
    }
    const char *text = r->maker.correlation_id.string ? r->maker.correlation_id.string : "";
    size_t length = strnlen(text, MAX_ID_BYTES);
    to->id.text.length = htole32((uint32_t)length);
    memcpy(to->id.text.bytes, text, length);
    return sizeof(to->id.text.length) + length;
}

static bool is_control_true(const struct control_spec *c, const struct request *r, bool ready)
{
    switch (c->kind) {
    case KIND(START):
        return ready && (r->maker.flags & REQUEST_SEQUENCE_START);
    case KIND(END):
        return ready && (r->maker.flags & REQUEST_SEQUENCE_END);
    default:
        return ready;
    }
}

void controls_make(const struct controls *c, struct control_inputs *ret_inputs)
{
    for (uint32_t i = 0; i < c->n; i++) {
        struct input *in = &ret_inputs->inputs[i];
        *in = (struct input){
            .name = c->items[i].name,
            .dtype = c->items[i].dtype,
            .n_buffers = 1,
            .buffer_capacity = 1,
            .buffers = &in->first,
            .n_backend_dims = c->n_dims,
            .backend_shape = ones,
        };
        if (c->items[i].kind == KIND(CORRID))
            in->first.base = &ret_inputs->id;
        else
            in->size_bytes = in->first.size_bytes = dtype_size(in->dtype);
    }
}

void controls_show(const struct controls *c, struct request *r, bool ready,
                   struct control_inputs *inputs)
{
    for (uint32_t i = 0; i < c->n; i++) {
        const struct control_spec *from = &c->items[i];
        struct input *in = &inputs->inputs[i];
        in->request = r;
        if (UNLIKELY(from->kind == KIND(CORRID)))
            in->size_bytes = in->first.size_bytes = put_id(from->dtype, r, inputs);
        else
            in->first.base = from->value[is_control_true(from, r, ready)];
    }
}
