/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The headers traceparent and tracestate. The first line is a traceparent, each other one a
 * tracestate. What is kept has its bounds, and what a backend gets is JSON.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "frontends/tracing/trace_context.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect(bool fine)
{
    if (!fine)
        abort();
}

/* Gives an exact copy, so that a read beyond its end is seen. */
static void take_line(struct trace_parent *p, bool is_first, const char *line, size_t length)
{
    char *copy = mem_alloc(length + !length);
    memcpy(copy, line, length);
    if (is_first)
        trace_parent_take(p, "traceparent", 11, copy, length);
    else
        trace_parent_take(p, "TRACESTATE", 10, copy, length);
    mem_free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct trace_parent p = {0};
    const char *at = (const char *)data, *end = at + size;
    for (bool is_first = true; at < end; is_first = false) {
        const char *newline = memchr(at, '\n', (size_t)(end - at)), *last = newline ? newline : end;
        take_line(&p, is_first, at, (size_t)(last - at));
        at = newline ? newline + 1 : end;
    }
    expect(strlen(p.state) == p.state_length && p.state_length <= TRACE_STATE_BYTES);
    expect(p.n_members <= TRACE_STATE_MEMBERS && (!p.is_state_bad || p.state_length == 0));

    char text[TRACE_CONTEXT_BYTES];
    struct json_error error;
    trace_context_print(&p.span, p.state, text);
    expect(json_check(text, strlen(text), &error));
    return 0;
}
