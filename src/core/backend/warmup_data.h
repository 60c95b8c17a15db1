/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tensors of a warm-up sample (`model_warmup` of a configuration): zeros, random numbers, or
 * the content of a file below the model's folder warmup/. Made once per model; all requests of a
 * sample, on all instances, read the same bytes.
 *
 * config_validate_data() has refused the faults that the configuration alone shows: wildcards, no
 * data, a path that leads out of the folder. Whether the tensors fit the model is checked when the
 * request is admitted, as with any request.
 */
#ifndef CONCH_CORE_BACKEND_WARMUP_DATA_H
#define CONCH_CORE_BACKEND_WARMUP_DATA_H

#include "base/buf.h"
#include "core/model/tensor.h"
#include "proto/model_config.pb-c.h"

struct model;
struct pool;
struct tensor_spec;

/* The limit of one input; larger than a request of any protocol can be. */
#define WARMUP_MAX_INPUT_BYTES ((size_t)4 << 30)

struct warmup_input {
    const char *name;
    enum dtype dtype;
    const struct tensor_spec *spec; /* NULL: the model declares no such input */
    size_t n_dims;
    const int64_t *dims; /* without the batch dimension */
    const void *data;
    size_t size_bytes;
    void *made;      /* the block of the pool that data points to; NULL: data points into … */
    struct buf file; /* … this, the content of a file */
};

struct warmup_sample {
    const char *name;
    uint32_t batch_size; /* so many requests in one execution */
    uint32_t count;      /* executions, at least 1 */
    size_t n_inputs;
    struct warmup_input *inputs; /* in the configuration's order */
};

/*
 * warmup_sample_make - makes a sample with its data; borrows from configuration and model. The
 * caller ends it with warmup_sample_done(), after an error, too. The memory is on the model's
 * account.
 *
 * Thread: control.
 * Errors: STATUS_INVALID_ARG  a tensor is too large, a file is too short
 *         STATUS_INTERNAL     a file is missing or cannot be read
 *         STATUS_UNAVAILABLE  no memory
 */
NODISCARD struct status *warmup_sample_make(const struct model *m,
                                            const Inference__ModelWarmup *config, struct pool *pool,
                                            struct warmup_sample *ret_sample);
void warmup_sample_done(struct warmup_sample *s);

#endif
