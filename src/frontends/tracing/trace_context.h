/* SPDX-License-Identifier: Apache-2.0 */
/*
 * W3C's trace context: the headers `traceparent` and `tracestate`, by which a client says to which
 * trace its request belongs; and ids for traces and spans. No state but a generator in each thread.
 *
 * Thread: any.
 * Source: reference/behaviours §22.10
 */
#ifndef CONCH_FRONTENDS_TRACING_TRACE_CONTEXT_H
#define CONCH_FRONTENDS_TRACING_TRACE_CONTEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TRACE_ID_BYTES = 16,
    SPAN_ID_BYTES = 8,
    TRACE_STATE_BYTES = 512,  /* of all members; a longer list is ignored */
    TRACE_STATE_MEMBERS = 32, /* likewise */
    TRACE_CONTEXT_BYTES = 128 + 2 * TRACE_STATE_BYTES, /* room for trace_context_print() */
};

/* One span, as other programs know it. */
struct span_name {
    uint8_t trace_id[TRACE_ID_BYTES], span_id[SPAN_ID_BYTES];
};

/* What the head of a request says. */
struct trace_parent {
    struct span_name span;
    bool has_span; /* there was a valid traceparent; else nothing counts */
    bool is_state_bad;
    uint8_t n_members;
    uint16_t state_length;
    char
        state[TRACE_STATE_BYTES + 1]; /* the members of all tracestates, with commas between them */
};

/* trace_parent_read - takes the value of a header traceparent; an invalid one is ignored. */
void trace_parent_read(struct trace_parent *p, const char *text, size_t length);

/* trace_parent_add_state - takes the value of a header tracestate, of which there may be several.
 * One bad member makes the whole state empty. */
void trace_parent_add_state(struct trace_parent *p, const char *text, size_t length);

/*
 * trace_parent_take - looks whether a header, whose name may be in any case, belongs to the trace
 * context, and takes it.
 */
void trace_parent_take(struct trace_parent *p, const char *name, size_t name_length,
                       const char *value, size_t length);

/* trace_id_new, span_id_new - random ids, none of them zero. */
void trace_id_new(uint8_t id[TRACE_ID_BYTES]);
void span_id_new(uint8_t id[SPAN_ID_BYTES]);

/*
 * trace_print_id - writes 2 * n_bytes hexadecimal digits and a zero byte, and returns the address
 * of the latter.
 */
char *trace_print_id(char *at, const uint8_t *id, size_t n_bytes);

/*
 * trace_context_print - the context that backends get, as JSON: an object with `traceparent` and
 * `tracestate`.
 */
void trace_context_print(const struct span_name *span, const char *state,
                         char text[TRACE_CONTEXT_BYTES]);

#endif
