/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Both forms end in the same number, which the reference parses by stoi(). No state; any thread.
 */
#include "frontends/http/header_length.h"

#include <string.h>

enum header_length header_length_parse(struct span text, int64_t *ret_length)
{
    size_t i = 0;
    while (i < text.length && (text.at[i] == ' ' || (text.at[i] >= '\t' && text.at[i] <= '\r')))
        i++;
    bool negative = i < text.length && text.at[i] == '-';
    if (i < text.length && (text.at[i] == '-' || text.at[i] == '+'))
        i++;
    if (i == text.length || text.at[i] < '0' || text.at[i] > '9')
        return HEADER_LENGTH_BAD;
    int64_t n = 0;
    for (; i < text.length && text.at[i] >= '0' && text.at[i] <= '9' && n <= -(int64_t)INT32_MIN;
         i++)
        n = n * 10 + (text.at[i] - '0');
    if (negative)
        n = -n;
    if (n > INT32_MAX || n < INT32_MIN)
        return HEADER_LENGTH_RANGE;
    *ret_length = n;
    return HEADER_LENGTH_FINE;
}

enum header_length header_length_of_type(struct span type, const char *binary_type,
                                         struct span *ret_text, int64_t *ret_length)
{
    size_t n = strlen(binary_type);
    const char *found = type.at ? memmem(type.at, type.length, binary_type, n) : NULL;
    if (!found)
        return HEADER_LENGTH_NONE;
    if (found != type.at) {
        *ret_text = type;
        return HEADER_LENGTH_MISPLACED;
    }
    *ret_text = (struct span){type.at + n, type.length - n};
    return header_length_parse(*ret_text, ret_length);
}
