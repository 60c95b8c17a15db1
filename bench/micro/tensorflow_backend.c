/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensorflow_backend REPOSITORY BACKENDS LIBRARY [ROUNDS]: the cost that the backend tensorflow
 * adds to TensorFlow, in one process, with our core library and no network. tensorflow_models.py
 * writes the repository:
 *
 *     add_sub   A and B of [1,16] make SUM and DIFF
 *     image     x of [-1,150528] makes y; a row is 602 kB. Alone, and eight requests as a batch
 *     pair      x of [32,512] makes y, two instances, as load_rate.h says
 *
 * all FP32, on one thread. A request is measured as added.h says. The bare call is an execution of
 * the same model in the caller's thread, with tensors of the caller's memory that were made before.
 * Prints one JSON object.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "micro/added.h"
#include "micro/large.h"
#include "micro/one_model.h"
#include "tensorflow/tf_library.h"

enum { N = 16, FLOAT_TYPE = 1 };
enum { MAX_TENSORS = 2 };

/* A model, and what each call gives it. */
struct bare {
    struct tf_graph *graph;
    struct tf_session_object *session;
    struct tf_status *status;
    int n_inputs, n_outputs;
    struct tf_port inputs[MAX_TENSORS], outputs[MAX_TENSORS];
    struct tf_tensor *given[MAX_TENSORS];
    float last; /* the second element of the first output */
};

/* TensorFlow uses memory in place that is aligned so. */
#define ALIGNED __attribute__((aligned(64)))

static struct tf_library lib;
static float rows[2][N] ALIGNED;

/* ---- Bare calls ------------------------------------------------------------------------------ */

static void check_status(const struct bare *b, const char *what)
{
    if (lib.api.GetCode(b->status) == 0)
        return;
    fprintf(stderr, "tensorflow_backend: %s: %s\n", what, lib.api.Message(b->status));
    exit(1);
}

static void leave_memory(void *data, size_t len, void *arg)
{
    (void)data;
    (void)len;
    (void)arg;
}

static struct bare open_bare(const char *repository, const char *model)
{
    /* ConfigProto: intra_op_parallelism_threads (2) is 1; inter_op_parallelism_threads (5) is -1,
     * the caller's thread */
    static const unsigned char caller[] = {0x10, 0x01, 0x28, 0xff, 0xff, 0xff, 0xff,
                                           0xff, 0xff, 0xff, 0xff, 0xff, 0x01};
    const char *tags[] = {"serve"};
    struct bare b = {.status = lib.api.NewStatus(), .graph = lib.api.NewGraph()};
    struct tf_session_options *options = lib.api.NewSessionOptions();
    char path[4096];

    lib.api.SetConfig(options, caller, sizeof(caller), b.status);
    check_status(&b, "options");
    snprintf(path, sizeof(path), "%s/%s/1/model.savedmodel", repository, model);
    b.session =
        lib.api.LoadSessionFromSavedModel(options, NULL, path, tags, 1, b.graph, NULL, b.status);
    check_status(&b, path);
    return b;
}

static struct tf_port find_port(const struct bare *b, const char *name)
{
    struct tf_port port = {.operation = lib.api.GraphOperationByName(b->graph, name)};

    if (port.operation)
        return port;
    fprintf(stderr, "tensorflow_backend: no operation '%s'\n", name);
    exit(1);
}

static void give_input(struct bare *b, const char *name, float *memory, int64_t n_rows,
                       int64_t n_columns)
{
    int64_t dims[] = {n_rows, n_columns};

    b->inputs[b->n_inputs] = find_port(b, name);
    b->given[b->n_inputs++] =
        lib.api.NewTensor(FLOAT_TYPE, dims, 2, memory,
                          (size_t)(n_rows * n_columns) * sizeof(*memory), leave_memory, NULL);
}

static void take_output(struct bare *b, const char *name)
{
    b->outputs[b->n_outputs++] = find_port(b, name);
}

static void run_bare(void *bare, int64_t n_rows)
{
    struct tf_tensor *made[MAX_TENSORS] = {NULL};
    struct bare *b = bare;

    (void)n_rows; /* those that are given */
    lib.api.SessionRun(b->session, NULL, b->inputs, b->given, b->n_inputs, b->outputs, made,
                       b->n_outputs, NULL, 0, NULL, b->status);
    check_status(b, "execution");
    b->last = ((float *)lib.api.TensorData(made[0]))[1];
    for (int i = 0; i < b->n_outputs; i++)
        lib.api.DeleteTensor(made[i]);
}

/* ---- Measurements ---------------------------------------------------------------------------- */

static void add_inputs(struct request *r, int i, int64_t n_rows)
{
    (void)i;
    added_add_floats(r, "A", rows[0], n_rows, N);
    added_add_floats(r, "B", rows[1], n_rows, N);
}

static void measure_add_sub(struct server *s, const char *repository, int n_rounds)
{
    struct bare b = open_bare(repository, "add_sub");
    struct added a = {.model = one_model_load(s, repository, "add_sub"),
                      .add_inputs = add_inputs,
                      .run_bare = run_bare,
                      .bare = &b};

    for (int i = 0; i < N; i++)
        rows[0][i] = (float)i, rows[1][i] = 2;
    give_input(&b, "in_a", rows[0], 1, N);
    give_input(&b, "in_b", rows[1], 1, N);
    take_output(&b, "plus");
    take_output(&b, "minus");
    printf("{\"add_sub\": ");
    added_measure(&a, 1, n_rounds);
    if (!added_counts_copies() && b.last != 3) {
        fprintf(stderr, "tensorflow_backend: 1 + 2 makes %g\n", (double)b.last);
        exit(1);
    }
}

static void *make_bare(const char *repository, const char *model, float *values, int64_t n_rows,
                       int64_t n_columns)
{
    struct bare *b = malloc(sizeof(*b));

    if (!b)
        exit(1);
    *b = open_bare(repository, model);
    give_input(b, "in_x", values, n_rows, n_columns);
    take_output(b, "out");
    return b;
}

int main(int argc, char **argv)
{
    int n_rounds = added_read_rounds(argc > 4 ? argv[4] : NULL);

    if (argc < 4 || n_rounds == 0) {
        fprintf(stderr, "usage: tensorflow_backend REPOSITORY BACKENDS LIBRARY [ROUNDS]\n");
        return 2;
    }
    setenv("CONCH_TENSORFLOW", argv[3], 1);
    struct server *s = quiet_server_new(argv[1], argv[2]);
    if (tf_library_open(argv[2], argv[3], &lib)) {
        fprintf(stderr, "tensorflow_backend: no TensorFlow in %s\n", argv[3]);
        return 1;
    }
    measure_add_sub(s, argv[1], n_rounds);
    large_measure(&(struct large){s, argv[1], "x", 512, make_bare, run_bare}, n_rounds);
    printf("}\n");
    fflush(stdout);
    _exit(0); /* the end of a server is measured elsewhere */
}
