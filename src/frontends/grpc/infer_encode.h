/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A response of the core as a ModelInferResponse or a ModelStreamInferResponse.
 *
 * Only small tensors are copied. The message is a list of pieces, and larger outputs of the
 * response are pieces themselves.
 */
#ifndef CONCH_FRONTENDS_GRPC_INFER_ENCODE_H
#define CONCH_FRONTENDS_GRPC_INFER_ENCODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/compiler.h"

struct arena;
struct response;
struct status;

/* The most bytes of a message that gRPC carries. */
#define INFER_MAX_MESSAGE_BYTES ((size_t)INT32_MAX)

/* The fields of a response that identify its request; "" is left out. */
struct infer_identity {
    const char *model_name, *model_version, *id;
};

/* The form in which a response is sent. */
enum infer_form {
    INFER_UNARY,       /* as ModelInferResponse */
    INFER_STREAM,      /* as ModelStreamInferResponse; more may follow */
    INFER_STREAM_LAST, /* … and it is the last one of its request */
    INFER_EARLY,       /* likewise, an error before the request was queued: nothing says which */
};

/* A message in pieces, one behind the other. */
struct infer_pieces {
    struct iovec *items;
    uint32_t count;
    size_t total_bytes; /* of all pieces */
};

/*
 * infer_encode - the message of a response without an error; each output has its bytes in
 * raw_output_contents. In a stream the parameter triton_final_response says whether it is the last.
 *
 * @arena  where everything but larger tensors is written; its memory and the response live as long
 *         as the pieces
 * @resp   NULL: the message has no outputs (triton_enable_empty_final_response)
 * Errors: STATUS_INVALID_ARG  the message would have more than INFER_MAX_MESSAGE_BYTES
 *         STATUS_UNSUPPORTED  a parameter of bytes
 *         STATUS_UNAVAILABLE  no memory
 */
NODISCARD struct status *infer_encode(const struct response *resp,
                                      const struct infer_identity *identity, enum infer_form form,
                                      struct arena *arena, struct infer_pieces *ret_pieces);

/*
 * infer_encode_error - the message of a stream for a request that has failed (reference/behaviours
 * §6.21).
 *
 * @form   INFER_EARLY for an error before the request was queued, whose identity has only an id
 * Errors: STATUS_UNAVAILABLE  no memory
 */
NODISCARD struct status *infer_encode_error(const char *text, const struct infer_identity *identity,
                                            enum infer_form form, struct arena *arena,
                                            struct infer_pieces *ret_pieces);

#endif
