/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading the text format: a recursive descent over the tokens, one function per rule of the
 * format. Parsing ends with the first error; its text is protobuf's, followed by ours. With a
 * listener, the list of fields with the error goes on at the next field.
 */
#include "base/pbtext.h"

#include <float.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/pbmsg.h"
#include "base/pbtext_priv.h"
#include "base/status.h"
#include "base/str.h"
#include "base/utf8.h"

enum {
    MAX_SHOWN = 60, /* bytes of a token that an error repeats */
    MAX_ADVICE = 160,
};

/* A position in the text, kept for an error that comes later. */
struct text_position {
    uint32_t line, column; /* 0: none */
};

struct parser {
    struct lexer lex;
    const char *name;
    struct arena *arena;
    struct pb_positions *positions;
    struct buf scratch;
    int depth;

    /* The last fault that has a position in the text, until it is reported or returned. */
    struct text_position at;
    char advice[MAX_ADVICE];

    void (*on_fault)(void *arg, const struct pbtext_fault *); /* NULL: the first fault ends it */
    void *arg;
    size_t n_reported;
    bool is_over; /* no later field is left to go on with */
};

static struct text_position current_position(const struct parser *p)
{
    return (struct text_position){p->lex.token.line, p->lex.token.column};
}

/* Makes a fault of the text; add_position_to_status() adds its name and position at the end. */
NODISCARD PRINTF_LIKE(3, 4) static struct status *fail_at(struct parser *p, struct text_position at,
                                                          const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    struct status *st = status_newv(STATUS_INVALID_ARG, fmt, ap);
    va_end(ap);
    p->at = at;
    p->advice[0] = '\0';
    return st;
}

NODISCARD static struct status *fail_memory(struct parser *p)
{
    p->at.line = 0;
    if (p->arena->starved)
        return status_no_memory();
    return status_new(STATUS_INVALID_ARG, "%s: the message is larger than %zu bytes in memory",
                      p->name, p->arena->max_bytes);
}

/* The current token as an error shows it: one line, limited in length. */
struct shown {
    char text[MAX_SHOWN + 8];
};

static struct shown shown_bytes(const char *text, size_t length)
{
    struct shown s;
    size_t n = MIN(length, (size_t)MAX_SHOWN);
    while (n < length && n > 0 && ((unsigned char)text[n] & 0xc0) == 0x80)
        n--; /* not inside a character */
    for (size_t i = 0; i < n; i++)
        s.text[i] = (unsigned char)text[i] < ' ' || text[i] == 0x7f ? '?' : text[i];
    snprintf(s.text + n, sizeof(s.text) - n, "%s", n < length ? "..." : "");
    return s;
}

static struct shown shown_token(const struct parser *p)
{
    const struct token *t = &p->lex.token;
    if (t->type == TOKEN_END)
        return shown_bytes("end of text", strlen("end of text"));
    return shown_bytes(t->text, t->length);
}

static bool looking_at(const struct parser *p, char symbol)
{
    return p->lex.token.type == TOKEN_SYMBOL && *p->lex.token.text == symbol;
}

static bool take_symbol(struct parser *p, char symbol)
{
    if (!looking_at(p, symbol))
        return false;
    lexer_next(&p->lex);
    return true;
}

/* Makes "Expected <what>, got: <token>", or the lexer's complaint about the token. */
NODISCARD static struct status *fail_unexpected(struct parser *p, const char *what)
{
    if (p->lex.token.type == TOKEN_BAD)
        return fail_at(p, current_position(p), "%s", p->lex.complaint);
    return fail_at(p, current_position(p), "Expected %s, got: %s", what, shown_token(p).text);
}

NODISCARD static struct status *expect_symbol(struct parser *p, char symbol)
{
    if (take_symbol(p, symbol))
        return NULL;
    if (p->lex.token.type == TOKEN_BAD)
        return fail_at(p, current_position(p), "%s", p->lex.complaint);
    return fail_at(p, current_position(p), "Expected \"%c\", found \"%s\"", symbol,
                   shown_token(p).text);
}

/* Reads an integer token up to max.
 * @negative  it follows a minus, for the error */
NODISCARD static struct status *read_magnitude(struct parser *p, uint64_t max, bool negative,
                                               uint64_t *ret_value)
{
    const struct token *t = &p->lex.token;
    if (t->type != TOKEN_INTEGER)
        return fail_unexpected(p, "integer");

    size_t i = 0;
    unsigned base = 10;
    if (t->length > 1 && t->text[0] == '0') {
        base = (t->text[1] | 0x20) == 'x' ? 16 : 8;
        i = base == 16 ? 2 : 1;
    }
    uint64_t value = 0;
    for (; i < t->length; i++) {
        char c = t->text[i];
        unsigned digit = (unsigned)(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
        if (value > (UINT64_MAX - digit) / base)
            return fail_at(p, current_position(p), "Integer out of range (%s)",
                           shown_token(p).text);
        value = value * base + digit;
    }
    if (value > max)
        return fail_at(p, current_position(p),
                       "Integer out of range (%s), the %s here is %s%" PRIu64, shown_token(p).text,
                       negative ? "smallest" : "largest", negative ? "-" : "", max);
    lexer_next(&p->lex);
    *ret_value = value;
    return NULL;
}

NODISCARD static struct status *read_unsigned(struct parser *p, uint64_t max, uint64_t *ret_value)
{
    return read_magnitude(p, max, false, ret_value);
}

NODISCARD static struct status *read_signed(struct parser *p, int64_t max, int64_t *ret_value)
{
    bool negative = take_symbol(p, '-');
    uint64_t value = 0;
    struct status *st = read_magnitude(p, (uint64_t)max + negative, negative, &value);
    if (!st)
        *ret_value = (int64_t)(negative ? 0 - value : value);
    return st;
}

static bool is_token_word(const struct token *t, const char *word)
{
    return str_equal_nocase_n(t->text, t->length, word, strlen(word));
}

NODISCARD static struct status *read_double(struct parser *p, double *ret_value)
{
    bool negative = take_symbol(p, '-');
    const struct token *t = &p->lex.token;
    double value;

    if (t->type == TOKEN_INTEGER || t->type == TOKEN_FLOAT) {
        if (t->type == TOKEN_INTEGER && t->length > 1 && t->text[0] == '0')
            return fail_at(p, current_position(p), "Expect a decimal number, got: %s",
                           shown_token(p).text);
        buf_reset(&p->scratch);
        buf_add(&p->scratch, t->text, t->length); /* strtod() stops at a suffix f */
        if (p->scratch.failed)
            return buf_status(&p->scratch);
        value = strtod(buf_text(&p->scratch), NULL);
    } else if (t->type == TOKEN_IDENTIFIER &&
               (is_token_word(t, "inf") || is_token_word(t, "infinity"))) {
        value = (double)__builtin_inf();
    } else if (t->type == TOKEN_IDENTIFIER && is_token_word(t, "nan")) {
        value = __builtin_nan("");
    } else {
        return fail_unexpected(p, "double");
    }
    lexer_next(&p->lex);
    *ret_value = negative ? -value : value;
    return NULL;
}

NODISCARD static struct status *read_bool(struct parser *p, const ProtobufCFieldDescriptor *f,
                                          protobuf_c_boolean *ret_value)
{
    const struct token *t = &p->lex.token;
    if (t->type == TOKEN_INTEGER) {
        uint64_t value = 0;
        struct status *st = read_unsigned(p, 1, &value);
        *ret_value = (protobuf_c_boolean)value;
        return st;
    }
    if (t->type != TOKEN_IDENTIFIER)
        return fail_unexpected(p, "true or false");

    struct shown word = shown_token(p);
    if (strcmp(word.text, "true") == 0 || strcmp(word.text, "True") == 0 ||
        strcmp(word.text, "t") == 0)
        *ret_value = true;
    else if (strcmp(word.text, "false") == 0 || strcmp(word.text, "False") == 0 ||
             strcmp(word.text, "f") == 0)
        *ret_value = false;
    else
        return fail_at(
            p, current_position(p),
            "Invalid value for boolean field \"%s\". Value: \"%s\", expected true or false",
            f->name, word.text);
    lexer_next(&p->lex);
    return NULL;
}

NODISCARD static struct status *read_enum(struct parser *p, const ProtobufCFieldDescriptor *f,
                                          int *ret_value)
{
    const ProtobufCEnumDescriptor *d = f->descriptor;
    const struct token *t = &p->lex.token;

    if (t->type == TOKEN_INTEGER || looking_at(p, '-')) {
        int64_t number = 0; /* a number without a name is right: enums of proto3 are open */
        struct status *st = read_signed(p, INT32_MAX, &number);
        *ret_value = (int)number;
        return st;
    }
    if (t->type != TOKEN_IDENTIFIER)
        return fail_unexpected(p, "integer or identifier");

    const ProtobufCEnumValue *v = pb_enum_named(d, t->text, t->length);
    if (!v) {
        const char *meant = pb_suggest_enum(d, t->text, t->length);
        struct status *st =
            fail_at(p, current_position(p), "Unknown enumeration value of \"%s\" for field \"%s\"",
                    shown_token(p).text, f->name);
        if (meant)
            snprintf(p->advice, sizeof(p->advice), "did you mean \"%s\"?", meant);
        return st;
    }
    *ret_value = v->value;
    lexer_next(&p->lex);
    return NULL;
}

/* Reads one or more string tokens, joined in p->scratch. */
NODISCARD static struct status *read_string_tokens(struct parser *p)
{
    if (p->lex.token.type != TOKEN_STRING)
        return fail_unexpected(p, "string");
    buf_reset(&p->scratch);
    while (p->lex.token.type == TOKEN_STRING) {
        lexer_decode(&p->lex.token, &p->scratch);
        lexer_next(&p->lex);
    }
    return buf_status(&p->scratch);
}

NODISCARD static struct status *read_text(struct parser *p, const ProtobufCFieldDescriptor *f,
                                          char **ret_text)
{
    struct text_position at = current_position(p);
    struct status *st = read_string_tokens(p);
    if (st)
        return st;
    const char *s = buf_text(&p->scratch);
    size_t n = p->scratch.size;
    if (memchr(s, '\0', n))
        return fail_at(p, at, "String for field \"%s\" contains a NUL byte", f->name);
    if (!utf8_is_valid(s, n))
        return fail_at(p, at, "String for field \"%s\" is not valid UTF-8", f->name);
    *ret_text = arena_strndup(p->arena, s, n);
    return *ret_text ? NULL : fail_memory(p);
}

NODISCARD static struct status *read_bytes(struct parser *p, ProtobufCBinaryData *ret_bytes)
{
    struct status *st = read_string_tokens(p);
    if (st)
        return st;
    ret_bytes->len = p->scratch.size;
    ret_bytes->data = arena_dup(p->arena, buf_text(&p->scratch), p->scratch.size);
    return ret_bytes->data ? NULL : fail_memory(p);
}

NODISCARD static struct status *read_fields(struct parser *p, ProtobufCMessage *m, char end);

/* Reads { fields } or < fields >. */
NODISCARD static struct status *read_message(struct parser *p, const ProtobufCFieldDescriptor *f,
                                             ProtobufCMessage **ret_message)
{
    struct text_position at = current_position(p);
    char end = looking_at(p, '<') ? '>' : '}';
    struct status *st = end == '>' ? expect_symbol(p, '<') : expect_symbol(p, '{');
    if (st)
        return st;
    if (p->depth == PBTEXT_MAX_DEPTH)
        return fail_at(p, at, "Message is too deep, the limit is %d", PBTEXT_MAX_DEPTH);

    ProtobufCMessage *m = pb_new(p->arena, f->descriptor);
    if (!m)
        return fail_memory(p);
    *ret_message = m;
    p->depth++;
    st = read_fields(p, m, end);
    p->depth--;
    if (st)
        return st;
    if (p->lex.token.type == TOKEN_END)
        return fail_at(
            p, current_position(p),
            "Expected \"%c\", found end of text; the message \"%s\" that begins at %" PRIu32
            ":%" PRIu32 " is not closed",
            end, f->name, at.line, at.column);
    return expect_symbol(p, end);
}

/* Reads one value of the field into its slot. */
NODISCARD static struct status *read_value(struct parser *p, const ProtobufCFieldDescriptor *f,
                                           void *slot)
{
    struct status *st;
    int64_t i = 0;
    uint64_t u = 0;
    double d = 0;

    switch (f->type) {
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_SFIXED32:
        st = read_signed(p, INT32_MAX, &i);
        *(int32_t *)slot = (int32_t)i;
        return st;
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
        st = read_signed(p, INT64_MAX, &i);
        *(int64_t *)slot = i;
        return st;
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32:
        st = read_unsigned(p, UINT32_MAX, &u);
        *(uint32_t *)slot = (uint32_t)u;
        return st;
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
        st = read_unsigned(p, UINT64_MAX, &u);
        *(uint64_t *)slot = u;
        return st;
    case PROTOBUF_C_TYPE_FLOAT:
        st = read_double(p, &d);
        *(float *)slot = (float)d; /* too large becomes infinite */
        return st;
    case PROTOBUF_C_TYPE_DOUBLE:
        st = read_double(p, &d);
        *(double *)slot = d;
        return st;
    case PROTOBUF_C_TYPE_BOOL:
        return read_bool(p, f, slot);
    case PROTOBUF_C_TYPE_ENUM:
        return read_enum(p, f, slot);
    case PROTOBUF_C_TYPE_STRING:
        return read_text(p, f, slot);
    case PROTOBUF_C_TYPE_BYTES:
        return read_bytes(p, slot);
    case PROTOBUF_C_TYPE_MESSAGE:
        return read_message(p, f, slot);
    }
    BUG_ON(true);
}

/* Reads a value of the field in m: its only one, or one more. */
NODISCARD static struct status *read_into(struct parser *p, ProtobufCMessage *m,
                                          const ProtobufCFieldDescriptor *f,
                                          const struct text_position *at)
{
    bool repeated = f->label == PROTOBUF_C_LABEL_REPEATED;
    struct text_position position = at ? *at : current_position(p);
    if (p->positions)
        pb_positions_add(p->positions, m, f->id, repeated ? pb_count(m, f) : 0, position.line,
                         position.column);
    void *slot = repeated ? pb_append(p->arena, m, f) : pb_slot(m, f);
    return slot ? read_value(p, f, slot) : fail_memory(p);
}

/* Reads [value, value], after the bracket. */
NODISCARD static struct status *read_list(struct parser *p, ProtobufCMessage *m,
                                          const ProtobufCFieldDescriptor *f)
{
    struct status *st = NULL;
    if (take_symbol(p, ']'))
        return NULL;
    while (!st) {
        st = read_into(p, m, f, NULL);
        if (st || take_symbol(p, ']'))
            break;
        st = expect_symbol(p, ',');
    }
    return st;
}

/* A singular field may appear once, and of a oneof one member. */
NODISCARD static struct status *check_single(struct parser *p, const ProtobufCMessage *m,
                                             const ProtobufCFieldDescriptor *f,
                                             struct text_position at)
{
    const ProtobufCFieldDescriptor *earlier = NULL;
    if (f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF)
        earlier = pb_oneof_chosen(m, f);
    else if (pb_is_set(m, f))
        earlier = f;
    if (!earlier)
        return NULL;

    const struct pb_position *first =
        p->positions ? pb_positions_find(p->positions, m, earlier->id, 0) : NULL;
    char where[48] = "";
    if (first)
        snprintf(where, sizeof(where), ", first at %" PRIu32 ":%" PRIu32, first->line,
                 first->column);
    if (earlier == f)
        return fail_at(p, at, "Non-repeated field \"%s\" is specified multiple times%s", f->name,
                       where);
    return fail_at(p, at,
                   "Field \"%s\" is specified along with field \"%s\", another member of the same "
                   "oneof%s",
                   f->name, earlier->name, where);
}

/* Refuses [some.extension]: no message of ours has any. */
NODISCARD static struct status *refuse_extension(struct parser *p, const ProtobufCMessage *m,
                                                 struct text_position at)
{
    const char *from = p->lex.token.text, *to = from;
    do {
        if (p->lex.token.type != TOKEN_IDENTIFIER)
            return fail_unexpected(p, "identifier");
        to = p->lex.token.text + p->lex.token.length;
        lexer_next(&p->lex);
    } while (take_symbol(p, '.') || take_symbol(p, '/'));
    struct status *st = expect_symbol(p, ']');
    if (st)
        return st;
    return fail_at(p, at, "Extension \"%s\" is not defined or is not an extension of \"%s\"",
                   shown_bytes(from, (size_t)(to - from)).text, m->descriptor->name);
}

/* Makes the error of a token that names no field: with a similar name, or the message where it
 * would be right. */
NODISCARD static struct status *
refuse_unknown(struct parser *p, const ProtobufCMessageDescriptor *d, struct text_position at)
{
    const struct token *t = &p->lex.token;
    const char *meant = pb_suggest_field(d, t->text, t->length);
    const char *home = pb_suggest_home(d, t->text, t->length);
    struct status *st = fail_at(p, at, "Message type \"%s\" has no field named \"%s\"", d->name,
                                shown_token(p).text);
    if (meant)
        snprintf(p->advice, sizeof(p->advice), "did you mean \"%s\"?", meant);
    else if (home)
        snprintf(p->advice, sizeof(p->advice), "it belongs inside \"%s\"", home);
    return st;
}

/* Reads name: value, name { … }, name: [values]; a separator may follow. */
NODISCARD static struct status *read_field(struct parser *p, ProtobufCMessage *m)
{
    struct text_position at = current_position(p);
    const struct token *t = &p->lex.token;

    if (take_symbol(p, '['))
        return refuse_extension(p, m, at);
    if (t->type != TOKEN_IDENTIFIER)
        return fail_unexpected(p, "identifier");
    const ProtobufCFieldDescriptor *f = pb_field_named(m->descriptor, t->text, t->length);
    if (!f)
        return refuse_unknown(p, m->descriptor, at);
    lexer_next(&p->lex);

    bool repeated = f->label == PROTOBUF_C_LABEL_REPEATED;
    struct status *st = repeated ? NULL : check_single(p, m, f, at);
    if (st)
        return st;
    if (f->type == PROTOBUF_C_TYPE_MESSAGE)
        take_symbol(p, ':');
    else
        st = expect_symbol(p, ':');
    if (!st)
        st = repeated && take_symbol(p, '[') ? read_list(p, m, f) : read_into(p, m, f, &at);
    if (!st && !take_symbol(p, ';'))
        take_symbol(p, ',');
    return st;
}

NODISCARD static struct status *settle_maps(struct parser *p, ProtobufCMessage *m)
{
    const ProtobufCMessageDescriptor *d = m->descriptor;
    for (unsigned i = 0; i < d->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &d->fields[i];
        if (f->label == PROTOBUF_C_LABEL_REPEATED && f->type == PROTOBUF_C_TYPE_MESSAGE &&
            pb_count(m, f) && pb_is_map(d, f) && !pb_map_settle(p->arena, m, f))
            return fail_memory(p);
    }
    return NULL;
}

/* Does a field begin here? "name:", "name {", "name <", "name [" */
static bool at_field(const struct parser *p)
{
    if (p->lex.token.type != TOKEN_IDENTIFIER)
        return false;
    struct lexer ahead = p->lex;
    lexer_next(&ahead);
    return ahead.token.type == TOKEN_SYMBOL && strchr(":{<[", *ahead.token.text);
}

/* Skips the rest of a wrong field; false when the text ends before another one begins. */
static bool skip_field(struct parser *p, bool inside)
{
    for (size_t depth = 0;;) {
        bool opens = looking_at(p, '{') || looking_at(p, '<') || looking_at(p, '[');
        bool closes = looking_at(p, '}') || looking_at(p, '>');
        if (p->lex.token.type == TOKEN_END)
            return !inside && depth == 0;
        if (p->lex.token.type == TOKEN_BAD || (closes && depth == 0 && !inside))
            return false;
        if (depth == 0 && (closes || at_field(p)))
            return true;
        depth += opens;
        depth -= depth && (closes || looking_at(p, ']'));
        lexer_next(&p->lex);
    }
}

/*
 * Reports the fault to the listener and goes on with the next field. Returns NULL if that is
 * possible; otherwise the status, which ends the parsing.
 *
 * @field   where the text of the wrong field begins
 * @inside  of a message in braces
 */
NODISCARD static struct status *go_on(struct parser *p, struct status *st, const char *field,
                                      bool inside)
{
    if (!p->on_fault || !p->at.line || status_code(st) == STATUS_UNAVAILABLE)
        return st;
    if (!p->is_over) {
        struct pbtext_fault fault = {.line = p->at.line,
                                     .column = p->at.column,
                                     .text = status_message(st),
                                     .advice = *p->advice ? p->advice : NULL};
        p->on_fault(p->arg, &fault);
        p->is_over = ++p->n_reported == PBTEXT_MAX_FAULTS;
    }
    if (p->lex.token.text == field && p->lex.token.type == TOKEN_IDENTIFIER)
        lexer_next(&p->lex); /* the name itself is wrong */
    p->is_over = p->is_over || !skip_field(p, inside);
    if (p->is_over)
        return st;
    p->at.line = 0;
    status_free(st);
    return NULL;
}

/* Reads all fields up to the end of the message (which the caller reads) or of the text. */
NODISCARD static struct status *read_fields(struct parser *p, ProtobufCMessage *m, char end)
{
    struct status *st = NULL;
    while (!st && p->lex.token.type != TOKEN_END) {
        if (end && (looking_at(p, '}') || looking_at(p, '>')))
            break;
        const char *field = p->lex.token.text;
        st = read_field(p, m);
        if (st)
            st = go_on(p, st, field, end != '\0');
    }
    /* After a reported fault the message is not used, and a map entry may have no value. */
    return st || p->n_reported ? st : settle_maps(p, m);
}

/* Makes the whole status: "<name>:<line>:<column>: <text>, <advice>"; NULL when all was
 * reported. */
NODISCARD static struct status *add_position_to_status(const struct parser *p, struct status *st)
{
    if (!st || !p->at.line || status_code(st) == STATUS_UNAVAILABLE)
        return st;
    struct status *whole = NULL;
    if (!p->on_fault)
        whole =
            status_new(status_code(st), "%s:%" PRIu32 ":%" PRIu32 ": %s%s%s", p->name, p->at.line,
                       p->at.column, status_message(st), *p->advice ? ", " : "", p->advice);
    status_free(st);
    return whole;
}

NODISCARD static struct status *parse_text_message(struct parser *p,
                                                   const ProtobufCMessageDescriptor *type,
                                                   const char *text, size_t length,
                                                   ProtobufCMessage **ret_message)
{
    buf_init(&p->scratch, PBTEXT_MAX_BYTES + 64);
    if (length > PBTEXT_MAX_BYTES)
        return status_new(STATUS_INVALID_ARG, "%s: %zu bytes of text, at most %d are read", p->name,
                          length, PBTEXT_MAX_BYTES);

    ProtobufCMessage *m = pb_new(p->arena, type);
    if (!m)
        return fail_memory(p);
    lexer_init(&p->lex, text, length);
    struct status *st = add_position_to_status(p, read_fields(p, m, '\0'));
    buf_done(&p->scratch);
    if (!st)
        *ret_message = p->n_reported ? NULL : m;
    return st;
}

struct status *pbtext_parse(const ProtobufCMessageDescriptor *type, const char *text, size_t length,
                            const char *name, struct arena *arena, struct pb_positions *positions,
                            ProtobufCMessage **ret_message)
{
    struct parser p = {.name = name, .arena = arena, .positions = positions};
    return parse_text_message(&p, type, text, length, ret_message);
}

struct status *pbtext_parse_all(const ProtobufCMessageDescriptor *type, const char *text,
                                size_t length, const char *name, struct arena *arena,
                                struct pb_positions *positions,
                                void (*on_fault)(void *arg, const struct pbtext_fault *), void *arg,
                                ProtobufCMessage **ret_message)
{
    struct parser p = {
        .name = name, .arena = arena, .positions = positions, .on_fault = on_fault, .arg = arg};
    return parse_text_message(&p, type, text, length, ret_message);
}
