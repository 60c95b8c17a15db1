/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A ModelInferRequest as views of its bytes (the field numbers are in reference/features §2.1). The
 * fields may come in any order, split, packed or not; unknown ones are passed over. Repetitions
 * count as in protobuf: the last value of a single field, all values of a repeated one, the last
 * entry of a key.
 *
 * Only the arrays are allocated, in the caller's arena. Thread: any.
 */
#ifndef CONCH_FRONTENDS_GRPC_INFER_MESSAGE_H
#define CONCH_FRONTENDS_GRPC_INFER_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "base/pbwire.h"

struct arena;
struct status;

/* The values are the field numbers in InferParameter. */
enum infer_choice {
    INFER_NONE,
    INFER_BOOL,
    INFER_INT64,
    INFER_STRING,
    INFER_DOUBLE,
    INFER_UINT64,
};

struct infer_parameter {
    struct pbwire_bytes key;
    enum infer_choice choice;
    bool replaced; /* a later entry has the same key */
    union {
        bool boolean;
        int64_t int64;
        uint64_t uint64;
        double float64;
        struct pbwire_bytes string;
    };
};

struct infer_parameters {
    uint32_t count, capacity;
    struct infer_parameter *items;
};

/* The values are the field numbers in InferTensorContents. */
enum infer_contents {
    CONTENTS_BOOL = 1,
    CONTENTS_INT,
    CONTENTS_INT64,
    CONTENTS_UINT,
    CONTENTS_UINT64,
    CONTENTS_FP32,
    CONTENTS_FP64,
    CONTENTS_BYTES,
    N_CONTENTS,
};

/* An InferInputTensor; of an InferRequestedOutputTensor only name and parameters. */
struct infer_tensor {
    struct pbwire_bytes name, datatype;
    uint32_t n_dims, dims_capacity;
    int64_t *shape;
    struct infer_parameters parameters;
    /* The field `contents`. Its parts are one message in several pieces. */
    uint32_t n_parts, parts_capacity;
    struct pbwire_bytes *parts;
    size_t n_elements[N_CONTENTS]; /* of each kind */
    size_t string_bytes;           /* of all bytes_contents together */
};

struct infer_tensors {
    uint32_t count, capacity;
    struct infer_tensor *items;
};

struct infer_message {
    struct pbwire_bytes model_name, model_version, id;
    struct infer_parameters parameters;
    struct infer_tensors inputs, outputs;
    uint32_t n_raw, raw_capacity;
    struct pbwire_bytes *raw; /* raw_input_contents */
};

/*
 * infer_message_read - reads the message. The views live as long as bytes and arena.
 *
 * Errors: STATUS_INTERNAL     the bytes are no ModelInferRequest, or a text in them is not UTF-8
 *         STATUS_INVALID_ARG  a list has more than 65536 items, or the arena is full
 *         STATUS_UNAVAILABLE  no memory
 */
NODISCARD struct status *infer_message_read(struct infer_message *m, const void *bytes,
                                            size_t n_bytes, struct arena *arena);

/* infer_find_parameter - the parameter of that name, or NULL. */
const struct infer_parameter *infer_find_parameter(const struct infer_parameters *p,
                                                   const char *key);

#endif
