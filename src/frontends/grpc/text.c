/* SPDX-License-Identifier: Apache-2.0 */
/* The texts of gRPC's headers and trailers. No state; any thread. */
#include "frontends/grpc/text.h"

#include <string.h>

#include "base/clock.h"

static const struct {
    unsigned int encoding;
    const char *name;
} encodings[] = {
    {GRPC_IDENTITY, "identity"},
    {GRPC_DEFLATE, "deflate"},
    {GRPC_GZIP, "gzip"},
};

const char *grpc_encoding_name(enum grpc_encoding encoding)
{
    for (size_t i = 0; i < ARRAY_SIZE(encodings); i++) {
        if (encodings[i].encoding == (unsigned int)encoding)
            return encodings[i].name;
    }
    return encodings[0].name;
}

static bool is_text(struct span s, const char *text)
{
    return s.length == strlen(text) && memcmp(s.at, text, s.length) == 0;
}

unsigned int grpc_encoding_of(struct span name)
{
    for (size_t i = 0; i < ARRAY_SIZE(encodings); i++) {
        if (is_text(name, encodings[i].name))
            return encodings[i].encoding;
    }
    return 0;
}

unsigned int grpc_accepted_encodings(struct span list)
{
    unsigned int set = GRPC_IDENTITY;
    size_t at = 0;
    while (at < list.length) {
        while (at < list.length && (list.at[at] == ',' || list.at[at] == ' '))
            at++;
        size_t from = at;
        while (at < list.length && list.at[at] != ',' && list.at[at] != ' ')
            at++;
        set |= grpc_encoding_of((struct span){list.at + from, at - from});
    }
    return set;
}

bool grpc_is_content_type(struct span value)
{
    static const char type[] = "application/grpc";
    size_t length = sizeof(type) - 1;
    if (value.length < length || memcmp(value.at, type, length) != 0)
        return false;
    return value.length == length || value.at[length] == '+' || value.at[length] == ';';
}

bool grpc_is_metadata(struct span name)
{
    static const char prefix[] = "grpc-";
    if (name.length >= sizeof(prefix) - 1 && memcmp(name.at, prefix, sizeof(prefix) - 1) == 0)
        return false;
    return !span_is(name, "te") && !span_is(name, "content-type");
}

/* Finds the nanoseconds of a unit; 0: there is no such unit. */
static uint64_t find_unit_ns(char unit)
{
    static const struct {
        char unit;
        uint64_t ns;
    } units[] = {
        {'H', 3600 * NS_PER_S}, {'M', 60 * NS_PER_S},      {'S', NS_PER_S},
        {'m', NS_PER_S / 1000}, {'u', NS_PER_S / 1000000}, {'n', 1},
    };
    for (size_t i = 0; i < ARRAY_SIZE(units); i++) {
        if (units[i].unit == unit)
            return units[i].ns;
    }
    return 0;
}

static const char *skip_spaces(const char *at, const char *end)
{
    while (at < end && *at == ' ')
        at++;
    return at;
}

bool grpc_parse_timeout(struct span value, uint64_t *ret_ns)
{
    const uint64_t most = 1000 * 1000 * 1000;
    const char *end = value.at + value.length, *digits = skip_spaces(value.at, end), *at = digits;
    uint64_t n = 0, timeout_ns;
    for (; at < end && *at >= '0' && *at <= '9'; at++) {
        n = 10 * n + (uint64_t)(*at - '0');
        if (n > most) { /* whatever follows */
            *ret_ns = UINT64_MAX;
            return true;
        }
    }
    if (at == digits)
        return false;
    at = skip_spaces(at, end);
    uint64_t unit_ns = at < end ? find_unit_ns(*at++) : 0;
    if (unit_ns == 0 || skip_spaces(at, end) != end)
        return false;
    if (__builtin_mul_overflow(n, unit_ns, &timeout_ns))
        timeout_ns = UINT64_MAX;
    *ret_ns = timeout_ns;
    return true;
}

size_t grpc_encode_message(const char *text, size_t length, char *out)
{
    static const char hex[] = "0123456789ABCDEF";
    char *at = out;
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c >= ' ' && c <= '~' && c != '%') {
            *at++ = (char)c;
            continue;
        }
        *at++ = '%';
        *at++ = hex[c >> 4];
        *at++ = hex[c & 15];
    }
    return (size_t)(at - out);
}
