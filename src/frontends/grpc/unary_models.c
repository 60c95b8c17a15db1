/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The methods that describe the server and its models. Parts of an answer that a model owns are
 * copied into the call's arena, since the model may be unloaded before the answer is written.
 * Thread: the loop's.
 */
#include <inttypes.h>
#include <stdio.h>

#include "base/status.h"
#include "core/model/model.h"
#include "core/server/server.h"
#include "frontends/grpc/unary_priv.h"
#include "proto/inference.pb-c.h"

struct status *unary_server_metadata(struct unary_call *c)
{
    Inference__ServerMetadataResponse *answer = (Inference__ServerMetadataResponse *)c->answer;
    const char *const *extensions = server_extensions(c->server);
    size_t n = 0;
    while (extensions[n])
        n++;
    answer->name = unary_borrow(server_id(c->server));
    answer->version = unary_borrow(server_version(c->server));
    answer->extensions = unary_alloc(c, n, sizeof(*answer->extensions));
    if (!answer->extensions)
        return status_no_memory();
    for (size_t i = 0; i < n; i++)
        answer->extensions[i] = unary_borrow(extensions[i]);
    answer->n_extensions = n;
    return NULL;
}

/* ---- The metadata of a model ---------------------------------------------------------------- */

typedef Inference__ModelMetadataResponse__TensorMetadata tensor_metadata;

static char *copy_string(struct unary_call *c, const char *s)
{
    return arena_strndup(c->arena, s, __builtin_strlen(s));
}

static tensor_metadata *make_tensor(struct unary_call *c, const struct model *m,
                                    const struct tensor_spec *spec)
{
    tensor_metadata *t =
        UNARY_NEW(c, tensor_metadata, inference__model_metadata_response__tensor_metadata__init);
    int64_t *shape = unary_alloc(c, (size_t)spec->n_dims + 1, sizeof(*shape));
    char *name = copy_string(c, spec->name);
    if (!t || !shape || !name)
        return NULL;
    size_t n = 0;
    if (m->batching)
        shape[n++] = -1;
    for (uint32_t i = 0; i < spec->n_dims; i++)
        shape[n++] = spec->dims[i];
    t->name = name;
    t->datatype = unary_borrow(dtype_name(spec->dtype));
    t->shape = shape;
    t->n_shape = n;
    return t;
}

/* Makes the list of the tensors; NULL: no memory. */
static tensor_metadata **make_tensors(struct unary_call *c, const struct model *m,
                                      const struct tensor_spec *specs, uint32_t n)
{
    tensor_metadata **list = unary_alloc(c, n, sizeof(tensor_metadata *));
    for (uint32_t i = 0; list && i < n; i++) {
        list[i] = make_tensor(c, m, &specs[i]);
        if (!list[i])
            return NULL;
    }
    return list;
}

static char *print_version(struct unary_call *c, int64_t version)
{
    char text[24];
    snprintf(text, sizeof(text), "%" PRId64, version);
    return copy_string(c, text);
}

static bool fill_metadata(struct unary_call *c, const struct ops_model_metadata *data)
{
    Inference__ModelMetadataResponse *answer = (Inference__ModelMetadataResponse *)c->answer;
    const struct model *m = data->model;
    answer->name = copy_string(c, m->name);
    answer->platform = copy_string(c, model_platform(m));
    answer->inputs = make_tensors(c, m, m->inputs, m->n_inputs);
    answer->outputs = make_tensors(c, m, m->outputs, m->n_outputs);
    answer->versions = unary_alloc(c, data->n_versions, sizeof(*answer->versions));
    if (!answer->name || !answer->platform || !answer->inputs || !answer->outputs ||
        !answer->versions)
        return false;
    for (size_t i = 0; i < data->n_versions; i++) {
        answer->versions[i] = print_version(c, data->versions[i]);
        if (!answer->versions[i])
            return false;
    }
    answer->n_inputs = m->n_inputs;
    answer->n_outputs = m->n_outputs;
    answer->n_versions = data->n_versions;
    return true;
}

struct status *unary_model_metadata(struct unary_call *c)
{
    const Inference__ModelMetadataRequest *asked =
        (const Inference__ModelMetadataRequest *)c->request;
    struct ops_model_ref ref = unary_model_ref(asked->name, asked->version);
    struct ops_model_metadata data;
    struct status *st = ops_model_metadata(c->server, &ref, &data);
    if (st)
        return st;
    bool fine = fill_metadata(c, &data);
    ops_model_metadata_done(&data);
    return fine ? NULL : status_no_memory();
}

struct status *unary_model_config(struct unary_call *c)
{
    const Inference__ModelConfigRequest *asked = (const Inference__ModelConfigRequest *)c->request;
    struct ops_model_ref ref = unary_model_ref(asked->name, asked->version);
    struct model *m;
    struct status *st = ops_model_find(c->server, &ref, &m);
    if (st)
        return st;
    ProtobufCMessage *copy = model_copy_config(m, c->arena);
    model_unref(m);
    if (!copy)
        return status_no_memory();
    ((Inference__ModelConfigResponse *)c->answer)->config = (Inference__ModelConfig *)copy;
    return NULL;
}
