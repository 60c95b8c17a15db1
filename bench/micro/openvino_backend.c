/* SPDX-License-Identifier: Apache-2.0 */
/*
 * openvino_backend REPOSITORY BACKENDS LIBRARY [ROUNDS]: the cost that the backend openvino adds to
 * OpenVINO, in one process, with our core library and no network. openvino_models.py writes the
 * repository:
 *
 *     add_sub   A and B of [1,16] make SUM and DIFF
 *     image     IN of [-1,150528] makes OUT; a row is 602 kB. Alone, and eight requests as a batch
 *     pair      IN of [32,512] makes OUT, two instances, as load_rate.h says
 *
 * all FP32, on one thread. A request is measured as added.h says. The bare call is an inference of
 * the same model, compiled in the same way, with tensors that were bound before. Prints one JSON
 * object.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "micro/added.h"
#include "micro/large.h"
#include "micro/one_model.h"
#include "openvino/library.h"
#include "openvino/types.h"

enum { N = 16 };

static struct library lib;
static struct ov_core *core;
static float inputs[2][N], outputs[2][N];

static void check_call(int failed, const char *what)
{
    if (!failed)
        return;
    fprintf(stderr, "openvino_backend: %s: %s\n", what, lib.api.get_last_err_msg());
    exit(1);
}

/* @streams  each has a thread; "0": the thread that calls computes */
static struct ov_compiled *compile_model(const char *repository, const char *name,
                                         const char *streams)
{
    struct ov_compiled *compiled;
    struct ov_model *model;
    char path[4096];

    snprintf(path, sizeof(path), "%s/%s/1/model.xml", repository, name);
    check_call(lib.api.core_set_property(core, "CPU", "INFERENCE_NUM_THREADS", streams), "threads");
    check_call(lib.api.core_set_property(core, "CPU", "NUM_STREAMS", streams), "streams");
    check_call(lib.api.core_read_model(core, path, NULL, &model), path);
    check_call(lib.api.core_compile_model(core, model, "CPU", 0, &compiled), path);
    return compiled;
}

static struct ov_request *create_request(struct ov_compiled *compiled)
{
    struct ov_request *request;

    check_call(lib.api.compiled_model_create_infer_request(compiled, &request), "request");
    return request;
}

struct matrix {
    float *memory;
    int64_t n_rows, n_columns;
};

static void bind(struct ov_compiled *compiled, struct ov_request *request, const char *name,
                 bool is_input, struct matrix m)
{
    int64_t dims[] = {m.n_rows, m.n_columns};
    struct ov_tensor *tensor;
    struct ov_port *port;

    check_call((is_input ? lib.api.compiled_model_input_by_name
                         : lib.api.compiled_model_output_by_name)(compiled, name, &port),
               name);
    check_call(lib.api.tensor_create_from_host_ptr(element_type_named("TYPE_FP32")->ov,
                                                   (struct ov_shape){2, dims}, m.memory, &tensor),
               name);
    check_call(lib.api.infer_request_set_tensor_by_const_port(request, port, tensor), name);
}

static void open_bare(const char *backends, const char *library)
{
    if (library_open(backends, library, &lib)) {
        fprintf(stderr, "openvino_backend: no OpenVINO in %s\n", library);
        exit(1);
    }
    check_call(lib.api.core_create(&core), "core");
}

static struct ov_request *bare_add_sub(const char *repository)
{
    struct ov_compiled *compiled = compile_model(repository, "add_sub", "0");
    struct ov_request *request = create_request(compiled);

    bind(compiled, request, "A", true, (struct matrix){inputs[0], 1, N});
    bind(compiled, request, "B", true, (struct matrix){inputs[1], 1, N});
    bind(compiled, request, "SUM", false, (struct matrix){outputs[0], 1, N});
    bind(compiled, request, "DIFF", false, (struct matrix){outputs[1], 1, N});
    return request;
}

static void run_bare(void *bare, int64_t n_rows)
{
    (void)n_rows; /* those that are bound */
    check_call(lib.api.infer_request_infer(bare), "infer");
}

static void add_inputs(struct request *r, int i, int64_t n_rows)
{
    (void)i;
    added_add_floats(r, "A", inputs[0], n_rows, N);
    added_add_floats(r, "B", inputs[1], n_rows, N);
}

/* The requests of `pair` are of one compiled model, as instances of the backend are. */
static void *make_bare(const char *repository, const char *model, float *values, int64_t n_rows,
                       int64_t n_columns)
{
    static struct ov_compiled *pair;
    bool is_pair = strcmp(model, "pair") == 0;
    struct ov_compiled *compiled =
        is_pair && pair ? pair : compile_model(repository, model, is_pair ? "2" : "0");
    struct ov_request *request = create_request(compiled);
    float *to = malloc((size_t)(n_rows * n_columns) * sizeof(*to));

    check_call(!to, "memory");
    if (is_pair)
        pair = compiled;
    bind(compiled, request, "IN", true, (struct matrix){values, n_rows, n_columns});
    bind(compiled, request, "OUT", false, (struct matrix){to, n_rows, n_columns});
    return request;
}

int main(int argc, char **argv)
{
    int n_rounds = added_read_rounds(argc > 4 ? argv[4] : NULL);

    if (argc < 4 || n_rounds == 0) {
        fprintf(stderr, "usage: openvino_backend REPOSITORY BACKENDS LIBRARY [ROUNDS]\n");
        return 2;
    }
    for (int i = 0; i < N; i++)
        inputs[0][i] = (float)i, inputs[1][i] = 2;
    setenv("CONCH_OPENVINO", argv[3], 1);
    /* The model first: the backend starts the library as jemalloc needs it. */
    struct server *s = quiet_server_new(argv[1], argv[2]);
    struct added a = {.model = one_model_load(s, argv[1], "add_sub"),
                      .add_inputs = add_inputs,
                      .run_bare = run_bare};
    open_bare(argv[2], argv[3]);
    a.bare = bare_add_sub(argv[1]);
    printf("{\"add_sub\": ");
    added_measure(&a, 1, n_rounds);
    large_measure(&(struct large){s, argv[1], "IN", 512, make_bare, run_bare}, n_rounds);
    printf("}\n");
    fflush(stdout);
    _exit(outputs[0][1] == 3 || added_counts_copies()
              ? 0
              : 1); /* the end of a server is measured elsewhere */
}
