/* SPDX-License-Identifier: Apache-2.0 */
/*
 * text - a text that grows: parameters become a JSON object in it.
 *
 * Threads: one at a time.
 */
#ifndef BACKENDS_PYTHON_TEXT_H
#define BACKENDS_PYTHON_TEXT_H

#include "common/backend.h"

/* Zeroes at first. It keeps its memory when len is set to 0. */
struct text {
    char *bytes; /* not terminated */
    size_t len, room;
};

/* All return false without memory. */
bool text_add(struct text *t, const char *bytes, size_t len);
/* text_add_member - `{"key":value`, or `,"key":value` behind others; the caller adds the `}`. */
bool text_add_member(struct text *t, bool is_first, const char *key,
                     TRITONSERVER_ParameterType type, const void *value);
void text_done(struct text *t);

#endif
