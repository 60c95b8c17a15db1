/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A library of two operators of TensorFlow, FP32: ConchTwice, y = 2 x, and ConchBefore, whose y is
 * the x of the execution before, which it has kept as it was given. Built by
 * test_tensorflow_engine.py against libtensorflow_framework.so.2, without TensorFlow's headers.
 */
#include <stddef.h>
#include <stdint.h>

enum { FLOAT_TYPE = 1, MAX_RANK = 8 };

struct tensor;
struct status;
struct op;
struct kernel;
struct context;

struct status *TF_NewStatus(void);
void TF_DeleteStatus(struct status *status);
struct op *TF_NewOpDefinitionBuilder(const char *name);
void TF_OpDefinitionBuilderAddInput(struct op *op, const char *text);
void TF_OpDefinitionBuilderAddOutput(struct op *op, const char *text);
void TF_OpDefinitionBuilderSetShapeInferenceFunction(struct op *op,
                                                     void (*infer)(void *, struct status *));
void TF_ShapeInferenceContextSetUnknownShape(void *context, struct status *status);
void TF_RegisterOpDefinition(struct op *op, struct status *status);
struct kernel *TF_NewKernelBuilder(const char *op, const char *device, void *(*create)(void *),
                                   void (*compute)(void *, struct context *), void (*free)(void *));
void TF_RegisterKernelBuilder(const char *name, struct kernel *kernel, struct status *status);
void TF_GetInput(struct context *context, int i, struct tensor **ret, struct status *status);
struct tensor *TF_AllocateOutput(struct context *context, int i, int type, const int64_t *dims,
                                 int rank, size_t len, struct status *status);
int TF_NumDims(const struct tensor *tensor);
int64_t TF_Dim(const struct tensor *tensor, int i);
size_t TF_TensorByteSize(const struct tensor *tensor);
void *TF_TensorData(const struct tensor *tensor);
void TF_DeleteTensor(struct tensor *tensor);

/* y = factor * from */
static void put_product(struct context *context, const struct tensor *from, float factor,
                        struct status *status)
{
    struct tensor *y = NULL;
    int64_t dims[MAX_RANK];
    size_t size = TF_TensorByteSize(from);

    if (TF_NumDims(from) > MAX_RANK)
        return;
    for (int d = 0; d < TF_NumDims(from); d++)
        dims[d] = TF_Dim(from, d);
    y = TF_AllocateOutput(context, 0, FLOAT_TYPE, dims, TF_NumDims(from), size, status);
    for (size_t i = 0; y && i < size / sizeof(float); i++)
        ((float *)TF_TensorData(y))[i] = factor * ((const float *)TF_TensorData(from))[i];
    if (y)
        TF_DeleteTensor(y);
}

static void compute_twice(void *kernel, struct context *context)
{
    struct status *status = TF_NewStatus();
    struct tensor *x = NULL;

    (void)kernel;
    TF_GetInput(context, 0, &x, status);
    if (x) {
        put_product(context, x, 2, status);
        TF_DeleteTensor(x);
    }
    TF_DeleteStatus(status);
}

static void compute_before(void *kernel, struct context *context)
{
    static struct tensor *kept;
    struct status *status = TF_NewStatus();
    struct tensor *x = NULL;

    (void)kernel;
    TF_GetInput(context, 0, &x, status);
    if (x) {
        put_product(context, kept ? kept : x, 1, status);
        if (kept)
            TF_DeleteTensor(kept);
        kept = x;
    }
    TF_DeleteStatus(status);
}

static void register_operator(const char *name, void (*compute)(void *, struct context *))
{
    struct status *status = TF_NewStatus();
    struct op *op = TF_NewOpDefinitionBuilder(name);

    TF_OpDefinitionBuilderAddInput(op, "x: float");
    TF_OpDefinitionBuilderAddOutput(op, "y: float");
    TF_OpDefinitionBuilderSetShapeInferenceFunction(op, TF_ShapeInferenceContextSetUnknownShape);
    TF_RegisterOpDefinition(op, status);
    TF_RegisterKernelBuilder(name, TF_NewKernelBuilder(name, "CPU", NULL, compute, NULL), status);
    TF_DeleteStatus(status);
}

__attribute__((constructor)) static void register_operators(void)
{
    register_operator("ConchTwice", compute_twice);
    register_operator("ConchBefore", compute_before);
}
