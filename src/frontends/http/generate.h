/* SPDX-License-Identifier: Apache-2.0 */
/*
 * POST …/generate and …/generate_stream: inference by a flat JSON object, and one flat object for
 * each response (reference/behaviours §5.3 to §5.8). infer.c has what they share with …/infer;
 * these are the parts that differ. Thread: the loop's.
 */
#ifndef CONCH_FRONTENDS_HTTP_GENERATE_H
#define CONCH_FRONTENDS_HTTP_GENERATE_H

#include <stdbool.h>

#include "base/compiler.h"

struct buf;
struct exchange;
struct response;
struct status;

/* generate_parse - parses the body into the request. */
NODISCARD struct status *generate_parse(struct exchange *x);

/*
 * generate_print - appends a response without an error as an object: its members sorted, tensors
 * of one element as that element. On an error nothing is appended.
 */
NODISCARD struct status *generate_print(struct buf *b, struct response *resp, bool shortest_floats);

/* ---- …/generate_stream: its events (event_stream.c) --------------------------------------------
 */

struct infer_kind;
extern const struct infer_kind generate_stream_kind;

#endif
