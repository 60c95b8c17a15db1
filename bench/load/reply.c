/* SPDX-License-Identifier: Apache-2.0 */
#include "reply.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

void reply_reset(struct reply *r)
{
    r->head_len = 0;
    r->in_body = false;
    r->body_pos = 0;
}

/* Returns the value of a header line if its name is `name` (with the colon), else NULL. */
static const char *header_value(const char *line, size_t len, const char *name)
{
    size_t n = strlen(name);

    if (len < n || strncasecmp(line, name, n) != 0)
        return NULL;
    line += n;
    while (*line == ' ' || *line == '\t')
        line++;
    return line;
}

/* Parses a complete head, up to and with its empty line. Returns what is wrong, or NULL. */
static const char *head_parse(struct reply *r, const char *head, size_t len)
{
    const char *end = head + len;
    const char *line, *eol;
    bool have_len = false;

    if (len < 12 || memcmp(head, "HTTP/1.1 ", 9) != 0)
        return "not an HTTP/1.1 status line";
    r->status = (head[9] - '0') * 100 + (head[10] - '0') * 10 + (head[11] - '0');
    r->body_len = 0;
    r->body_pos = 0;
    r->chunk = CHUNK_NONE;
    r->close = false;

    for (line = memchr(head, '\n', len); line && line + 1 < end; line = eol) {
        const char *value;

        line++;
        eol = memchr(line, '\n', (size_t)(end - line));
        if (!eol || eol - line <= 1)
            break;
        /* Heads end in "\r\n\r\n", so the scans below cannot leave the buffer. */
        value = header_value(line, (size_t)(eol - line), "content-length:");
        if (value) {
            r->body_len = strtoull(value, NULL, 10);
            have_len = true;
            continue;
        }
        value = header_value(line, (size_t)(eol - line), "connection:");
        if (value && strncasecmp(value, "close", 5) == 0)
            r->close = true;
        value = header_value(line, (size_t)(eol - line), "transfer-encoding:");
        if (value && strncasecmp(value, "chunked", 7) == 0) {
            r->chunk = CHUNK_SIZE;
            r->chunk_left = r->line_len = 0;
            have_len = true;
        }
    }
    if (!have_len && r->status >= 200 && r->status != 204 && r->status != 304)
        return "a reply without Content-Length";
    return NULL;
}

static int get_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Takes the next byte of a line between chunks. Returns what is wrong, or NULL. */
static const char *chunk_line_take(struct reply *r, char c)
{
    if (c == '\r')
        return NULL;
    if (c != '\n') {
        int digit = get_digit(c);

        if (r->chunk == CHUNK_END || (r->chunk == CHUNK_SIZE && digit < 0))
            return "a chunk that is not as it should be";
        if (r->chunk == CHUNK_SIZE)
            r->chunk_left = r->chunk_left * 16 + (size_t)digit;
        r->line_len++;
        return NULL;
    }
    if (r->chunk == CHUNK_SIZE)
        r->chunk = r->chunk_left > 0 ? CHUNK_DATA : CHUNK_TRAILER;
    else if (r->chunk == CHUNK_END)
        r->chunk = CHUNK_SIZE;
    else if (r->line_len == 0)
        r->chunk = CHUNK_DONE;
    r->line_len = 0;
    return NULL;
}

/* Goes to the next data of a chunked body, or to its end. */
static enum reply_event chunk_feed(struct reply *r, const char **bytes, size_t *len,
                                   const char **ret_span, size_t *ret_span_len,
                                   const char **ret_why)
{
    while (r->chunk != CHUNK_DATA && r->chunk != CHUNK_DONE) {
        if (*len == 0)
            return REPLY_MORE;
        *ret_why = chunk_line_take(r, **bytes);
        if (*ret_why)
            return REPLY_ERROR;
        (*bytes)++;
        (*len)--;
    }
    if (r->chunk == CHUNK_DONE) {
        r->body_len = r->body_pos;
        r->in_body = false;
        return REPLY_END;
    }
    if (*len == 0)
        return REPLY_MORE;
    *ret_span = *bytes;
    *ret_span_len = *len < r->chunk_left ? *len : r->chunk_left;
    r->body_pos += *ret_span_len;
    r->chunk_left -= *ret_span_len;
    *bytes += *ret_span_len;
    *len -= *ret_span_len;
    if (r->chunk_left == 0)
        r->chunk = CHUNK_END;
    return REPLY_BODY;
}

enum reply_event reply_feed(struct reply *r, const char **bytes, size_t *len, const char **ret_span,
                            size_t *ret_span_len, const char **ret_why)
{
    while (!r->in_body) {
        const char *head = *bytes;
        size_t used, head_len;
        const char *end;

        if (*len == 0)
            return REPLY_MORE;
        if (r->head_len == 0) {
            end = memmem(*bytes, *len, "\r\n\r\n", 4);
            head_len = used = end ? (size_t)(end + 4 - *bytes) : *len;
        } else {
            /* The end may lie partly in the kept bytes: the search begins 3 bytes before the new
             * ones. */
            size_t from = r->head_len > 3 ? r->head_len - 3 : 0;
            size_t take = *len < REPLY_HEAD_MAX - r->head_len ? *len : REPLY_HEAD_MAX - r->head_len;

            memcpy(r->head + r->head_len, *bytes, take);
            end = memmem(r->head + from, r->head_len + take - from, "\r\n\r\n", 4);
            head = r->head;
            head_len = end ? (size_t)(end + 4 - r->head) : r->head_len + take;
            used = head_len - r->head_len;
        }
        if (!end) {
            if (head_len >= REPLY_HEAD_MAX) {
                *ret_why = "a reply head of more than 16 kB";
                return REPLY_ERROR;
            }
            if (r->head_len == 0)
                memcpy(r->head, *bytes, used);
            r->head_len = head_len;
            *bytes += used;
            *len -= used;
            return REPLY_MORE;
        }
        *ret_why = head_parse(r, head, head_len);
        if (*ret_why)
            return REPLY_ERROR;
        r->head_len = 0;
        *bytes += used;
        *len -= used;
        r->in_body = r->status >= 200;
    }

    if (r->chunk != CHUNK_NONE)
        return chunk_feed(r, bytes, len, ret_span, ret_span_len, ret_why);
    if (r->body_pos < r->body_len) {
        size_t left = r->body_len - r->body_pos;

        if (*len == 0)
            return REPLY_MORE;
        *ret_span = *bytes;
        *ret_span_len = *len < left ? *len : left;
        r->body_pos += *ret_span_len;
        *bytes += *ret_span_len;
        *len -= *ret_span_len;
        return REPLY_BODY;
    }
    r->in_body = false;
    return REPLY_END;
}
