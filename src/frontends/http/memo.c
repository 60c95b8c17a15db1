/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The length of a request's text decides its slot, the model that of a reply; a new entry replaces
 * the one in its slot. A length of 0 marks a slot that is being filled. The length is set last, so
 * a fill that stops half-way leaves the slot empty.
 */
#include "frontends/http/memo.h"

#include <string.h>

#include "core/model/model.h"
#include "core/request/response.h"
#include "frontends/ops/tensor_regions.h"

const struct memo_slot *memo_find(const struct memo *m, const char *text, size_t length)
{
    const struct memo_slot *slot = &m->slots[length % MEMO_SLOTS];
    return slot->length == length && memcmp(slot->text, text, length) == 0 ? slot : NULL;
}

struct memo_slot *memo_begin(struct memo *m, size_t length)
{
    if (length > MEMO_TEXT)
        return NULL;
    struct memo_slot *slot = &m->slots[length % MEMO_SLOTS];
    slot->length = 0;
    return slot;
}

void memo_keep(struct memo_slot *slot, const char *text, size_t length)
{
    memcpy(slot->text, text, length);
    slot->length = length;
}

/* ---- Replies -------------------------------------------------------------------------------- */

static size_t slot_of(const struct model *model)
{
    return (uintptr_t)model / 64 % MEMO_REPLIES;
}

static bool is_same(const struct memo_printed *kept, const struct output *out)
{
    if (kept->size_bytes != out->size_bytes || kept->dtype != out->dtype ||
        kept->n_dims != out->n_dims || kept->is_in_region != tensor_regions_holds(out))
        return false;
    for (uint32_t i = 0; i < out->n_dims; i++) {
        if (kept->dims[i] != out->shape[i])
            return false;
    }
    return strcmp(kept->name, out->name) == 0;
}

/* Reads the value of a number or a truth value. False: the parameter is of another type. */
static bool fixed_value_of(const struct parameter *p, int64_t *ret_value)
{
    if (p->type != PARAMETER_INT && p->type != PARAMETER_BOOL)
        return false;
    *ret_value = p->type == PARAMETER_INT ? p->int64 : p->boolean;
    return true;
}

static bool has_same_parameters(const struct memo_reply *kept, const struct response *resp)
{
    for (uint32_t i = 0; i < resp->n_parameters; i++) {
        const struct memo_parameter *k = &kept->parameters[i];
        const struct parameter *p = &resp->parameters[i];
        int64_t value;
        if (k->type != p->type || !fixed_value_of(p, &value) || k->value != value ||
            strcmp(k->name, p->name) != 0)
            return false;
    }
    return true;
}

const struct memo_reply *memo_find_reply(const struct memo *m, const struct model *model,
                                         const struct response *resp)
{
    const struct memo_reply *kept = &m->replies[slot_of(model)];
    if (kept->length == 0 || kept->n_outputs != resp->n_outputs ||
        kept->n_parameters != resp->n_parameters || strcmp(kept->model, model->name) != 0 ||
        strcmp(kept->version, model->version_text) != 0 || !has_same_parameters(kept, resp))
        return NULL;
    for (uint32_t i = 0; i < resp->n_outputs; i++) {
        if (!is_same(&kept->outputs[i], resp->outputs[i]))
            return NULL;
    }
    return kept;
}

/* False: the name is too long. */
static bool copy_name(char *to, size_t n_bytes, const char *name)
{
    size_t length = strnlen(name, n_bytes);
    if (length == n_bytes)
        return false;
    memcpy(to, name, length + 1);
    return true;
}

static bool copy_output(struct memo_printed *kept, const struct output *out)
{
    kept->dtype = out->dtype;
    kept->is_in_region = tensor_regions_holds(out);
    kept->n_dims = out->n_dims;
    kept->size_bytes = out->size_bytes;
    if (out->n_dims > MEMO_DIMS || !copy_name(kept->name, sizeof(kept->name), out->name))
        return false;
    for (uint32_t i = 0; i < out->n_dims; i++)
        kept->dims[i] = out->shape[i];
    return true;
}

static bool copy_parameters(struct memo_reply *kept, const struct response *resp)
{
    kept->n_parameters = resp->n_parameters;
    if (resp->n_parameters > MEMO_PARAMETERS)
        return false;
    for (uint32_t i = 0; i < resp->n_parameters; i++) {
        const struct parameter *p = &resp->parameters[i];
        struct memo_parameter *k = &kept->parameters[i];
        k->type = p->type;
        if (!fixed_value_of(p, &k->value) || !copy_name(k->name, sizeof(k->name), p->name))
            return false;
    }
    return true;
}

void memo_keep_reply(struct memo *m, const struct model *model, const struct response *resp,
                     const char *text, size_t length)
{
    struct memo_reply *kept = &m->replies[slot_of(model)];
    kept->length = 0;
    if (length > sizeof(kept->text) || resp->n_outputs > MEMO_TENSORS ||
        !copy_parameters(kept, resp) || !copy_name(kept->model, sizeof(kept->model), model->name) ||
        !copy_name(kept->version, sizeof(kept->version), model->version_text))
        return;
    for (uint32_t i = 0; i < resp->n_outputs; i++) {
        if (!copy_output(&kept->outputs[i], resp->outputs[i]))
            return;
    }
    kept->n_outputs = resp->n_outputs;
    memcpy(kept->text, text, length);
    kept->length = length;
}
