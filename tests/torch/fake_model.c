/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake_model - the code of a package, with the functions that AOTInductor's code has. It takes x
 * and y of [n,COLUMNS] and returns their sum, their difference, which does not lie row after row in
 * its memory, and as [n,1] how many tensors live, and how many threads an operator has. A run fails
 * after it has taken its inputs where y has not as many rows as x; with N_INPUTS 3, x has as many
 * more as the third input says, whole numbers of [n,1]. MARK is a file that it makes when it is
 * loaded. N_MODELS is how many runs at once it was made for; 0: any number.
 * tests/system/aoti_packages.py compiles it.
 */
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fake_torch.h"

#ifndef COLUMNS
#define COLUMNS 16
#endif
#ifndef N_INPUTS
#define N_INPUTS 2
#endif

struct container {
    size_t n_models;
};

static __thread char last_error[200];

__attribute__((constructor)) static void mark(void)
{
    close(open(MARK, O_CREAT | O_WRONLY, 0600));
}

int32_t AOTInductorGetLastError(const char **ret);
int32_t AOTInductorGetLastError(const char **ret)
{
    *ret = last_error;
    return 0;
}

#define FUNCTION(name, ...)                                                                        \
    int32_t AOTInductorModelContainer##name(__VA_ARGS__);                                          \
    int32_t AOTInductorModelContainer##name(__VA_ARGS__)

FUNCTION(CreateWithDevice, struct container **ret, size_t n_models, const char *device,
         const char *folder)
{
    (void)folder;
    if (strcmp(device, "cpu") != 0)
        return 1;
    *ret = calloc(1, sizeof(**ret));
    (*ret)->n_models = n_models;
    return 0;
}

FUNCTION(Delete, struct container *c)
{
    free(c);
    return 0;
}

FUNCTION(GetNumInputs, struct container *c, size_t *ret)
{
    (void)c;
    *ret = N_INPUTS;
    return 0;
}

FUNCTION(GetNumOutputs, struct container *c, size_t *ret)
{
    (void)c;
    *ret = 4;
    return 0;
}

FUNCTION(GetInputName, struct container *c, size_t i, const char **ret)
{
    static const char *const names[] = {"arg0_1", "arg1_1", "arg2_1"};

    (void)c;
    *ret = names[i];
    return 0;
}

/* Looks at an input as AOTInductor's code does when it is told to. */
static bool is_bad(struct tensor *t, int i)
{
    const char *checks = getenv("AOTI_RUNTIME_CHECK_INPUTS");
    int64_t rank, *sizes;
    int32_t type;

    aoti_torch_get_dim(t, &rank);
    aoti_torch_get_sizes(t, &sizes);
    aoti_torch_get_dtype(t, &type);
    if (!checks || strcmp(checks, "1") != 0 ||
        (rank == 2 && sizes[1] == COLUMNS && type == FAKE_FLOAT))
        return false;
    snprintf(last_error, sizeof(last_error), "input_handles[%d]: unmatched dim value\nmore", i);
    return true;
}

static void take_inputs(struct tensor **in, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        aoti_torch_delete_tensor_object(in[i]);
        in[i] = NULL;
    }
}

/* Looks at rows, as genuine code does while it runs. */
static bool do_rows_fit(struct tensor **in)
{
    int64_t *sizes, rows[2], more = 0, *numbers;

    for (int i = 0; i < 2; i++) {
        aoti_torch_get_sizes(in[i], &sizes);
        rows[i] = sizes[0];
    }
    if (N_INPUTS == 3) {
        aoti_torch_get_sizes(in[2], &sizes);
        aoti_torch_get_data_ptr(in[2], (void **)&numbers);
        for (int64_t i = 0; i < sizes[0]; i++)
            more += numbers[i];
    }
    snprintf(last_error, sizeof(last_error), "expected size %lld==%lld at dim=0",
             (long long)rows[1], (long long)(rows[0] + more));
    return rows[0] + more == rows[1];
}

static void fill(struct tensor **out, const float *x, const float *y, int64_t n)
{
    float *sum, *difference;
    int64_t *live, *threads;

    aoti_torch_get_data_ptr(out[0], (void **)&sum);
    aoti_torch_get_data_ptr(out[1], (void **)&difference);
    aoti_torch_get_data_ptr(out[2], (void **)&live);
    aoti_torch_get_data_ptr(out[3], (void **)&threads);
    for (int64_t row = 0; row < n; row++) {
        for (int64_t i = 0; i < COLUMNS; i++) {
            sum[row * COLUMNS + i] = x[row * COLUMNS + i] + y[row * COLUMNS + i];
            difference[i * n + row] = x[row * COLUMNS + i] - y[row * COLUMNS + i];
        }
        live[row] = fake_live_tensors();
        threads[row] = fake_threads();
    }
}

FUNCTION(Run, struct container *c, struct tensor **in, size_t n_in, struct tensor **out,
         size_t n_out, void *stream, void *executor)
{
    int64_t *sizes, n;
    float *x, *y;

    (void)stream, (void)executor;
    if ((N_MODELS > 0 && c->n_models != N_MODELS) || n_in != N_INPUTS || n_out != 4 ||
        is_bad(in[0], 0) || is_bad(in[1], 1))
        return 1;
    aoti_torch_get_sizes(in[0], &sizes);
    n = sizes[0];
    aoti_torch_get_data_ptr(in[0], (void **)&x);
    aoti_torch_get_data_ptr(in[1], (void **)&y);
    if (!do_rows_fit(in)) {
        take_inputs(in, n_in);
        return 1;
    }
    aoti_torch_empty_strided(2, (int64_t[]){n, COLUMNS}, (int64_t[]){COLUMNS, 1}, FAKE_FLOAT, 0, 0,
                             &out[0]);
    aoti_torch_empty_strided(2, (int64_t[]){n, COLUMNS}, (int64_t[]){1, n}, FAKE_FLOAT, 0, 0,
                             &out[1]);
    for (int i = 2; i < 4; i++)
        aoti_torch_empty_strided(2, (int64_t[]){n, 1}, (int64_t[]){1, 1}, FAKE_INT64, 0, 0,
                                 &out[i]);
    fill(out, x, y, n);
    take_inputs(in, n_in);
    return 0;
}
