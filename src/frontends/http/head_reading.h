/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the HTTP frontend, and the dialects of it (dialect.h), read in the head of a request.
 * Thread: the loop's.
 */
#ifndef CONCH_FRONTENDS_HTTP_HEAD_READING_H
#define CONCH_FRONTENDS_HTTP_HEAD_READING_H

#include <stdbool.h>
#include <stdint.h>

#include "frontends/http/call.h"
#include "frontends/http/route.h"
#include "frontends/net/head.h"

/* Bytes of a head. */
struct head_range {
    uint16_t at, length;
};

/*
 * It lies in the head's note, so that the head is read once for a client that repeats it: routes
 * and headers by name took a tenth of the instructions of a small request.
 */
struct head_reading {
    struct head_facts facts;
    bool done;
    bool discard;    /* no handler needs the body */
    bool is_unusual; /* has more than a model, a version and the length of the JSON */
    bool bad_timeout;
    uint32_t timeout_ms;
    /* .length 0: there is none */
    struct head_range model, version, region, header_length_text;
    struct head_range target; /* a model that a header names instead of the path */
    struct head_range timeout_text;
};

_Static_assert(sizeof(struct head_reading) <= HEAD_NOTE_BYTES, "a note has no room for a reading");

/* head_range_of - the place of a part of the head; of length 0 without it. */
static inline struct head_range head_range_of(const struct http_head *head, struct span s)
{
    if (!s.at)
        return (struct head_range){0};
    return (struct head_range){(uint16_t)(s.at - head->base), (uint16_t)s.length};
}

/*
 * read_binary_type - for route.read_head of a dialect: reads the length of the JSON in the
 * Content-Type, and Conch-Timeout-Ms. Headers about compression are not read: these dialects have
 * none.
 */
void read_binary_type(void *note, const struct http_head *head, const char *binary_type);

#endif
