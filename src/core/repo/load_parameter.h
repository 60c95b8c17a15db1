/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A parameter of a load request (reference/behaviours §13.5): `config`, a STRING, is the model's
 * configuration as JSON; `file:<path>`, BYTES, is a file of the model. core/repo/override.h reads
 * them.
 */
#ifndef CONCH_CORE_REPO_LOAD_PARAMETER_H
#define CONCH_CORE_REPO_LOAD_PARAMETER_H

#include <stddef.h>

#include "core/request/request.h"

struct load_parameter {
    const char *name;
    enum parameter_type type;
    const void *bytes; /* borrowed. STRING: ends with a zero. Other types: not read */
    size_t size_bytes; /* of BYTES */
};

#endif
