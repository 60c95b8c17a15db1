/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ports - which tensor of the configuration is which argument, which output.
 *
 * Names decide, as in Triton's backend: all are arguments of forward(), or all end with an index as
 * in INPUT__0, or else the order of the configuration counts. Of a model that takes a dictionary
 * the names are its keys. TorchScript tells the types of arguments, but no data types and shapes,
 * so a configuration cannot be completed from the file.
 */
#include <stdlib.h>
#include <string.h>

#include "common/gather.h"
#include "pytorch/model.h"

/* ---- The configuration ----------------------------------------------------------------------- */

static bool is_set(const struct doc_value *tensor, const char *key)
{
    const struct doc_value *v = doc_get(tensor, key);

    return v && v->type == DOC_BOOL && v->boolean;
}

static TRITONSERVER_DataType read_data_type(const struct doc_value *tensor)
{
    const char *type = doc_string(doc_get(tensor, "data_type"), "");

    if (strcmp(type, "TYPE_STRING") == 0)
        return TRITONSERVER_TYPE_BYTES;
    return strncmp(type, "TYPE_", 5) == 0 ? TRITONSERVER_StringToDataType(type + 5)
                                          : TRITONSERVER_TYPE_INVALID;
}

/* Adds a tensor, for which there is room. */
static struct port *add_port(struct ports *ports, const struct doc_value *tensor, const char *key)
{
    const struct doc_value *reshape = doc_get(doc_get(tensor, "reshape"), "shape");
    struct port *p = &ports->list[ports->n];

    p->name = doc_string(doc_get(tensor, key), "");
    p->type = read_data_type(tensor);
    p->shape = reshape ? reshape : doc_get(tensor, "dims");
    p->index = ports->n++;
    return p;
}

/* The scheduler makes a control of the values that it has for false and true, or of the id. */
static TRITONSERVER_DataType read_control_type(const struct doc_value *tensor)
{
    const struct doc_value *control = doc_first(doc_get(tensor, "control"));

    if (doc_count(doc_get(control, "int32_false_true")) > 0)
        return TRITONSERVER_TYPE_INT32;
    if (doc_count(doc_get(control, "fp32_false_true")) > 0)
        return TRITONSERVER_TYPE_FP32;
    if (doc_count(doc_get(control, "bool_false_true")) > 0)
        return TRITONSERVER_TYPE_BOOL;
    return read_data_type(control);
}

static TRITONSERVER_Error *read_input_ports(struct torch_model *t, const struct doc *config)
{
    const struct doc_value *root = doc_root(config), *sequence = doc_get(root, "sequence_batching");
    const struct doc_value *inputs = doc_get(root, "input"), *states = doc_get(sequence, "state");
    const struct doc_value *controls = doc_get(sequence, "control_input");
    size_t room = doc_count(inputs) + doc_count(states) + doc_count(controls) + t->ragged.n_inputs;

    t->inputs.list = calloc(room + 1, sizeof(*t->inputs.list));
    if (!t->inputs.list)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    for (const struct doc_value *v = doc_first(inputs); v; v = v->next) {
        struct port *p = add_port(&t->inputs, v, "name");

        p->optional = is_set(v, "optional");
        p->ragged = is_set(v, "allow_ragged_batch");
    }
    for (size_t i = 0; i < t->ragged.n_inputs; i++) {
        struct port *p = &t->inputs.list[t->inputs.n];

        p->name = t->ragged.inputs[i].name;
        p->type = t->ragged.inputs[i].type;
        p->made = &t->ragged.inputs[i];
        p->index = t->inputs.n++;
    }
    t->inputs.n_plain = t->inputs.n;
    for (const struct doc_value *v = doc_first(controls); v; v = v->next) {
        struct port *p = add_port(&t->inputs, v, "name");

        p->type = TRITONSERVER_TYPE_INVALID;
        p->control = read_control_type(v);
        p->shape = NULL;
    }
    for (const struct doc_value *v = doc_first(states); v; v = v->next)
        add_port(&t->inputs, v, "input_name");
    return NULL;
}

/* A state's output may be an output that clients get, too. */
static struct port *find_port(struct ports *ports, const char *name)
{
    for (size_t i = 0; i < ports->n; i++)
        if (strcmp(ports->list[i].name, name) == 0)
            return &ports->list[i];
    return NULL;
}

static TRITONSERVER_Error *read_output_ports(struct torch_model *t, const struct doc *config)
{
    const struct doc_value *outputs = doc_get(doc_root(config), "output");
    const struct doc_value *states =
        doc_get(doc_get(doc_root(config), "sequence_batching"), "state");

    t->outputs.list = calloc(doc_count(outputs) + doc_count(states) + 1, sizeof(*t->outputs.list));
    if (!t->outputs.list)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    for (const struct doc_value *v = doc_first(outputs); v; v = v->next) {
        struct port *p = add_port(&t->outputs, v, "name");

        p->is_output = true;
        p->hint = (uint32_t)p->index;
        p->source = ragged_source(&t->ragged, p->name);
    }
    for (const struct doc_value *v = doc_first(states); v; v = v->next) {
        struct port *p = find_port(&t->outputs, doc_string(doc_get(v, "output_name"), ""));

        if (!p)
            p = add_port(&t->outputs, v, "output_name");
        p->is_state = true;
    }
    return NULL;
}

/* ---- Names ----------------------------------------------------------------------------------- */

/* The index in a name like INPUT__0. */
static bool read_index(const char *name, size_t *ret_index)
{
    const char *at = name, *digits = NULL;
    size_t n = 0;

    while ((at = strstr(at, "__")) != NULL)
        digits = at += 2;
    if (!digits || !*digits || strlen(digits) > 6)
        return false;
    for (; *digits; digits++) {
        if (*digits < '0' || *digits > '9')
            return false;
        n = 10 * n + (size_t)(*digits - '0');
    }
    *ret_index = n;
    return true;
}

/* Indices of the first n ports by their names, if each name has one. */
static bool index_by_name(struct ports *ports, size_t n)
{
    size_t index;

    for (size_t i = 0; i < n; i++)
        if (!read_index(ports->list[i].name, &index))
            return false;
    for (size_t i = 0; i < n; i++)
        read_index(ports->list[i].name, &ports->list[i].index);
    return true;
}

static bool find_argument(const struct shim_model *m, const char *name, size_t *ret_index)
{
    for (size_t i = 0; i < m->n_arguments; i++) {
        if (strcmp(m->arguments[i].name, name) == 0) {
            *ret_index = i;
            return true;
        }
    }
    return false;
}

/* The same, if each name is an argument's. */
static bool index_by_argument(struct ports *ports, size_t n, const struct shim_model *m)
{
    size_t index;

    for (size_t i = 0; i < n; i++)
        if (!find_argument(m, ports->list[i].name, &index))
            return false;
    for (size_t i = 0; i < n; i++)
        find_argument(m, ports->list[i].name, &ports->list[i].index);
    return true;
}

/* Controls and states of sequences have no order among the inputs, so their names must tell. */
static TRITONSERVER_Error *index_sequence_inputs(struct torch_model *t)
{
    for (size_t i = t->inputs.n_plain; i < t->inputs.n; i++) {
        struct port *p = &t->inputs.list[i];

        if (!find_argument(t->module, p->name, &p->index) && !read_index(p->name, &p->index))
            return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                                 "model '%s': input '%s' does not follow <name>__<index> naming "
                                 "convention",
                                 t->name, p->name);
    }
    return NULL;
}

/* ---- Check ----------------------------------------------------------------------------------- */

static TRITONSERVER_Error *check_tensor(const struct torch_model *t, const struct port *p,
                                        const char *what)
{
    size_t rank = doc_count(p->shape) + (t->max_batch_size > 0);

    if (p->type == TRITONSERVER_TYPE_UINT16 || p->type == TRITONSERVER_TYPE_UINT32 ||
        p->type == TRITONSERVER_TYPE_UINT64)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "unsupported datatype TYPE_%s for %s '%s' for model '%s'",
                             TRITONSERVER_DataTypeString(p->type), what, p->name, t->name);
    if (p->type == TRITONSERVER_TYPE_BYTES && rank > 1)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "Triton only supports 1 dimensional List of String as %s for '%s' for "
                             "model '%s'",
                             what, p->name, t->name);
    return NULL;
}

static TRITONSERVER_Error *check_argument(const struct torch_model *t, const struct port *p)
{
    const struct shim_argument *a = &t->module->arguments[p->index];
    bool strings = p->type == TRITONSERVER_TYPE_BYTES;

    if (a->kind != SHIM_TENSOR && a->kind != SHIM_STRINGS)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "An input of type '%s' was detected in the model. Only a single input "
                             "of type Dict(str, Tensor) or input(s) of type Tensor or List[str] "
                             "are supported for model '%s'",
                             a->type, t->name);
    if (strings != (a->kind == SHIM_STRINGS))
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "unable to load model '%s', configuration expects datatype TYPE_%s "
                             "for input '%s', model provides %s",
                             t->name, strings ? "STRING" : TRITONSERVER_DataTypeString(p->type),
                             p->name, a->type);
    if (p->optional && !a->may_lack)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "model '%s', input '%s': it is optional in the configuration, but the "
                             "argument '%s' of forward() has no default",
                             t->name, p->name, a->name);
    return NULL;
}

/* Each argument has one input, or may lack it. */
static TRITONSERVER_Error *check_arguments(const struct torch_model *t)
{
    const struct shim_model *m = t->module;

    for (size_t i = 0; i < t->inputs.n; i++) {
        const struct port *p = &t->inputs.list[i];

        if (p->index >= m->n_arguments)
            return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                                 "model '%s', input '%s': its index is %zu, but forward() has %zu "
                                 "arguments",
                                 t->name, p->name, p->index, m->n_arguments);
        for (size_t j = 0; j < i; j++)
            if (t->inputs.list[j].index == p->index)
                return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                                     "model '%s': inputs '%s' and '%s' are the same argument",
                                     t->name, t->inputs.list[j].name, p->name);
        TRY(check_argument(t, p));
    }
    for (size_t a = 0; a < m->n_arguments; a++) {
        bool found = m->arguments[a].may_lack;

        for (size_t i = 0; i < t->inputs.n && !found; i++)
            found = t->inputs.list[i].index == a;
        if (!found)
            return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                                 "unable to load model '%s', configuration expects %zu inputs, "
                                 "model provides %zu: none is the argument '%s' of forward()",
                                 t->name, t->inputs.n, m->n_arguments, m->arguments[a].name);
    }
    return NULL;
}

static TRITONSERVER_Error *index_inputs(struct torch_model *t)
{
    const struct shim_model *m = t->module;

    t->takes_dict = m->n_arguments == 1 && m->arguments[0].kind == SHIM_DICT;
    if (t->takes_dict) {
        for (size_t i = 0; i < t->inputs.n; i++)
            if (t->inputs.list[i].type == TRITONSERVER_TYPE_BYTES)
                return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                                     "model '%s', input '%s': a dictionary has no strings", t->name,
                                     t->inputs.list[i].name);
        return NULL;
    }
    if (t->inputs.n > m->n_arguments)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "unable to load model '%s', configuration expects %zu inputs, model "
                             "provides %zu",
                             t->name, t->inputs.n, m->n_arguments);
    if (!index_by_argument(&t->inputs, t->inputs.n_plain, m) &&
        !index_by_name(&t->inputs, t->inputs.n_plain))
        BACKEND_LOG(VERBOSE, "model '%s': its inputs are arguments in the configuration's order",
                    t->name);
    TRY(index_sequence_inputs(t));
    return check_arguments(t);
}

static TRITONSERVER_Error *index_outputs(struct torch_model *t, bool has_states)
{
    if (!index_by_name(&t->outputs, t->outputs.n) && has_states)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "PyTorch model '%s' is using sequence batching with state but not all "
                             "outputs follow the <name>__<index> naming convention",
                             t->name);
    return NULL;
}

static TRITONSERVER_Error *check_port_lists(const struct torch_model *t)
{
    if (t->inputs.n == 0 || t->outputs.n == 0)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "model '%s': its configuration needs input and output, because a "
                             "TorchScript file does not tell data types and shapes",
                             t->name);
    for (size_t i = 0; i < t->inputs.n; i++)
        TRY(check_tensor(t, &t->inputs.list[i], "input"));
    for (size_t i = 0; i < t->outputs.n; i++)
        TRY(check_tensor(t, &t->outputs.list[i], "output"));
    return NULL;
}

TRITONSERVER_Error *ports_read(struct torch_model *t, const struct doc *config)
{
    const struct doc_value *sequence = doc_get(doc_root(config), "sequence_batching");

    TRY(ragged_read(config, &t->ragged));
    TRY(read_input_ports(t, config));
    TRY(read_output_ports(t, config));
    TRY(check_port_lists(t));
    TRY(index_outputs(t, doc_count(doc_get(sequence, "state")) > 0));
    return index_inputs(t);
}

void ports_done(struct torch_model *t)
{
    free(t->inputs.list);
    free(t->outputs.list);
    ragged_done(&t->ragged);
}
