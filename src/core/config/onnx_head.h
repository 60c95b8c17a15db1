/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The head of an ONNX file: its inputs and outputs, what it imports, and the files that it names.
 * It is read without ONNX Runtime, and without the weights: a file of many gigabytes costs a few
 * reads of some kilobytes for each tensor in it.
 */
#ifndef CONCH_CORE_CONFIG_ONNX_HEAD_H
#define CONCH_CORE_CONFIG_ONNX_HEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/compiler.h"

enum onnx_kind {
    ONNX_UNTYPED, /* the file does not say; ONNX Runtime infers it */
    ONNX_TENSOR,
    ONNX_SEQUENCE,
    ONNX_MAP,
    ONNX_OTHER,
};

/* A backend gets an optional tensor as a tensor, so that it is one here, too. */
struct onnx_value {
    const char *name;
    enum onnx_kind kind;
    bool has_maps;   /* a sequence of maps, or a map, as scikit-learn's ZipMap makes them */
    int32_t element; /* onnx.TensorProto.DataType; 0: the file does not say */
    bool has_shape;
    size_t rank;
    const int64_t *dims; /* -1: any size */
    bool has_default;    /* an input whose value is in the file; a request may replace it */
};

/* A file that has the data of tensors. */
struct onnx_external {
    const char *location; /* relative to the folder of the ONNX file */
    const char *tensor;   /* the first that is there; "": the file does not name it */
};

struct onnx_head {
    int64_t ir_version; /* 0: the file does not say */
    bool has_graph, has_imports;
    int64_t opset; /* the version of ONNX's own operators that it imports; 0: none */
    struct onnx_value *inputs, *outputs;
    size_t n_inputs, n_outputs;
    struct onnx_external *external;
    size_t n_external;
    bool is_partial; /* the file has more or longer names than are kept; some are missing here */
    struct arena arena;
};

/*
 * onnx_head_read - reads the head of an open file.
 *
 * Thread: any.
 * @fd        stays the caller's; its position is not used
 * @ret_head  the caller ends it with onnx_head_free()
 * Errors: STATUS_INVALID_ARG  the file is empty, is cut short, or is no ONNX model
 *         STATUS_INTERNAL     it cannot be read
 *         STATUS_UNAVAILABLE  no memory
 */
NODISCARD struct status *onnx_head_read(int fd, struct onnx_head **ret_head);
void onnx_head_free(struct onnx_head *head);

/* onnx_config_type - "TYPE_FP32" for onnx.TensorProto.FLOAT; NULL when no type of ours is that. */
const char *onnx_config_type(int32_t element);

#endif
