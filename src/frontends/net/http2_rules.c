/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rules of HTTP for the heads of requests (RFC 9113, 8.2 and 8.3): characters, pseudo headers,
 * headers of connections. nghttp2 could check them itself, but would check each head, and costs
 * 2 400 instructions for each. Here a head is checked once, and not again when the client repeats
 * it (struct head_memo). Threads: no state.
 */
#include <string.h>

#include "frontends/net/http2_priv.h"

enum pseudo { METHOD = 1, SCHEME = 2, AUTHORITY = 4, PATH = 8, HOST = 16 };

static bool is_exactly(struct span s, const char *text)
{
    return s.length == strlen(text) && memcmp(s.at, text, s.length) == 0;
}

static const uint8_t *get_bytes(struct span s)
{
    return (const uint8_t *)s.at;
}

/* Finds what the header is; 0: an ordinary one. Host counts as a pseudo header that comes late. */
static unsigned int find_header_kind(struct span name)
{
    static const struct {
        const char *name;
        unsigned int kind;
    } kinds[] = {{":method", METHOD},
                 {":scheme", SCHEME},
                 {":authority", AUTHORITY},
                 {":path", PATH},
                 {"host", HOST}};
    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
        if (is_exactly(name, kinds[i].name))
            return kinds[i].kind;
    }
    return 0;
}

/* Whether the header is one of a connection, which HTTP/2 does not have. */
static bool is_of_connection(struct span name, struct span value)
{
    static const char *const names[] = {"connection", "keep-alive", "proxy-connection",
                                        "transfer-encoding", "upgrade"};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        if (is_exactly(name, names[i]))
            return true;
    }
    return is_exactly(name, "te") && !span_is(value, "trailers");
}

static bool is_scheme(struct span s)
{
    for (size_t i = 0; i < s.length; i++) {
        char c = s.at[i];
        bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (!is_letter && (i == 0 || !((c >= '0' && c <= '9') || strchr("+-.", c))))
            return false;
    }
    return s.length > 0;
}

static bool has_fine_value(unsigned int kind, struct span value)
{
    const uint8_t *at = get_bytes(value);
    switch (kind) {
    case METHOD:
        return nghttp2_check_method(at, value.length);
    case SCHEME:
        return is_scheme(value);
    case PATH:
        return nghttp2_check_path(at, value.length);
    case AUTHORITY:
    case HOST:
        return nghttp2_check_authority(at, value.length);
    default:
        return nghttp2_check_header_value_rfc9113(at, value.length);
    }
}

/* Notes a header of one of the kinds, which may come once and must not be empty. */
static bool note_kind(struct head_rules *r, unsigned int kind, struct span value)
{
    if (r->pseudo & kind || value.length == 0)
        return false;
    r->pseudo |= kind;
    if (kind == METHOD) {
        r->is_options = is_exactly(value, "OPTIONS");
        r->is_connect = is_exactly(value, "CONNECT");
    } else if (kind == SCHEME) {
        r->is_web = span_is(value, "http") || span_is(value, "https");
    } else if (kind == PATH) {
        r->is_asterisk = is_exactly(value, "*");
        r->is_odd_path = !r->is_asterisk && value.at[0] != '/';
    }
    return true;
}

static bool note_length(struct head_rules *r, struct span value)
{
    int64_t n = 0;
    bool is_fine = !r->has_length && value.length > 0;
    for (size_t i = 0; i < value.length && is_fine; i++) {
        is_fine = value.at[i] >= '0' && value.at[i] <= '9' &&
                  !__builtin_mul_overflow(n, (int64_t)10, &n) &&
                  !__builtin_add_overflow(n, (int64_t)(value.at[i] - '0'), &n);
    }
    r->has_length = true;
    r->length = n;
    return is_fine;
}

bool head_rules_add(struct head_rules *r, struct span name, struct span value, bool in_trailers)
{
    bool is_pseudo = name.length > 0 && name.at[0] == ':';
    unsigned int kind = find_header_kind(name);
    if (!nghttp2_check_header_name(get_bytes(name), name.length))
        return false;
    if (is_pseudo && (in_trailers || r->is_regular || kind == 0))
        return false;
    r->is_regular |= !is_pseudo;
    if (!has_fine_value(kind, value) || is_of_connection(name, value))
        return false;
    if (kind && !note_kind(r, kind, value))
        return false;
    return !is_exactly(name, "content-length") || note_length(r, value);
}

bool head_rules_end(const struct head_rules *r)
{
    if (r->is_connect)
        return !(r->pseudo & (SCHEME | PATH)) && r->pseudo & AUTHORITY;
    unsigned int needed = METHOD | SCHEME | PATH;
    if ((r->pseudo & needed) != needed || !(r->pseudo & (AUTHORITY | HOST)))
        return false;
    return !r->is_web || !(r->is_odd_path || (r->is_asterisk && !r->is_options));
}
