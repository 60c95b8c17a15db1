/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A text may mix both alphabets. Bits of the last digit that belong to no byte are ignored. No
 * state; any thread.
 */
#include "base/base64.h"

/* Returns the value of a digit; -1: not a digit. */
static int value_of_digit(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    if (c == '+' || c == '-')
        return 62;
    return c == '/' || c == '_' ? 63 : -1;
}

bool base64_decode(const char *text, size_t length, uint8_t *out, size_t *ret_size)
{
    size_t n = 0;
    uint32_t group = 0;
    while (length && text[length - 1] == '=')
        length--;
    if (length % 4 == 1)
        return false;
    for (size_t i = 0; i < length; i++) {
        int value = value_of_digit(text[i]);
        if (value < 0)
            return false;
        group = group << 6 | (uint32_t)value;
        if (i % 4)
            out[n++] = (uint8_t)(group >> (6 - 2 * (i % 4)));
    }
    *ret_size = n;
    return true;
}
