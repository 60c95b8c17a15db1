/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The headers of all replies are printed once, when the list is read: one text for each origin, and
 * one for requests of no listed origin. With a list all replies have "Vary: Origin", since a cache
 * must not give the reply for one origin to another.
 */
#include "frontends/http/cors.h"

#include <string.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/mem.h"
#include "base/origin.h"
#include "base/status.h"
#include "frontends/http/reply.h"

/* Headers of our replies that a page could not read otherwise. */
#define EXPOSED                                                                                    \
    "Access-Control-Expose-Headers: Inference-Header-Content-Length, Endpoint-Load-Metrics, "      \
    "Retry-After, Accept-Encoding\r\n"

/* Browsers remember a preflight's reply for two hours at most. */
#define ALLOWED                                                                                    \
    "Access-Control-Allow-Methods: GET, POST\r\n"                                                  \
    "Access-Control-Max-Age: 7200\r\n"

enum { MAX_ASKED_BYTES = 4096 };

struct cors_origin {
    const char *name; /* in cors.list */
    size_t name_length;
    char *headers;
    size_t headers_length;
};

struct cors {
    bool takes_all;
    char *list;
    unsigned int n_origins;                     /* from of[1] on */
    struct cors_origin of[ORIGIN_LIST_MAX + 1]; /* [0]: any other origin, or none */
};

static void print_origin_headers(struct cors_origin *o, const char *allowed, size_t length,
                                 const char *more)
{
    AUTO(buf) text = BUF_INIT(ORIGIN_MAX_BYTES + 512);
    if (length > 0)
        buf_addf(&text, "Access-Control-Allow-Origin: %.*s\r\n" EXPOSED, (int)length, allowed);
    buf_adds(&text, more);
    o->headers = mem_strdup(buf_text(&text));
    o->headers_length = text.size;
}

static void add_listed_origin(struct cors *c, const char *name, size_t length)
{
    struct cors_origin *o = &c->of[++c->n_origins];
    o->name = name;
    o->name_length = length;
    print_origin_headers(o, name, length, "Vary: Origin\r\n");
}

struct status *cors_new(const char *origins, struct cors **ret_cors)
{
    const char *item, *wrong = origin_list_check(origins, &item, &(size_t){0});
    if (wrong)
        return status_new(STATUS_INVALID_ARG, "origins '%s': %s", origins, wrong);
    *ret_cors = NULL;
    if (!*origins)
        return NULL;
    struct cors *c = mem_zalloc(sizeof(*c));
    c->list = mem_strdup(origins);
    c->takes_all = strcmp(origins, "*") == 0;
    if (c->takes_all) {
        c->n_origins = 1;
        print_origin_headers(&c->of[0], "*", 1, "");
        print_origin_headers(&c->of[1], "*", 1, "");
    } else {
        print_origin_headers(&c->of[0], "", 0, "Vary: Origin\r\n");
        for (const char *p = c->list; *p; p += *p == ',') {
            size_t length = strcspn(p, ",");
            add_listed_origin(c, p, length);
            p += length;
        }
    }
    *ret_cors = c;
    return NULL;
}

void cors_free(struct cors *c)
{
    if (!c)
        return;
    for (unsigned int i = 0; i <= c->n_origins; i++)
        mem_free(c->of[i].headers);
    mem_free(c->list);
    mem_free(c);
}

uint8_t cors_find_origin(const struct cors *c, const struct http_head *head)
{
    static const char name[] = "origin";
    struct span origin = head_find_only(head, name, sizeof(name) - 1);
    if (!origin.at)
        return 0;
    for (unsigned int i = 1; i <= c->n_origins; i++) {
        if (c->takes_all || (origin.length == c->of[i].name_length &&
                             memcmp(origin.at, c->of[i].name, origin.length) == 0))
            return (uint8_t)i;
    }
    return 0;
}

bool cors_is_preflight(const struct http_head *head, uint8_t origin)
{
    static const char name[] = "access-control-request-method";
    return head->method == METHOD_OPTIONS && origin > 0 &&
           head_find(head, name, sizeof(name) - 1).at;
}

struct span cors_headers(const struct cors *c, uint8_t origin)
{
    const struct cors_origin *o = &c->of[origin];
    return (struct span){o->headers, o->headers_length};
}

/* Whether all bytes are those of names of headers (RFC 9110 §5.6.2), commas and blanks. */
static bool is_list_of_names(struct span s)
{
    static const char also[] = "!#$%&'*+-.^_`|~, \t";
    for (size_t i = 0; i < s.length; i++) {
        unsigned char c = (unsigned char)s.at[i], lower = c | 0x20;
        bool is_plain = (lower >= 'a' && lower <= 'z') || (c >= '0' && c <= '9');
        if (!is_plain && (c == '\0' || !strchr(also, c)))
            return false;
    }
    return true;
}

const char *cors_keep_asked(struct exchange *x, const struct http_head *head)
{
    static const char name[] = "access-control-request-headers";
    struct span asked = head_find_only(head, name, sizeof(name) - 1);
    if (asked.length == 0 || asked.length > MAX_ASKED_BYTES || !is_list_of_names(asked))
        return NULL;
    return arena_strndup(&x->arena, asked.at, asked.length);
}

void cors_reply_preflight(struct exchange *x, const char *asked)
{
    AUTO(buf) headers = BUF_INIT(MAX_ASKED_BYTES + 256);
    buf_adds(&headers, ALLOWED);
    if (asked)
        buf_addf(&headers, "Access-Control-Allow-Headers: %s\r\n", asked);
    struct status *st = buf_status(&headers);
    if (st)
        reply_status(x, st, content_text);
    else
        exchange_reply_copied(x, 200, content_text, buf_text(&headers), "", 0);
}
