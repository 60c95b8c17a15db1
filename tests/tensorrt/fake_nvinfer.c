/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A libnvinfer.so without a GPU: the objects and functions of TensorRT that backends/tensorrt
 * calls, at their positions in release FAKE_MAJOR. It computes at once, in the memory that
 * tests/cuda/fake_cuda.c gives out. A function that is not expected ends the process.
 *
 * Its plan files are text, a line for each thing:
 *
 *     fakeplan 11                                   the release that has made it
 *     in NAME TYPE DIMS [shape] [host] [format N]   a tensor; DIMS as -1x16, or . for none
 *     out NAME TYPE DIMS …
 *     profile N NAME MIN OPT MAX                    limits of an input in the N-th profile
 *     op add|sub A B OUT                            of floats; other shapes fail
 *     op copy IN OUT                                of any type
 *     op ones SHAPE OUT                             floats, whose shape is the values of SHAPE
 *     op positive IN OUT                            the floats above 0: their number is found late
 *     op accumulate IN STATE NEW                    NEW = STATE + IN, of floats
 *     op how IN OUT                                 OUT = IN of floats, + 1000 outside of a graph
 *     op crash                                      the launch fails
 *     op zero IN                                    the launch fails unless all values are 0
 *
 * Shapes must have been executed once before a launch of them is captured.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/fake_cuda.h"
#include "tensorrt/trt_api.h"

#ifndef FAKE_MAJOR
#define FAKE_MAJOR 11
#endif

enum { MAX_TENSORS = 16, MAX_PROFILES = 4, MAX_OPS = 8, TABLE = 64, NAME = 64 };

struct fake_tensor {
    char name[NAME];
    bool is_input, is_shape, on_host;
    int32_t type, format;
    struct trt_dims dims, limits[MAX_PROFILES][3];
};

struct op {
    char kind[NAME], names[3][NAME];
};

struct plan {
    int32_t version, n_profiles;
    struct fake_tensor tensors[MAX_TENSORS];
    int n;
    struct op ops[MAX_OPS];
    int n_ops;
};

struct runtime {
    struct trt_object theirs;
    struct trt_inner inner, *logger;
    bool allows_host_code;
};

struct engine {
    struct trt_object theirs;
    struct trt_inner inner, *logger;
    struct plan plan;
};

struct bound {
    struct trt_dims dims;
    bool has_dims;
    void *at;
    struct trt_inner *allocator;
};

struct context {
    struct trt_object theirs;
    struct trt_inner inner, *logger;
    const struct plan *plan;
    int32_t profile;
    bool is_warm;  /* these shapes were executed */
    bool in_graph; /* a copy that a graph has */
    struct bound bound[MAX_TENSORS];
};

#define OF(type, object) ((struct type *)((char *)(object)-offsetof(struct type, inner)))

/* ---- Messages -------------------------------------------------------------------------------- */

static void say(struct trt_inner *logger, int32_t severity, const char *text)
{
    typedef void log_fn(struct trt_inner *, int32_t, const char *);
    ((log_fn *)logger->table[FAKE_MAJOR == 10 ? 0 : 4])(logger, severity, text);
}

static bool fail(struct trt_inner *logger, const char *text)
{
    say(logger, TRT_ERROR, text);
    say(logger, TRT_INTERNAL_ERROR,
        "[fake.cpp::caller::1] Error Code 4: the step before has failed");
    return false;
}

/* ---- Plan files ------------------------------------------------------------------------------ */

static bool read_dims(const char *text, struct trt_dims *ret)
{
    *ret = (struct trt_dims){0};
    if (strcmp(text, ".") == 0)
        return true;
    for (char *end; ret->rank < TRT_MAX_RANK; text = end + 1) {
        ret->d[ret->rank++] = strtoll(text, &end, 10);
        if (end == text)
            return false;
        if (*end != 'x')
            return *end == '\0';
    }
    return false;
}

static struct fake_tensor *find(struct plan *p, const char *name)
{
    for (int i = 0; i < p->n; i++)
        if (strcmp(p->tensors[i].name, name) == 0)
            return &p->tensors[i];
    return NULL;
}

static bool read_tensor_line(struct plan *p, char *rest, bool is_input)
{
    static const char *const types[] = {"float", "half", "int8", "int32", "bool",
                                        "uint8", "fp8",  "bf16", "int64"};
    char type[NAME], dims[NAME], words[NAME] = "", *format;
    struct fake_tensor *t = &p->tensors[p->n];
    if (p->n == MAX_TENSORS ||
        sscanf(rest, "%63s %63s %63s %63[^\n]", t->name, type, dims, words) < 3 ||
        !read_dims(dims, &t->dims))
        return false;
    t->type = -1;
    for (int32_t i = 0; i < 9; i++)
        if (strcmp(types[i], type) == 0)
            t->type = i;
    t->is_input = is_input;
    t->is_shape = strstr(words, "shape");
    t->on_host = strstr(words, "host") || t->is_shape;
    format = strstr(words, "format ");
    t->format = format ? atoi(format + 7) : 0;
    for (int i = 0; i < MAX_PROFILES; i++)
        for (int k = 0; k < 3; k++)
            t->limits[i][k] = t->dims;
    p->n++;
    return t->type >= 0;
}

static bool read_profile_line(struct plan *p, const char *rest)
{
    char name[NAME], limits[3][NAME];
    struct fake_tensor *t;
    int number;
    if (sscanf(rest, "%d %63s %63s %63s %63s", &number, name, limits[0], limits[1], limits[2]) != 5)
        return false;
    t = find(p, name);
    if (!t || number < 0 || number >= MAX_PROFILES)
        return false;
    if (number >= p->n_profiles)
        p->n_profiles = number + 1;
    for (int k = 0; k < 3; k++)
        if (!read_dims(limits[k], &t->limits[number][k]))
            return false;
    return true;
}

static bool read_line(struct plan *p, char *line)
{
    char word[NAME];
    int n = 0;
    if (sscanf(line, "%63s %n", word, &n) != 1)
        return true;
    if (strcmp(word, "in") == 0 || strcmp(word, "out") == 0)
        return read_tensor_line(p, line + n, *word == 'i');
    if (strcmp(word, "profile") == 0)
        return read_profile_line(p, line + n);
    if (strcmp(word, "op") != 0 || p->n_ops == MAX_OPS)
        return false;
    struct op *o = &p->ops[p->n_ops++];
    return sscanf(line + n, "%63s %63s %63s %63s", o->kind, o->names[0], o->names[1],
                  o->names[2]) >= 1;
}

static bool read_plan(struct plan *p, char *text)
{
    char *rest = text, *line = strsep(&rest, "\n");
    p->n_profiles = 1;
    if (sscanf(line, "fakeplan %d", &p->version) != 1)
        return false;
    while ((line = strsep(&rest, "\n"))) {
        if (strcmp(line, "end") == 0)
            return true;
        if (!read_line(p, line))
            return false;
    }
    return false; /* cut off */
}

/* ---- Contexts -------------------------------------------------------------------------------- */

static struct bound *bound_of(struct context *c, const char *name, const struct fake_tensor **ret_t)
{
    for (int i = 0; i < c->plan->n; i++) {
        if (strcmp(c->plan->tensors[i].name, name) == 0) {
            if (ret_t)
                *ret_t = &c->plan->tensors[i];
            return &c->bound[i];
        }
    }
    abort();
}

static size_t element_size(int32_t type)
{
    static const size_t sizes[] = {4, 2, 1, 4, 1, 1, 1, 2, 8};
    return sizes[type];
}

static int64_t count(const struct trt_dims *dims)
{
    int64_t n = 1;
    for (int32_t d = 0; d < dims->rank; d++)
        n *= dims->d[d];
    return n;
}

static bool is_open(const struct trt_dims *dims)
{
    for (int32_t d = 0; d < dims->rank; d++)
        if (dims->d[d] < 0)
            return true;
    return false;
}

static bool all_specified(struct trt_inner *self)
{
    struct context *c = OF(context, self);
    for (int i = 0; i < c->plan->n; i++) {
        const struct fake_tensor *t = &c->plan->tensors[i];
        if (t->is_input &&
            ((is_open(&t->dims) && !c->bound[i].has_dims) || (t->is_shape && !c->bound[i].at)))
            return false;
    }
    return true;
}

static bool set_profile(struct trt_inner *self, int32_t profile, void *stream)
{
    struct context *c = OF(context, self);
    if (profile < 0 || profile >= c->plan->n_profiles || !stream)
        return fail(c->logger, "no such optimization profile");
    c->profile = profile;
    return true;
}

static bool set_shape(struct trt_inner *self, const char *name, const struct trt_dims *dims)
{
    struct context *c = OF(context, self);
    const struct fake_tensor *t;
    struct bound *b = bound_of(c, name, &t);
    const struct trt_dims *limits = t->limits[c->profile];
    bool fits = dims->rank == t->dims.rank;
    for (int32_t d = 0; fits && d < dims->rank; d++)
        fits = dims->d[d] >= limits[0].d[d] && dims->d[d] <= limits[2].d[d];
    if (!fits)
        return fail(c->logger, "the shape is outside of the profile");
    if (!b->has_dims || memcmp(&b->dims, dims, sizeof(*dims)) != 0)
        c->is_warm = false;
    b->dims = *dims;
    b->has_dims = true;
    return true;
}

static struct trt_dims input_dims(struct context *c, const char *name)
{
    const struct fake_tensor *t;
    const struct bound *b = bound_of(c, name, &t);
    return b->has_dims ? b->dims : t->dims;
}

static struct trt_dims value_dims(struct context *c, const char *name)
{
    const struct fake_tensor *t;
    const struct bound *b = bound_of(c, name, &t);
    struct trt_dims dims = {.rank = t->dims.rank == 0 ? 1 : (int32_t)t->dims.d[0]};
    for (int32_t d = 0; d < dims.rank; d++)
        dims.d[d] =
            t->type == TRT_INT64 ? ((const int64_t *)b->at)[d] : ((const int32_t *)b->at)[d];
    return dims;
}

static struct trt_dims output_dims(struct context *c, const char *name)
{
    for (int i = 0; i < c->plan->n_ops; i++) {
        const struct op *o = &c->plan->ops[i];
        struct trt_dims late = {.rank = 1, .d = {-1}};
        if (strcmp(o->kind, "ones") == 0 && strcmp(o->names[1], name) == 0)
            return value_dims(c, o->names[0]);
        if (strcmp(o->kind, "positive") == 0 && strcmp(o->names[1], name) == 0)
            return late;
        if ((strcmp(o->kind, "copy") == 0 || strcmp(o->kind, "how") == 0) &&
            strcmp(o->names[1], name) == 0)
            return input_dims(c, o->names[0]);
        if (strcmp(o->names[2], name) == 0)
            return input_dims(c, o->names[0]);
    }
    return (struct trt_dims){.rank = -1};
}

static struct trt_dims context_shape(struct trt_inner *self, const char *name)
{
    struct context *c = OF(context, self);
    const struct fake_tensor *t;
    bound_of(c, name, &t);
    return t->is_input ? input_dims(c, name) : output_dims(c, name);
}

static bool set_address(struct trt_inner *self, const char *name, void *at)
{
    struct context *c = OF(context, self);
    if (!at)
        return fail(c->logger, "an address is null");
    bound_of(c, name, NULL)->at = at;
    return true;
}

static bool set_allocator(struct trt_inner *self, const char *name, struct trt_inner *allocator)
{
    bound_of(OF(context, self), name, NULL)->allocator = allocator;
    return true;
}

/* ---- Computing ------------------------------------------------------------------------------- */

static pthread_once_t looked_for = PTHREAD_ONCE_INIT;
static fake_cuda_bytes_fn *device_bytes;
static fake_cuda_record_fn *record;

static void find_fake_driver(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    void *bytes = dlsym(driver, "fake_cuda_bytes"), *capture = dlsym(driver, "fake_cuda_record");
    memcpy(&device_bytes, &bytes, sizeof(bytes));
    memcpy(&record, &capture, sizeof(capture));
}

static void *bytes_at(const struct fake_tensor *t, void *at, int64_t n)
{
    if (t->on_host)
        return at;
    pthread_once(&looked_for, find_fake_driver);
    return device_bytes((unsigned long long)(uintptr_t)at, (size_t)n * element_size(t->type));
}

static void *bytes_of(struct context *c, const char *name)
{
    const struct fake_tensor *t;
    const struct bound *b = bound_of(c, name, &t);
    struct trt_dims dims = context_shape(&c->inner, name);
    return bytes_at(t, b->at, count(&dims));
}

static bool find_positive(struct context *c, const struct op *o)
{
    typedef void *reallocate_fn(struct trt_inner *, const char *, void *, uint64_t, uint64_t,
                                void *);
    typedef void notify_fn(struct trt_inner *, const char *, const struct trt_dims *);
    struct trt_dims in = input_dims(c, o->names[0]), dims = {.rank = 1};
    const float *from = bytes_of(c, o->names[0]);
    const struct fake_tensor *t;
    const struct bound *b = bound_of(c, o->names[1], &t);
    float *to;
    void *at;
    for (int64_t i = 0; i < count(&in); i++)
        dims.d[0] += from[i] > 0;
    at = ((reallocate_fn *)b->allocator->table[5])(b->allocator, t->name, NULL,
                                                   (uint64_t)dims.d[0] * 4, 256, NULL);
    if (!at)
        return fail(c->logger, "no memory for an output");
    to = bytes_at(t, at, dims.d[0]);
    for (int64_t i = 0; i < count(&in); i++)
        if (from[i] > 0)
            *to++ = from[i];
    ((notify_fn *)b->allocator->table[6])(b->allocator, t->name, &dims);
    return true;
}

static bool is_zero(struct context *c, const char *name)
{
    const struct fake_tensor *t;
    struct trt_dims dims = context_shape(&c->inner, name);
    const char *bytes = bytes_of(c, name);
    bound_of(c, name, &t);
    for (size_t i = 0; i < (size_t)count(&dims) * element_size(t->type); i++)
        if (bytes[i] != 0)
            return false;
    return true;
}

static bool have_same_shape(struct context *c, const char *a, const char *b)
{
    struct trt_dims one = context_shape(&c->inner, a), other = context_shape(&c->inner, b);
    return one.rank == other.rank && memcmp(one.d, other.d, (size_t)one.rank * sizeof(*one.d)) == 0;
}

static bool compute(struct context *c, const struct op *o)
{
    struct trt_dims dims;
    const struct fake_tensor *t;
    if (strcmp(o->kind, "crash") == 0)
        return fail(c->logger, "Error Code 1: Cuda Runtime (an illegal memory access)");
    if (strcmp(o->kind, "zero") == 0)
        return is_zero(c, o->names[0]) || fail(c->logger, "Error Code 2: a value is not 0");
    if (strcmp(o->kind, "positive") == 0)
        return find_positive(c, o);
    bool is_how = strcmp(o->kind, "how") == 0;
    bool two = is_how || strcmp(o->kind, "copy") == 0 || strcmp(o->kind, "ones") == 0;
    const char *output = o->names[two ? 1 : 2];
    bound_of(c, output, &t);
    dims = output_dims(c, output);
    float *to = bytes_of(c, output);
    const float *a = bytes_of(c, o->names[0]), *b = two ? NULL : bytes_of(c, o->names[1]);
    if (!to || !a || (!two && !b))
        return fail(c->logger, "an address is not of the GPU");
    if (!two && !have_same_shape(c, o->names[0], o->names[1]))
        return fail(c->logger, "Error Code 7: Internal Error (the shapes of an elementwise "
                               "operation do not fit)");
    if (strcmp(o->kind, "copy") == 0)
        memcpy(to, a, (size_t)count(&dims) * element_size(t->type));
    for (int64_t i = 0; i < count(&dims); i++) {
        if (strcmp(o->kind, "ones") == 0)
            to[i] = 1;
        else if (is_how)
            to[i] = a[i] + (c->in_graph ? 0 : 1000);
        else if (strcmp(o->kind, "sub") == 0)
            to[i] = a[i] - b[i];
        else if (!two) /* add, accumulate */
            to[i] = a[i] + b[i];
    }
    return true;
}

static void launch_again(void *arg)
{
    struct context *c = arg;
    for (int i = 0; i < c->plan->n_ops; i++)
        compute(c, &c->plan->ops[i]);
}

static bool record_launch(struct context *c, void *stream)
{
    if (!c->is_warm)
        return fail(c->logger, "a capture before the shapes were executed");
    struct context *copy = malloc(sizeof(*copy));
    *copy = *c;
    copy->in_graph = true;
    return record(stream, launch_again, copy);
}

static bool enqueue(struct trt_inner *self, void *stream)
{
    struct context *c = OF(context, self);
    if (!stream || !all_specified(self))
        return fail(c->logger, "not all inputs are specified");
    pthread_once(&looked_for, find_fake_driver);
    if (record(stream, NULL, NULL))
        return record_launch(c, stream);
    for (int i = 0; i < c->plan->n_ops; i++)
        if (!compute(c, &c->plan->ops[i]))
            return false;
    c->is_warm = true;
    return true;
}

/* ---- Engines --------------------------------------------------------------------------------- */

static struct fake_tensor *tensor_of(struct trt_inner *self, const char *name)
{
    struct fake_tensor *t = find(&OF(engine, self)->plan, name);
    if (!t)
        abort();
    return t;
}

static int32_t engine_n_profiles(struct trt_inner *self)
{
    return OF(engine, self)->plan.n_profiles;
}
static struct trt_dims engine_shape(struct trt_inner *self, const char *name)
{
    return tensor_of(self, name)->dims;
}
static int32_t engine_type(struct trt_inner *self, const char *name)
{
    return tensor_of(self, name)->type;
}
static int32_t engine_place(struct trt_inner *self, const char *name)
{
    return tensor_of(self, name)->on_host ? TRT_ON_HOST : TRT_ON_DEVICE;
}
static bool engine_is_shape(struct trt_inner *self, const char *name)
{
    return tensor_of(self, name)->is_shape;
}
static int32_t engine_mode(struct trt_inner *self, const char *name)
{
    return tensor_of(self, name)->is_input ? TRT_INPUT : TRT_OUTPUT;
}
static int32_t engine_format(struct trt_inner *self, const char *name)
{
    return tensor_of(self, name)->format;
}
static struct trt_dims engine_profile_shape(struct trt_inner *self, const char *name,
                                            int32_t profile, int32_t select)
{
    return tensor_of(self, name)->limits[profile][select];
}
static int32_t engine_n_tensors(struct trt_inner *self)
{
    return OF(engine, self)->plan.n;
}
static const char *engine_tensor_name(struct trt_inner *self, int32_t i)
{
    return OF(engine, self)->plan.tensors[i].name;
}
static int64_t engine_device_memory(struct trt_inner *self)
{
    (void)self;
    return 1000;
}

/* ---- Objects --------------------------------------------------------------------------------- */

static void unexpected(void)
{
    fputs("fake_nvinfer: a function that the fake does not have was called\n", stderr);
    abort();
}

static void delete_object(struct trt_object *o)
{
    free(o);
}

static trt_function *const wrapper[] = {unexpected, (trt_function *)delete_object};

static struct trt_object *engine_new_context(struct trt_inner *self, int32_t strategy);
static struct trt_object *runtime_deserialize(struct trt_inner *self, const void *bytes, size_t n);

static void runtime_allow_host_code(struct trt_inner *self, bool allowed)
{
    OF(runtime, self)->allows_host_code = allowed;
}
static void runtime_set_dla_core(struct trt_inner *self, int32_t core)
{
    (void)self;
    (void)core;
}
static int32_t runtime_n_dla_cores(struct trt_inner *self)
{
    (void)self;
    return 2;
}

#define context_all_specified all_specified
#define context_set_profile   set_profile
#define context_set_shape     set_shape
#define context_set_address   set_address
#define context_set_allocator set_allocator
#define context_enqueue       enqueue

/* The tables of all three classes, each with its own functions. */
static trt_function *tables[3][TABLE];

static trt_function **table_of(const char *class)
{
    return tables[*class == 'r' ? 0 : *class == 'e' ? 1 : 2];
}

__attribute__((constructor)) static void fill_tables(void)
{
    static const struct {
        const char *name;
        int position;
        trt_function *function;
    } functions[] = {
#define FAKE_SLOT(name, in10, in11, result, parameters)                                            \
    {#name, FAKE_MAJOR == 10 ? in10 : in11, (trt_function *)name},
        TRT_SLOTS(FAKE_SLOT)};
    for (int i = 0; i < 3 * TABLE; i++)
        tables[i / TABLE][i % TABLE] = unexpected;
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++)
        table_of(functions[i].name)[functions[i].position] = functions[i].function;
}

static struct trt_object *engine_new_context(struct trt_inner *self, int32_t strategy)
{
    struct engine *e = OF(engine, self);
    struct context *c = calloc(1, sizeof(*c));
    if (strategy != TRT_STATIC && strategy != TRT_ON_PROFILE_CHANGE)
        abort();
    c->theirs = (struct trt_object){wrapper, &c->inner};
    c->inner.table = table_of("context");
    c->logger = e->logger;
    c->plan = &e->plan;
    return &c->theirs;
}

static struct trt_object *runtime_deserialize(struct trt_inner *self, const void *bytes, size_t n)
{
    struct runtime *r = OF(runtime, self);
    struct engine *e = calloc(1, sizeof(*e));
    char *text = calloc(1, n + 1); /* no strndup(): AddressSanitizer has it read the byte behind */
    bool read = read_plan(&e->plan, memcpy(text, bytes, n));
    free(text);
    if (!read)
        fail(r->logger, "Error Code 1: Serialization (Serialization assertion magicTagRead == "
                        "kMAGIC_TAG failed.Magic tag does not match)");
    else if (e->plan.version != FAKE_MAJOR && !r->allows_host_code)
        fail(r->logger,
             "Error Code 6: API Usage Error (The engine plan file is not compatible with "
             "this version of TensorRT)");
    if (!read || (e->plan.version != FAKE_MAJOR && !r->allows_host_code)) {
        free(e);
        return NULL;
    }
    e->theirs = (struct trt_object){wrapper, &e->inner};
    e->inner.table = table_of("engine");
    e->logger = r->logger;
    return &e->theirs;
}

#define EXPORT __attribute__((visibility("default")))

EXPORT trt_create_runtime_fn createInferRuntime_INTERNAL;
EXPORT trt_version_fn getInferLibVersion;

struct trt_object *createInferRuntime_INTERNAL(struct trt_inner *logger, int32_t version)
{
    if (getenv("CONCH_FAKE_NO_RUNTIME")) {
        /* As the genuine library does without a driver. */
        say(logger, TRT_ERROR, "CUDA initialization failure with error: 35");
        return (struct trt_object *)0x228;
    }
    struct runtime *r = calloc(1, sizeof(*r));
    if (version / 10000 != FAKE_MAJOR)
        abort();
    r->theirs = (struct trt_object){wrapper, &r->inner};
    r->inner.table = table_of("runtime");
    r->logger = logger;
    say(logger, TRT_INFO, "a runtime of the fake");
    return &r->theirs;
}

int32_t getInferLibVersion(void)
{
    const char *version = getenv("CONCH_FAKE_TENSORRT");
    return version ? atoi(version) : FAKE_MAJOR * 10000 + 203;
}
