/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CHECKSUM_DIGEST_H
#define CHECKSUM_DIGEST_H

#include "checksum/rule.h"
#include "triton/core/tritonrepoagent.h"

enum { DIGEST_MAX_TEXT = 2 * 64 + 1 };

/*
 * digest_file - the digest of a regular file, in lower-case hexadecimal digits.
 *
 * Errors: INVALID_ARG  it cannot be opened, or is no regular file
 *         INTERNAL     it cannot be read; the algorithm is not available on this machine
 */
TRITONSERVER_Error *digest_file(enum checksum_algorithm algorithm, const char *path,
                                char text[DIGEST_MAX_TEXT]);

#endif
