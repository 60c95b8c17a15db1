/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensorflow_backend REPOSITORY BACKENDS LIBRARY [ROUNDS]: the cost that the backend tensorflow
 * adds to TensorFlow, in one process, with our core library and no network. The repository has one
 * model, `add_sub`: A and B of [1,16] FP32 make SUM and DIFF. A request is measured as added.h
 * says. The bare call is an execution of the same model in the caller's thread, with tensors of the
 * caller's memory that were made before. Prints one JSON object.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "micro/added.h"
#include "micro/one_model.h"
#include "tensorflow/tf_library.h"

enum { N = 16, FLOAT_TYPE = 1 };

static struct tf_library lib;
static struct tf_status *status;
static struct tf_session_object *session;
static struct tf_port inputs[2], outputs[2];
static struct tf_tensor *given[2];
static float rows[2][N] __attribute__((aligned(64)));
static float sum;

static void check_status(const char *what)
{
    if (lib.api.GetCode(status) == 0)
        return;
    fprintf(stderr, "tensorflow_backend: %s: %s\n", what, lib.api.Message(status));
    exit(1);
}

static void leave_memory(void *data, size_t len, void *arg)
{
    (void)data;
    (void)len;
    (void)arg;
}

static void open_bare(const char *repository, const char *backends, const char *library)
{
    /* ConfigProto: inter_op_parallelism_threads (5) is -1, the caller's thread */
    static const unsigned char caller[] = {0x28, 0xff, 0xff, 0xff, 0xff, 0xff,
                                           0xff, 0xff, 0xff, 0xff, 0x01};
    static const int64_t dims[] = {1, N};
    const char *tags[] = {"serve"};
    struct tf_session_options *options;
    struct tf_graph *graph;
    char path[4096];

    if (tf_library_open(backends, library, &lib)) {
        fprintf(stderr, "tensorflow_backend: no TensorFlow in %s\n", library);
        exit(1);
    }
    status = lib.api.NewStatus();
    graph = lib.api.NewGraph();
    options = lib.api.NewSessionOptions();
    lib.api.SetConfig(options, caller, sizeof(caller), status);
    check_status("options");
    snprintf(path, sizeof(path), "%s/add_sub/1/model.savedmodel", repository);
    session = lib.api.LoadSessionFromSavedModel(options, NULL, path, tags, 1, graph, NULL, status);
    check_status(path);
    inputs[0].operation = lib.api.GraphOperationByName(graph, "in_a");
    inputs[1].operation = lib.api.GraphOperationByName(graph, "in_b");
    outputs[0].operation = lib.api.GraphOperationByName(graph, "plus");
    outputs[1].operation = lib.api.GraphOperationByName(graph, "minus");
    for (int i = 0; i < 2; i++)
        given[i] =
            lib.api.NewTensor(FLOAT_TYPE, dims, 2, rows[i], sizeof(rows[i]), leave_memory, NULL);
}

static void run_bare(void *bare, int64_t n_rows)
{
    struct tf_tensor *made[2] = {NULL, NULL};

    (void)bare;
    (void)n_rows; /* one */
    lib.api.SessionRun(session, NULL, inputs, given, 2, outputs, made, 2, NULL, 0, NULL, status);
    check_status("execution");
    sum = ((float *)lib.api.TensorData(made[0]))[1];
    lib.api.DeleteTensor(made[0]);
    lib.api.DeleteTensor(made[1]);
}

static void add_inputs(struct request *r, int i, int64_t n_rows)
{
    (void)i;
    added_add_floats(r, "A", rows[0], n_rows, N);
    added_add_floats(r, "B", rows[1], n_rows, N);
}

int main(int argc, char **argv)
{
    int n_rounds = added_read_rounds(argc > 4 ? argv[4] : NULL);

    if (argc < 4 || n_rounds == 0) {
        fprintf(stderr, "usage: tensorflow_backend REPOSITORY BACKENDS LIBRARY [ROUNDS]\n");
        return 2;
    }
    for (int i = 0; i < N; i++)
        rows[0][i] = (float)i, rows[1][i] = 2;
    setenv("CONCH_TENSORFLOW", argv[3], 1);
    struct server *s = quiet_server_new(argv[1], argv[2]);
    struct added a = {.model = one_model_load(s, argv[1], "add_sub"),
                      .add_inputs = add_inputs,
                      .run_bare = run_bare};
    open_bare(argv[1], argv[2], argv[3]);
    added_measure(&a, 1, n_rounds);
    printf("\n");
    fflush(stdout);
    _exit(sum == 3 ? 0 : 1); /* the end of a server is measured elsewhere */
}
