/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The head of an HTTP request, as llhttp parsed it: offsets into the received bytes. Nothing is
 * copied and nothing allocated. Offsets count from the first byte of the head, since the bytes may
 * move while the head is incomplete.
 */
#ifndef CONCH_FRONTENDS_NET_HEAD_H
#define CONCH_FRONTENDS_NET_HEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <llhttp.h>

#include "frontends/net/chunks.h"
#include "frontends/net/span.h"

enum http_method {
    METHOD_GET,
    METHOD_POST,
    METHOD_HEAD,
    METHOD_DELETE,
    METHOD_OPTIONS,
    METHOD_OTHER,
};

enum {
    HEAD_MAX_HEADERS = 64,
    HEAD_MAX_BYTES = 65535, /* offsets are 16 bits wide */
    HEAD_MEMO_BYTES = 384,  /* the longest head that is remembered; most have 150 to 300 */
    HEAD_NOTE_BYTES = 64,
};

struct head_header {
    uint16_t name, name_length;
    uint16_t value, value_length;
};

struct http_head {
    const char *base; /* the first byte */
    enum http_method method;
    uint16_t target, target_length; /* as sent, with the query */
    bool http_1_1;                  /* HTTP/1.1 or later; else HTTP/1.0 */
    bool keep_alive;
    bool chunked;
    uint64_t content_length; /* 0 without the header */
    /*
     * The handler's own notes about this head. They are zero in a new head, and kept when the same
     * bytes come again. HEAD_NOTE_BYTES, aligned to 8.
     */
    unsigned char *note;
    /* Values of some headers, so that a remembered head need not be searched for them. */
    uint16_t accept, accept_length; /* the first Accept; 0 without the header */
    bool expects_continue;          /* Expect: 100-continue */
    unsigned int n_headers;
    struct head_header headers[HEAD_MAX_HEADERS];
};

/* head_path - the target without query and fragment; not percent-decoded. */
struct span head_path(const struct http_head *head);

/* head_accept - the value of the first Accept; .length is 0 when there is none. */
static inline struct span head_accept(const struct http_head *head)
{
    return (struct span){head->base + head->accept, head->accept_length};
}

/*
 * head_find - the value of the first header with that name, without blanks around it. The name is
 * in lower case here and in any case on the wire. .at is NULL when there is no such header.
 */
struct span head_find(const struct http_head *head, const char *name, size_t name_length);

/* head_find_only - the same, but .at is also NULL when several headers have the name. */
struct span head_find_only(const struct http_head *head, const char *name, size_t name_length);

/* head_get_header - the name as it was sent, and the value, of the header number i < n_headers. */
void head_get_header(const struct http_head *head, unsigned int i, struct span *ret_name,
                     struct span *ret_value);

/*
 * The parser of one connection, for heads and the chunked bodies after them. Bytes in, events out.
 *
 * It is stricter than llhttp. A request that we and a proxy in front of us read differently could
 * smuggle another one. These are faults: folded headers, line ends without CR, two lengths, a
 * Transfer-Encoding other than "chunked", two Host headers, and in HTTP/1.1 none.
 */
struct head_parser {
    llhttp_t llhttp;
    struct http_head head;
    /*
     * The bytes that `head` was parsed from. A client that repeats a request sends the same bytes,
     * and parsing them with all checks would give the same `head`.
     */
    uint16_t memo_length; /* 0: none are kept */
    char memo[HEAD_MEMO_BYTES];
    _Alignas(8) unsigned char note[HEAD_NOTE_BYTES];
    size_t name_bytes; /* of an incomplete header's name */
    size_t parsed;     /* bytes of the head parsed so far */
    bool complete;
    struct http_fault fault; /* set by a callback */

    /* Chunked bodies. */
    bool (*on_data)(void *ctx, const char *bytes, size_t n_bytes); /* false: it set `fault` */
    void *ctx;
    unsigned int max_chunks;
    struct chunks chunks;
};

enum parse_result { PARSE_MORE, PARSE_DONE, PARSE_FAULT };

void head_parser_init(struct head_parser *p, unsigned int max_chunks);

/* head_parser_reset - prepares for the next head. */
void head_parser_reset(struct head_parser *p);

/*
 * head_parse - parses the next part of a head.
 *
 * @base     the head's first byte; the bytes may have moved since the last call
 * @n_bytes  all bytes from base on, more than at the last call
 * @ret_end  DONE: the length of the head; p->head is then valid while the bytes stay at base
 */
enum parse_result head_parse(struct head_parser *p, const char *base, size_t n_bytes,
                             size_t *ret_end);

/*
 * head_parse_chunks - parses the next part of the chunked body after a head; data goes to
 * p->on_data.
 *
 * @ret_used  DONE: the number of bytes that belonged to the body
 */
enum parse_result head_parse_chunks(struct head_parser *p, const char *bytes, size_t n_bytes,
                                    size_t *ret_used);

#endif
