/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The numbers are OpenVINO's since release 2025. library.c compares the sizes with those of the
 * library, so a release that numbers its types in another way is refused. Constant data; any
 * thread.
 */
#include "openvino/types.h"

#include <string.h>

const struct element_type element_types[] = {
    {4, TRITONSERVER_TYPE_FP32, "TYPE_FP32", 4},
    {1, TRITONSERVER_TYPE_BOOL, "TYPE_BOOL", 1},
    {2, TRITONSERVER_TYPE_BF16, "TYPE_BF16", 2},
    {3, TRITONSERVER_TYPE_FP16, "TYPE_FP16", 2},
    {5, TRITONSERVER_TYPE_FP64, "TYPE_FP64", 8},
    {7, TRITONSERVER_TYPE_INT8, "TYPE_INT8", 1},
    {8, TRITONSERVER_TYPE_INT16, "TYPE_INT16", 2},
    {9, TRITONSERVER_TYPE_INT32, "TYPE_INT32", 4},
    {10, TRITONSERVER_TYPE_INT64, "TYPE_INT64", 8},
    {16, TRITONSERVER_TYPE_UINT8, "TYPE_UINT8", 1},
    {17, TRITONSERVER_TYPE_UINT16, "TYPE_UINT16", 2},
    {18, TRITONSERVER_TYPE_UINT32, "TYPE_UINT32", 4},
    {19, TRITONSERVER_TYPE_UINT64, "TYPE_UINT64", 8},
    {23, TRITONSERVER_TYPE_BYTES, "TYPE_STRING", 0},
    {0},
};

const struct element_type *element_type_of(int ov)
{
    for (const struct element_type *t = element_types; t->config; t++)
        if (t->ov == ov)
            return t;
    return NULL;
}

const struct element_type *element_type_named(const char *config)
{
    for (const struct element_type *t = element_types; t->config; t++)
        if (strcmp(t->config, config) == 0)
            return t;
    return NULL;
}
