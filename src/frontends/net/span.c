/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Comparing parts of the received bytes. No state; any thread.
 */
#include "frontends/net/span.h"

#include <string.h>

bool span_is(struct span s, const char *text)
{
    size_t length = strlen(text);
    return s.at && s.length == length && strncasecmp(s.at, text, length) == 0;
}
