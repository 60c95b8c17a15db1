/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One state for each position between two bytes of a body:
 *
 *     FIRST_DIGIT ─► DIGITS ─┬► EXTENSION ─┐
 *          ▲                 └─────────────┴► SIZE_LF ─┬► DATA ─► DATA_CR ─► DATA_LF ─┐
 *          └───────────────────────────────────────────│──────────────────────────────┘
 *                                                      └ size 0 ─► LINE
 *
 *     LINE ─┬► NAME ─► VALUE ─► VALUE_LF ─► LINE
 *           └► LAST_LF ─► the end
 */
#include "frontends/net/chunks.h"

#include <string.h>

#include "base/compiler.h"

#define TEXT_OF_(x) #x
#define TEXT_OF(x)  TEXT_OF_(x)

enum {
    FIRST_DIGIT,
    DIGITS,
    EXTENSION,
    SIZE_LF,
    DATA,
    DATA_CR,
    DATA_LF,
    LINE, /* of a trailer, or the empty one at the end */
    NAME,
    VALUE,
    VALUE_LF,
    LAST_LF,
};

static const char lines_text[] =
    "malformed request: lines must end with CR LF, and trailers may not be folded";

void chunks_init(struct chunks *c, unsigned int max_chunks)
{
    *c = (struct chunks){.state = FIRST_DIGIT, .max_chunks = max_chunks};
}

/* The value of a hexadecimal digit; -1 for any other byte. */
static int digit_of(char byte)
{
    if (byte >= '0' && byte <= '9')
        return byte - '0';
    byte |= 0x20;
    return byte >= 'a' && byte <= 'f' ? byte - 'a' + 10 : -1;
}

/* tchar of RFC 9110, 5.6.2 */
static bool is_of_name(unsigned char byte)
{
    if ((byte >= '0' && byte <= '9') || ((byte | 0x20) >= 'a' && (byte | 0x20) <= 'z'))
        return true;
    return byte && memchr("!#$%&'*+-.^_`|~", byte, 15);
}

/* Whether an extension or a trailer's value may contain the byte: text and blanks. */
static bool is_field_text(unsigned char byte)
{
    return byte == '\t' || (byte >= ' ' && byte != 0x7f);
}

static const struct http_fault *take_digit(struct chunks *c, char byte)
{
    static const struct http_fault bad = {400, "malformed request: invalid chunk size"};
    int digit = digit_of(byte);

    if (digit >= 0) {
        if (c->n_digits == CHUNKS_MAX_DIGITS)
            return &bad;
        c->n_digits++;
        c->left = c->left << 4 | (unsigned int)digit;
        c->state = DIGITS;
    } else if (c->n_digits == 0) {
        return &bad;
    } else if (byte == '\r') {
        c->state = SIZE_LF;
    } else if (byte == ';') {
        c->state = EXTENSION;
        c->line_bytes = 0;
    } else {
        return &bad;
    }
    return NULL;
}

static const struct http_fault *take_extension(struct chunks *c, char byte)
{
    static const struct http_fault bad = {400, "malformed request: invalid chunk extension"};
    static const struct http_fault large = {400,
                                            "malformed request: chunk extensions are too long"};

    if (byte == '\r') {
        c->state = SIZE_LF;
        return NULL;
    }
    if (!is_field_text((unsigned char)byte))
        return &bad;
    if (++c->line_bytes > CHUNKS_MAX_LINE_EXTENSION || ++c->extension_bytes > CHUNKS_MAX_EXTENSIONS)
        return &large;
    return NULL;
}

static const struct http_fault *take_size_end(struct chunks *c, char byte)
{
    static const struct http_fault lines = {400, lines_text};
    static const struct http_fault many = {
        400, "Chunked request body exceeds maximum of " TEXT_OF(
                 HTTP_MAX_CHUNKS) " non-empty chunks. Send fewer or larger HTTP chunks."};

    if (byte != '\n')
        return &lines;
    if (c->left == 0) {
        c->state = LINE;
        return NULL;
    }
    if (++c->n_chunks > c->max_chunks)
        return &many;
    c->state = DATA;
    return NULL;
}

static const struct http_fault *take_trailer(struct chunks *c, char byte)
{
    static const struct http_fault lines = {400, lines_text};
    static const struct http_fault bad = {400, "malformed request: invalid trailer"};
    static const struct http_fault large = {431, "the trailer is too large"};

    if (++c->trailer_bytes > CHUNKS_MAX_TRAILER)
        return &large;
    switch (c->state) {
    case LINE:
        if (byte == '\r') {
            c->state = LAST_LF;
            return NULL;
        }
        c->state = NAME;
        if (byte == ' ' || byte == '\t' || byte == '\n')
            return &lines;
        return is_of_name((unsigned char)byte) ? NULL : &bad; /* ':' would end an empty name */
    case NAME:
        if (byte == ':')
            c->state = VALUE;
        else if (!is_of_name((unsigned char)byte))
            return &bad;
        return NULL;
    default: /* VALUE */
        if (byte == '\r')
            c->state = VALUE_LF;
        else if (!is_field_text((unsigned char)byte))
            return byte == '\n' ? &lines : &bad;
        return NULL;
    }
}

/* Takes one byte outside of data. */
static const struct http_fault *take_byte(struct chunks *c, char byte)
{
    static const struct http_fault lines = {400, lines_text};
    static const uint8_t after[] = {
        [DATA_CR] = DATA_LF, [DATA_LF] = FIRST_DIGIT, [VALUE_LF] = LINE};

    switch (c->state) {
    case FIRST_DIGIT:
    case DIGITS:
        return take_digit(c, byte);
    case EXTENSION:
        return take_extension(c, byte);
    case SIZE_LF:
        return take_size_end(c, byte);
    case LAST_LF: /* chunks_next() takes the LF that is right here */
        return &lines;
    case DATA_CR:
    case DATA_LF:
    case VALUE_LF:
        if (byte != (c->state == DATA_CR ? '\r' : '\n'))
            return &lines;
        c->state = after[c->state];
        c->n_digits = 0;
        return NULL;
    default:
        return take_trailer(c, byte);
    }
}

enum chunks_event chunks_next(struct chunks *c, const char *bytes, size_t n_bytes, size_t *ret_used,
                              struct span *ret_data, struct http_fault *ret_fault)
{
    for (size_t i = 0; i < n_bytes; i++) {
        if (c->state == DATA) {
            size_t n = (size_t)MIN((uint64_t)(n_bytes - i), c->left);
            c->left -= n;
            if (c->left == 0)
                c->state = DATA_CR;
            *ret_data = (struct span){bytes + i, n};
            *ret_used = i + n;
            return CHUNKS_DATA;
        }
        if (c->state == LAST_LF && bytes[i] == '\n') {
            *ret_used = i + 1;
            return CHUNKS_END;
        }
        const struct http_fault *fault = take_byte(c, bytes[i]);
        if (fault) {
            *ret_used = i;
            *ret_fault = *fault;
            return CHUNKS_FAULT;
        }
    }
    *ret_used = n_bytes;
    return CHUNKS_MORE;
}
