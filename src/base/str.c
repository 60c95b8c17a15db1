/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Letters and digits are those of ASCII, whatever the locale. No function allocates or keeps
 * state; any thread.
 */
#include "base/str.h"

#include <string.h>

bool str_to_uint64(const char *s, size_t length, uint64_t *ret_value)
{
    uint64_t value = 0;
    if (length == 0)
        return false;
    for (size_t i = 0; i < length; i++) {
        if (s[i] < '0' || s[i] > '9')
            return false;
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(s[i] - '0'), &value))
            return false;
    }
    *ret_value = value;
    return true;
}

bool str_to_int64(const char *s, size_t length, int64_t *ret_value)
{
    uint64_t magnitude;
    bool negative = length > 0 && s[0] == '-';
    if (!str_to_uint64(s + negative, length - negative, &magnitude))
        return false;
    if (magnitude > (uint64_t)INT64_MAX + negative)
        return false;
    *ret_value = (int64_t)(negative ? 0 - magnitude : magnitude);
    return true;
}

bool str_to_bool(const char *s, bool *ret_value)
{
    static const char *const words[] = {"false", "off", "0", "true", "on", "1"};
    for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
        if (str_equal_nocase_n(s, strlen(s), words[i], strlen(words[i]))) {
            *ret_value = i >= ARRAY_SIZE(words) / 2;
            return true;
        }
    }
    return false;
}

bool str_is_identifier(const char *s, char also)
{
    for (const char *p = s; *p; p++) {
        bool letter = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || *p == '_';
        bool digit = *p >= '0' && *p <= '9' && p > s;
        if (!letter && !digit && *p != also)
            return false;
    }
    return s[0] != '\0';
}

static char to_lower_case(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c + ('a' - 'A')) : c;
}

bool str_equal_nocase_n(const char *a, size_t a_length, const char *b, size_t b_length)
{
    if (a_length != b_length)
        return false;
    for (size_t i = 0; i < a_length; i++) {
        if (to_lower_case(a[i]) != to_lower_case(b[i]))
            return false;
    }
    return true;
}

size_t str_edit_distance(const char *a, const char *b)
{
    size_t a_length = strlen(a), b_length = strlen(b);
    if (a_length > STR_EDIT_MAX || b_length > STR_EDIT_MAX)
        return SIZE_MAX;

    /* rows[i % 3][k]: the distance of the first i letters of a and the first k of b. */
    size_t rows[3][STR_EDIT_MAX + 1];
    for (size_t k = 0; k <= b_length; k++)
        rows[0][k] = k;
    for (size_t i = 1; i <= a_length; i++) {
        size_t *row = rows[i % 3], *above = rows[(i + 2) % 3], *two_above = rows[(i + 1) % 3];
        row[0] = i;
        for (size_t k = 1; k <= b_length; k++) {
            size_t least = above[k - 1] + (a[i - 1] != b[k - 1]);
            least = MIN(least, above[k] + 1);
            least = MIN(least, row[k - 1] + 1);
            if (i > 1 && k > 1 && a[i - 1] == b[k - 2] && a[i - 2] == b[k - 1])
                least = MIN(least, two_above[k - 2] + 1);
            row[k] = least;
        }
    }
    return rows[a_length % 3][b_length];
}

bool str_nearer(const char *name, const char *candidate, size_t *least)
{
    size_t distance = str_edit_distance(name, candidate);
    size_t shorter = MIN(strlen(name), strlen(candidate));
    if (distance >= *least || distance >= shorter || distance > MAX((size_t)1, shorter / 3))
        return false; /* a name of one letter is near only itself */
    *least = distance;
    return true;
}

bool str_escapes_folder(const char *path)
{
    if (path[0] == '/')
        return true;
    for (const char *p = path; p; p = strchr(p, '/')) {
        p += *p == '/';
        if (p[0] == '.' && p[1] == '.' && (p[2] == '/' || p[2] == '\0'))
            return true;
    }
    return false;
}
