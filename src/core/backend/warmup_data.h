/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tensors of a warm-up sample (`model_warmup` of a configuration): zeros, random numbers, or
 * the content of a file below the model's folder warmup/. Made once per model; all requests of a
 * sample, on all instances, read the same bytes.
 *
 * What the configuration alone can tell (wildcards, no data, a path that leads out of the folder)
 * has been refused by config_validate_data(); whether the tensors fit the model is found out like
 * that of any request.
 */
#ifndef CONCH_CORE_BACKEND_WARMUP_DATA_H
#define CONCH_CORE_BACKEND_WARMUP_DATA_H

#include "base/buf.h"
#include "core/tensor.h"
#include "proto/model_config.pb-c.h"

struct model;
struct pool;
struct tensor_spec;

/* Of one input; beyond what any protocol could bring in a request. */
#define WARMUP_MAX_INPUT_BYTES ((size_t)4 << 30)

struct warmup_input {
    const char *name;
    enum dtype dtype;
    const struct tensor_spec *spec; /* NULL: the model declares no such input */
    size_t n_dims;
    const int64_t *dims; /* without the batch dimension */
    const void *data;
    size_t size_bytes;
    void *made;      /* where data points to, a block of the pool, unless it is … */
    struct buf file; /* … the content of a file */
};

struct warmup_sample {
    const char *name;
    uint32_t batch_size; /* so many requests in one execution */
    uint32_t count;      /* executions, at least 1 */
    size_t n_inputs;
    struct warmup_input *inputs; /* in the configuration's order */
};

/*
 * warmup_sample_make - the sample with its data; borrows from configuration and model.
 *
 * Thread: control. All of it is on the model's account. The caller ends it with
 * warmup_sample_done(), after an error too. Errors: STATUS_INVALID_ARG  a tensor that is too large,
 * a file that is too short STATUS_INTERNAL     a file that is missing or cannot be read
 *         STATUS_UNAVAILABLE  no memory
 */
NODISCARD struct status *warmup_sample_make(const struct model *m,
                                            const Inference__ModelWarmup *config, struct pool *pool,
                                            struct warmup_sample *ret_sample);
void warmup_sample_done(struct warmup_sample *s);

#endif
