/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes the program of a regular expression while it reads the pattern. The code of each part is a
 * run of instructions whose jumps are relative and stay within it or end just behind it. So the
 * code of a repeated part is copied, and an instruction is put in front of a part by moving it.
 *
 * No state; any thread.
 */
#include <stdlib.h>
#include <string.h>

#include "base/regex_priv.h"
#include "base/status.h"

enum { MAX_PATTERN = 4096, MAX_DEPTH = 100, MAX_REPEAT = 1000, UNLIMITED = -1 };

struct flags {
    bool ignores_case, is_multiline, dot_takes_newline;
};

struct parse {
    const char *begin, *at; /* a zero byte ends the pattern */
    struct regex *out;
    struct flags flags;
    int depth;
    bool is_quoted;                  /* between \Q and \E */
    struct status *error;            /* the first; the rest of the pattern is then skipped */
    struct regex_instruction unused; /* what is written after it */
};

static void fail_parse(struct parse *p, const char *what)
{
    if (!p->error)
        p->error = status_new(STATUS_INVALID_ARG,
                              "invalid regular expression '%.256s': %s at character %zu", p->begin,
                              what, (size_t)(p->at - p->begin) + 1);
    p->at = "";
}

/* ---- Code ----------------------------------------------------------------------------------- */

/* Makes room for an instruction at that place; the code from there on moves. */
static struct regex_instruction *insert_code(struct parse *p, int place, enum regex_op op)
{
    struct regex *r = p->out;
    if (r->n >= REGEX_MAX_PROGRAM - 1) {
        fail_parse(p, "it is too large");
        return &p->unused;
    }
    memmove(&r->program[place + 1], &r->program[place],
            (size_t)(r->n - place) * sizeof(r->program[0]));
    r->n++;
    r->program[place] = (struct regex_instruction){.op = op};
    return &r->program[place];
}

static struct regex_instruction *add_code(struct parse *p, enum regex_op op)
{
    return insert_code(p, p->out->n, op);
}

/* Appends a copy of the first n instructions from `begin` on. */
static void copy_code(struct parse *p, int begin, int n)
{
    for (int i = 0; i < n && !p->error; i++) {
        struct regex_instruction copied = p->out->program[begin + i];
        *add_code(p, copied.op) = copied;
    }
}

static void jump_to(struct regex_instruction *i, int first, int second)
{
    i->first = first;
    i->second = second;
}

/* Makes the code from `begin` to the end repeat, any number of times. */
static void make_star(struct parse *p, int begin)
{
    int n = p->out->n - begin;
    jump_to(insert_code(p, begin, REGEX_SPLIT), 1, n + 2);
    jump_to(add_code(p, REGEX_JUMP), -(n + 1), 0);
}

/* Makes the code from `begin` to the end repeat from `least` to `most` times. */
static void make_repeat(struct parse *p, int begin, int least, int most)
{
    int n = p->out->n - begin, copies = most == UNLIMITED ? least + 1 : most;
    if (most == 0) {
        p->out->n = begin;
        return;
    }
    for (int i = 1; i < copies && !p->error; i++)
        copy_code(p, begin, n);
    if (p->error)
        return;
    if (most == UNLIMITED) {
        make_star(p, begin + least * n);
        return;
    }
    for (int i = most - 1; i >= least && !p->error; i--) { /* from the last on: code moves */
        jump_to(insert_code(p, begin + i * n, REGEX_SPLIT), 1, n + 1);
    }
}

/* ---- Sets ----------------------------------------------------------------------------------- */

struct set {
    uint8_t bits[REGEX_SET_BYTES];
};

static void add_range(struct set *s, unsigned int low, unsigned int high)
{
    for (unsigned int c = low; c <= high; c++)
        s->bits[c / 8] |= (uint8_t)(1 << c % 8);
}

static bool has_byte(const struct set *s, unsigned int c)
{
    return s->bits[c / 8] >> c % 8 & 1;
}

static void invert_set(struct set *s)
{
    for (int i = 0; i < REGEX_SET_BYTES; i++)
        s->bits[i] = (uint8_t)~s->bits[i];
}

static void join_sets(struct set *s, const struct set *other)
{
    for (int i = 0; i < REGEX_SET_BYTES; i++)
        s->bits[i] |= other->bits[i];
}

static void fold_set(struct set *s)
{
    for (unsigned int c = 'a'; c <= 'z'; c++) {
        unsigned int upper = c - 'a' + 'A';
        if (has_byte(s, c) || has_byte(s, upper)) {
            add_range(s, c, c);
            add_range(s, upper, upper);
        }
    }
}

static void add_set(struct parse *p, struct set *s)
{
    memcpy(add_code(p, REGEX_SET)->set, s->bits, sizeof(s->bits));
}

static void add_byte(struct parse *p, unsigned int c)
{
    struct set s = {{0}};
    add_range(&s, c, c);
    if (p->flags.ignores_case)
        fold_set(&s);
    add_set(p, &s);
}

/* Sets by name, as ranges: pairs of bytes. */
static const struct named_set {
    const char *name, *ranges;
} perl_sets[] =
    {
        {"d", "09"},
        {"s", "\t\n\f\r  "},
        {"w", "09AZaz__"},
},
  posix_sets[] = {
      {"alnum", "09AZaz"},
      {"alpha", "AZaz"},
      {"ascii", "\x01\x7f"},
      {"blank", "\t\t  "},
      {"cntrl", "\x01\x1f\x7f\x7f"},
      {"digit", "09"},
      {"graph", "!~"},
      {"lower", "az"},
      {"print", " ~"},
      {"punct", "!/:@[`{~"},
      {"space", "\t\r  "},
      {"upper", "AZ"},
      {"word", "09AZaz__"},
      {"xdigit", "09AFaf"},
};

/* Finds the set of that name. False: there is none. */
static bool find_set(const struct named_set *sets, size_t n, const char *name, size_t length,
                     struct set *ret)
{
    for (size_t i = 0; i < n; i++) {
        if (strlen(sets[i].name) != length || memcmp(sets[i].name, name, length) != 0)
            continue;
        memset(ret, 0, sizeof(*ret));
        for (const char *r = sets[i].ranges; *r; r += 2)
            add_range(ret, (unsigned char)r[0], (unsigned char)r[1]);
        return true;
    }
    return false;
}

/* Reads the letter of \d, \D … False: it is none of these. */
static bool read_perl_set(struct parse *p, struct set *ret)
{
    char letter = *p->at, lower = (char)(letter | 0x20);
    if (!find_set(perl_sets, ARRAY_SIZE(perl_sets), &lower, 1, ret))
        return false;
    if (letter != lower)
        invert_set(ret);
    p->at++;
    return true;
}

/* ---- Escapes -------------------------------------------------------------------------------- */

/* Whether a backslash makes the byte mean itself. */
static bool is_escapable(char c)
{
    return c && (!regex_is_word((unsigned char)c) || c == '_');
}

static unsigned int parse_digits(struct parse *p, int base, int most)
{
    unsigned int value = 0;
    for (int i = 0; i < most; i++) {
        char digit[2] = {*p->at, 0}, *end;
        unsigned long n = strtoul(digit, &end, base);
        if (end == digit)
            break;
        value = value * (unsigned int)base + (unsigned int)n;
        p->at++;
    }
    return value;
}

static unsigned int parse_hex(struct parse *p)
{
    bool has_brace = *p->at == '{';
    p->at += has_brace;
    const char *begin = p->at;
    unsigned int value = parse_digits(p, 16, has_brace ? 8 : 2);
    bool is_fine = has_brace ? p->at > begin && *p->at == '}' : p->at == begin + 2;
    if (!is_fine || value > 0x7f)
        fail_parse(p, "an escape that is not ASCII");
    else
        p->at += has_brace;
    return value & 0xff;
}

/* Reads an escape of one byte, behind the backslash. */
static unsigned int parse_byte_escape(struct parse *p)
{
    static const char letters[] = "afnrtv", bytes[] = "\a\f\n\r\t\v";
    char c = *p->at;
    const char *letter = c ? strchr(letters, c) : NULL;
    if (letter) {
        p->at++;
        return (unsigned char)bytes[letter - letters];
    }
    if (c == 'x') {
        p->at++;
        return parse_hex(p);
    }
    if (c == '0' || (c >= '1' && c <= '7' && p->at[1] >= '0' && p->at[1] <= '7'))
        return parse_digits(p, 8, 3) & 0xff;
    if (is_escapable(c)) {
        p->at++;
        return (unsigned char)c;
    }
    fail_parse(p, c ? "an unknown escape" : "a backslash at the end");
    return 0;
}

/* ---- Classes: [a-z] ------------------------------------------------------------------------- */

/* Reads [:alpha:] or [:^alpha:] within a class. False: there is none here. */
static bool read_posix_set(struct parse *p, struct set *ret)
{
    const char *end = strstr(p->at, ":]"), *name = p->at + 2;
    if (p->at[0] != '[' || p->at[1] != ':' || !end)
        return false;
    bool is_inverted = *name == '^';
    name += is_inverted;
    if (!find_set(posix_sets, ARRAY_SIZE(posix_sets), name, (size_t)(end - name), ret)) {
        fail_parse(p, "an unknown class");
        return true;
    }
    if (is_inverted)
        invert_set(ret);
    p->at = end + 2;
    return true;
}

static unsigned int read_class_byte(struct parse *p)
{
    if (*p->at == '\\') {
        p->at++;
        return parse_byte_escape(p);
    }
    return (unsigned char)*p->at++;
}

static void read_class_item(struct parse *p, struct set *s)
{
    struct set named;
    if (read_posix_set(p, &named)) {
        join_sets(s, &named);
        return;
    }
    if (*p->at == '\\') {
        p->at++;
        if (read_perl_set(p, &named)) {
            join_sets(s, &named);
            return;
        }
        p->at--;
    }
    unsigned int low = read_class_byte(p), high = low;
    if (p->at[0] == '-' && p->at[1] && p->at[1] != ']') {
        p->at++;
        high = read_class_byte(p);
    }
    if (high < low)
        fail_parse(p, "a range that ends before it begins");
    else
        add_range(s, low, high);
}

/* Reads a class behind its bracket. */
static void parse_class(struct parse *p)
{
    struct set s = {{0}};
    bool is_inverted = *p->at == '^', is_first = true;
    p->at += is_inverted;
    for (; *p->at && (*p->at != ']' || is_first); is_first = false)
        read_class_item(p, &s);
    if (*p->at != ']') {
        fail_parse(p, "a class without its end");
        return;
    }
    p->at++;
    if (p->flags.ignores_case)
        fold_set(&s);
    if (is_inverted)
        invert_set(&s);
    add_set(p, &s);
}

/* ---- Groups --------------------------------------------------------------------------------- */

static void parse_alternatives(struct parse *p);

static void parse_group_body(struct parse *p)
{
    struct flags outer = p->flags;
    if (++p->depth > MAX_DEPTH)
        fail_parse(p, "groups that are too deep");
    parse_alternatives(p);
    p->depth--;
    p->flags = outer;
    if (*p->at == ')')
        p->at++;
    else
        fail_parse(p, "a group without its end");
}

/* Reads <name> of a group. */
static void skip_name(struct parse *p)
{
    const char *begin = ++p->at;
    while (regex_is_word((unsigned char)*p->at))
        p->at++;
    if (p->at == begin || *p->at != '>')
        fail_parse(p, "a group with a wrong name");
    else
        p->at++;
}

/* Reads the letters of (?i) or (?i: … False: there is another character. */
static bool read_flag(struct parse *p, bool on)
{
    switch (*p->at) {
    case 'i':
        p->flags.ignores_case = on;
        break;
    case 'm':
        p->flags.is_multiline = on;
        break;
    case 's':
        p->flags.dot_takes_newline = on;
        break;
    case 'U': /* which of several matches is found; it does not matter here */
        break;
    default:
        return false;
    }
    p->at++;
    return true;
}

/* Reads flags behind the question mark. They hold to the end of the group around them, or of their
 * own. */
static void parse_flags(struct parse *p)
{
    struct flags outer = p->flags;
    bool on = true;
    while (read_flag(p, on) || (*p->at == '-' && on)) {
        if (*p->at == '-' && on) {
            on = false;
            p->at++;
        }
    }
    if (*p->at == ')') {
        p->at++;
    } else if (*p->at == ':') {
        p->at++;
        parse_group_body(p);
        p->flags = outer;
    } else {
        fail_parse(p, "an unknown group");
    }
}

/* Reads a group behind its parenthesis. */
static void parse_group(struct parse *p)
{
    if (*p->at != '?') {
        parse_group_body(p);
        return;
    }
    p->at++;
    if (p->at[0] == 'P' && p->at[1] == '<')
        p->at++;
    if (*p->at == '<') {
        skip_name(p);
        parse_group_body(p);
    } else {
        parse_flags(p);
    }
}

/* ---- Parts of a sequence -------------------------------------------------------------------- */

/* Reads \Q or \E. False: neither is here. */
static bool read_quote(struct parse *p)
{
    if (strncmp(p->at, p->is_quoted ? "\\E" : "\\Q", 2) != 0)
        return false;
    p->is_quoted = !p->is_quoted;
    p->at += 2;
    return true;
}

/* Reads a byte between \Q and \E, and the \E behind it, so that what follows may repeat the byte.
 */
static void parse_quoted(struct parse *p)
{
    add_byte(p, (unsigned char)*p->at++);
    (void)read_quote(p);
}

/* Reads an escape behind its backslash. */
static void parse_escape(struct parse *p)
{
    static const char letters[] = "AzbB";
    static const enum regex_op ops[] = {REGEX_TEXT_BEGIN, REGEX_TEXT_END, REGEX_WORD_EDGE,
                                        REGEX_NO_WORD_EDGE};
    const char *letter = *p->at ? strchr(letters, *p->at) : NULL;
    struct set s = {{0}};
    if (letter) {
        p->at++;
        add_code(p, ops[letter - letters]);
    } else if (*p->at == 'C') {
        p->at++;
        invert_set(&s);
        add_set(p, &s);
    } else if (read_perl_set(p, &s)) {
        add_set(p, &s);
    } else {
        add_byte(p, parse_byte_escape(p));
    }
}

static void add_dot(struct parse *p)
{
    struct set s = {{0}};
    if (!p->flags.dot_takes_newline)
        add_range(&s, '\n', '\n');
    invert_set(&s);
    add_set(p, &s);
}

/* Reads one part: a byte, a class, a group, an edge. */
static void parse_part(struct parse *p)
{
    bool lines = p->flags.is_multiline;
    if (p->is_quoted) {
        parse_quoted(p);
        return;
    }
    char c = *p->at++;
    switch (c) {
    case '(':
        parse_group(p);
        break;
    case '[':
        parse_class(p);
        break;
    case '\\':
        parse_escape(p);
        break;
    case '.':
        add_dot(p);
        break;
    case '^':
        add_code(p, lines ? REGEX_LINE_BEGIN : REGEX_TEXT_BEGIN);
        break;
    case '$':
        add_code(p, lines ? REGEX_LINE_END : REGEX_TEXT_END);
        break;
    case '*':
    case '+':
    case '?':
        p->at--;
        fail_parse(p, "nothing to repeat");
        break;
    default:
        add_byte(p, (unsigned char)c);
    }
}

/* Reads {n}, {n,} or {n,m}. False: the brace is a byte like others. */
static bool parse_counts(struct parse *p, int *ret_least, int *ret_most)
{
    const char *brace = p->at++, *digits = p->at;
    int least = (int)parse_digits(p, 10, 5), most = least;
    bool is_fine = p->at > digits;
    if (is_fine && *p->at == ',') {
        digits = ++p->at;
        most = (int)parse_digits(p, 10, 5);
        if (p->at == digits)
            most = UNLIMITED;
    }
    if (!is_fine || *p->at != '}') {
        p->at = brace;
        return false;
    }
    p->at++;
    if (least > MAX_REPEAT || most > MAX_REPEAT || (most != UNLIMITED && most < least))
        fail_parse(p, "a wrong number of repetitions");
    *ret_least = least;
    *ret_most = most;
    return true;
}

/* Reads what follows a part and repeats it. False: nothing does. */
static bool read_repeat(struct parse *p, int *ret_least, int *ret_most)
{
    *ret_least = *p->at == '+';
    *ret_most = *p->at == '?' ? 1 : UNLIMITED;
    if (*p->at == '{') {
        if (!parse_counts(p, ret_least, ret_most))
            return false;
    } else if (*p->at == '*' || *p->at == '+' || *p->at == '?') {
        p->at++;
    } else {
        return false;
    }
    if (*p->at == '?') /* lazy: another of several matches */
        p->at++;
    return true;
}

/* Reads a part and what repeats it. */
static void parse_repeated(struct parse *p)
{
    int begin = p->out->n, least, most;
    parse_part(p);
    if (p->error || p->is_quoted || !read_repeat(p, &least, &most) || p->error)
        return;
    make_repeat(p, begin, least, most);
    if (!p->error && read_repeat(p, &least, &most))
        fail_parse(p, "a repetition of a repetition");
}

static void parse_sequence(struct parse *p)
{
    while (*p->at && (p->is_quoted || (*p->at != '|' && *p->at != ')'))) {
        if (!read_quote(p))
            parse_repeated(p);
    }
}

static void parse_alternatives(struct parse *p)
{
    int begin = p->out->n;
    parse_sequence(p);
    while (*p->at == '|') {
        p->at++;
        int n = p->out->n - begin;
        jump_to(insert_code(p, begin, REGEX_SPLIT), 1, n + 2);
        int jump = p->out->n;
        add_code(p, REGEX_JUMP);
        parse_sequence(p);
        if (!p->error)
            jump_to(&p->out->program[jump], p->out->n - jump, 0);
    }
}

struct status *regex_parse(const char *pattern, struct regex *r)
{
    struct parse p = {.begin = pattern, .at = pattern, .out = r};
    if (strlen(pattern) > MAX_PATTERN)
        return status_new(STATUS_INVALID_ARG, "a regular expression of more than %d characters",
                          MAX_PATTERN);
    for (const char *c = pattern; *c; c++) {
        if ((unsigned char)*c >= 0x80)
            return status_new(STATUS_INVALID_ARG,
                              "invalid regular expression '%.256s': it is not ASCII", pattern);
    }
    parse_alternatives(&p);
    if (*p.at == ')')
        fail_parse(&p, "a group without its begin");
    return p.error;
}
