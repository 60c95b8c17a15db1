/* SPDX-License-Identifier: Apache-2.0 */
/* A reader of protobuf's wire format for files that a backend looks into. No state; any thread. */
#include "common/message.h"

#include <string.h>

/* How a field is written. */
enum { NUMBER, EIGHT_BYTES, BYTES, FOUR_BYTES = 5 };

bool message_number(struct message_bytes *b, uint64_t *ret_value)
{
    uint64_t value = 0;

    for (unsigned int shift = 0; shift < 64 && b->at < b->end; shift += 7) {
        unsigned char byte = *b->at++;

        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *ret_value = value;
            return true;
        }
    }
    return false;
}

static bool take_payload(struct message_bytes *b, uint64_t n, struct message_bytes *ret_bytes)
{
    if (n > (uint64_t)(b->end - b->at))
        return false;
    *ret_bytes = (struct message_bytes){b->at, b->at + n};
    b->at += n;
    return true;
}

bool message_next(struct message_bytes *b, struct message_field *ret_field)
{
    struct message_field f = {0};
    uint64_t tag, n;

    if (!message_number(b, &tag))
        return false;
    f.number = (uint32_t)(tag >> 3);
    switch (tag & 7) {
    case NUMBER:
        if (!message_number(b, &f.value))
            return false;
        break;
    case EIGHT_BYTES:
        if (!take_payload(b, 8, &f.bytes))
            return false;
        break;
    case BYTES:
        f.is_bytes = true;
        if (!message_number(b, &n) || !take_payload(b, n, &f.bytes))
            return false;
        break;
    case FOUR_BYTES:
        if (!take_payload(b, 4, &f.bytes))
            return false;
        break;
    default:
        return false;
    }
    *ret_field = f;
    return true;
}

bool message_is_text(const struct message_bytes *b, const char *text)
{
    size_t n = (size_t)(b->end - b->at);

    return strlen(text) == n && memcmp(b->at, text, n) == 0;
}

bool message_is_same(const struct message_bytes *a, const struct message_bytes *b)
{
    size_t n = (size_t)(a->end - a->at);

    return n == (size_t)(b->end - b->at) && memcmp(a->at, b->at, n) == 0;
}

int message_compare(const struct message_bytes *a, const struct message_bytes *b)
{
    size_t n_a = (size_t)(a->end - a->at), n_b = (size_t)(b->end - b->at);
    int order = memcmp(a->at, b->at, n_a < n_b ? n_a : n_b);

    return order ? order : (n_a > n_b) - (n_a < n_b);
}

/* False: it is malformed. */
static bool find_last_field(struct message_bytes b, uint32_t number,
                            struct message_bytes *ret_bytes, size_t *ret_n)
{
    struct message_field f;

    *ret_bytes = (struct message_bytes){b.end, b.end};
    *ret_n = 0;
    while (b.at < b.end) {
        if (!message_next(&b, &f))
            return false;
        if (f.is_bytes && f.number == number) {
            *ret_bytes = f.bytes;
            ++*ret_n;
        }
    }
    return true;
}

bool message_find(struct message_bytes b, uint32_t number, struct message_bytes *ret_bytes)
{
    size_t n;

    return find_last_field(b, number, ret_bytes, &n);
}

bool message_find_single(struct message_bytes b, uint32_t number, struct message_bytes *ret_bytes)
{
    size_t n;

    return find_last_field(b, number, ret_bytes, &n) && n <= 1;
}
