/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Numbers of any form and length, read from the text: complete, not fast.
 *
 * json_number.c reads the usual numbers, and calls this file for all others: those near the end of
 * the text, with many digits or large exponents, NaN and the infinities. The errors of malformed
 * numbers are here, too. A double that no other way decides is rounded by strtod in the C locale.
 *
 * State: the locale, opened before main(). Any thread.
 */
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/json_priv.h"

/* ---- scanning ------------------------------------------------------------------------------- */

/* Reads NaN, Inf, Infinity, after the minus sign. */
static const char *scan_special(const char *p, const char *end, struct json_decimal *d)
{
    size_t left = (size_t)(end - p);
    double value;
    if (left >= 3 && memcmp(p, "NaN", 3) == 0) {
        value = (double)NAN;
        p += 3;
    } else if (left >= 3 && memcmp(p, "Inf", 3) == 0) {
        value = (double)INFINITY;
        p += 3;
        if (p < end && *p == 'i') {
            if (left < 8 || memcmp(p, "inity", 5) != 0)
                return NULL;
            p += 5;
        }
    } else {
        return NULL;
    }
    /* RapidJSON ignores the sign of NaN. */
    if (d->negative && isinf(value))
        value = -value;
    memcpy(&d->digits, &value, 8);
    d->special = true;
    d->integer = false;
    return p;
}

/* Adds the digits at p to those of d, as many as fit exactly; the others only count. */
static const char *scan_digits(const char *p, const char *end, struct json_decimal *d,
                               bool fraction)
{
    for (; p < end && json_is_digit(*p); p++) {
        unsigned digit = (unsigned)(*p - '0');
        if (d->digits < 1000000000000000000u) {
            d->digits = d->digits * 10 + digit;
            d->exponent -= fraction;
        } else {
            d->more |= digit != 0;
            d->exponent += !fraction;
        }
    }
    return p;
}

/* Reads the exponent; p is behind the letter. */
static const char *scan_exponent(const char *p, const char *end, struct json_decimal *d)
{
    bool minus = false;
    if (p < end && (*p == '+' || *p == '-'))
        minus = *p++ == '-';
    if (p == end || !json_is_digit(*p))
        return NULL;
    int64_t value = 0;
    for (; p < end && json_is_digit(*p); p++) {
        if (value < INT32_MAX) /* beyond that only the sign matters, whatever the digits */
            value = value * 10 + (*p - '0');
    }
    d->exponent += minus ? -value : value;
    d->integer = false;
    return p;
}

/* Reads any number, of any length. */
static const char *scan_slow(const char *p, const char *end, struct json_decimal *d)
{
    *d = (struct json_decimal){.integer = true};
    if (p < end && *p == '-') {
        d->negative = true;
        p++;
    }
    if (p == end)
        return NULL;
    if (!json_is_digit(*p))
        return scan_special(p, end, d);
    p = *p == '0' ? p + 1 : scan_digits(p, end, d, false);
    if (p < end && *p == '.') {
        const char *from = ++p;
        p = scan_digits(p, end, d, true);
        if (p == from)
            return NULL;
        d->integer = false;
    }
    if (p < end && (*p | 0x20) == 'e')
        return scan_exponent(p + 1, end, d);
    return p;
}

struct json_decimal json_scan_any(const char *from, const char *end, const char **ret_after)
{
    struct json_decimal d;
    *ret_after = scan_slow(from, end, &d);
    return d;
}

/* ---- rounding ------------------------------------------------------------------------------- */

/* strtod must not depend on the locale of the process that has loaded the library. */
static locale_t c_locale;

__attribute__((constructor)) static void open_locale(void)
{
    c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0); /* static in the C library: cannot fail */
}

double json_round_by_strtod(const char *p, const char *end)
{
    enum { MAX_DIGITS = 770 };
    char text[MAX_DIGITS + 32];
    size_t n = 0;
    int64_t exponent = 0;
    bool fraction = false, more = false;
    for (; p < end && (json_is_digit(*p) || *p == '.'); p++) {
        if (*p == '.') {
            fraction = true;
            continue;
        }
        if (n < MAX_DIGITS) {
            if (n || *p != '0')
                text[n++] = *p;
            exponent -= fraction;
        } else {
            more |= *p != '0';
            exponent += !fraction;
        }
    }
    if (n == 0)
        return 0;
    if (more) {
        text[n++] = '1';
        exponent--;
    }
    if (p < end) {
        struct json_decimal d = {.exponent = exponent};
        scan_exponent(p + 1, end, &d);
        exponent = d.exponent;
    }
    exponent = MAX(MIN(exponent, (int64_t)100000), (int64_t)-100000);
    snprintf(text + n, sizeof(text) - n, "e%d", (int)exponent);

    return strtod_l(text, NULL, c_locale);
}

/* ---- errors --------------------------------------------------------------------------------- */

static const char *set_number_error(const char *text, const char *at, const char **ret_text,
                                    const char **ret_at)
{
    *ret_text = text;
    *ret_at = at;
    return NULL;
}

/* Returns how far the text agrees with the word. */
static const char *match_word(const char *p, const char *end, const char *word)
{
    while (*word && p < end && *p == *word) {
        p++;
        word++;
    }
    return p;
}

const char *json_check_number(const char *from, const char *end, const char **ret_text,
                              const char **ret_at)
{
    struct json_decimal d = {0};
    double value;
    const char *p = from, *after;
    if (json_byte(p, end) == '-')
        p++;
    char c = json_byte(p, end);
    if (!json_is_digit(c)) {
        after = scan_special(p, end, &d);
        if (after)
            return after;
        const char *at = match_word(p, end, c == 'N' ? "NaN" : c == 'I' ? "Infinity" : "");
        return set_number_error(JSON_TEXT_INVALID_VALUE, at, ret_text, ret_at);
    }
    if (c == '0') {
        p++;
    } else {
        while (json_is_digit(json_byte(p, end)))
            p++;
    }
    if (json_byte(p, end) == '.') {
        p++;
        if (!json_is_digit(json_byte(p, end)))
            return set_number_error(JSON_TEXT_NO_FRACTION, p, ret_text, ret_at);
        while (json_is_digit(json_byte(p, end)))
            p++;
    }
    if ((json_byte(p, end) | 0x20) == 'e') {
        after = scan_exponent(p + 1, end, &d);
        if (!after) {
            c = json_byte(p + 1, end);
            return set_number_error(JSON_TEXT_NO_EXPONENT, p + (c == '+' || c == '-' ? 2 : 1),
                                    ret_text, ret_at);
        }
        p = after;
    }
    /* Only these can be too large; the others need no conversion. */
    if ((d.exponent > 0 || p - from > 300) && !json_parse_double(from, end, &value))
        return set_number_error(JSON_TEXT_TOO_BIG, from, ret_text, ret_at);
    return p;
}
