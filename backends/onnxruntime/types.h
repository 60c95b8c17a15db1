/* SPDX-License-Identifier: Apache-2.0 */
/*
 * types - one element type under its three names: the server's, the configuration's, and ONNX
 * Runtime's.
 */
#ifndef BACKENDS_ONNXRUNTIME_TYPES_H
#define BACKENDS_ONNXRUNTIME_TYPES_H

#include "onnxruntime/ort_api.h"
#include "triton/core/tritonserver.h"

struct element_type {
    enum ort_element ort;
    TRITONSERVER_DataType server;
    const char *config;
    size_t size; /* bytes of one element; 0 for strings */
};

/* element_type_of - NULL for a type that the server does not have. */
const struct element_type *element_type_of(enum ort_element ort);

/* element_name_of_other - for errors: what ONNX calls a type that element_type_of() does not know.
 */
const char *element_name_of_other(enum ort_element ort);

#endif
