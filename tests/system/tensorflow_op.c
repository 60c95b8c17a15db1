/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A library of one operator of TensorFlow, ConchTwice: y = 2 x, FP32. Built by
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

static void compute_twice(void *kernel, struct context *context)
{
    struct status *status = TF_NewStatus();
    struct tensor *x = NULL, *y = NULL;
    int64_t dims[MAX_RANK];

    (void)kernel;
    TF_GetInput(context, 0, &x, status);
    if (x && TF_NumDims(x) <= MAX_RANK) {
        for (int d = 0; d < TF_NumDims(x); d++)
            dims[d] = TF_Dim(x, d);
        y = TF_AllocateOutput(context, 0, FLOAT_TYPE, dims, TF_NumDims(x), TF_TensorByteSize(x),
                              status);
    }
    for (size_t i = 0; y && i < TF_TensorByteSize(x) / sizeof(float); i++)
        ((float *)TF_TensorData(y))[i] = 2 * ((const float *)TF_TensorData(x))[i];
    if (x)
        TF_DeleteTensor(x);
    if (y)
        TF_DeleteTensor(y);
    TF_DeleteStatus(status);
}

__attribute__((constructor)) static void register_twice(void)
{
    struct status *status = TF_NewStatus();
    struct op *op = TF_NewOpDefinitionBuilder("ConchTwice");

    TF_OpDefinitionBuilderAddInput(op, "x: float");
    TF_OpDefinitionBuilderAddOutput(op, "y: float");
    TF_OpDefinitionBuilderSetShapeInferenceFunction(op, TF_ShapeInferenceContextSetUnknownShape);
    TF_RegisterOpDefinition(op, status);
    TF_RegisterKernelBuilder(
        "ConchTwice", TF_NewKernelBuilder("ConchTwice", "CPU", NULL, compute_twice, NULL), status);
    TF_DeleteStatus(status);
}
