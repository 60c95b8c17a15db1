/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The defaults of options.def as numbers, for the initialisers of the services' options.
 */
#ifndef CONCH_FRONTENDS_SERVE_OPTION_DEFAULT_H
#define CONCH_FRONTENDS_SERVE_OPTION_DEFAULT_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* option_default - a default, multiplied by the factor; true and false are 1 and 0. */
static inline int64_t option_default(const char *text, int64_t factor)
{
    return strcmp(text, "true") == 0 ? 1 : strtoll(text, NULL, 10) * factor;
}

#endif
