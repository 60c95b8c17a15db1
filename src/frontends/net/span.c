/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Comparing and splitting parts of the received bytes. No state; any thread.
 */
#include "frontends/net/span.h"

#include <string.h>

bool span_is(struct span s, const char *text)
{
    size_t length = strlen(text);
    return s.at && s.length == length && strncasecmp(s.at, text, length) == 0;
}

struct span span_next_item(struct span *rest, char separator)
{
    const char *at = rest->at, *end = at + rest->length;
    const char *found = memchr(at, separator, rest->length), *stop = found ? found : end;
    *rest = found ? (struct span){found + 1, (size_t)(end - found - 1)} : (struct span){end, 0};
    while (at < stop && (*at == ' ' || *at == '\t'))
        at++;
    while (stop > at && (stop[-1] == ' ' || stop[-1] == '\t'))
        stop--;
    return (struct span){at, (size_t)(stop - at)};
}
