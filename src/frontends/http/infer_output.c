/* SPDX-License-Identifier: Apache-2.0 */
/* The outputs that an inference names, and their requested forms. */
#include "frontends/http/infer_priv.h"

#include <string.h>

#include "base/status.h"
#include "core/model/model.h"

struct status *add_requested_output(struct parse *p, struct output_form form,
                                    const struct region_part *part)
{
    struct http_call *call = p->call;
    struct requested_output *outputs =
        arena_grow(&p->x->arena, call->requested_outputs, call->n_requested_outputs,
                   &call->requested_capacity, sizeof(*outputs));
    if (!outputs)
        return status_no_memory();
    call->requested_outputs = outputs;
    uint32_t index = p->r->maker.n_outputs - 1;
    const char *name = p->r->maker.outputs[index];
    outputs[call->n_requested_outputs++] = (struct requested_output){name, form};
    if (form.n_classes > 0)
        return classification_add(&call->classes, p->r, index, form.n_classes);
    return part ? tensor_regions_add_output(&call->regions, p->r, name, part) : NULL;
}

/* Reads an output's parameters. */
static struct status *parse_output_parameters(struct json *j, struct output_form *ret_form,
                                              struct region_text *region)
{
    struct json_str key;
    bool binary_seen = false, binary = false, classes_seen = false;
    uint64_t classes = 0;

    if (json_peek(j) != JSON_OBJECT) {
        json_skip_value(j);
        return NULL;
    }
    json_enter_object(j);
    while (json_next_member(j, &key)) {
        if (json_str_is(key, "binary_data") && !binary_seen) {
            binary_seen = true;
            if (!json_read_bool(j, &binary))
                return field_status(j->failure, "binary_data");
        } else if (json_str_is(key, "classification") && !classes_seen) {
            classes_seen = true;
            if (!json_read_uint64(j, &classes))
                return json_status(j->failure, "Unable to set 'classification'");
        } else if (!read_region_parameter(region, j, key)) {
            json_skip_value(j);
        }
    }
    if (j->failure)
        return field_status(j->failure, "outputs");
    if (region->has_name && classes > 0)
        return status_new(STATUS_INVALID_ARG,
                          "Output can't set both 'shared_memory_region' and 'classification'");
    if (region->has_name && binary)
        return status_new(STATUS_INVALID_ARG,
                          "Output can't set both 'shared_memory_region' and 'binary_data'");
    ret_form->binary = binary;
    ret_form->n_classes = (uint32_t)MIN(classes, (uint64_t)UINT32_MAX);
    return check_region_text(region);
}

static struct status *parse_output(struct parse *p, struct json *j)
{
    bool has_name = false, has_parameters = false, parsed = false;
    enum json_failure name_failure = JSON_OK;
    struct output_form form = {.binary = false};
    struct region_text region = {false};
    struct json_str key, name = {"", 0};
    struct json parameters = *j;
    struct status *st = NULL;

    if (json_peek(j) != JSON_OBJECT)
        return missing_status("name");
    json_enter_object(j);
    while (json_next_member(j, &key)) {
        struct json value = *j;
        if (json_str_is(key, "name") && !has_name) {
            has_name = true;
            if (!json_read_string(j, &name))
                name_failure = pass_over(j, value);
        } else if (json_str_is(key, "parameters") && !has_parameters) {
            has_parameters = true;
            parameters = value;
            /* An error in the parameters counts only after one in the name, which may still
             * follow. */
            parsed = has_name && !name_failure;
            if (parsed)
                st = parse_output_parameters(j, &form, &region);
            if (st)
                return st;
            if (!parsed)
                json_skip_value(j);
        } else {
            json_skip_value(j);
        }
    }
    if (j->failure)
        return field_status(j->failure, "outputs");
    if (!has_name)
        return missing_status("name");
    if (name_failure)
        return field_status(name_failure, "name");
    if (has_parameters && !parsed)
        st = parse_output_parameters(&parameters, &form, &region);
    if (st)
        return st;
    /* One more than the model has: the core reports the unknown one. */
    if (p->r->maker.n_outputs > p->r->model->n_outputs) {
        p->plain = false; /* another model may have more */
        return NULL;
    }
    st = request_add_output(p->r, name.at, name.length);
    if (!st && p->n_seen_outputs < MEMO_TENSORS)
        p->seen_outputs[p->n_seen_outputs++] =
            (struct seen_tensor){name, region.has_name, region.part};
    return st ? st : add_requested_output(p, form, region.has_name ? &region.part : NULL);
}

struct status *parse_outputs(struct parse *p, struct json *j)
{
    if (!json_enter_array(j))
        return field_status(j->failure, "outputs");
    while (json_next_element(j)) {
        struct status *st = parse_output(p, j);
        if (st)
            return st;
    }
    return j->failure ? field_status(j->failure, "outputs") : NULL;
}
