/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One row for each element type that both sides have. The names in `others` serve one error
 * message only. Constant data; any thread.
 */
#include "onnxruntime/types.h"

static const struct element_type types[] = {
    {ORT_FLOAT, TRITONSERVER_TYPE_FP32, "TYPE_FP32", 4},
    {ORT_UINT8, TRITONSERVER_TYPE_UINT8, "TYPE_UINT8", 1},
    {ORT_INT8, TRITONSERVER_TYPE_INT8, "TYPE_INT8", 1},
    {ORT_UINT16, TRITONSERVER_TYPE_UINT16, "TYPE_UINT16", 2},
    {ORT_INT16, TRITONSERVER_TYPE_INT16, "TYPE_INT16", 2},
    {ORT_INT32, TRITONSERVER_TYPE_INT32, "TYPE_INT32", 4},
    {ORT_INT64, TRITONSERVER_TYPE_INT64, "TYPE_INT64", 8},
    {ORT_STRING, TRITONSERVER_TYPE_BYTES, "TYPE_STRING", 0},
    {ORT_BOOL, TRITONSERVER_TYPE_BOOL, "TYPE_BOOL", 1},
    {ORT_FLOAT16, TRITONSERVER_TYPE_FP16, "TYPE_FP16", 2},
    {ORT_DOUBLE, TRITONSERVER_TYPE_FP64, "TYPE_FP64", 8},
    {ORT_UINT32, TRITONSERVER_TYPE_UINT32, "TYPE_UINT32", 4},
    {ORT_UINT64, TRITONSERVER_TYPE_UINT64, "TYPE_UINT64", 8},
    {ORT_BFLOAT16, TRITONSERVER_TYPE_BF16, "TYPE_BF16", 2},
};

const struct element_type *element_type_of(enum ort_element ort)
{
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        if (types[i].ort == ort)
            return &types[i];
    return NULL;
}

/* By ONNX Runtime's numbers. */
static const char *const others[] = {
    [14] = "complex64",      [15] = "complex128", [17] = "float8e4m3fn",
    [18] = "float8e4m3fnuz", [19] = "float8e5m2", [20] = "float8e5m2fnuz",
    [21] = "uint4",          [22] = "int4",       [23] = "float4e2m1",
};

const char *element_name_of_other(enum ort_element ort)
{
    size_t number = (size_t)ort;
    const char *name = number < sizeof(others) / sizeof(others[0]) ? others[number] : NULL;

    return name ? name : "without a name here";
}
