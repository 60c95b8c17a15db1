/* SPDX-License-Identifier: Apache-2.0 */
/*
 * openvino_backend REPOSITORY BACKENDS LIBRARY [ROUNDS]: the cost that the backend openvino adds to
 * OpenVINO, in one process, with our core library and no network. The repository has one model,
 * `add_sub`: A and B of [1,16] FP32 make SUM and DIFF, on one thread. A request is measured as
 * added.h says. The bare call is an inference of the same model, compiled in the same way, with
 * tensors that were bound before. Prints one JSON object.
 */
/*
 * openvino_backend REPOSITORY BACKENDS LIBRARY [ROUNDS]: the cost that the backend openvino adds to
 * OpenVINO, in one process, with our core library and no network. The repository has one model,
 * `add_sub`: A and B of [1,16] FP32 make SUM and DIFF, on one thread.
 *
 * Three ways are measured in turn, round after round, in CPU time of the process:
 *
 *     backend   the request made, executed (ModelInstanceExecute, response, release)
 *     made      the request made and released, nothing else
 *     bare      an inference of the same model, compiled in the same way, with tensors of the
 *               caller's memory that were bound before
 *
 * The cost of the backend is backend - made - bare, taken within each round; the median counts.
 * Prints one JSON object.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "micro/added.h"
#include "micro/one_model.h"
#include "openvino/library.h"
#include "openvino/types.h"

enum { N = 16 };

static struct library lib;
static struct ov_request *bare;
static float inputs[2][N], outputs[2][N];

static void check_call(int failed, const char *what)
{
    if (!failed)
        return;
    fprintf(stderr, "openvino_backend: %s: %s\n", what, lib.api.get_last_err_msg());
    exit(1);
}

static void bind(struct ov_compiled *compiled, const char *name, bool is_input, float *memory)
{
    int64_t dims[] = {1, N};
    struct ov_tensor *tensor;
    struct ov_port *port;

    check_call((is_input ? lib.api.compiled_model_input_by_name
                         : lib.api.compiled_model_output_by_name)(compiled, name, &port),
               name);
    check_call(lib.api.tensor_create_from_host_ptr(element_type_named("TYPE_FP32")->ov,
                                                   (struct ov_shape){2, dims}, memory, &tensor),
               name);
    check_call(lib.api.infer_request_set_tensor_by_const_port(bare, port, tensor), name);
}

static void open_bare(const char *repository, const char *backends, const char *library)
{
    struct ov_compiled *compiled;
    struct ov_model *model;
    struct ov_core *core;
    char path[4096];

    if (library_open(backends, library, &lib)) {
        fprintf(stderr, "openvino_backend: no OpenVINO in %s\n", library);
        exit(1);
    }
    snprintf(path, sizeof(path), "%s/add_sub/1/model.xml", repository);
    check_call(lib.api.core_create(&core), "core");
    check_call(lib.api.core_set_property(core, "CPU", "INFERENCE_NUM_THREADS", "1"), "threads");
    check_call(lib.api.core_read_model(core, path, NULL, &model), path);
    check_call(lib.api.core_compile_model(core, model, "CPU", 0, &compiled), path);
    check_call(lib.api.compiled_model_create_infer_request(compiled, &bare), "request");
    bind(compiled, "A", true, inputs[0]);
    bind(compiled, "B", true, inputs[1]);
    bind(compiled, "SUM", false, outputs[0]);
    bind(compiled, "DIFF", false, outputs[1]);
}

static void run_bare(int64_t n_rows)
{
    (void)n_rows; /* one */
    check_call(lib.api.infer_request_infer(bare), "infer");
}

static void add_inputs(struct request *r, int64_t n_rows)
{
    added_add_floats(r, "A", inputs[0], n_rows, N);
    added_add_floats(r, "B", inputs[1], n_rows, N);
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
    open_bare(argv[1], argv[2], argv[3]);
    added_measure(&a, 1, n_rounds);
    printf("\n");
    fflush(stdout);
    _exit(outputs[0][1] == 3 ? 0 : 1); /* the end of a server is measured elsewhere */
}
