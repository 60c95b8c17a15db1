/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The head of an HTTP request: what llhttp found, as offsets into the bytes that were received.
 * Nothing is copied and nothing allocated. The bytes may move while the head is incomplete, so
 * offsets count from its first byte.
 */
#ifndef CONCH_FRONTENDS_NET_HEAD_H
#define CONCH_FRONTENDS_NET_HEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <llhttp.h>

#include "frontends/net/chunks.h"
#include "frontends/net/span.h"

enum http_method { METHOD_GET, METHOD_POST, METHOD_HEAD, METHOD_OTHER };

enum {
    HEAD_MAX_HEADERS = 64,
    HEAD_MAX_BYTES = 65535, /* offsets are 16 bits wide */
    HEAD_MEMO_BYTES = 384, /* of a head that is remembered, at most; most clients send 150 to 300 */
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
    bool http_1_1;                  /* at least; otherwise HTTP/1.0 */
    bool keep_alive;
    bool chunked;
    uint64_t content_length; /* 0 without the header */
    /* The handler's own, about what it has read in this head: zero in a new one, kept when the same
     * bytes come again. Aligned to 8. */
    unsigned char *note;
    /* Values of headers by which a head that is remembered need not be searched. */
    uint16_t accept, accept_length; /* the first Accept; 0 without the header */
    bool expects_continue;          /* the first Expect is 100-continue */
    bool has_expect;
    unsigned int n_headers;
    struct head_header headers[HEAD_MAX_HEADERS];
};

/* head_path - the target without query and fragment; not decoded. */
struct span head_path(const struct http_head *head);

/* head_accept - the value of the first Accept; .length is 0 when there is none. */
static inline struct span head_accept(const struct http_head *head)
{
    return (struct span){head->base + head->accept, head->accept_length};
}

/*
 * head_find - the value of the first header of that name (lower case in the call, any case on the
 * wire), without blanks around it; .at is NULL when there is none.
 */
struct span head_find(const struct http_head *head, const char *name, size_t name_length);

/*
 * The parser of one connection: heads, and chunked bodies after them. Bytes in, events out.
 *
 * Stricter than llhttp, since what a proxy in front reads differently from us is a way to smuggle
 * requests: folded headers and line ends without CR are faults, so are two lengths, a
 * Transfer-Encoding that is not just "chunked", and a host that is given twice or, in HTTP/1.1,
 * not.
 */
struct head_parser {
    llhttp_t llhttp;
    struct http_head head;
    /*
     * The bytes that `head` was made of, kept while it is: a client that asks the same again sends
     * the same bytes, and what has been parsed, with all its checks, is what parsing would give.
     */
    uint16_t memo_length; /* 0: none are kept */
    char memo[HEAD_MEMO_BYTES];
    _Alignas(8) unsigned char note[HEAD_NOTE_BYTES];
    size_t name_bytes; /* of a header's name that is not complete */
    size_t parsed;     /* bytes of the head seen so far */
    bool complete;
    struct http_fault fault; /* set by a callback */

    /* Chunked bodies. */
    bool (*on_data)(void *ctx, const char *bytes, size_t n_bytes); /* false sets `fault` itself */
    void *ctx;
    unsigned int max_chunks;
    struct chunks chunks;
};

enum parse_result { PARSE_MORE, PARSE_DONE, PARSE_FAULT };

void head_parser_init(struct head_parser *p, unsigned int max_chunks);

/* head_parser_reset - ready for the next head. */
void head_parser_reset(struct head_parser *p);

/*
 * head_parse - goes on with a head.
 *
 * @base     the head's first byte; the bytes already seen may have moved since the last call
 * @n_bytes  all that is there from base on, more than at the last call
 * @ret_end  DONE: the length of the head; p->head is then valid while base's bytes stay
 */
enum parse_result head_parse(struct head_parser *p, const char *base, size_t n_bytes,
                             size_t *ret_end);

/*
 * head_parse_chunks - goes on with the chunked body behind a head; data goes to p->on_data.
 *
 * @ret_used  DONE: how many of the bytes belonged to the body
 */
enum parse_result head_parse_chunks(struct head_parser *p, const char *bytes, size_t n_bytes,
                                    size_t *ret_used);

#endif
