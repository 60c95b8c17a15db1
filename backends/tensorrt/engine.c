/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file is read as a whole before TensorRT sees it: a file that shrinks meanwhile must not end the
 * server. TensorRT makes one engine at a time.
 */
#include "tensorrt/engine.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A pointer below is an error of TensorRT, which has no driver: it does not return NULL then. */
#define LEAST_ADDRESS 4096

/* No plan has so many tensors or profiles; a number from outside is checked before it is used. */
#define MAX_COUNT 65536

/* ---- The file -------------------------------------------------------------------------------- */

static TRITONSERVER_Error *plan_error(const struct engine_options *o, const char *why)
{
    return backend_error(TRITONSERVER_ERROR_INTERNAL, "unable to read '%s' of model '%s': %s",
                         o->path, o->model, why);
}

static TRITONSERVER_Error *read_plan_bytes(const struct engine_options *o, int fd, char *to,
                                           uint64_t size)
{
    for (uint64_t at = 0; at < size;) {
        ssize_t n = read(fd, to + at, size - at);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return plan_error(o, n < 0 ? strerror(errno) : "it has become shorter");
        at += (uint64_t)n;
    }
    return NULL;
}

static TRITONSERVER_Error *read_opened(const struct engine_options *o, int fd, void **ret_bytes,
                                       uint64_t *ret_size)
{
    struct stat info;

    if (fstat(fd, &info) != 0)
        return plan_error(o, strerror(errno));
    if (info.st_size == 0)
        return plan_error(o, "the file is empty");
    *ret_size = (uint64_t)info.st_size;
    *ret_bytes = malloc(*ret_size);
    if (!*ret_bytes)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "no memory for the %llu bytes of '%s'",
                             (unsigned long long)*ret_size, o->path);
    return read_plan_bytes(o, fd, *ret_bytes, *ret_size);
}

static TRITONSERVER_Error *read_plan(const struct engine_options *o, void **ret_bytes,
                                     uint64_t *ret_size)
{
    int fd = open(o->path, O_RDONLY | O_CLOEXEC);
    TRITONSERVER_Error *err;

    if (fd < 0)
        return plan_error(o, strerror(errno));
    err = read_opened(o, fd, ret_bytes, ret_size);
    close(fd);
    return err;
}

/* ---- The engine ------------------------------------------------------------------------------ */

static struct trt_object *real(struct trt_object *object)
{
    return (uintptr_t)object < LEAST_ADDRESS ? NULL : object;
}

static TRITONSERVER_Error *make_runtime(const struct engine_options *o, struct engine *e)
{
    const struct library *lib = o->lib;

    messages_keep();
    e->runtime = real(lib->create_runtime(lib->logger, lib->number));
    if (!e->runtime)
        return messages_error("unable to create TensorRT runtime");
    messages_forget();
    if (o->version_compatible)
        TRT(lib, runtime_allow_host_code, e->runtime, true);
    if (e->dla_core >= 0) {
        int32_t n = TRT(lib, runtime_n_dla_cores, e->runtime);

        if (e->dla_core >= n)
            return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                                 "unable to create TensorRT runtime with DLA Core ID: %lld, "
                                 "available number of DLA cores: %d",
                                 (long long)e->dla_core, (int)n);
        TRT(lib, runtime_set_dla_core, e->runtime, (int32_t)e->dla_core);
    }
    return NULL;
}

static TRITONSERVER_Error *deserialize(const struct engine_options *o, struct engine *e)
{
    char what[512];
    void *bytes = NULL;
    TRITONSERVER_Error *err = read_plan(o, &bytes, &e->size);

    if (!err) {
        messages_keep();
        e->engine = real(TRT(o->lib, runtime_deserialize, e->runtime, bytes, e->size));
        snprintf(what, sizeof(what), "unable to create TensorRT engine of model '%s' from '%s'",
                 o->model, o->path);
        if (!e->engine)
            err = messages_error(what);
        messages_forget();
    }
    free(bytes);
    return err;
}

static TRITONSERVER_Error *make_engine(const struct engine_options *o, struct engine *e)
{
    TRY(make_runtime(o, e));
    return deserialize(o, e);
}

TRITONSERVER_Error *engine_new(const struct engine_options *o, int gpu, int64_t dla_core,
                               struct engine **ret_engine)
{
    static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
    struct engine *e = calloc(1, sizeof(*e));
    TRITONSERVER_Error *err;

    if (!e)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    e->lib = o->lib;
    e->dla_core = dla_core;
    err = cuda_place_open(o->cuda, gpu, &e->place);
    if (!err)
        err = cuda_enter(&e->place);
    if (!err) {
        pthread_mutex_lock(&one_at_a_time);
        err = make_engine(o, e);
        pthread_mutex_unlock(&one_at_a_time);
        cuda_leave(&e->place);
    }
    if (err)
        engine_free(e);
    else
        *ret_engine = e;
    return err;
}

void engine_free(struct engine *e)
{
    if (!e)
        return;
    if (e->place.context) {
        backend_ignore(cuda_enter(&e->place), "freeing an engine");
        library_delete(e->engine);
        library_delete(e->runtime);
        cuda_leave(&e->place);
    }
    cuda_place_done(&e->place);
    free(e);
}

/* ---- Tensors --------------------------------------------------------------------------------- */

static const struct {
    int32_t theirs;
    TRITONSERVER_DataType type;
    const char *name;
} types[] = {
    {TRT_FLOAT, TRITONSERVER_TYPE_FP32, "TYPE_FP32"},
    {TRT_HALF, TRITONSERVER_TYPE_FP16, "TYPE_FP16"},
    {TRT_INT8, TRITONSERVER_TYPE_INT8, "TYPE_INT8"},
    {TRT_INT32, TRITONSERVER_TYPE_INT32, "TYPE_INT32"},
    {TRT_BOOL, TRITONSERVER_TYPE_BOOL, "TYPE_BOOL"},
    {TRT_UINT8, TRITONSERVER_TYPE_UINT8, "TYPE_UINT8"},
    {TRT_BF16, TRITONSERVER_TYPE_BF16, "TYPE_BF16"},
    {TRT_INT64, TRITONSERVER_TYPE_INT64, "TYPE_INT64"},
};

const char *type_name(TRITONSERVER_DataType type)
{
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        if (types[i].type == type)
            return types[i].name;
    return "TYPE_INVALID";
}

static TRITONSERVER_Error *read_engine_type(const struct engine *e, const char *model,
                                            struct tensor *t)
{
    int32_t theirs = TRT(e->lib, engine_type, e->engine, t->name);

    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        if (types[i].theirs == theirs)
            t->type = types[i].type;
    if (t->type == TRITONSERVER_TYPE_INVALID)
        return backend_error(TRITONSERVER_ERROR_UNSUPPORTED,
                             "model '%s': tensor '%s' has a type that the server does not have "
                             "(number %d in TensorRT)",
                             model, t->name, (int)theirs);
    if (TRT(e->lib, engine_format, e->engine, t->name) != TRT_LINEAR)
        return backend_error(TRITONSERVER_ERROR_UNSUPPORTED,
                             "model '%s': tensor '%s' uses a non-linear IO format, which this "
                             "backend does not support; build the engine with linear formats for "
                             "its inputs and outputs",
                             model, t->name);
    return NULL;
}

static TRITONSERVER_Error *check_engine_dims(const char *model, const struct tensor *t,
                                             const struct trt_dims *dims)
{
    bool bad = dims->rank < 0 || dims->rank > TRT_MAX_RANK;

    for (int32_t d = 0; !bad && d < dims->rank; d++)
        bad = dims->d[d] < -1;
    return bad ? backend_error(TRITONSERVER_ERROR_INTERNAL,
                               "model '%s': TensorRT tells no shape of tensor '%s'", model, t->name)
               : NULL;
}

static TRITONSERVER_Error *read_tensor_limits(const struct engine *e, const char *model,
                                              struct tensor *t, int32_t n_profiles)
{
    t->limits = calloc((size_t)n_profiles, sizeof(*t->limits));
    if (!t->limits)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    for (int32_t p = 0; p < n_profiles; p++) {
        struct limits *l = &t->limits[p];
        struct trt_dims *const all[] = {&l->least, &l->best, &l->most};

        for (int32_t select = TRT_MIN; select <= TRT_MAX; select++) {
            *all[select] = TRT(e->lib, engine_profile_shape, e->engine, t->name, p, select);
            TRY(check_engine_dims(model, t, all[select]));
            if (all[select]->rank != t->dims.rank)
                return backend_error(TRITONSERVER_ERROR_INTERNAL,
                                     "model '%s': optimization profile %d has %d dimensions for "
                                     "tensor '%s', which has %d",
                                     model, (int)p, (int)all[select]->rank, t->name,
                                     (int)t->dims.rank);
        }
    }
    return NULL;
}

static TRITONSERVER_Error *read_engine_tensor(const struct engine *e, const char *model,
                                              struct tensors *all, int32_t i)
{
    struct tensor *t = &all->list[i];

    t->name = TRT(e->lib, engine_tensor_name, e->engine, i);
    if (!t->name)
        return backend_error(TRITONSERVER_ERROR_INTERNAL,
                             "model '%s': TensorRT tells no name of tensor %d", model, (int)i);
    t->is_input = TRT(e->lib, engine_mode, e->engine, t->name) == TRT_INPUT;
    t->is_shape = TRT(e->lib, engine_is_shape, e->engine, t->name);
    t->on_host = TRT(e->lib, engine_place, e->engine, t->name) == TRT_ON_HOST;
    t->dims = TRT(e->lib, engine_shape, e->engine, t->name);
    TRY(check_engine_dims(model, t, &t->dims));
    TRY(read_engine_type(e, model, t));
    return t->is_input ? read_tensor_limits(e, model, t, all->n_profiles) : NULL;
}

TRITONSERVER_Error *engine_tensors(const struct engine *e, const char *model, struct tensors *ret)
{
    int32_t n = TRT(e->lib, engine_n_tensors, e->engine);

    ret->n_profiles = TRT(e->lib, engine_n_profiles, e->engine);
    if (n < 0 || n > MAX_COUNT || ret->n_profiles < 1 || ret->n_profiles > MAX_COUNT)
        return backend_error(TRITONSERVER_ERROR_INTERNAL,
                             "model '%s': TensorRT tells of %d tensors and %d profiles", model,
                             (int)n, (int)ret->n_profiles);
    ret->list = calloc((size_t)n + 1, sizeof(*ret->list));
    if (!ret->list)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    ret->n = (size_t)n;
    for (int32_t i = 0; i < n; i++)
        TRY(read_engine_tensor(e, model, ret, i));
    return NULL;
}

void tensors_done(struct tensors *t)
{
    for (size_t i = 0; t->list && i < t->n; i++)
        free(t->list[i].limits);
    free(t->list);
    *t = (struct tensors){0};
}

struct tensor *tensors_find(const struct tensors *t, const char *name)
{
    for (size_t i = 0; i < t->n; i++)
        if (strcmp(t->list[i].name, name) == 0)
            return &t->list[i];
    return NULL;
}
