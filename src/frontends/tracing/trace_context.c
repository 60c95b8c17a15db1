/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ids come from a generator in each thread (xoshiro256**, seeded by the system), since a system
 * call for each trace would cost more than the rest of it. They need not be hard to guess.
 */
#include "frontends/tracing/trace_context.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "base/str.h"

/* ---- Headers -------------------------------------------------------------------------------- */

static int read_id_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 32;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Reads 2 * n_bytes digits. */
static bool read_hex_id(const char *text, uint8_t *bytes, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i++) {
        int high = read_id_digit(text[2 * i]), low = read_id_digit(text[2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        bytes[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

static bool is_all_zero(const uint8_t *bytes, size_t n_bytes)
{
    uint8_t all = 0;
    for (size_t i = 0; i < n_bytes; i++)
        all |= bytes[i];
    return all == 0;
}

/* The parts of "00-<trace id>-<span id>-<flags>". A later version may have more behind them. */
enum { VERSION_AT = 0, TRACE_AT = 3, SPAN_AT = 36, FLAGS_AT = 53, PARENT_LENGTH = 55 };

void trace_parent_read(struct trace_parent *p, const char *text, size_t length)
{
    uint8_t version, flags;
    struct span_name span;
    p->has_span = false;
    if (length < PARENT_LENGTH || text[TRACE_AT - 1] != '-' || text[SPAN_AT - 1] != '-' ||
        text[FLAGS_AT - 1] != '-')
        return;
    if (!read_hex_id(text + VERSION_AT, &version, 1) || version == 0xff ||
        !read_hex_id(text + TRACE_AT, span.trace_id, TRACE_ID_BYTES) ||
        !read_hex_id(text + SPAN_AT, span.span_id, SPAN_ID_BYTES) ||
        !read_hex_id(text + FLAGS_AT, &flags, 1))
        return;
    if (length > PARENT_LENGTH && (version == 0 || text[PARENT_LENGTH] != '-'))
        return;
    if (is_all_zero(span.trace_id, TRACE_ID_BYTES) || is_all_zero(span.span_id, SPAN_ID_BYTES))
        return;
    p->span = span;
    p->has_span = true;
}

static bool is_key_character(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || strchr("_-*/@", c);
}

/* key=value: W3C's characters; neither side is empty. */
static bool is_state_member(const char *text, size_t length)
{
    size_t i = 0;
    while (i < length && text[i] && is_key_character(text[i]))
        i++;
    if (i == 0 || i > 256 || i + 1 >= length || text[i] != '=')
        return false;
    for (i++; i < length; i++) {
        if (text[i] < ' ' || text[i] > '~' || text[i] == '=')
            return false;
    }
    return true;
}

static void add_state_member(struct trace_parent *p, const char *text, size_t length)
{
    size_t comma = p->state_length > 0;
    if (!is_state_member(text, length) || p->n_members == TRACE_STATE_MEMBERS ||
        p->state_length + comma + length > TRACE_STATE_BYTES) {
        p->is_state_bad = true;
        return;
    }
    if (comma)
        p->state[p->state_length++] = ',';
    memcpy(p->state + p->state_length, text, length);
    p->state_length = (uint16_t)(p->state_length + length);
    p->n_members++;
}

static bool is_state_blank(char c)
{
    return c == ' ' || c == '\t';
}

void trace_parent_add_state(struct trace_parent *p, const char *text, size_t length)
{
    const char *end = text + length;
    while (text < end && !p->is_state_bad) {
        const char *comma = memchr(text, ',', (size_t)(end - text)), *last = comma ? comma : end;
        const char *next = comma ? comma + 1 : end;
        while (text < last && is_state_blank(*text))
            text++;
        while (last > text && is_state_blank(last[-1]))
            last--;
        if (last > text)
            add_state_member(p, text, (size_t)(last - text));
        text = next;
    }
    if (p->is_state_bad)
        p->state_length = 0;
    p->state[p->state_length] = '\0';
}

void trace_parent_take(struct trace_parent *p, const char *name, size_t name_length,
                       const char *value, size_t length)
{
    static const char parent[] = "traceparent", state[] = "tracestate";
    if (UNLIKELY(str_equal_nocase_n(name, name_length, parent, sizeof(parent) - 1)))
        trace_parent_read(p, value, length);
    else if (UNLIKELY(str_equal_nocase_n(name, name_length, state, sizeof(state) - 1)))
        trace_parent_add_state(p, value, length);
}

/* ---- Ids ------------------------------------------------------------------------------------ */

static _Thread_local uint64_t random_state[4]; /* all zero: not seeded yet */

static uint64_t rotate_bits(uint64_t x, int by)
{
    return (x << by) | (x >> (64 - by));
}

static void seed_random(uint64_t *s)
{
    if (getrandom(s, sizeof(random_state), GRND_NONBLOCK) == sizeof(random_state) && s[0])
        return;
    /* The system has no entropy yet: ids differ by time and thread. */
    s[0] = monotonic_ns() | 1;
    s[1] = (uint64_t)(uintptr_t)s;
    s[2] = (uint64_t)time(NULL);
    s[3] = 0x9e3779b97f4a7c15;
}

/* The thread's state. It is found once for several ids, since that takes longer than an id. */
static uint64_t *find_random_state(void)
{
    uint64_t *s = random_state;
    if (UNLIKELY(!(s[0] | s[1] | s[2] | s[3])))
        seed_random(s);
    return s;
}

/* xoshiro256**, by Blackman and Vigna. */
static uint64_t next_id_bits(uint64_t *s)
{
    uint64_t result = rotate_bits(s[1] * 5, 7) * 9, t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate_bits(s[3], 45);
    return result;
}

static void make_id(uint64_t *s, uint8_t id[SPAN_ID_BYTES])
{
    uint64_t random;
    do {
        random = next_id_bits(s);
    } while (random == 0);
    memcpy(id, &random, SPAN_ID_BYTES);
}

void span_id_new(uint8_t id[SPAN_ID_BYTES])
{
    make_id(find_random_state(), id);
}

void trace_id_new(uint8_t id[TRACE_ID_BYTES])
{
    uint64_t *s = find_random_state();
    make_id(s, id);
    make_id(s, id + SPAN_ID_BYTES);
}

/* ---- The context of backends ---------------------------------------------------------------- */

char *trace_print_id(char *at, const uint8_t *id, size_t n_bytes)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < n_bytes; i++) {
        *at++ = digits[id[i] >> 4];
        *at++ = digits[id[i] & 15];
    }
    *at = '\0';
    return at;
}

/* Values may have quotes and backslashes, which JSON escapes. */
static void escape_state(const char *state, char *text, size_t size_bytes)
{
    size_t n = 0;
    for (; *state && n + 3 < size_bytes; state++) {
        if (*state == '"' || *state == '\\')
            text[n++] = '\\';
        text[n++] = *state;
    }
    text[n] = '\0';
}

void trace_context_print(const struct span_name *span, const char *state,
                         char text[TRACE_CONTEXT_BYTES])
{
    char trace[2 * TRACE_ID_BYTES + 1], id[2 * SPAN_ID_BYTES + 1],
        escaped[2 * TRACE_STATE_BYTES + 4];
    trace_print_id(trace, span->trace_id, TRACE_ID_BYTES);
    trace_print_id(id, span->span_id, SPAN_ID_BYTES);
    escape_state(state, escaped, sizeof(escaped));
    snprintf(text, TRACE_CONTEXT_BYTES, "{\"traceparent\":\"00-%s-%s-01\",\"tracestate\":\"%s\"}",
             trace, id, escaped);
}
