/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ort_loop LIBRARY MODEL IN_NAME IN_SHAPE OUT_NAME OUT_SHAPE [SECONDS]
 *
 * The cost of one bare Run of a model: FP32 tensors over the caller's own memory, wrapped for every
 * call as a server must, one thread. Prints one line of JSON with the CPU time per Run and the
 * first output value. Shapes are written 1x64.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

/* Slots in the table of functions that OrtGetApiBase()->GetApi() gives; they never move. */
enum slot {
    SLOT_GET_ERROR_MESSAGE = 2,
    SLOT_CREATE_ENV = 3,
    SLOT_CREATE_SESSION = 7,
    SLOT_RUN = 9,
    SLOT_CREATE_SESSION_OPTIONS = 10,
    SLOT_SET_INTRA_OP_NUM_THREADS = 24,
    SLOT_CREATE_TENSOR_WITH_DATA = 49,
    SLOT_CREATE_CPU_MEMORY_INFO = 69,
    SLOT_RELEASE_VALUE = 96,
};

enum { API_VERSION = 16, LOG_WARNING = 2, ARENA_ALLOCATOR = 1, MEM_DEFAULT = 0, ELEMENT_FLOAT = 1 };

typedef void (*any_fn)(void);

struct tensor {
    const char *name;
    int64_t shape[8];
    size_t n_dims;
    float *data;
    size_t size_bytes;
};

static const any_fn *api;

static void check(void *status)
{
    if (!status)
        return;
    fprintf(stderr, "ort_loop: %s\n",
            ((const char *(*)(const void *))api[SLOT_GET_ERROR_MESSAGE])(status));
    exit(1);
}

static void api_open(const char *path)
{
    struct api_base {
        const void *(*get_api)(uint32_t version);
        const char *(*get_version)(void);
    };
    void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const struct api_base *(*base)(void);

    if (!lib) {
        fprintf(stderr, "ort_loop: %s\n", dlerror());
        exit(1);
    }
    *(void **)&base = dlsym(lib, "OrtGetApiBase");
    api = base ? base()->get_api(API_VERSION) : NULL;
    if (!api) {
        fprintf(stderr, "ort_loop: %s is no ONNX Runtime\n", path);
        exit(1);
    }
}

static struct tensor tensor_make(const char *name, const char *shape)
{
    struct tensor t = {.name = name, .size_bytes = sizeof(float)};
    char *end = NULL;

    while (t.n_dims < 8 && *shape) {
        t.shape[t.n_dims] = strtoll(shape, &end, 10);
        if (end == shape || t.shape[t.n_dims] <= 0)
            break;
        t.size_bytes *= (size_t)t.shape[t.n_dims++];
        shape = *end == 'x' ? end + 1 : end;
    }
    t.data = calloc(1, t.size_bytes);
    if (*shape || t.n_dims == 0 || !t.data) {
        fprintf(stderr, "ort_loop: bad shape for '%s'\n", name);
        exit(2);
    }
    return t;
}

static void *tensor_wrap(const void *memory_info, const struct tensor *t)
{
    void *value = NULL;

    check(((void *(*)(const void *, void *, size_t, const int64_t *, size_t, int,
                      void **))api[SLOT_CREATE_TENSOR_WITH_DATA])(
        memory_info, t->data, t->size_bytes, t->shape, t->n_dims, ELEMENT_FLOAT, &value));
    return value;
}

static void *session_open(const char *model)
{
    void *env = NULL, *options = NULL, *session = NULL;

    check(
        ((void *(*)(int, const char *, void **))api[SLOT_CREATE_ENV])(LOG_WARNING, "bench", &env));
    check(((void *(*)(void **))api[SLOT_CREATE_SESSION_OPTIONS])(&options));
    check(((void *(*)(void *, int))api[SLOT_SET_INTRA_OP_NUM_THREADS])(options, 1));
    check(((void *(*)(void *, const char *, const void *, void **))api[SLOT_CREATE_SESSION])(
        env, model, options, &session));
    return session;
}

static uint64_t cpu_us(void)
{
    struct rusage ru;

    getrusage(RUSAGE_SELF, &ru);
    return (uint64_t)(ru.ru_utime.tv_sec + ru.ru_stime.tv_sec) * 1000000u +
           (uint64_t)(ru.ru_utime.tv_usec + ru.ru_stime.tv_usec);
}

static void run_once(void *session, const void *memory_info, const struct tensor *in,
                     const struct tensor *out)
{
    const char *in_names[] = {in->name}, *out_names[] = {out->name};
    const void *ins[] = {tensor_wrap(memory_info, in)};
    void *outs[] = {tensor_wrap(memory_info, out)};
    void (*release)(const void *) = (void (*)(const void *))api[SLOT_RELEASE_VALUE];

    check(((void *(*)(void *, const void *, const char *const *, const void *const *, size_t,
                      const char *const *, size_t, void **))api[SLOT_RUN])(
        session, NULL, in_names, ins, 1, out_names, 1, outs));
    release(ins[0]);
    release(outs[0]);
}

int main(int argc, char **argv)
{
    struct tensor in, out;
    void *session, *memory_info = NULL;
    uint64_t from, used, runs = 0, limit_us;

    if (argc < 7) {
        fprintf(stderr,
                "usage: ort_loop LIBRARY MODEL IN_NAME IN_SHAPE OUT_NAME OUT_SHAPE [SECONDS]\n");
        return 2;
    }
    api_open(argv[1]);
    in = tensor_make(argv[3], argv[4]);
    out = tensor_make(argv[5], argv[6]);
    limit_us = (uint64_t)(1e6 * (argc > 7 ? strtod(argv[7], NULL) : 1));
    session = session_open(argv[2]);
    check(((void *(*)(int, int, void **))api[SLOT_CREATE_CPU_MEMORY_INFO])(
        ARENA_ALLOCATOR, MEM_DEFAULT, &memory_info));

    for (int i = 0; i < 1000; i++)
        run_once(session, memory_info, &in, &out);
    from = cpu_us();
    do {
        for (int i = 0; i < 1000; i++)
            run_once(session, memory_info, &in, &out);
        runs += 1000;
        used = cpu_us() - from;
    } while (used < limit_us);
    printf("{\"runs\": %llu, \"cpu_us_per_run\": %.3f, \"first_output\": %g}\n",
           (unsigned long long)runs, (double)used / (double)runs, (double)out.data[0]);
    return 0;
}
