/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decoding a ModelInferRequest into a request of the core.
 */
#ifndef CONCH_FRONTENDS_GRPC_INFER_DECODE_H
#define CONCH_FRONTENDS_GRPC_INFER_DECODE_H

#include <stdbool.h>

#include "base/compiler.h"
#include "frontends/ops/classification.h"

struct infer_message;
struct request;
struct status;
struct tensor_blocks;
struct tensor_regions;

/* The settings of a message for the frontend, not for the core. */
struct infer_asks {
    bool empty_final; /* triton_enable_empty_final_response: a final response without outputs is
                         sent, too */
    struct classification classes; /* of outputs, in the request's arena */
};

/*
 * infer_decode - sets id, flags, parameters, inputs with their data and requested outputs of an
 * empty request for the message's model. Raw tensors, FP32 and FP64 are borrowed from the message's
 * bytes, which must live until the request is released. Other typed values are converted into
 * blocks. Tensors in shared memory of the client stay there, but strings.
 *
 * Thread: any. The message may be freed afterwards, its bytes may not.
 * @blocks, @regions  get the blocks of converted values, and the tensors in shared memory; the
 *         caller releases them, also after an error
 * Errors: those of reference/behaviours §6.2 to §6.6, in the reference's order; those of
 *         request_add_input() and its kin, and of regions_use()
 */
NODISCARD struct status *infer_decode(const struct infer_message *m, struct request *r,
                                      struct tensor_blocks *blocks, struct tensor_regions *regions,
                                      struct infer_asks *ret_asks);

#endif
