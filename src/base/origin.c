/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The syntax of origins. No state. The program compiles this file, too, to check its option before
 * it starts the server.
 */
#include "base/origin.h"

#include <stdbool.h>
#include <string.h>

static bool is_lower_letter(char c)
{
    return c >= 'a' && c <= 'z';
}

static bool is_decimal_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* The number of bytes at `at` that are lower-case letters, digits or in `others`. */
static size_t count_name_bytes(const char *at, const char *end, const char *others)
{
    const char *from = at;
    while (at < end && *at &&
           (is_lower_letter(*at) || is_decimal_digit(*at) || strchr(others, *at)))
        at++;
    return (size_t)(at - from);
}

/* The length of a host: a name, an IPv4 address, or an IPv6 address in brackets; 0: there is none.
 */
static size_t measure_host(const char *at, const char *end)
{
    if (at == end || *at != '[')
        return count_name_bytes(at, end, ".-_");
    size_t n = count_name_bytes(at + 1, end, ":.");
    return n > 0 && at + 1 + n < end && at[1 + n] == ']' ? n + 2 : 0;
}

/* Checks what follows the colon. */
static const char *check_origin_port(const char *at, const char *end, bool is_http, bool is_https)
{
    unsigned int port = 0;
    bool is_number = at < end && *at != '0' && end - at <= 5;
    for (; at < end; at++) {
        is_number &= is_decimal_digit(*at);
        port = is_number ? port * 10 + (unsigned int)(*at - '0') : 0;
    }
    if (!is_number || port > 65535)
        return "a port is a number from 1 to 65535, with nothing behind it";
    if ((is_http && port == 80) || (is_https && port == 443))
        return "browsers leave out the default port: 80 of http, 443 of https";
    return NULL;
}

static bool has_upper_letter(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        if (text[i] >= 'A' && text[i] <= 'Z')
            return true;
    }
    return false;
}

static bool equals_literal(const char *text, size_t length, const char *literal)
{
    return length == strlen(literal) && memcmp(text, literal, length) == 0;
}

const char *origin_check(const char *text, size_t length)
{
    const char *end = text + length, *colon = memchr(text, ':', length);
    if (length == 0)
        return "an origin is missing";
    if (length > ORIGIN_MAX_BYTES)
        return "an origin has 512 bytes at most";
    if (equals_literal(text, length, "*"))
        return "'*' stands for all origins, and stands alone";
    if (equals_literal(text, length, "null"))
        return "sandboxed pages and local files all send 'null', whoever made them";
    if (has_upper_letter(text, length))
        return "browsers write origins in lower case";
    if (!colon || end - colon < 3 || memcmp(colon, "://", 3) != 0 || !is_lower_letter(*text) ||
        count_name_bytes(text, colon, "+.-") != (size_t)(colon - text))
        return "the scheme is missing, as in https://example.com";

    const char *host = colon + 3, *rest = host + measure_host(host, end);
    if (rest == host)
        return "the host is missing, as in https://example.com";
    if (rest == end)
        return NULL;
    if (*rest == '/' || *rest == '?' || *rest == '#')
        return "an origin ends with its host or its port, without a '/'";
    if (*rest != ':')
        return "a host has letters, digits, '.', '-' and '_'; browsers write others as xn--…";
    size_t n_scheme = (size_t)(colon - text);
    return check_origin_port(rest + 1, end, equals_literal(text, n_scheme, "http"),
                             equals_literal(text, n_scheme, "https"));
}

const char *origin_list_check(const char *list, const char **ret_item, size_t *ret_length)
{
    if (!*list || strcmp(list, "*") == 0)
        return NULL;
    size_t n_items = 0;
    for (const char *item = list;; item++) {
        size_t length = strcspn(item, ",");
        const char *wrong = n_items++ == ORIGIN_LIST_MAX ? "a list has 255 origins at most"
                                                         : origin_check(item, length);
        if (wrong) {
            *ret_item = item;
            *ret_length = length;
            return wrong;
        }
        item += length;
        if (!*item)
            return NULL;
    }
}
