/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensorrt_backend REPOSITORY BACKENDS LIBRARY [ROUNDS]: the cost that the backend tensorrt adds to
 * calls of TensorRT, in one process, with our core library and no network. There is no GPU: LIBRARY
 * is tests/tensorrt/fake_nvinfer.c, and LD_LIBRARY_PATH has tests/cuda/fake_cuda.c, which copy and
 * compute at once. So the waits of a stream are measured as calls, not as waits.
 *
 * A model `add_sub` of [1,16], FP32, from the repository, whose plan is `add_sub/1/model.plan`. A
 * request is measured as added.h says. The bare call is what a program does that has the buffers:
 * the shapes set, two copies to the GPU, the launch, a wait, two copies from it, a wait. Prints one
 * JSON object.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "micro/added.h"
#include "micro/one_model.h"
#include "tensorrt/cuda.h"
#include "tensorrt/engine.h"
#include "tensorrt/library.h"

enum { N = 16, N_TENSORS = 4 };

static const char *const names[N_TENSORS] = {"A", "B", "SUM", "DIFF"};
static struct library lib;
static const struct cuda *cuda;
static struct engine *engine;
static struct trt_object *context;
static struct cuda_buffer buffers[N_TENSORS];
static float values[N_TENSORS][N];
static void *stream;

static void need(bool done, const char *what)
{
    if (done)
        return;
    fprintf(stderr, "tensorrt_backend: %s has failed\n", what);
    exit(1);
}

static void open_bare(const char *repository, const char *backends, const char *library)
{
    char path[4096];
    struct engine_options o = {.lib = &lib, .model = "bare", .path = path};

    snprintf(path, sizeof(path), "%s/add_sub/1/model.plan", repository);
    need(!library_open(backends, library, &lib), library);
    need(!cuda_open(&cuda), "cuda_open");
    o.cuda = cuda;
    need(!engine_new(&o, 0, -1, &engine), path);
    need(!cuda_enter(&engine->place), "cuda_enter");
    need(cuda->new_stream(&stream, 1, 0) == 0, "new_stream");
    context = TRT(&lib, engine_new_context, engine->engine, TRT_STATIC);
    need(TRT(&lib, context_set_profile, context, 0, stream), "context_set_profile");
    for (int i = 0; i < N_TENSORS; i++)
        need(!cuda_reserve(cuda, &buffers[i], sizeof(values[i])), "cuda_reserve");
}

static void run_bare(void *bare, int64_t n_rows)
{
    struct trt_dims dims = {2, {n_rows, N}};
    int failed = 0;

    (void)bare;
    for (int i = 0; i < N_TENSORS; i++) {
        if (i < 2)
            failed |= !TRT(&lib, context_set_shape, context, names[i], &dims);
        failed |=
            !TRT(&lib, context_set_address, context, names[i], (void *)(uintptr_t)buffers[i].at);
    }
    for (int i = 0; i < 2; i++)
        failed |= cuda->to_device(buffers[i].at, values[i], sizeof(values[i]), stream);
    failed |= !TRT(&lib, context_enqueue, context, stream);
    failed |= cuda->await_stream(stream);
    for (int i = 2; i < N_TENSORS; i++)
        failed |= cuda->to_host(values[i], buffers[i].at, sizeof(values[i]), stream);
    failed |= cuda->await_stream(stream);
    need(!failed, "the bare call");
}

static void add_inputs(struct request *r, int i, int64_t n_rows)
{
    (void)i;
    added_add_floats(r, "A", values[0], n_rows, N);
    added_add_floats(r, "B", values[1], n_rows, N);
}

int main(int argc, char **argv)
{
    int n_rounds = added_read_rounds(argc > 4 ? argv[4] : NULL);

    if (argc < 4 || n_rounds == 0) {
        fprintf(stderr, "usage: tensorrt_backend REPOSITORY BACKENDS LIBRARY [ROUNDS]\n");
        return 2;
    }
    for (int i = 0; i < N; i++)
        values[0][i] = (float)i, values[1][i] = 2;
    setenv("CONCH_TENSORRT", argv[3], 1);
    struct server *s = quiet_server_new(argv[1], argv[2]);
    struct added a = {.model = one_model_load(s, argv[1], "add_sub"),
                      .add_inputs = add_inputs,
                      .run_bare = run_bare};
    open_bare(argv[1], argv[2], argv[3]);
    printf("{\"add_sub\": ");
    added_measure(&a, 1, n_rounds);
    printf("}\n");
    fflush(stdout);
    _exit(values[2][1] == 3 && values[3][1] == -1 ? 0 : 1);
}
