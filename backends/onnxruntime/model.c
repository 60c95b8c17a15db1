/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load_onnx_model() is the list of all steps: find the file, check it, open the session, read its
 * tensors, complete and check the configuration (config.c), find where the sizes of outputs come
 * from, and declare a small model as bounded. One thread loads a model.
 */
#include "onnxruntime/model.h"

#include <stdlib.h>
#include <string.h>

#include "common/model_file.h"
#include "common/onnx_cost.h"
#include "onnxruntime/session.h"

static TRITONSERVER_Error *out_of_memory(void)
{
    return backend_error(TRITONSERVER_ERROR_INTERNAL, "out of memory");
}

/* ---- The file -------------------------------------------------------------------------------- */

/* Finds the .onnx file: in the version's folder, or in a folder there that is named like a file. */
static TRITONSERVER_Error *find_file(struct model *m, TRITONBACKEND_Model *handle)
{
    TRITONBACKEND_ArtifactType type;
    const char *folder;

    TRY(TRITONBACKEND_ModelRepository(handle, &type, &folder));
    m->folder = strdup(folder);
    if (!m->folder)
        return out_of_memory();
    return model_file_find(handle, m->config, m->name, "model.onnx", "model.onnx", &m->path);
}

/* ---- Tensors -------------------------------------------------------------------------------- */

static TRITONSERVER_Error *read_ort_shape(struct model *m, struct tensor *t,
                                          const struct ort_shape *shape)
{
    const char *symbols[MAX_RANK];
    enum ort_element element;

    TRY_ORT(&m->rt->lib, GetTensorElementType(shape, &element));
    t->type = element_type_of(element);
    if (!t->type)
        return backend_error(TRITONSERVER_ERROR_UNSUPPORTED,
                             "model '%s', tensor '%s': ONNX element type %d (%s) is not supported",
                             m->name, t->name, (int)element, element_name_of_other(element));
    TRY_ORT(&m->rt->lib, GetDimensionsCount(shape, &t->rank));
    if (t->rank > MAX_RANK)
        return backend_error(TRITONSERVER_ERROR_UNSUPPORTED,
                             "model '%s', tensor '%s': %zu dimensions are more than %d", m->name,
                             t->name, t->rank, MAX_RANK);
    TRY_ORT(&m->rt->lib, GetDimensions(shape, t->dims, t->rank));
    TRY_ORT(&m->rt->lib, GetSymbolicDimensions(shape, symbols, t->rank));
    for (size_t i = 0; i < t->rank; i++) {
        if (t->dims[i] >= 0 || !symbols[i] || !*symbols[i])
            continue;
        t->symbols[i] = strdup(symbols[i]);
        if (!t->symbols[i])
            return out_of_memory();
    }
    return NULL;
}

static TRITONSERVER_Error *read_ort_type(struct model *m, struct tensor *t, enum ort_kind kind,
                                         const struct ort_type *type)
{
    const struct ort_shape *shape;

    if (kind != ORT_KIND_TENSOR)
        return backend_error(TRITONSERVER_ERROR_UNSUPPORTED,
                             "model '%s': '%s' is no tensor but another kind of ONNX value, which "
                             "is not supported%s",
                             m->name, t->name,
                             kind == ORT_KIND_SEQUENCE
                                 ? "; of a classifier of scikit-learn, it is the output of ZipMap: "
                                   "export the model with options={'zipmap': False}"
                                 : "");
    TRY_ORT(&m->rt->lib, CastTypeInfoToTensorInfo(type, &shape)); /* owned by type */
    return read_ort_shape(m, t, shape);
}

static TRITONSERVER_Error *read_optional(struct model *m, struct tensor *t,
                                         const struct ort_type *type)
{
    const struct ort_optional *optional = NULL;
    struct ort_type *inner = NULL;
    enum ort_kind kind = ORT_KIND_OPTIONAL;
    TRITONSERVER_Error *err;

    TRY_ORT(&m->rt->lib, CastTypeInfoToOptionalTypeInfo(type, &optional));
    TRY_ORT(&m->rt->lib, GetOptionalContainedTypeInfo(optional, &inner));
    err = library_error(&m->rt->lib, m->rt->lib.api.GetOnnxTypeFromTypeInfo(inner, &kind));
    if (!err)
        err = read_ort_type(m, t, kind, inner);
    m->rt->lib.api.ReleaseTypeInfo(inner);
    return err;
}

static TRITONSERVER_Error *read_ort_tensor(struct model *m, struct tensor *t, char *ort_name,
                                           const struct ort_type *type)
{
    enum ort_kind kind;

    t->name = strdup(ort_name);
    if (!t->name)
        return out_of_memory();
    TRY_ORT(&m->rt->lib, GetOnnxTypeFromTypeInfo(type, &kind));
    if (kind == ORT_KIND_OPTIONAL) /* the tensor in it is passed as a tensor */
        return read_optional(m, t, type);
    return read_ort_type(m, t, kind, type);
}

/* A session's functions for each kind of tensor. */
struct listing {
    struct ort_status *(*count)(const struct ort_session *, size_t *);
    struct ort_status *(*name)(const struct ort_session *, size_t, struct ort_allocator *, char **);
    struct ort_status *(*type)(const struct ort_session *, size_t, struct ort_type **);
};

static TRITONSERVER_Error *read_listed_tensor(struct model *m, const struct listing *of, size_t i,
                                              struct tensor *t)
{
    const struct library *lib = &m->rt->lib;
    struct ort_type *type = NULL;
    TRITONSERVER_Error *err;
    char *name = NULL;

    TRY(library_error(lib, of->name(m->session, i, m->rt->heap, &name)));
    err = library_error(lib, of->type(m->session, i, &type));
    if (!err)
        err = read_ort_tensor(m, t, name, type);
    if (type)
        lib->api.ReleaseTypeInfo(type);
    backend_ignore(library_error(lib, lib->api.AllocatorFree(m->rt->heap, name)),
                   "freeing a tensor's name");
    return err;
}

static TRITONSERVER_Error *read_model_outputs(struct model *m)
{
    const struct ort_api *api = &m->rt->lib.api;
    const struct listing outputs = {api->SessionGetOutputCount, api->SessionGetOutputName,
                                    api->SessionGetOutputTypeInfo};
    size_t n;

    TRY(library_error(&m->rt->lib, outputs.count(m->session, &n)));
    m->outputs = calloc(n + 1, sizeof(*m->outputs));
    if (!m->outputs)
        return out_of_memory();
    m->n_outputs = n; /* the model owns them from here, also half-read ones */
    for (size_t i = 0; i < n; i++)
        TRY(read_listed_tensor(m, &outputs, i, &m->outputs[i]));
    return NULL;
}

/* Reads the inputs, and after them the inputs to which the file gives a value that a request may
 * replace. */
static TRITONSERVER_Error *read_model_inputs(struct model *m)
{
    const struct ort_api *api = &m->rt->lib.api;
    const struct listing inputs = {api->SessionGetInputCount, api->SessionGetInputName,
                                   api->SessionGetInputTypeInfo};
    const struct listing defaults = {api->SessionGetOverridableInitializerCount,
                                     api->SessionGetOverridableInitializerName,
                                     api->SessionGetOverridableInitializerTypeInfo};
    size_t n, more;

    TRY(library_error(&m->rt->lib, inputs.count(m->session, &n)));
    TRY(library_error(&m->rt->lib, defaults.count(m->session, &more)));
    m->inputs = calloc(n + more + 1, sizeof(*m->inputs));
    if (!m->inputs)
        return out_of_memory();
    m->n_inputs = n + more;
    m->n_required = n;
    for (size_t i = 0; i < n; i++)
        TRY(read_listed_tensor(m, &inputs, i, &m->inputs[i]));
    for (size_t i = 0; i < more; i++)
        TRY(read_listed_tensor(m, &defaults, i, &m->inputs[n + i]));
    return NULL;
}

/* Finds where dimension d of output o comes from: an input's dimension of the same name; without
 * names the batch dimension of a model that batches. */
static bool find_dim_source(const struct model *m, const struct tensor *o, size_t d,
                            struct dim_source *ret_source)
{
    for (size_t i = 0; i < m->n_inputs && o->symbols[d]; i++) {
        const struct tensor *in = &m->inputs[i];

        for (size_t k = 0; k < in->rank; k++) {
            if (in->symbols[k] && strcmp(in->symbols[k], o->symbols[d]) == 0) {
                *ret_source = (struct dim_source){.input = (int)i, .dim = (int)k};
                return true;
            }
        }
    }
    if (d == 0 && m->max_batch_size > 0 && m->n_inputs > 0 && !m->inputs[0].ragged &&
        !m->inputs[0].made) {
        *ret_source = (struct dim_source){.input = 0, .dim = 0};
        return true;
    }
    return false;
}

static void find_sources(struct model *m)
{
    for (size_t i = 0; i < m->n_outputs; i++) {
        struct tensor *o = &m->outputs[i];

        /* Strings have no fixed size, and rank 0 may mean that the rank is unknown. */
        o->predictable = o->type->size > 0 && o->rank > 0 && !o->source;
        for (size_t d = 0; d < o->rank; d++) {
            o->from[d].input = -1;
            if (o->dims[d] < 0 && !find_dim_source(m, o, d, &o->from[d]))
                o->predictable = false;
        }
    }
}

struct tensor *model_tensor(struct tensor *tensors, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(tensors[i].name, name) == 0)
            return &tensors[i];
    return NULL;
}

/* ---- Is the model bounded? ------------------------------------------------------------------- */

/* Operators of libraries and accelerators may take any time; ragged inputs have any length. */
static bool is_plain(const struct model *m)
{
    const struct doc_value *operations = doc_get(doc_root(m->config), "model_operations");

    for (size_t i = 0; i < m->n_inputs; i++)
        if (m->inputs[i].ragged || m->inputs[i].made)
            return false;
    return doc_count(doc_get(operations, "op_library_filename")) == 0 &&
           !session_has_accelerators(m);
}

static TRITONSERVER_Error *declare_small_cost(const struct model *m, TRITONBACKEND_Model *handle)
{
    uint64_t cost;

    if (!is_plain(m) || !onnx_cost_is_small(m->path, m->max_batch_size, &cost))
        return NULL;
    BACKEND_LOG(VERBOSE,
                "model '%s' is small: a run takes at most the time of %llu multiplications",
                m->name, (unsigned long long)cost);
    return backend_declare_bounded(handle);
}

/* ---- Life ----------------------------------------------------------------------------------- */

static TRITONSERVER_Error *load_onnx_model(struct model *m, TRITONBACKEND_Model *handle)
{
    bool complete;

    TRY(find_file(m, handle));
    TRY(external_check(m->path, &m->external));
    TRY(session_open(m));
    TRY(read_model_inputs(m));
    TRY(read_model_outputs(m));
    TRY(TRITONBACKEND_ModelAutoCompleteConfig(handle, &complete));
    if (complete)
        TRY(model_complete_config(m, handle));
    m->max_batch_size = 0;
    doc_int(doc_get(doc_root(m->config), "max_batch_size"), &m->max_batch_size);
    TRY(ragged_read(m->config, &m->ragged));
    TRY(model_check_config(m));
    find_sources(m);
    TRY(declare_small_cost(m, handle));
    /* ONNX Runtime 1.16 does not tell what a session keeps; most of it are the weights. */
    return backend_report_memory(handle, NULL, model_file_bytes(m->path) + m->external.bytes);
}

TRITONSERVER_Error *model_load(struct runtime *rt, TRITONBACKEND_Model *handle,
                               struct model **ret_model)
{
    struct model *m = calloc(1, sizeof(*m));
    TRITONSERVER_Error *err;
    const char *name;

    if (!m)
        return out_of_memory();
    m->rt = rt;
    atomic_init(&m->predict, true);
    err = TRITONBACKEND_ModelName(handle, &name);
    if (!err)
        err = backend_model_config(handle, &m->config);
    if (!err) {
        m->name = strdup(name);
        err = m->name ? load_onnx_model(m, handle) : out_of_memory();
    }
    if (err) {
        model_free(m);
        return err;
    }
    *ret_model = m;
    return NULL;
}

static void free_tensors(struct tensor *tensors, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        free(tensors[i].name);
        for (size_t d = 0; d < MAX_RANK; d++)
            free(tensors[i].symbols[d]);
    }
    free(tensors);
}

void model_free(struct model *m)
{
    if (!m)
        return;
    free_tensors(m->inputs, m->n_inputs);
    free_tensors(m->outputs, m->n_outputs);
    crew_retire(m->crew);
    if (m->session)
        m->rt->lib.api.ReleaseSession(m->session);
    crew_free(m->crew);
    weights_free(m->weights); /* the session may have used them */
    external_done(&m->external);
    ragged_done(&m->ragged);
    doc_free(m->config);
    free(m->path);
    free(m->folder);
    free(m->name);
    free(m);
}
