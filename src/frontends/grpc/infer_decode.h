/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decoding a ModelInferRequest into a request of the core.
 */
#ifndef CONCH_FRONTENDS_GRPC_INFER_DECODE_H
#define CONCH_FRONTENDS_GRPC_INFER_DECODE_H

#include <stdbool.h>

#include "base/compiler.h"

struct infer_message;
struct request;
struct status;
struct tensor_blocks;

/* The settings of a message for the frontend, not for the core. */
struct infer_asks {
    bool empty_final; /* triton_enable_empty_final_response: a final response without outputs is
                         sent, too */
};

/*
 * infer_decode - sets id, flags, parameters, inputs with their data and requested outputs of an
 * empty request for the message's model. Raw tensors, FP32 and FP64 are borrowed from the message's
 * bytes, which must live until the request is released. Other typed values are converted into
 * blocks.
 *
 * Thread: any. The message may be freed afterwards, its bytes may not.
 * @blocks  gets the blocks of converted values; the caller releases them, also after an error
 * Errors: those of reference/behaviours §6.2 to §6.6, in the reference's order; STATUS_UNSUPPORTED
 *         for shared memory and classification; those of request_add_input() and its kin
 */
NODISCARD struct status *infer_decode(const struct infer_message *m, struct request *r,
                                      struct tensor_blocks *blocks, struct infer_asks *ret_asks);

#endif
