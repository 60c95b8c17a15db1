/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading Accept: which of the forms that this server can give a client takes.
 *
 * No state; any thread.
 */
#ifndef CONCH_FRONTENDS_HTTP_ACCEPT_H
#define CONCH_FRONTENDS_HTTP_ACCEPT_H

#include <stdbool.h>

#include "frontends/net/span.h"

struct accepted {
    bool json;            /* application/json is named */
    bool html;            /* text/html is: it is a browser */
    bool shortest_floats; /* application/json has floats=shortest: the format of FP32 */
};

/*
 * accept_read - reads the media types of a value of Accept; none are named without the header.
 * Their weights and unknown parameters are ignored. Letter case does not matter.
 */
struct accepted accept_read(struct span value);

#endif
