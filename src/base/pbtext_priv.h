/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside pbtext: the tokens of protobuf's text format.
 */
#ifndef CONCH_BASE_PBTEXT_PRIV_H
#define CONCH_BASE_PBTEXT_PRIV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

struct buf;

enum token_type {
    TOKEN_END,
    TOKEN_IDENTIFIER,
    TOKEN_INTEGER, /* decimal, octal, hexadecimal; no sign */
    TOKEN_FLOAT,
    TOKEN_STRING, /* with its quotes, not decoded */
    TOKEN_SYMBOL, /* one character */
    TOKEN_BAD,    /* lexer->complaint has the reason */
};

struct token {
    enum token_type type;
    const char *text; /* in the input */
    size_t length;
    uint32_t line, column; /* from 1; a tab goes to the next multiple of 8, as in protobuf */
};

struct lexer {
    const char *at, *end;
    /*
     * The column of the byte at `anchor`, from 0. Columns are counted from there, going forward
     * only.
     */
    const char *anchor;
    size_t anchor_column;
    uint32_t line;
    struct token token; /* the current one */
    const char *complaint;
};

void lexer_init(struct lexer *l, const char *text, size_t length);
void lexer_next(struct lexer *l);

/*
 * lexer_decode - appends the decoded bytes of a string token; lexer_next() has checked the token.
 */
void lexer_decode(const struct token *t, struct buf *out);

#endif
