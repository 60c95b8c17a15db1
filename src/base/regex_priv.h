/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The program of a regular expression: regex_parse.c writes it, regex.c runs it. A thread of the
 * program is at one instruction; SPLIT makes two of one.
 */
#ifndef CONCH_BASE_REGEX_PRIV_H
#define CONCH_BASE_REGEX_PRIV_H

#include <stdint.h>

#include "base/regex.h"

enum regex_op {
    REGEX_SET,   /* the next byte is in the set */
    REGEX_SPLIT, /* goes on at `first` and at `second` */
    REGEX_JUMP,  /* goes on at `first` */
    REGEX_TEXT_BEGIN,
    REGEX_TEXT_END,
    REGEX_LINE_BEGIN,
    REGEX_LINE_END,
    REGEX_WORD_EDGE,
    REGEX_NO_WORD_EDGE,
    REGEX_MATCH,
};

enum { REGEX_SET_BYTES = 32, REGEX_MAX_PROGRAM = 1000 };

struct regex_instruction {
    enum regex_op op;
    int first, second;            /* relative to this instruction, so that code can be copied */
    uint8_t set[REGEX_SET_BYTES]; /* a bit for each byte */
};

struct regex {
    int n;
    struct regex_instruction program[REGEX_MAX_PROGRAM];
};

/* regex_parse - writes the program of the pattern, without its MATCH. Errors: as regex_new() */
NODISCARD struct status *regex_parse(const char *pattern, struct regex *r);

static inline bool regex_is_word(unsigned char c)
{
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_';
}

#endif
