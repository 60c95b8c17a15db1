/* SPDX-License-Identifier: Apache-2.0 */
/* Reading Accept. No state; any thread. */
#include "frontends/http/accept.h"

static bool asks_for_shortest(struct span parameter)
{
    struct span name = span_next_item(&parameter, '='), value = span_next_item(&parameter, '=');
    return span_is(name, "floats") &&
           (span_is(value, "shortest") || span_is(value, "\"shortest\""));
}

struct accepted accept_read(struct span value)
{
    struct accepted a = {0};
    if (value.length < sizeof("text/html") - 1)
        return a;
    while (value.length > 0) {
        struct span range = span_next_item(&value, ',');
        struct span type = span_next_item(&range, ';');
        a.html |= span_is(type, "text/html");
        if (!span_is(type, "application/json"))
            continue;
        a.json = true;
        while (range.length > 0)
            a.shortest_floats |= asks_for_shortest(span_next_item(&range, ';'));
    }
    return a;
}
