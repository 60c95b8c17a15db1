/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sequence_length() has the rules of RFC 3629, and the functions that check text ask it.
 * utf8_is_valid() passes over ASCII eight bytes at a time. No state; any thread.
 */
#include "base/utf8.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"

/* Returns the bytes of the sequence at s, or 0 if there is no valid one. */
static size_t sequence_length(const unsigned char *s, size_t room)
{
    unsigned char low = 0x80, high = 0xbf; /* limits of the second byte */
    size_t n;

    if (s[0] < 0x80)
        return 1;
    if (s[0] < 0xc2)
        return 0; /* a continuation, or a longer form than needed */
    if (s[0] < 0xe0) {
        n = 2;
    } else if (s[0] < 0xf0) {
        n = 3;
        if (s[0] == 0xe0)
            low = 0xa0;
        else if (s[0] == 0xed)
            high = 0x9f; /* surrogates */
    } else if (s[0] < 0xf5) {
        n = 4;
        if (s[0] == 0xf0)
            low = 0x90;
        else if (s[0] == 0xf4)
            high = 0x8f;
    } else {
        return 0;
    }
    if (n > room || s[1] < low || s[1] > high)
        return 0;
    for (size_t i = 2; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    }
    return n;
}

size_t utf8_sequence(const char *s, size_t room)
{
    return room ? sequence_length((const unsigned char *)s, room) : 0;
}

bool utf8_is_valid(const char *s, size_t length)
{
    const unsigned char *at = (const unsigned char *)s;
    const unsigned char *end = at + length;

    while (at < end) {
        uint64_t word;
        while (end - at >= 8 && (memcpy(&word, at, 8), (word & 0x8080808080808080u) == 0))
            at += 8;
        while (at < end && *at < 0x80)
            at++;
        if (at == end)
            break;
        size_t n = sequence_length(at, (size_t)(end - at));
        if (n == 0)
            return false;
        at += n;
    }
    return true;
}

size_t utf8_encode(uint32_t c, char ret_bytes[4])
{
    if (c < 0x80) {
        ret_bytes[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        ret_bytes[0] = (char)(0xc0 | (c >> 6));
        ret_bytes[1] = (char)(0x80 | (c & 0x3f));
        return 2;
    }
    if (c < 0x10000) {
        if (c >= 0xd800 && c < 0xe000)
            return 0;
        ret_bytes[0] = (char)(0xe0 | (c >> 12));
        ret_bytes[1] = (char)(0x80 | ((c >> 6) & 0x3f));
        ret_bytes[2] = (char)(0x80 | (c & 0x3f));
        return 3;
    }
    if (c < 0x110000) {
        ret_bytes[0] = (char)(0xf0 | (c >> 18));
        ret_bytes[1] = (char)(0x80 | ((c >> 12) & 0x3f));
        ret_bytes[2] = (char)(0x80 | ((c >> 6) & 0x3f));
        ret_bytes[3] = (char)(0x80 | (c & 0x3f));
        return 4;
    }
    return 0;
}

char *utf8_printable(const char *s)
{
    static const char hex[16] = "0123456789ABCDEF";
    size_t left = strlen(s);
    char *copy = mem_alloc(4 * left + 1), *at = copy;
    while (left) {
        size_t n = utf8_sequence(s, left);
        if (n) {
            at = mempcpy(at, s, n);
        } else {
            n = 1;
            at = mempcpy(at, (char[]){'\\', 'x', hex[(*s & 0xff) >> 4], hex[*s & 15]}, 4);
        }
        s += n;
        left -= n;
    }
    *at = '\0';
    return copy;
}

size_t utf8_mark_cut(char *text, size_t kept, size_t whole)
{
    size_t n = kept;
    while (n > 0 && kept - n < 3 && ((unsigned char)text[n - 1] & 0xc0) == 0x80)
        n--; /* behind the first byte of the last character */
    if (n > 0 && (unsigned char)text[n - 1] >= 0xc0) {
        unsigned char first = (unsigned char)text[n - 1];
        size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
        n = n - 1 + length <= kept ? kept : n - 1;
    } else {
        n = kept; /* ASCII, or bytes that belong to no character */
    }
    return n + (size_t)snprintf(text + n, UTF8_CUT_BYTES, "…(%zu bytes)", whole);
}
