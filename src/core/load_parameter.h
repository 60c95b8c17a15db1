/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a load request brings along (reference/behaviours §13.5): `config`, a STRING, is the model's
 * configuration as JSON; `file:<path>`, BYTES, is a file of the model. core/repo/override.h has
 * what is made of them.
 */
#ifndef CONCH_CORE_LOAD_PARAMETER_H
#define CONCH_CORE_LOAD_PARAMETER_H

#include <stddef.h>

#include "core/request.h"

struct load_parameter {
    const char *name;
    enum parameter_type type;
    const void *bytes; /* a STRING ends with a zero; BYTES are so many; nothing is read of others */
    size_t size_bytes;
};

#endif
