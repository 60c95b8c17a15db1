/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PyTorch's headers of these functions are C++, so they are declared here, as of PyTorch 2.6 to
 * 2.15, whose C functions are to stay as they are. A result of 0 is success.
 *
 * A model's code would believe shapes that it was not compiled for; with
 * AOTI_RUNTIME_CHECK_INPUTS=1, which aoti_open() sets unless the user has set it, it looks at each
 * input first.
 */
#include "pytorch/aoti.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/batch.h"
#include "pytorch/package.h"

struct aoti_tensor;
struct aoti_container;

/* ---- PyTorch's functions --------------------------------------------------------------------- */

#define TORCH_FUNCTIONS(F)                                                                         \
    F(int32_t, device_type_cpu, (void))                                                            \
    F(int32_t, dtype_bool, (void))                                                                 \
    F(int32_t, dtype_uint8, (void))                                                                \
    F(int32_t, dtype_int8, (void))                                                                 \
    F(int32_t, dtype_int16, (void))                                                                \
    F(int32_t, dtype_int32, (void))                                                                \
    F(int32_t, dtype_int64, (void))                                                                \
    F(int32_t, dtype_float16, (void))                                                              \
    F(int32_t, dtype_bfloat16, (void))                                                             \
    F(int32_t, dtype_float32, (void))                                                              \
    F(int32_t, dtype_float64, (void))                                                              \
    F(int32_t, create_tensor_from_blob,                                                            \
      (const void *data, int64_t rank, const int64_t *sizes, const int64_t *strides,               \
       int64_t offset, int32_t type, int32_t device, int32_t device_index,                         \
       struct aoti_tensor **ret_tensor))                                                           \
    F(int32_t, delete_tensor_object, (struct aoti_tensor * tensor))                                \
    F(int32_t, get_data_ptr, (struct aoti_tensor * tensor, void **ret_data))                       \
    F(int32_t, get_dim, (struct aoti_tensor * tensor, int64_t * ret_rank))                         \
    F(int32_t, get_dtype, (struct aoti_tensor * tensor, int32_t * ret_type))                       \
    F(int32_t, get_device_type, (struct aoti_tensor * tensor, int32_t * ret_type))                 \
    F(int32_t, get_sizes, (struct aoti_tensor * tensor, int64_t * *ret_sizes))                     \
    F(int32_t, get_strides, (struct aoti_tensor * tensor, int64_t * *ret_strides))

/* Makes another handle of a tensor, which is deleted on its own. NULL: this release has no such
 * function. */
static int32_t (*torch_new_tensor_handle)(struct aoti_tensor *tensor, struct aoti_tensor **ret);

/* How many threads an operator has on this thread: PyTorch asks OpenMP. at::get_num_threads() is
 * called like a function of C; its first call on a thread overwrites what OpenMP has been told
 * there. */
#define GET_THREADS "_ZN2at15get_num_threadsEv"
#define SET_THREADS "omp_set_num_threads"
static int (*torch_get_threads)(void); /* NULL: one of the two is missing */
static void (*torch_set_threads)(int n);

/* Set by aoti_open(), constant afterwards. */
#define DECLARE_TORCH(result, name, arguments) static result(*torch_##name) arguments;
TORCH_FUNCTIONS(DECLARE_TORCH)

static struct {
    TRITONSERVER_DataType server;
    int32_t torch;
} types[10];

/* dlsym() gives data; code has the same representation on every system that has dlsym(). */
static bool find_function(void *library, const char *name, void *ret_function)
{
    void *symbol = dlsym(library, name);

    memcpy(ret_function, &symbol, sizeof(symbol));
    return symbol != NULL;
}

static void number_types(void)
{
    static const TRITONSERVER_DataType order[] = {TRITONSERVER_TYPE_BOOL,  TRITONSERVER_TYPE_UINT8,
                                                  TRITONSERVER_TYPE_INT8,  TRITONSERVER_TYPE_INT16,
                                                  TRITONSERVER_TYPE_INT32, TRITONSERVER_TYPE_INT64,
                                                  TRITONSERVER_TYPE_FP16,  TRITONSERVER_TYPE_BF16,
                                                  TRITONSERVER_TYPE_FP32,  TRITONSERVER_TYPE_FP64};
    int32_t (*const ask[])(void) = {torch_dtype_bool,    torch_dtype_uint8,    torch_dtype_int8,
                                    torch_dtype_int16,   torch_dtype_int32,    torch_dtype_int64,
                                    torch_dtype_float16, torch_dtype_bfloat16, torch_dtype_float32,
                                    torch_dtype_float64};

    for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++) {
        types[i].server = order[i];
        types[i].torch = ask[i]();
    }
}

/* ---- Code ------------------------------------------------------------------------------------ */

#define MODEL_FUNCTIONS(F)                                                                         \
    F(CreateWithDevice, (struct aoti_container * *ret_container, size_t n_models,                  \
                         const char *device, const char *folder))                                  \
    F(Delete, (struct aoti_container * container))                                                 \
    F(GetNumInputs, (struct aoti_container * container, size_t * ret_n))                           \
    F(GetNumOutputs, (struct aoti_container * container, size_t * ret_n))                          \
    F(GetInputName, (struct aoti_container * container, size_t i, const char **ret_name))          \
    F(Run, (struct aoti_container * container, struct aoti_tensor * *inputs, size_t n_inputs,      \
            struct aoti_tensor * *outputs, size_t n_outputs, void *stream, void *executor))

/* The code of a package, once for all models that have the same. */
struct code {
    struct code *next;
    struct package package;
    const char *lacks; /* a function of AOTInductor that it should have; NULL: none */
#define DECLARE_MODEL(name, arguments) int32_t(*name) arguments;
    MODEL_FUNCTIONS(DECLARE_MODEL)
    /* These are not in the code of every release. */
    int32_t (*DidCallLoadConstants)(struct aoti_container *container, bool *ret_did);
    int32_t (*GetNumConstants)(struct aoti_container *container, size_t *ret_n);
    int32_t (*GetConstantDataSize)(struct aoti_container *container, size_t i, size_t *ret_size);
    int32_t (*GetLastError)(const char **ret_text);
};

static pthread_mutex_t codes_mu = PTHREAD_MUTEX_INITIALIZER;
static struct code *codes; /* under codes_mu; none is ever freed */

static bool is_same_file(const struct package *a, const struct package *b, char *mine, char *other,
                         size_t room)
{
    if (a->size != b->size)
        return false;
    for (uint64_t at = 0; at < a->size; at += room) {
        size_t n = a->size - at < room ? a->size - at : room;

        if (pread(a->code, mine, n, (off_t)at) != (ssize_t)n ||
            pread(b->code, other, n, (off_t)at) != (ssize_t)n || memcmp(mine, other, n) != 0)
            return false;
    }
    return true;
}

/* Finds code that is loaded already; *ret_code NULL: there is none. */
static TRITONSERVER_Error *find_code_locked(const struct package *p, struct code **ret_code)
{
    static const size_t room = 64 << 10;
    char *blocks = malloc(2 * room);
    struct code *c = codes;

    if (!blocks)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    while (c && !is_same_file(&c->package, p, blocks, blocks + room, room))
        c = c->next;
    free(blocks);
    *ret_code = c;
    return NULL;
}

/* The file in memory has a name while it is open, which is as long as the code is loaded: the
 * loader would take another file of the same name for this one. So code that is loaded is kept,
 * even if no model can have it. */
static TRITONSERVER_Error *load_code(struct code *c)
{
    char name[64];
    void *handle;

    snprintf(name, sizeof(name), "/proc/self/fd/%d", c->package.code);
    handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG, "its code cannot be loaded: %s",
                             dlerror());
#define FIND_MODEL(name, arguments)                                                                \
    if (!find_function(handle, "AOTInductorModelContainer" #name, &c->name))                       \
        c->lacks = "AOTInductorModelContainer" #name;
    MODEL_FUNCTIONS(FIND_MODEL)
    find_function(handle, "AOTInductorModelContainerGetNumConstants", &c->GetNumConstants);
    find_function(handle, "AOTInductorModelContainerGetConstantDataSize", &c->GetConstantDataSize);
    find_function(handle, "AOTInductorModelContainerDidCallLoadConstants",
                  &c->DidCallLoadConstants);
    find_function(handle, "AOTInductorGetLastError", &c->GetLastError);
    return NULL;
}

/* Takes the package if it loads its code; it does not if the same code is loaded already. */
static TRITONSERVER_Error *take_code_locked(struct package *p, struct code **ret_code)
{
    TRITONSERVER_Error *err;
    struct code *c;

    TRY(find_code_locked(p, ret_code));
    if (*ret_code)
        return NULL;
    c = calloc(1, sizeof(*c));
    if (!c)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    c->package = *p;
    err = load_code(c);
    if (err) {
        free(c);
        return err;
    }
    p->code = -1;
    c->next = codes;
    *ret_code = codes = c;
    return NULL;
}

static TRITONSERVER_Error *open_code(const char *path, struct code **ret_code)
{
    struct processor processor;
    struct package package;
    TRITONSERVER_Error *err;

    TRY(processor_read(&processor));
    err = package_open(path, &processor, &package);
    processor_done(&processor);
    if (err)
        return err;
    pthread_mutex_lock(&codes_mu);
    err = take_code_locked(&package, ret_code);
    pthread_mutex_unlock(&codes_mu);
    package_close(&package);
    if (!err && (*ret_code)->lacks)
        err = backend_error(TRITONSERVER_ERROR_INVALID_ARG, "its code has no %s()",
                            (*ret_code)->lacks);
    return err;
}

/* ---- Models ---------------------------------------------------------------------------------- */

struct model {
    struct shim_model shim;
    const struct code *code;
    struct aoti_container *container;
    struct shim_argument *list;
    size_t n_models, n_outputs;
};

static struct model *compiled_of(struct shim_model *shim)
{
    return (struct model *)((char *)shim - offsetof(struct model, shim));
}

static TRITONSERVER_Error *code_error(const struct code *c, const char *what)
{
    const char *why = NULL;
    size_t n;

    if (c->GetLastError && c->GetLastError(&why) != 0)
        why = NULL;
    n = why ? strcspn(why, "\n") : 0;

    return backend_error(TRITONSERVER_ERROR_INTERNAL, "%s: %.*s", what, n > 0 ? (int)n : 31,
                         n > 0 ? why : "the server's stderr has why");
}

static void free_compiled(struct shim_model *shim)
{
    struct model *m = compiled_of(shim);

    if (m->container)
        m->code->Delete(m->container);
    free(m->list);
    free(m);
}

static TRITONSERVER_Error *describe_arguments(struct model *m)
{
    const struct code *c = m->code;
    size_t n;

    if (c->GetNumInputs(m->container, &n) != 0 ||
        c->GetNumOutputs(m->container, &m->n_outputs) != 0)
        return code_error(c, "counting its tensors");
    m->list = calloc(n + 1, sizeof(*m->list));
    if (!m->list)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    for (size_t i = 0; i < n; i++) {
        m->list[i] = (struct shim_argument){.type = "Tensor", .kind = SHIM_TENSOR};
        if (c->GetInputName(m->container, i, &m->list[i].name) != 0)
            return code_error(c, "naming its inputs");
    }
    m->shim.arguments = m->list;
    m->shim.n_arguments = n;
    return NULL;
}

/* How large its weights are, as far as the code tells. */
static uint64_t measure_weights(const struct model *m)
{
    const struct code *c = m->code;
    uint64_t sum = 0;
    size_t n = 0, size;

    if (!c->GetNumConstants || !c->GetConstantDataSize || c->GetNumConstants(m->container, &n) != 0)
        return 0;
    for (size_t i = 0; i < n; i++)
        if (c->GetConstantDataSize(m->container, i, &size) == 0)
            sum += size;
    return sum;
}

static TRITONSERVER_Error *fill_compiled(struct model *m)
{
    const struct code *c = m->code;
    bool loaded = true;

    if (c->CreateWithDevice(&m->container, m->n_models, "cpu", NULL) != 0)
        return code_error(c, "making the model");
    TRY(describe_arguments(m));
    m->shim.size = measure_weights(m);
    if (c->DidCallLoadConstants && c->DidCallLoadConstants(m->container, &loaded) != 0)
        return code_error(c, "asking for its weights");
    if (m->shim.size > 0 && !loaded)
        return backend_error(TRITONSERVER_ERROR_UNSUPPORTED,
                             "its code was compiled without its weights");
    return NULL;
}

static TRITONSERVER_Error *make_compiled(const struct code *c, size_t n_models,
                                         struct shim_model **ret_model)
{
    struct model *m = calloc(1, sizeof(*m));
    TRITONSERVER_Error *err;

    if (!m)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    m->code = c;
    m->n_models = n_models;
    err = fill_compiled(m);
    if (err)
        free_compiled(&m->shim);
    else
        *ret_model = &m->shim;
    return err;
}

/* The text of an error, as a shim returns it. */
static char *take_error_text(TRITONSERVER_Error *err)
{
    char *text = err ? strdup(TRITONSERVER_ErrorMessage(err)) : NULL;

    TRITONSERVER_ErrorDelete(err);
    return text;
}

static char *load_compiled(const char *path, size_t n_instances, struct shim_model **ret_model)
{
    struct code *c;
    TRITONSERVER_Error *err = open_code(path, &c);

    return take_error_text(err ? err : make_compiled(c, n_instances, ret_model));
}

static char *copy_compiled(const struct shim_model *shim, struct shim_model **ret_model)
{
    const char *model = (const char *)shim - offsetof(struct model, shim);

    return take_error_text(make_compiled(((const struct model *)model)->code, 1, ret_model));
}

/* ---- Runs ------------------------------------------------------------------------------------ */

/* A tensor that an earlier run was given. Its memory may be gone: it is used only for an input that
 * lies there again. */
struct given {
    struct aoti_tensor *tensor;
    const void *data;
    TRITONSERVER_DataType type;
    uint32_t rank;
    int64_t shape[8]; /* an input of more dimensions is not kept */
};

struct result {
    struct shim_result shim;
    struct shim_tensor *list;
    struct aoti_tensor **tensors; /* outputs */
    void **copies;                /* of outputs whose rows do not lie one after the other */
    size_t n;
    struct aoti_tensor **inputs; /* during a run */
    struct given *given;         /* for each input */
    size_t n_inputs;
};

static struct result *outputs_of(struct shim_result *shim)
{
    return (struct result *)((char *)shim - offsetof(struct result, shim));
}

static void clear_outputs(struct shim_result *shim)
{
    struct result *r = outputs_of(shim);

    for (size_t i = 0; i < r->n; i++) {
        if (r->tensors[i])
            torch_delete_tensor_object(r->tensors[i]);
        free(r->copies[i]);
        r->tensors[i] = NULL;
        r->copies[i] = NULL;
        r->list[i] = (struct shim_tensor){.type = TRITONSERVER_TYPE_INVALID};
    }
}

static void release_outputs(struct shim_result *shim)
{
    struct result *r = outputs_of(shim);

    clear_outputs(shim);
    for (size_t i = 0; i < r->n_inputs; i++)
        if (r->given[i].tensor)
            torch_delete_tensor_object(r->given[i].tensor);
    free(r);
}

/* One piece of memory, which needs no alignment but a pointer's. */
static struct result *new_outputs(size_t n, size_t n_inputs)
{
    struct result *r =
        calloc(1, sizeof(*r) + n * (sizeof(*r->list) + sizeof(*r->tensors) + sizeof(*r->copies)) +
                      n_inputs * (sizeof(*r->given) + sizeof(*r->inputs)));

    if (!r)
        return NULL;
    r->given = (struct given *)(r + 1);
    r->n_inputs = n_inputs;
    r->list = (struct shim_tensor *)(r->given + n_inputs);
    r->tensors = (struct aoti_tensor **)(r->list + n);
    r->copies = (void **)(r->tensors + n);
    r->inputs = (struct aoti_tensor **)(r->copies + n);
    r->n = n;
    r->shim.outputs = r->list;
    r->shim.n_outputs = n;
    return r;
}

static TRITONSERVER_Error *wrap_input(const struct shim_tensor *in, struct aoti_tensor **ret_tensor)
{
    int64_t strides[BATCH_MAX_RANK], step = 1;

    if (in->rank > BATCH_MAX_RANK)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG, "input '%s' has %u dimensions",
                             in->name, (unsigned int)in->rank);
    for (uint32_t d = in->rank; d-- > 0;) {
        strides[d] = step;
        /* No overflow: the server has multiplied the dimensions, those of empty tensors, too. */
        step *= in->shape[d] > 0 ? in->shape[d] : 1;
    }
    for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++)
        if (types[i].server == in->type)
            return torch_create_tensor_from_blob(in->data, in->rank, in->shape, strides, 0,
                                                 types[i].torch, torch_device_type_cpu(), 0,
                                                 ret_tensor) == 0
                       ? NULL
                       : backend_error(TRITONSERVER_ERROR_INTERNAL,
                                       "PyTorch makes no tensor of input '%s'", in->name);
    return backend_error(
        TRITONSERVER_ERROR_INVALID_ARG, "no input of a package may be %s",
        in->type == TRITONSERVER_TYPE_INVALID ? "left out" : TRITONSERVER_DataTypeString(in->type));
}

static bool is_given(const struct given *g, const struct shim_tensor *in)
{
    return g->tensor && g->data == in->data && g->type == in->type && g->rank == in->rank &&
           memcmp(g->shape, in->shape, in->rank * sizeof(*in->shape)) == 0;
}

/* To make a tensor takes three allocations, another handle of one that is there takes one. */
static TRITONSERVER_Error *pass_input(struct given *g, const struct shim_tensor *in,
                                      struct aoti_tensor **ret_tensor)
{
    if (is_given(g, in) && torch_new_tensor_handle(g->tensor, ret_tensor) == 0)
        return NULL;
    TRY(wrap_input(in, ret_tensor));
    if (g->tensor)
        torch_delete_tensor_object(g->tensor);
    g->tensor = NULL;
    if (!torch_new_tensor_handle || in->rank > sizeof(g->shape) / sizeof(*g->shape) ||
        torch_new_tensor_handle(*ret_tensor, &g->tensor) != 0)
        return NULL;
    g->data = in->data;
    g->type = in->type;
    g->rank = in->rank;
    memcpy(g->shape, in->shape, in->rank * sizeof(*in->shape));
    return NULL;
}

/* Bytes of the tensor if its rows lie one after the other, as *ret_dense says. */
static TRITONSERVER_Error *measure_result(const struct shim_tensor *out, const int64_t *strides,
                                          uint64_t *ret_size, bool *ret_dense)
{
    uint64_t size = TRITONSERVER_DataTypeByteSize(out->type), step = 1;
    bool dense = true;

    for (uint32_t d = out->rank; d-- > 0;) {
        dense = dense && (out->shape[d] <= 1 || (uint64_t)strides[d] == step);
        if (out->shape[d] < 0 || strides[d] < 0 ||
            __builtin_mul_overflow(size, (uint64_t)out->shape[d], &size))
            return backend_error(TRITONSERVER_ERROR_INTERNAL,
                                 "the model returned a tensor of an impossible shape");
        step *= out->shape[d] > 0 ? (uint64_t)out->shape[d] : 1;
    }
    *ret_size = size;
    *ret_dense = dense || size == 0;
    return NULL;
}

static char *copy_rows(char *to, const char *from, const struct shim_tensor *out,
                       const int64_t *strides, uint32_t d, size_t element)
{
    if (d == out->rank) {
        memcpy(to, from, element);
        return to + element;
    }
    for (int64_t i = 0; i < out->shape[d]; i++)
        to = copy_rows(to, from + (size_t)i * (size_t)strides[d] * element, out, strides, d + 1,
                       element);
    return to;
}

static TRITONSERVER_Error *put_result(struct result *r, size_t i)
{
    struct shim_tensor *out = &r->list[i];
    struct aoti_tensor *tensor = r->tensors[i];
    int64_t rank, *sizes, *strides;
    int32_t type, device;
    void *data;
    bool dense;

    if (!tensor || torch_get_dtype(tensor, &type) != 0 || torch_get_dim(tensor, &rank) != 0 ||
        torch_get_device_type(tensor, &device) != 0 || torch_get_sizes(tensor, &sizes) != 0 ||
        torch_get_strides(tensor, &strides) != 0 || torch_get_data_ptr(tensor, &data) != 0)
        return backend_error(TRITONSERVER_ERROR_INTERNAL, "the model returned no tensor");
    out->type = TRITONSERVER_TYPE_INVALID;
    for (size_t t = 0; t < sizeof(types) / sizeof(*types); t++)
        if (types[t].torch == type)
            out->type = types[t].server;
    if (out->type == TRITONSERVER_TYPE_INVALID || rank > BATCH_MAX_RANK ||
        device != torch_device_type_cpu()) {
        out->kind = "a tensor of a type, or in a memory, that is not supported";
        return NULL;
    }
    out->rank = (uint32_t)rank;
    out->shape = sizes;
    out->data = data;
    TRY(measure_result(out, strides, &out->size, &dense));
    if (dense)
        return NULL;
    r->copies[i] = malloc(out->size);
    if (!r->copies[i])
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    copy_rows(r->copies[i], data, out, strides, 0, TRITONSERVER_DataTypeByteSize(out->type));
    out->data = r->copies[i];
    return NULL;
}

/* The code takes the inputs, and leaves NULL in the place of each that it has taken. */
static TRITONSERVER_Error *run_code(const struct model *m, const struct shim_tensor *inputs,
                                    size_t n, struct result *r)
{
    for (size_t i = 0; i < n; i++)
        TRY(pass_input(&r->given[i], &inputs[i], &r->inputs[i]));
    if (m->code->Run(m->container, r->inputs, n, r->tensors, r->n, NULL, NULL) != 0)
        return code_error(m->code, "the compiled model has failed");
    for (size_t i = 0; i < r->n; i++)
        TRY(put_result(r, i));
    return NULL;
}

/* Gives n threads to the operators that the code calls, and to its own loops if they were compiled
 * to ask; 0 changes nothing. Other models run on the same thread, so the caller sets the result
 * afterwards: the number before, or 0. */
static int limit_threads(int n)
{
    int before;

    if (n == 0 || !torch_get_threads)
        return 0;
    before = torch_get_threads();
    if (before == n)
        return 0;
    torch_set_threads(n);
    return before;
}

static int choose_threads(const struct shim_options *options)
{
    bool limited = options->threads == 0 && options->most_threads > 0 && torch_get_threads &&
                   torch_get_threads() > options->most_threads;

    return limited ? options->most_threads : options->threads;
}

static char *run_compiled(struct shim_model *shim, const struct shim_options *options,
                          const struct shim_tensor *inputs, size_t n, struct shim_result **result)
{
    const struct model *m = compiled_of(shim);
    struct result *r = *result ? outputs_of(*result) : new_outputs(m->n_outputs, n);
    TRITONSERVER_Error *err;
    int n_threads;

    if (!r)
        return take_error_text(backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory"));
    n_threads = limit_threads(choose_threads(options));
    err = run_code(m, inputs, n, r);
    limit_threads(n_threads);
    for (size_t i = 0; i < n; i++) {
        if (r->inputs[i])
            torch_delete_tensor_object(r->inputs[i]);
        r->inputs[i] = NULL;
    }
    if (err)
        release_outputs(&r->shim);
    *result = err ? NULL : &r->shim;
    return take_error_text(err);
}

bool aoti_sets_threads(void)
{
    return torch_get_threads != NULL;
}

TRITONSERVER_Error *aoti_open(void *library, const char *path, const struct shim **ret_shim)
{
    static const struct shim shim = {.load = load_compiled,
                                     .copy = copy_compiled,
                                     .free = free_compiled,
                                     .run = run_compiled,
                                     .clear = clear_outputs,
                                     .release = release_outputs};
    Dl_info self;

#define FIND_TORCH(result, name, arguments)                                                        \
    if (!find_function(library, "aoti_torch_" #name, &torch_##name))                               \
        return backend_error(TRITONSERVER_ERROR_UNSUPPORTED,                                       \
                             "packages need PyTorch 2.6 or newer: this one has no "                \
                             "aoti_torch_" #name "()");
    TORCH_FUNCTIONS(FIND_TORCH)
    find_function(library, "aoti_torch_new_tensor_handle", &torch_new_tensor_handle);
    if (!find_function(library, SET_THREADS, &torch_set_threads) ||
        !find_function(library, GET_THREADS, &torch_get_threads))
        torch_get_threads = NULL;
    if (!dladdr(&codes, &self) || !dlopen(self.dli_fname, RTLD_NOW | RTLD_NODELETE | RTLD_NOLOAD) ||
        !dlopen(path, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD))
        return backend_error(TRITONSERVER_ERROR_UNSUPPORTED, "%s", dlerror());
    number_types();
    setenv("AOTI_RUNTIME_CHECK_INPUTS", "1", 0);
    *ret_shim = &shim;
    return NULL;
}
