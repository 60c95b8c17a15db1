/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading Content-Encoding and Accept-Encoding. The meaning is the reference's (reference/features
 * §1.2); blanks and letter case do not matter here, as RFC 9110 says. No state; any thread.
 */
#include "frontends/http/coding.h"

#include <stdint.h>

#include "base/compiler.h"

static enum http_coding coding_named(struct span name)
{
    if (span_is(name, "gzip"))
        return CODING_GZIP;
    if (span_is(name, "deflate"))
        return CODING_DEFLATE;
    return span_is(name, "identity") ? CODING_IDENTITY : CODING_UNKNOWN;
}

enum http_coding coding_of_body(struct span content_encoding)
{
    if (!content_encoding.at || content_encoding.length == 0)
        return CODING_IDENTITY;
    return coding_named(content_encoding);
}

/* Reads a weight as a whole number of millionths; 0: it is no number, or none above 0. */
static uint64_t read_weight(struct span text)
{
    enum { MILLION = 1000000, MOST = 1000000 };
    const char *at = text.at, *end = at + text.length;
    uint64_t weight = 0, unit = MILLION;
    if (at < end && *at == '+')
        at++;
    for (; at < end && *at >= '0' && *at <= '9'; at++)
        weight = MIN(weight * 10 + (uint64_t)(*at - '0'), (uint64_t)MOST);
    weight *= MILLION;
    if (at < end && *at == '.') {
        for (at++; at < end && *at >= '0' && *at <= '9'; at++) {
            unit /= 10;
            weight += unit * (uint64_t)(*at - '0');
        }
    }
    return weight;
}

/* The weight of an item such as "gzip;q=0.5", without its name. */
static uint64_t weight_of(struct span parameters)
{
    enum { MILLION = 1000000 };
    uint64_t weight = MILLION;
    while (parameters.length > 0) {
        struct span value = span_next_item(&parameters, ';');
        if (span_is(span_next_item(&value, '='), "q"))
            weight = read_weight(span_next_item(&value, '='));
    }
    return weight;
}

enum http_coding coding_of_reply(struct span accept_encoding)
{
    enum http_coding best = CODING_IDENTITY;
    uint64_t most = 0;
    while (accept_encoding.length > 0) {
        struct span item = span_next_item(&accept_encoding, ',');
        enum http_coding coding = coding_named(span_next_item(&item, ';'));
        uint64_t weight = coding == CODING_UNKNOWN ? 0 : weight_of(item);
        if (weight > most) {
            most = weight;
            best = coding;
        }
    }
    return best;
}

enum compress_format coding_format(enum http_coding coding)
{
    return coding == CODING_GZIP ? COMPRESS_GZIP : COMPRESS_ZLIB;
}

struct span coding_header(enum http_coding coding)
{
    static const char gzip[] = "Content-Encoding: gzip\r\n";
    static const char deflate[] = "Content-Encoding: deflate\r\n";
    return coding == CODING_GZIP ? (struct span){gzip, sizeof(gzip) - 1}
                                 : (struct span){deflate, sizeof(deflate) - 1};
}
