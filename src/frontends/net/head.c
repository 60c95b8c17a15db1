/* SPDX-License-Identifier: Apache-2.0 */
/*
 * llhttp calls on_url() and the other callbacks with the parts of the head. Then head_finish()
 * reads method, length and connection from the result. Where llhttp is lenient this file is strict:
 * lines_are_strict() checks the line ends, framing_fault() checks Transfer-Encoding and Host. A
 * head that equals the last one of the connection is not parsed again (is_remembered()). Thread:
 * the loop's.
 */
#include "frontends/net/head.h"

#include <string.h>
#include <strings.h>

#include "base/compiler.h"

static struct head_parser *parser_of(llhttp_t *llhttp)
{
    return llhttp->data;
}

static int fail_head(struct head_parser *p, int status, const char *text)
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

    if (p->name_bytes == 0) {
        if (head->n_headers == HEAD_MAX_HEADERS)
            return fail_head(p, 431, "the request has too many headers");
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
    if (p->name_bytes == 0)
        return fail_head(p, 400, "malformed request: a header without a name");
    p->name_bytes = 0;
    return 0;
}

static int on_header_value(llhttp_t *llhttp, const char *at, size_t length)
{
    struct head_parser *p = parser_of(llhttp);

    if (length == 0)
        return 0;
    struct head_header *header = &p->head.headers[p->head.n_headers - 1];
    uint16_t offset = (uint16_t)(at - p->head.base);
    if (header->value_length == 0)
        header->value = offset;
    else if (header->value + header->value_length != offset)
        return fail_head(p, 400, "a folded header");
    header->value_length += (uint16_t)length;
    return 0;
}

static int on_headers_complete(llhttp_t *llhttp)
{
    parser_of(llhttp)->complete = true;
    return HPE_PAUSED;
}

static const llhttp_settings_t settings = {
    .on_url = on_url,
    .on_header_field = on_header_field,
    .on_header_field_complete = on_header_field_complete,
    .on_header_value = on_header_value,
    .on_headers_complete = on_headers_complete,
};

void head_parser_init(struct head_parser *p, unsigned int max_chunks)
{
    llhttp_init(&p->llhttp, HTTP_REQUEST, &settings);
    p->llhttp.data = p;
    p->head.note = p->note;
    p->max_chunks = max_chunks;
    p->on_data = NULL;
    p->ctx = NULL;
    p->memo_length = 0;
    head_parser_reset(p);
}

void head_parser_reset(struct head_parser *p)
{
    p->parsed = 0; /* the next head may have the same bytes; else begin_head() resets the rest */
}

/* Begins a head whose bytes differ from the remembered one. */
static void begin_head(struct head_parser *p)
{
    llhttp_reset(&p->llhttp);
    p->head.target_length = 0;
    p->head.n_headers = 0;
    p->memo_length = 0;
    memset(p->note, 0, sizeof(p->note));
    p->name_bytes = 0;
    p->complete = false;
    p->fault.status = 0;
}

/*
 * Remembers a complete head. The head of a chunked body is not remembered, since parsing it also
 * begins the parser of the chunks.
 */
static void remember_head(struct head_parser *p, const char *base)
{
    if (p->head.chunked || p->parsed > HEAD_MEMO_BYTES)
        return;
    memcpy(p->memo, base, p->parsed);
    p->memo_length = (uint16_t)p->parsed;
}

static bool is_remembered(const struct head_parser *p, const char *base, size_t n_bytes)
{
    return p->memo_length > 0 && n_bytes >= p->memo_length &&
           memcmp(base, p->memo, p->memo_length) == 0;
}

/* Puts llhttp's error into words for the client. */
static void explain_refusal(struct head_parser *p)
{
    if (p->fault.status)
        return;
    switch (llhttp_get_errno(&p->llhttp)) {
    case HPE_INVALID_VERSION:
        fail_head(p, 505, "only HTTP/1.0 and HTTP/1.1 are understood here");
        break;
    case HPE_INVALID_METHOD:
        fail_head(p, 400, "malformed request: unknown method");
        break;
    case HPE_INVALID_URL:
        fail_head(p, 400, "malformed request: invalid target");
        break;
    case HPE_UNEXPECTED_CONTENT_LENGTH:
        fail_head(p, 400, "malformed request: its length is given twice");
        break;
    case HPE_INVALID_CONTENT_LENGTH:
        fail_head(p, 400, "malformed request: invalid Content-Length");
        break;
    case HPE_INVALID_TRANSFER_ENCODING:
        fail_head(p, 400, "malformed request: invalid Transfer-Encoding");
        break;
    case HPE_LF_EXPECTED:
    case HPE_CR_EXPECTED:
    case HPE_STRICT:
        fail_head(p, 400, "malformed request: lines must end with CR LF");
        break;
    case HPE_INVALID_HEADER_TOKEN:
        fail_head(p, 400, "malformed request: invalid header");
        break;
    default:
        fail_head(p, 400, "malformed request");
        break;
    }
}

/*
 * Whether the lines of a complete head are strict: each LF follows a CR, and no line continues the
 * one before (llhttp joins folded lines that it lets through).
 */
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

static struct span value_of_header(const struct http_head *head, const struct head_header *h)
{
    return (struct span){head->base + h->value, h->value_length};
}

static bool is_header_named(const struct http_head *head, const struct head_header *h,
                            const char *name, size_t name_length)
{
    return h->name_length == name_length &&
           strncasecmp(head->base + h->name, name, name_length) == 0;
}

static struct span trim_span(struct span s)
{
    while (s.length > 0 && (s.at[0] == ' ' || s.at[0] == '\t')) {
        s.at++;
        s.length--;
    }
    while (s.length > 0 && (s.at[s.length - 1] == ' ' || s.at[s.length - 1] == '\t'))
        s.length--;
    return s;
}

/*
 * Whether the value is one name or address, with or without a port. A path, a user's name or a list
 * is no host.
 */
static bool is_host(struct span value)
{
    static const bool of_none[256] = {[' '] = true, ['\t'] = true, [','] = true, ['/'] = true,
                                      ['?'] = true, ['#'] = true,  ['@'] = true, ['\\'] = true};
    bool bad = false;
    for (size_t i = 0; i < value.length; i++)
        bad |= of_none[(unsigned char)value.at[i]];
    return !bad;
}

/* The headers' statements about the length and the host of the message. */
struct framing {
    unsigned int n_hosts, n_codings, n_chunked;
    bool bad_host, empty_coding, chunked_is_last, expects_other;
};

static void count_codings(struct framing *f, struct span value)
{
    const char *end = value.at + value.length;
    for (const char *at = value.at;;) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        struct span coding = trim_span((struct span){at, (size_t)((comma ? comma : end) - at)});
        f->n_codings++;
        f->empty_coding |= coding.length == 0;
        f->chunked_is_last = span_is(coding, "chunked");
        f->n_chunked += f->chunked_is_last;
        if (!comma)
            return;
        at = comma + 1;
    }
}

static void read_framing_headers(struct http_head *head, struct framing *f)
{
    head->accept = head->accept_length = 0;
    head->expects_continue = false;
    for (unsigned int i = 0; i < head->n_headers; i++) {
        struct head_header *h = &head->headers[i];
        while (h->value_length > 0 && (head->base[h->value + h->value_length - 1] == ' ' ||
                                       head->base[h->value + h->value_length - 1] == '\t'))
            h->value_length--;
        if (is_header_named(head, h, "host", 4)) {
            f->n_hosts++;
            f->bad_host |= !is_host(value_of_header(head, h));
        } else if (UNLIKELY(is_header_named(head, h, "transfer-encoding", 17))) {
            count_codings(f, value_of_header(head, h));
        } else if (head->accept_length == 0 && is_header_named(head, h, "accept", 6)) {
            head->accept = h->value;
            head->accept_length = h->value_length;
        } else if (UNLIKELY(is_header_named(head, h, "expect", 6)) && h->value_length > 0) {
            bool is_continue = span_is(value_of_header(head, h), "100-continue");
            head->expects_continue |= is_continue;
            f->expects_other |= !is_continue;
        }
    }
}

/* NULL: the end of the message and its host are unambiguous, and nothing else is expected. */
static const struct http_fault *framing_fault(const struct head_parser *p, const struct framing *f)
{
    static const struct http_fault twice = {400, "malformed request: its length is given twice"},
                                   empty = {400, "malformed request: invalid Transfer-Encoding"},
                                   last = {400, "malformed request: the last Transfer-Encoding "
                                                "must be chunked"},
                                   other = {501, "no Transfer-Encoding but chunked is supported"},
                                   no_host = {400, "malformed request: HTTP/1.1 needs a Host"},
                                   hosts = {400, "malformed request: more than one Host"},
                                   bad_host = {400, "malformed request: invalid Host"},
                                   expectation = {417, "only the expectation 100-continue can be "
                                                       "met"};

    if (UNLIKELY(f->n_codings > 0)) {
        if (p->llhttp.flags & F_CONTENT_LENGTH)
            return &twice;
        if (f->empty_coding || f->n_chunked > 1)
            return &empty;
        if (!f->chunked_is_last)
            return &last;
        if (f->n_codings > 1)
            return &other;
    }
    if (UNLIKELY(f->n_hosts != 1)) {
        if (f->n_hosts > 1)
            return &hosts;
        if (p->head.http_1_1)
            return &no_host;
    }
    if (UNLIKELY(f->bad_host))
        return &bad_host;
    /* HTTP/1.0 has no expectations (RFC 9110, 10.1.1). */
    return UNLIKELY(f->expects_other) && p->head.http_1_1 ? &expectation : NULL;
}

static const struct http_fault *head_finish(struct head_parser *p)
{
    const llhttp_t *llhttp = &p->llhttp;
    struct http_head *head = &p->head;
    struct framing f = {0};

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
    case HTTP_DELETE:
        head->method = METHOD_DELETE;
        break;
    case HTTP_OPTIONS:
        head->method = METHOD_OPTIONS;
        break;
    default:
        head->method = METHOD_OTHER;
        break;
    }
    head->http_1_1 = llhttp->http_major == 1 && llhttp->http_minor >= 1;
    read_framing_headers(head, &f);
    head->chunked = f.chunked_is_last;
    /* HTTP/1.0 has no chunks. A proxy may have read the bytes that follow such a body otherwise, so
     * the connection is closed after it (RFC 9112, 6.1). */
    head->keep_alive = llhttp_should_keep_alive(llhttp) && (head->http_1_1 || !head->chunked);
    head->content_length = llhttp->flags & F_CONTENT_LENGTH ? llhttp->content_length : 0;
    return framing_fault(p, &f);
}

enum parse_result head_parse(struct head_parser *p, const char *base, size_t n_bytes,
                             size_t *ret_end)
{
    struct http_head *head = &p->head;
    const struct http_fault *fault;

    head->base = base;
    if (p->parsed == 0) {
        if (is_remembered(p, base, n_bytes)) {
            *ret_end = p->parsed = p->memo_length;
            return PARSE_DONE;
        }
        begin_head(p);
    }

    llhttp_errno_t err = llhttp_execute(&p->llhttp, base + p->parsed, n_bytes - p->parsed);
    if (err == HPE_OK) {
        p->parsed = n_bytes;
        return PARSE_MORE;
    }
    if (err != HPE_PAUSED || !p->complete) {
        explain_refusal(p);
        return PARSE_FAULT;
    }
    p->parsed = (size_t)(llhttp_get_error_pos(&p->llhttp) - base);
    if (!lines_are_strict(base, p->parsed)) {
        fail_head(p, 400,
                  "malformed request: lines must end with CR LF, and headers may not be folded");
        return PARSE_FAULT;
    }
    if (p->llhttp.http_major != 1) {
        fail_head(p, 505, "only HTTP/1.0 and HTTP/1.1 are understood here");
        return PARSE_FAULT;
    }
    fault = head_finish(p);
    if (UNLIKELY(fault != NULL)) {
        p->fault = *fault;
        return PARSE_FAULT;
    }
    if (head->chunked)
        chunks_init(&p->chunks, p->max_chunks);
    remember_head(p, base);
    *ret_end = p->parsed;
    return PARSE_DONE;
}

enum parse_result head_parse_chunks(struct head_parser *p, const char *bytes, size_t n_bytes,
                                    size_t *ret_used)
{
    for (size_t used = 0;;) {
        struct span data;
        size_t n;
        switch (chunks_next(&p->chunks, bytes + used, n_bytes - used, &n, &data, &p->fault)) {
        case CHUNKS_MORE:
            return PARSE_MORE;
        case CHUNKS_DATA:
            if (!p->on_data(p->ctx, data.at, data.length))
                return PARSE_FAULT;
            used += n;
            break;
        case CHUNKS_END:
            *ret_used = used + n;
            return PARSE_DONE;
        case CHUNKS_FAULT:
            return PARSE_FAULT;
        }
    }
}

struct span head_path(const struct http_head *head)
{
    struct span path = {head->base + head->target, head->target_length};
    /* The absolute form, which clients send to proxies (RFC 9112, 3.2.2): the path follows the
     * authority. A query or a fragment also ends the authority; the path is then empty. */
    if (UNLIKELY(path.length >= 7 && strncasecmp(path.at, "http://", 7) == 0)) {
        size_t n = 7;
        while (n < path.length && !memchr("/?#", path.at[n], 3))
            n++;
        if (n == 7) /* without an authority there is no path either */
            n = path.length;
        path = (struct span){path.at + n, path.length - n};
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
        if (is_header_named(head, h, name, name_length))
            return value_of_header(head, h);
    }
    return (struct span){NULL, 0};
}

struct span head_find_only(const struct http_head *head, const char *name, size_t name_length)
{
    struct span found = {NULL, 0};
    for (unsigned int i = 0; i < head->n_headers; i++) {
        const struct head_header *h = &head->headers[i];
        if (!is_header_named(head, h, name, name_length))
            continue;
        if (found.at)
            return (struct span){NULL, 0};
        found = value_of_header(head, h);
    }
    return found;
}

void head_get_header(const struct http_head *head, unsigned int i, struct span *ret_name,
                     struct span *ret_value)
{
    const struct head_header *h = &head->headers[i];
    *ret_name = (struct span){head->base + h->name, h->name_length};
    *ret_value = value_of_header(head, h);
}
