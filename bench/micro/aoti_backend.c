/* SPDX-License-Identifier: Apache-2.0 */
/*
 * aoti_backend REPOSITORY BACKENDS LIBRARY [ROUNDS]: the cost that the backend pytorch adds to a
 * package of AOTInductor, in one process, with our core library and no network.
 * bench/harness/torch.py writes the repository, whose models are those of torch_backend.c:
 *
 *     add_sub   two inputs and two outputs of 16, asked with one row and with 64
 *     image     x of [-1,150528] makes y; a row is 602 kB. Alone, and eight requests as a batch
 *     pair      x of [32,128] makes y, two instances, as load_rate.h says
 *
 * all FP32, on one thread. A request is measured as added.h says. The bare call is one of the
 * package's code, loaded a second time and made for the same number of instances, with tensors of
 * the caller's memory that were made before; it takes a reference to each input, as its functions
 * want it, and drops what it is given. The code checks its inputs on both sides, or on neither with
 * AOTI_RUNTIME_CHECK_INPUTS=0. Prints one JSON object.
 *
 * LIBRARY is PyTorch's libtorch_cpu.so.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "micro/added.h"
#include "micro/large.h"
#include "micro/one_model.h"
#include "pytorch/package.h"

enum { MAX_ROWS = 64, N = 16 };
enum { MAX_TENSORS = 2 };

static float first[MAX_ROWS * N], second[MAX_ROWS * N];

/* ---- Bare calls ------------------------------------------------------------------------------ */

struct tensor;
struct container;

static struct {
    int32_t (*create_tensor_from_blob)(void *data, int64_t rank, const int64_t *sizes,
                                       const int64_t *strides, int64_t offset, int32_t type,
                                       int32_t device, int32_t device_index,
                                       struct tensor **ret_tensor);
    int32_t (*new_tensor_handle)(struct tensor *of, struct tensor **ret_tensor);
    int32_t (*delete_tensor_object)(struct tensor *tensor);
    int32_t (*get_data_ptr)(struct tensor *tensor, void **ret_data);
    int32_t (*dtype_float32)(void);
} torch;

struct bare {
    int32_t (*create)(struct container **ret, size_t n_models, const char *device,
                      const char *folder);
    int32_t (*run)(struct container *container, struct tensor **inputs, size_t n_inputs,
                   struct tensor **outputs, size_t n_outputs, void *stream, void *executor);
    struct container *container;
    float *memory[MAX_TENSORS];
    size_t n_inputs, n_outputs;
    int64_t columns, n_rows; /* of `given` */
    struct tensor *given[MAX_TENSORS];
    float last; /* the second element of the first output */
};

static void *find(void *library, const char *name)
{
    void *symbol = library ? dlsym(library, name) : NULL;

    if (symbol)
        return symbol;
    fprintf(stderr, "aoti_backend: %s\n", dlerror());
    exit(1);
}

/* dlsym() gives data; code has the same representation on every system that has dlsym(). */
static void find_function(void *library, const char *name, void *ret_function)
{
    void *symbol = find(library, name);

    memcpy(ret_function, &symbol, sizeof(symbol));
}

static void open_torch(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);

    find_function(library, "aoti_torch_create_tensor_from_blob", &torch.create_tensor_from_blob);
    find_function(library, "aoti_torch_new_tensor_handle", &torch.new_tensor_handle);
    find_function(library, "aoti_torch_delete_tensor_object", &torch.delete_tensor_object);
    find_function(library, "aoti_torch_get_data_ptr", &torch.get_data_ptr);
    find_function(library, "aoti_torch_dtype_float32", &torch.dtype_float32);
}

static void end_package(TRITONSERVER_Error *err, const char *path)
{
    if (!err)
        return;
    fprintf(stderr, "aoti_backend: %s: %s\n", path, TRITONSERVER_ErrorMessage(err));
    exit(1);
}

/* A copy of the package's code, whose file in memory stays open, as the backend has it. */
static void *load_code(const char *repository, const char *model)
{
    struct processor processor;
    struct package package;
    char path[4096];

    snprintf(path, sizeof(path), "%s/%s/1/model.pt2", repository, model);
    end_package(processor_read(&processor), path);
    end_package(package_open(path, &processor, &package), path);
    processor_done(&processor);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", package.code);
    return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

static void must_be_zero(int32_t rc, const char *what)
{
    if (rc == 0)
        return;
    fprintf(stderr, "aoti_backend: %s has failed\n", what);
    exit(1);
}

static void open_bare(struct bare *b, const char *repository, const char *model, size_t n_models)
{
    void *code = load_code(repository, model);

    find_function(code, "AOTInductorModelContainerCreateWithDevice", &b->create);
    find_function(code, "AOTInductorModelContainerRun", &b->run);
    must_be_zero(b->create(&b->container, n_models, "cpu", NULL), model);
}

static void give_rows(struct bare *b, int64_t n_rows)
{
    const int64_t sizes[] = {n_rows, b->columns}, strides[] = {b->columns, 1};

    for (size_t i = 0; i < b->n_inputs; i++) {
        if (b->given[i])
            torch.delete_tensor_object(b->given[i]);
        must_be_zero(torch.create_tensor_from_blob(b->memory[i], 2, sizes, strides, 0,
                                                   torch.dtype_float32(), 0, 0, &b->given[i]),
                     "a tensor");
    }
    b->n_rows = n_rows;
}

static void run_bare(void *bare, int64_t n_rows)
{
    struct tensor *inputs[MAX_TENSORS] = {NULL}, *outputs[MAX_TENSORS] = {NULL};
    struct bare *b = bare;
    void *data;

    if (b->n_rows != n_rows)
        give_rows(b, n_rows);
    for (size_t i = 0; i < b->n_inputs; i++)
        torch.new_tensor_handle(b->given[i], &inputs[i]);
    must_be_zero(b->run(b->container, inputs, b->n_inputs, outputs, b->n_outputs, NULL, NULL),
                 "a bare call");
    torch.get_data_ptr(outputs[0], &data);
    b->last = ((const float *)data)[1];
    for (size_t i = 0; i < b->n_outputs; i++)
        torch.delete_tensor_object(outputs[i]);
}

static struct bare add_sub = {
    .memory = {first, second}, .n_inputs = 2, .n_outputs = 2, .columns = N};

/* Both calls of `pair` are of one copy of its code, made for two, as instances of the backend are.
 */
static void *make_bare(const char *repository, const char *model, float *values, int64_t n_rows,
                       int64_t n_columns)
{
    static struct bare pair;
    struct bare *b = calloc(1, sizeof(*b));
    bool is_pair = strcmp(model, "pair") == 0;

    (void)n_rows; /* run_bare() makes the tensors */
    must_be_zero(!b, "memory");
    if (is_pair && pair.container)
        *b = pair;
    else
        open_bare(b, repository, model, is_pair ? LOAD_BARE_THREADS : 1);
    if (is_pair)
        pair = *b;
    b->memory[0] = values;
    b->n_inputs = b->n_outputs = 1;
    b->columns = n_columns;
    return b;
}

/* ---- Measurements ---------------------------------------------------------------------------- */

static void add_inputs(struct request *r, int i, int64_t n_rows)
{
    (void)i;
    added_add_floats(r, "INPUT__0", first, n_rows, N);
    added_add_floats(r, "INPUT__1", second, n_rows, N);
}

static void measure_add_sub(struct server *s, const char *repository, int n_rounds)
{
    struct added a = {.model = one_model_load(s, repository, "add_sub"),
                      .add_inputs = add_inputs,
                      .run_bare = run_bare,
                      .bare = &add_sub};

    printf("\"rows_1\": ");
    added_measure(&a, 1, n_rounds);
    printf(",\n \"rows_%d\": ", MAX_ROWS);
    added_measure(&a, MAX_ROWS, n_rounds);
    if (!added_counts_copies() && add_sub.last != first[1] + second[1]) {
        fprintf(stderr, "aoti_backend: 1 + 1 makes %g\n", (double)add_sub.last);
        exit(1);
    }
}

int main(int argc, char **argv)
{
    int n_rounds = added_read_rounds(argc > 4 ? argv[4] : NULL);

    if (argc < 4 || n_rounds == 0) {
        fprintf(stderr, "usage: aoti_backend REPOSITORY BACKENDS LIBRARY [ROUNDS]\n");
        return 2;
    }
    for (size_t i = 0; i < sizeof(first) / sizeof(first[0]); i++)
        first[i] = (float)i, second[i] = (float)(i % 7);
    setenv("CONCH_TORCH", argv[3], 1);
    setenv("OMP_NUM_THREADS", "1", 1);
    setenv("AOTI_RUNTIME_CHECK_INPUTS", "1", 0); /* as the backend does */
    open_torch(argv[3]);
    open_bare(&add_sub, argv[1], "add_sub", 1);
    struct server *s = quiet_server_new_with(argv[1], argv[2], "pytorch", "allow-native-code", "1");
    printf("{");
    measure_add_sub(s, argv[1], n_rounds);
    large_measure(&(struct large){s, argv[1], "INPUT__0", 128, make_bare, run_bare}, n_rounds);
    printf("}\n");
    fflush(stdout);
    _exit(0); /* the end of a server is measured elsewhere */
}
