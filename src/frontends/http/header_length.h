/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much of the body of an inference is JSON; binary tensors follow it. HTTP has a header for
 * that, Inference-Header-Content-Length; SageMaker and Vertex AI have a MIME type with the length
 * at its end (reference/behaviours §3.3, §24.2). No state; any thread.
 */
#ifndef CONCH_FRONTENDS_HTTP_HEADER_LENGTH_H
#define CONCH_FRONTENDS_HTTP_HEADER_LENGTH_H

#include <stddef.h>
#include <stdint.h>

#include "frontends/net/span.h"

enum header_length {
    HEADER_LENGTH_NONE, /* not given: the whole body is JSON */
    HEADER_LENGTH_FINE,
    HEADER_LENGTH_BAD,      /* not a number */
    HEADER_LENGTH_RANGE,    /* beyond 32 bits */
    HEADER_LENGTH_MISPLACED /* the MIME type has something in front */
};

/* header_length_parse - parses as C++'s stoi(): blanks, a sign, digits; the rest does not matter.
 */
enum header_length header_length_parse(struct span text, int64_t *ret_length);

/*
 * header_length_of_type - looks for the MIME type of binary bodies, such as
 * "application/vnd.sagemaker-triton.binary+json;json-header-size=", in a Content-Type.
 *
 * @ret_text  for errors: the text behind the MIME type; MISPLACED: the whole Content-Type. Not
 *            written for NONE
 */
enum header_length header_length_of_type(struct span content_type, const char *binary_type,
                                         struct span *ret_text, int64_t *ret_length);

#endif
