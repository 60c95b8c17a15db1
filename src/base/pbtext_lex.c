/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tokens of the text format, cut as by protobuf's own tokenizer. A token refers to the input; a
 * string is checked here and decoded by the parser.
 */
#include "base/pbtext_priv.h"

#include <string.h>

#include "base/buf.h"
#include "base/utf8.h"

enum { TAB_WIDTH = 8 };

static const char beyond_ascii[] = "Characters beyond ASCII may stand in strings and comments only";

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_octal(char c)
{
    return c >= '0' && c <= '7';
}

static bool is_hex(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static uint32_t hex_value(char c)
{
    return (uint32_t)(is_digit(c) ? c - '0' : (c | 0x20) - 'a' + 10);
}

/* Returns the byte at `at`, or NUL at the end: no rule below accepts a NUL. */
static char peek_char(const struct lexer *l)
{
    return l->at < l->end ? *l->at : '\0';
}

static bool take_char(struct lexer *l, char c)
{
    if (peek_char(l) != c || l->at == l->end)
        return false;
    l->at++;
    return true;
}

static size_t column_of(const struct lexer *l, const char *at)
{
    return l->anchor_column + (size_t)(at - l->anchor);
}

static void mark_tab(struct lexer *l)
{
    size_t column = column_of(l, l->at);
    l->anchor_column = column + TAB_WIDTH - column % TAB_WIDTH;
    l->anchor = l->at + 1;
}

/* A position inside the token is wrong: the token moves there, so that the error names it. */
static void complain_here(struct lexer *l, const char *complaint)
{
    l->complaint = complaint;
    l->token.type = TOKEN_BAD;
    l->token.text = l->at;
    l->token.length = 0;
    l->token.line = l->line;
    l->token.column = (uint32_t)column_of(l, l->at) + 1;
}

void lexer_init(struct lexer *l, const char *text, size_t length)
{
    *l = (struct lexer){.at = text, .end = text + length, .anchor = text, .line = 1};
    if (length >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0)
        l->at += 3; /* a byte order mark; its bytes count as columns, as protobuf has it */
    lexer_next(l);
}

static void skip_blanks_and_comments(struct lexer *l)
{
    for (; l->at < l->end; l->at++) {
        switch (*l->at) {
        case '\n':
            l->line++;
            l->anchor = l->at + 1;
            l->anchor_column = 0;
            break;
        case '\t':
            mark_tab(l);
            break;
        case ' ':
        case '\r':
        case '\v':
        case '\f':
            break;
        case '#': {
            const char *line_end = memchr(l->at, '\n', (size_t)(l->end - l->at));
            l->at = (line_end ? line_end : l->end) - 1;
            break;
        }
        default:
            return;
        }
    }
}

static void skip_digits(struct lexer *l)
{
    while (is_digit(peek_char(l)))
        l->at++;
}

static void lex_number(struct lexer *l)
{
    bool leading_dot = *l->at == '.';
    bool leading_zero = *l->at == '0';
    bool decimal = false;
    l->token.type = TOKEN_INTEGER;
    l->at++;

    if (leading_zero && (take_char(l, 'x') || take_char(l, 'X'))) {
        if (!is_hex(peek_char(l))) {
            complain_here(l, "\"0x\" must be followed by hex digits");
            return;
        }
        while (is_hex(peek_char(l)))
            l->at++;
    } else if (leading_zero && is_digit(peek_char(l))) {
        while (is_octal(peek_char(l)))
            l->at++;
        if (is_digit(peek_char(l))) {
            complain_here(l, "Numbers starting with leading zero must be in octal");
            return;
        }
    } else {
        decimal = true;
        skip_digits(l);
        if (leading_dot || take_char(l, '.')) {
            l->token.type = TOKEN_FLOAT;
            skip_digits(l);
        }
        if (take_char(l, 'e') || take_char(l, 'E')) {
            l->token.type = TOKEN_FLOAT;
            if (!take_char(l, '-'))
                take_char(l, '+');
            if (!is_digit(peek_char(l))) {
                complain_here(l, "\"e\" must be followed by exponent");
                return;
            }
            skip_digits(l);
        }
        if (take_char(l, 'f') || take_char(l, 'F'))
            l->token.type = TOKEN_FLOAT;
    }

    if (is_letter(peek_char(l)))
        complain_here(l, "Need space between number and identifier");
    else if (peek_char(l) == '.')
        complain_here(l, decimal ? "Already saw decimal point or exponent; can't have another one"
                                 : "Hex and octal numbers must be integers");
}

static bool take_hex(struct lexer *l, int n)
{
    for (int i = 0; i < n; i++) {
        if (!is_hex(peek_char(l)))
            return false;
        l->at++;
    }
    return true;
}

/* Reads an escape after its backslash. False if there was a complaint. */
static bool lex_escape(struct lexer *l)
{
    char c = peek_char(l);
    if (is_octal(c) || (c && strchr("abfnrtv\\?'\"", c))) {
        l->at++;
        return true;
    }
    if (take_char(l, 'x')) {
        if (!is_hex(peek_char(l))) {
            complain_here(l, "Expected hex digits for escape sequence");
            return false;
        }
        return true;
    }
    if (take_char(l, 'u')) {
        if (!take_hex(l, 4)) {
            complain_here(l, "Expected four hex digits for \\u escape sequence");
            return false;
        }
        return true;
    }
    if (take_char(l, 'U')) {
        /* Eight digits, but code points end at 10ffff. */
        if (!take_char(l, '0') || !take_char(l, '0') || !(take_char(l, '0') || take_char(l, '1')) ||
            !take_hex(l, 5)) {
            complain_here(l, "Expected eight hex digits up to 10ffff for \\U escape sequence");
            return false;
        }
        return true;
    }
    complain_here(l, "Invalid escape sequence in string literal");
    return false;
}

static void lex_string(struct lexer *l)
{
    char quote = *l->at++;
    l->token.type = TOKEN_STRING;

    while (l->at < l->end) {
        char c = *l->at;
        if (c == quote) {
            l->at++;
            return;
        }
        if (c == '\n') {
            complain_here(l, "String literals cannot cross line boundaries");
            return;
        }
        if (c == '\t')
            mark_tab(l);
        l->at++;
        if (c == '\\' && !lex_escape(l))
            return;
    }
    complain_here(l, "Unexpected end of string");
}

void lexer_next(struct lexer *l)
{
    skip_blanks_and_comments(l);

    struct token *t = &l->token;
    t->text = l->at;
    t->line = l->line;
    t->column = (uint32_t)column_of(l, l->at) + 1;
    t->length = 0;
    if (l->at == l->end) {
        t->type = TOKEN_END;
        return;
    }

    unsigned char c = (unsigned char)*l->at;
    if (is_letter((char)c)) {
        t->type = TOKEN_IDENTIFIER;
        while (is_letter(peek_char(l)) || is_digit(peek_char(l)))
            l->at++;
        if ((unsigned char)peek_char(l) >= 0x80)
            complain_here(l, beyond_ascii); /* rather than only its first half */
    } else if (is_digit((char)c) || (c == '.' && l->at + 1 < l->end && is_digit(l->at[1]))) {
        lex_number(l);
    } else if (c == '"' || c == '\'') {
        lex_string(l);
    } else if (c < ' ' || c == 0x7f) {
        complain_here(l, "Invalid control characters encountered in text");
    } else if (c >= 0x80) {
        complain_here(l, beyond_ascii);
    } else {
        t->type = TOKEN_SYMBOL;
        l->at++;
    }
    if (t->type != TOKEN_BAD)
        t->length = (size_t)(l->at - t->text);
}

static uint32_t read_hex(const char **at, int n)
{
    uint32_t value = 0;
    for (int i = 0; i < n; i++)
        value = value << 4 | hex_value(*(*at)++);
    return value;
}

/* Decodes \uXXXX and \UXXXXXXXX; two halves of a surrogate pair make one code point. */
static const char *decode_code_point(const char *at, const char *end, struct buf *out)
{
    uint32_t code = read_hex(&at, at[-1] == 'u' ? 4 : 8);
    if (code >= 0xd800 && code < 0xdc00 && end - at >= 6 && at[0] == '\\' && at[1] == 'u') {
        const char *low_at = at + 2;
        uint32_t low = read_hex(&low_at, 4);
        if (low >= 0xdc00 && low < 0xe000) {
            code = 0x10000 + ((code - 0xd800) << 10 | (low - 0xdc00));
            at = low_at;
        }
    }
    char bytes[4];
    size_t n = utf8_encode(code, bytes);
    if (n)
        buf_add(out, bytes, n);
    else
        buf_add(out, "\xff", 1); /* half a pair is invalid UTF-8, which a later check reports */
    return at;
}

static const char *decode_escape(const char *at, const char *end, struct buf *out)
{
    static const char plain[] = "abfnrtv", meant[] = "\a\b\f\n\r\t\v";
    char c = *at++;

    if (is_octal(c)) {
        unsigned value = hex_value(c);
        for (int i = 1; i < 3 && at < end && is_octal(*at); i++)
            value = value * 8 + hex_value(*at++);
        buf_addc(out, (char)value);
    } else if (c == 'x') {
        unsigned value = hex_value(*at++);
        if (at < end && is_hex(*at))
            value = value << 4 | hex_value(*at++);
        buf_addc(out, (char)value);
    } else if (c == 'u' || c == 'U') {
        return decode_code_point(at, end, out);
    } else {
        const char *found = strchr(plain, c);
        buf_addc(out, found ? meant[found - plain] : c);
    }
    return at;
}

void lexer_decode(const struct token *t, struct buf *out)
{
    const char *at = t->text + 1, *end = t->text + t->length - 1;
    while (at < end) {
        const char *backslash = memchr(at, '\\', (size_t)(end - at));
        const char *stop = backslash ? backslash : end;
        buf_add(out, at, (size_t)(stop - at));
        at = backslash ? decode_escape(backslash + 1, end, out) : end;
    }
}
