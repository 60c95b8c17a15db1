/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Relaxed JSON, as people write it by hand and as protobuf's own reader accepts it: names without
 * quotes, strings in single quotes, a comma after the last member or element.
 *
 *     {max_batch_size: 8, 'backend': "identity",}
 */
#ifndef CONCH_BASE_JSON_RELAXED_H
#define CONCH_BASE_JSON_RELAXED_H

#include <stdbool.h>
#include <stddef.h>

struct arena;

/*
 * json_relaxed_tidy - turns these three relaxations into JSON. All other mistakes stay in the text,
 * for the JSON parser to report. Line breaks stay, so that line numbers are the same.
 *
 * Thread: any.
 * @ret_text, @ret_length  in the arena, up to twice as long
 * Returns false when the arena is full.
 */
bool json_relaxed_tidy(const char *text, size_t length, struct arena *arena, const char **ret_text,
                       size_t *ret_length);

#endif
