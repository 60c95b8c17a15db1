/* SPDX-License-Identifier: Apache-2.0 */
#include "frontends/net/head.h"

#include <string.h>
#include <strings.h>

#include "base/compiler.h"

static struct head_parser *parser_of(llhttp_t *llhttp)
{
    return llhttp->data;
}

static int fail(struct head_parser *p, int status, const char *text)
{
    p->fault = (struct http_fault){.status = status, .text = text};
    return -1;
}

static int on_url(llhttp_t *llhttp, const char *at, size_t length)
{
    struct head_parser *p = parser_of(llhttp);
    if (p->head.target_length == 0)
        p->head.target = (uint16_t)(at - p->head.base);
    p->head.target_length = (uint16_t)(p->head.target_length + length);
    return 0;
}

static int on_header_field(llhttp_t *llhttp, const char *at, size_t length)
{
    struct head_parser *p = parser_of(llhttp);
    struct http_head *head = &p->head;

    if (p->complete) { /* a trailer: allowed, counted, ignored */
        p->trailer_bytes += length;
        return p->trailer_bytes > 8192 ? fail(p, 431, "the trailer is too large") : 0;
    }
    if (p->name_bytes == 0) {
        if (head->n_headers == HEAD_MAX_HEADERS)
            return fail(p, 431, "the request has too many headers");
        if (length > 0)
            head->headers[head->n_headers++] =
                (struct head_header){.name = (uint16_t)(at - head->base)};
    }
    if (length > 0) /* the first piece or another one of a name */
        head->headers[head->n_headers - 1].name_length += (uint16_t)length;
    p->name_bytes += length;
    return 0;
}

static int on_header_field_complete(llhttp_t *llhttp)
{
    struct head_parser *p = parser_of(llhttp);
    if (!p->complete && p->name_bytes == 0)
        return fail(p, 400, "malformed request: a header without a name");
    p->name_bytes = 0;
    return 0;
}

static int on_header_value(llhttp_t *llhttp, const char *at, size_t length)
{
    struct head_parser *p = parser_of(llhttp);

    if (p->complete) {
        p->trailer_bytes += length;
        return p->trailer_bytes > 8192 ? fail(p, 431, "the trailer is too large") : 0;
    }
    if (length == 0)
        return 0;
    struct head_header *header = &p->head.headers[p->head.n_headers - 1];
    uint16_t place = (uint16_t)(at - p->head.base);
    if (header->value_length == 0)
        header->value = place;
    else if (header->value + header->value_length != place)
        return fail(p, 400, "a folded header");
    header->value_length += (uint16_t)length;
    return 0;
}

static int on_headers_complete(llhttp_t *llhttp)
{
    parser_of(llhttp)->complete = true;
    return HPE_PAUSED;
}

static int on_body(llhttp_t *llhttp, const char *at, size_t length)
{
    struct head_parser *p = parser_of(llhttp);
    return p->on_data(p->ctx, at, length) ? 0 : -1;
}

static int on_chunk_header(llhttp_t *llhttp)
{
    struct head_parser *p = parser_of(llhttp);
    if (llhttp->content_length != 0 && ++p->n_chunks > p->max_chunks)
        return fail(p, 400, "the request body has too many chunks");
    return 0;
}

static int on_message_complete(llhttp_t *llhttp)
{
    parser_of(llhttp)->body_complete = true;
    return HPE_PAUSED;
}

static const llhttp_settings_t settings = {
    .on_url = on_url,
    .on_header_field = on_header_field,
    .on_header_field_complete = on_header_field_complete,
    .on_header_value = on_header_value,
    .on_headers_complete = on_headers_complete,
    .on_body = on_body,
    .on_chunk_header = on_chunk_header,
    .on_message_complete = on_message_complete,
};

void head_parser_init(struct head_parser *p, unsigned int max_chunks)
{
    llhttp_init(&p->llhttp, HTTP_REQUEST, &settings);
    p->llhttp.data = p;
    p->max_chunks = max_chunks;
    p->on_data = NULL;
    p->ctx = NULL;
    head_parser_reset(p);
}

void head_parser_reset(struct head_parser *p)
{
    llhttp_reset(&p->llhttp);
    p->head.target_length = 0;
    p->head.n_headers = 0;
    p->name_bytes = 0;
    p->parsed = 0;
    p->complete = false;
    p->fault.status = 0;
    p->n_chunks = 0;
    p->trailer_bytes = 0;
    p->body_complete = false;
}

/* What llhttp refused, in the words of the client's view. */
static void explain(struct head_parser *p)
{
    if (p->fault.status)
        return;
    switch (llhttp_get_errno(&p->llhttp)) {
    case HPE_INVALID_VERSION:
        fail(p, 505, "only HTTP/1.0 and HTTP/1.1 are understood here");
        break;
    case HPE_INVALID_METHOD:
        fail(p, 400, "malformed request: unknown method");
        break;
    case HPE_INVALID_URL:
        fail(p, 400, "malformed request: invalid target");
        break;
    case HPE_UNEXPECTED_CONTENT_LENGTH:
        fail(p, 400, "malformed request: its length is given twice");
        break;
    case HPE_INVALID_CONTENT_LENGTH:
        fail(p, 400, "malformed request: invalid Content-Length");
        break;
    case HPE_INVALID_TRANSFER_ENCODING:
        fail(p, 400, "malformed request: invalid Transfer-Encoding");
        break;
    case HPE_INVALID_CHUNK_SIZE:
        fail(p, 400, "malformed request: invalid chunk size");
        break;
    case HPE_LF_EXPECTED:
    case HPE_CR_EXPECTED:
    case HPE_STRICT:
        fail(p, 400, "malformed request: lines must end with CR LF");
        break;
    case HPE_INVALID_HEADER_TOKEN:
        fail(p, 400, "malformed request: invalid header");
        break;
    default:
        fail(p, 400, "malformed request");
        break;
    }
}

/* The line ends of a complete head: each LF follows a CR, and no line is the last one's going on
 * (llhttp joins those that it lets through). */
static bool lines_are_strict(const char *base, size_t n_bytes)
{
    const char *at = base, *end = base + n_bytes;
    while ((at = memchr(at, '\n', (size_t)(end - at)))) {
        if (at == base || at[-1] != '\r')
            return false;
        if (++at == end)
            break;
        if (*at == ' ' || *at == '\t')
            return false;
    }
    return true;
}

static void head_finish(struct head_parser *p)
{
    const llhttp_t *llhttp = &p->llhttp;
    struct http_head *head = &p->head;

    switch (llhttp->method) {
    case HTTP_GET:
        head->method = METHOD_GET;
        break;
    case HTTP_POST:
        head->method = METHOD_POST;
        break;
    case HTTP_HEAD:
        head->method = METHOD_HEAD;
        break;
    default:
        head->method = METHOD_OTHER;
        break;
    }
    head->http_1_1 = llhttp->http_major == 1 && llhttp->http_minor >= 1;
    head->keep_alive = llhttp_should_keep_alive(llhttp);
    head->chunked = llhttp->flags & F_CHUNKED;
    head->content_length =
        llhttp->flags & F_CONTENT_LENGTH && !head->chunked ? llhttp->content_length : 0;
    for (unsigned int i = 0; i < head->n_headers; i++) {
        struct head_header *h = &head->headers[i];
        while (h->value_length > 0 && (head->base[h->value + h->value_length - 1] == ' ' ||
                                       head->base[h->value + h->value_length - 1] == '\t'))
            h->value_length--;
    }
}

enum parse_result head_parse(struct head_parser *p, const char *base, size_t n_bytes,
                             size_t *ret_end)
{
    struct http_head *head = &p->head;

    head->base = base;

    llhttp_errno_t err = llhttp_execute(&p->llhttp, base + p->parsed, n_bytes - p->parsed);
    if (err == HPE_OK) {
        p->parsed = n_bytes;
        return PARSE_MORE;
    }
    if (err != HPE_PAUSED || !p->complete) {
        explain(p);
        return PARSE_FAULT;
    }
    p->parsed = (size_t)(llhttp_get_error_pos(&p->llhttp) - base);
    if (!lines_are_strict(base, p->parsed)) {
        fail(p, 400, "malformed request: lines must end with CR LF, and headers may not be folded");
        return PARSE_FAULT;
    }
    if (p->llhttp.http_major != 1) {
        fail(p, 505, "only HTTP/1.0 and HTTP/1.1 are understood here");
        return PARSE_FAULT;
    }
    if (p->llhttp.flags & F_TRANSFER_ENCODING && !(p->llhttp.flags & F_CHUNKED)) {
        fail(p, 400, "malformed request: the last Transfer-Encoding must be chunked");
        return PARSE_FAULT;
    }
    if (p->llhttp.flags & F_CHUNKED && p->llhttp.flags & F_CONTENT_LENGTH) {
        fail(p, 400, "malformed request: its length is given twice");
        return PARSE_FAULT;
    }
    head_finish(p);
    if (head->chunked) {
        /* An upgrade is not offered: without this llhttp would take the body for another protocol.
         */
        p->llhttp.upgrade = 0;
        llhttp_resume(&p->llhttp);
    }
    *ret_end = p->parsed;
    return PARSE_DONE;
}

enum parse_result head_parse_chunks(struct head_parser *p, const char *bytes, size_t n_bytes,
                                    size_t *ret_used)
{
    llhttp_errno_t err = llhttp_execute(&p->llhttp, bytes, n_bytes);
    if (err == HPE_OK)
        return PARSE_MORE;
    if (err != HPE_PAUSED || !p->body_complete) {
        explain(p);
        return PARSE_FAULT;
    }
    *ret_used = (size_t)(llhttp_get_error_pos(&p->llhttp) - bytes);
    return PARSE_DONE;
}

struct span head_path(const struct http_head *head)
{
    struct span path = {head->base + head->target, head->target_length};
    /* The absolute form, as proxies are asked (RFC 9112, 3.2.2): what follows the authority. */
    if (UNLIKELY(path.length > 7 && strncasecmp(path.at, "http://", 7) == 0)) {
        const char *slash = memchr(path.at + 7, '/', path.length - 7);
        if (slash)
            path = (struct span){slash, path.length - (size_t)(slash - path.at)};
    }
    static const char ends[] = {'?', '#'};
    for (size_t i = 0; i < sizeof(ends); i++) {
        const char *end = memchr(path.at, ends[i], path.length);
        if (end)
            path.length = (size_t)(end - path.at);
    }
    return path;
}

struct span head_find(const struct http_head *head, const char *name, size_t name_length)
{
    for (unsigned int i = 0; i < head->n_headers; i++) {
        const struct head_header *h = &head->headers[i];
        if (h->name_length == name_length &&
            strncasecmp(head->base + h->name, name, name_length) == 0)
            return (struct span){head->base + h->value, h->value_length};
    }
    return (struct span){NULL, 0};
}

bool span_is(struct span s, const char *text)
{
    size_t length = strlen(text);
    return s.at && s.length == length && strncasecmp(s.at, text, length) == 0;
}
