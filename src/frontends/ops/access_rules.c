/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading and asking access rules. A line is read word by word. Constant after the reading; any
 * thread.
 *
 * An error names the line, and repeats a word of it only where the word cannot be a secret: names
 * of parts and the words of the grammar behind them.
 */
#include "frontends/ops/access_rules.h"

#include <ctype.h>
#include <stdatomic.h>
#include <string.h>

#include "base/mem.h"
#include "base/status.h"

enum { MAX_PATTERNS = 4096 }; /* of a rule */

/* Bytes of the rules' own copy of the text. */
struct word {
    const char *at;
    size_t length;
};

enum who { WHO_ANYONE, WHO_HEADER, WHO_CERTIFICATE };

struct rule {
    enum who who;
    struct word name;  /* of the header, in lower case, or in the certificate */
    struct word value; /* of the header */
    unsigned int apis; /* a bit for each enum ops_api */
    bool of_all;       /* whatever model a request names, or none */
    bool of_server;    /* requests that name no model */
    size_t n_patterns; /* of models */
    struct word *patterns;
};

struct access_rules {
    atomic_uint refs;
    char *text; /* a copy; words lie in it */
    size_t n_bytes;
    size_t n_rules, capacity;
    struct rule *rules;
};

/* ---- Words ----------------------------------------------------------------------------------- */

/* A line, from the place that is read next. */
struct line {
    char *at, *end;
    unsigned int number;
};

static struct status *fault(const struct line *line, const char *what)
{
    return status_new(STATUS_INVALID_ARG, "line %u: %s", line->number, what);
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/*
 * The next word; .length 0: the line has no more. Quotation marks may stand around a word or behind
 * its '=', for a value with blanks. They are cut out of the text.
 */
static struct status *next_word(struct line *line, struct word *ret)
{
    bool quoted = false, was_quoted = false;
    while (line->at < line->end && is_blank(*line->at))
        line->at++;
    char *start = line->at, *to = start;
    if (line->at < line->end && *line->at == '#')
        line->at = line->end;
    for (; line->at < line->end && (quoted || !is_blank(*line->at)); line->at++) {
        if (*line->at == '"') {
            quoted = !quoted;
            was_quoted = true;
        } else {
            *to++ = *line->at;
        }
    }
    *ret = (struct word){start, (size_t)(to - start)};
    if (quoted)
        return fault(line, "a quotation mark is not closed");
    return was_quoted && to == start ? fault(line, "an empty word") : NULL;
}

static bool word_is(struct word w, const char *text)
{
    return w.length == strlen(text) && memcmp(w.at, text, w.length) == 0;
}

/* Takes the part of a list before the next comma. False: the list is at its end. */
static bool next_item(struct word *list, bool *at_end, struct word *ret)
{
    if (*at_end)
        return false;
    const char *comma = memchr(list->at, ',', list->length);
    size_t length = comma ? (size_t)(comma - list->at) : list->length;
    *ret = (struct word){list->at, length};
    *at_end = !comma;
    if (comma)
        *list = (struct word){comma + 1, list->length - length - 1};
    return true;
}

/* ---- Reading --------------------------------------------------------------------------------- */

static bool is_header_name(struct word w)
{
    for (size_t i = 0; i < w.length; i++) {
        if (!isalnum((unsigned char)w.at[i]) && !strchr("!#$%&'*+-.^_`|~", w.at[i]))
            return false;
    }
    return w.length > 0;
}

static struct status *read_rule_header(struct line *line, struct word given, struct rule *r)
{
    const char *equals = given.length > 0 ? memchr(given.at, '=', given.length) : NULL;
    r->who = WHO_HEADER;
    if (equals) {
        r->name = (struct word){given.at, (size_t)(equals - given.at)};
        r->value = (struct word){equals + 1, given.length - r->name.length - 1};
    }
    if (!equals || !is_header_name(r->name) || r->value.length == 0)
        return fault(line, "a header is written as NAME=VALUE");
    for (char *c = (char *)(uintptr_t)r->name.at; c < equals; c++)
        *c = (char)tolower((unsigned char)*c);
    return NULL;
}

static struct status *read_who(struct line *line, struct rule *r)
{
    struct word kind, given;
    struct status *st = next_word(line, &kind);
    if (st)
        return st;
    if (word_is(kind, "anyone"))
        return NULL;
    if (!word_is(kind, "header") && !word_is(kind, "certificate"))
        return fault(line, "'allow' is followed by 'anyone', 'header' or 'certificate'");
    st = next_word(line, &given);
    if (st)
        return st;
    if (word_is(kind, "header"))
        return read_rule_header(line, given, r);
    r->who = WHO_CERTIFICATE;
    r->name = given;
    return given.length > 0 ? NULL : fault(line, "'certificate' is followed by a name");
}

static struct status *read_apis(struct line *line, struct rule *r)
{
    struct word list, item;
    bool at_end = false;
    struct status *st = next_word(line, &list);
    if (st)
        return st;
    if (word_is(list, "all")) {
        r->apis = (1U << OPS_N_APIS) - 1;
        return NULL;
    }
    while (next_item(&list, &at_end, &item)) {
        enum ops_api api = restrictions_find_api(item.at, item.length);
        if (api == OPS_API_OPEN)
            return status_new(STATUS_INVALID_ARG, "line %u: there is no category '%.*s'",
                              line->number, (int)MIN(item.length, (size_t)64), item.at);
        r->apis |= 1U << api;
    }
    return NULL;
}

static struct status *read_patterns(struct line *line, struct word list, struct rule *r)
{
    struct word item, counted = list;
    bool at_end = false;
    size_t n = 0;
    while (next_item(&counted, &at_end, &item))
        n++;
    if (n > MAX_PATTERNS)
        return fault(line, "too many patterns");
    r->patterns = mem_alloc(n * sizeof(*r->patterns));
    for (at_end = false; next_item(&list, &at_end, &item);) {
        if (item.length == 0)
            return fault(line, "an empty name of a model");
        r->patterns[r->n_patterns++] = item;
    }
    return NULL;
}

/* Reads what is behind the parts: nothing, "of the server", or "of" and patterns. */
static struct status *read_rule_models(struct line *line, struct rule *r)
{
    struct word of, list, server;
    struct status *st = next_word(line, &of);
    if (st || of.length == 0) {
        r->of_all = true;
        return st;
    }
    if (!word_is(of, "of"))
        return fault(line, "the categories are followed by 'of', or by nothing");
    st = next_word(line, &list);
    if (st)
        return st;
    if (!word_is(list, "the"))
        return read_patterns(line, list, r);
    st = next_word(line, &server);
    if (st)
        return st;
    r->of_server = word_is(server, "server");
    if (r->of_server)
        return NULL;
    /* A model may have the name "the". */
    return server.length == 0 ? read_patterns(line, list, r)
                              : fault(line, "'the' is followed by 'server'");
}

static struct status *read_rule(struct line *line, struct rule *r)
{
    struct word to, behind;
    struct status *st = read_who(line, r);
    if (!st)
        st = next_word(line, &to);
    if (!st && !word_is(to, "to"))
        st = fault(line, "'to' is missing behind the client");
    if (!st)
        st = read_apis(line, r);
    if (!st)
        st = read_rule_models(line, r);
    if (!st)
        st = next_word(line, &behind);
    if (!st && behind.length > 0)
        st = fault(line, "more words than a rule has; lists have commas without blanks");
    return st;
}

static void grow_rules(struct access_rules *r)
{
    if (r->n_rules < r->capacity)
        return;
    r->capacity = MAX(2 * r->capacity, (size_t)16);
    r->rules = mem_realloc(r->rules, r->capacity * sizeof(*r->rules));
}

static struct status *read_rules_line(struct line *line, struct access_rules *rules)
{
    struct word first;
    struct status *st = next_word(line, &first);
    if (st || first.length == 0)
        return st;
    if (!word_is(first, "allow"))
        return fault(line, "a rule begins with 'allow'");
    if (rules->n_rules == ACCESS_MAX_RULES)
        return fault(line, "too many rules");
    grow_rules(rules);
    struct rule *r = &rules->rules[rules->n_rules++];
    *r = (struct rule){.who = WHO_ANYONE};
    return read_rule(line, r);
}

struct status *access_rules_parse(const char *text, size_t length, struct access_rules **ret)
{
    if (length > ACCESS_MAX_BYTES)
        return status_new(STATUS_INVALID_ARG, "%zu bytes, the limit is %d", length,
                          ACCESS_MAX_BYTES);
    struct access_rules *r = mem_zalloc(sizeof(*r));
    atomic_init(&r->refs, 1);
    r->text = mem_alloc(length + 1);
    r->n_bytes = length;
    if (length > 0)
        memcpy(r->text, text, length);
    r->text[length] = '\0';
    struct status *st = NULL;
    unsigned int number = 0;
    for (char *at = r->text, *end = at + length; at < end && !st;) {
        char *newline = memchr(at, '\n', (size_t)(end - at));
        struct line line = {at, newline ? newline : end, ++number};
        at = line.end + 1;
        st = memchr(line.at, '\0', (size_t)(line.end - line.at)) ? fault(&line, "a NUL byte")
                                                                 : read_rules_line(&line, r);
    }
    if (st)
        access_rules_unref(r);
    else
        *ret = r;
    return st;
}

struct access_rules *access_rules_ref(struct access_rules *r)
{
    atomic_fetch_add_explicit(&r->refs, 1, memory_order_relaxed);
    return r;
}

void access_rules_unref(struct access_rules *r)
{
    /* Release and acquire: the last user frees what the others have read. */
    if (!r || atomic_fetch_sub_explicit(&r->refs, 1, memory_order_acq_rel) > 1)
        return;
    for (size_t i = 0; i < r->n_rules; i++)
        mem_free(r->rules[i].patterns);
    mem_free(r->rules);
    explicit_bzero(r->text, r->n_bytes);
    mem_free(r->text);
    mem_free(r);
}

size_t access_rules_count(const struct access_rules *r)
{
    return r->n_rules;
}

/* ---- Asking ---------------------------------------------------------------------------------- */

/* Whether the pattern matches the whole name; '*' matches any bytes, also none. */
static bool pattern_matches(struct word pattern, const char *name, size_t length)
{
    size_t p = 0, n = 0, star = SIZE_MAX, star_n = 0;
    while (n < length) {
        if (p < pattern.length && pattern.at[p] == '*') {
            star = p++;
            star_n = n;
        } else if (p < pattern.length && pattern.at[p] == name[n]) {
            p++;
            n++;
        } else if (star != SIZE_MAX) { /* the last star takes one byte more */
            p = star + 1;
            n = ++star_n;
        } else {
            return false;
        }
    }
    while (p < pattern.length && pattern.at[p] == '*')
        p++;
    return p == pattern.length;
}

static bool rule_covers(const struct rule *r, const char *model, size_t length)
{
    if (r->of_all)
        return true;
    if (!model)
        return r->of_server;
    for (size_t i = 0; i < r->n_patterns; i++) {
        if (pattern_matches(r->patterns[i], model, length))
            return true;
    }
    return false;
}

static bool is_client_of(const struct rule *r, const struct access_client *client)
{
    size_t length = 0;
    const char *value;
    switch (r->who) {
    case WHO_ANYONE:
        return true;
    case WHO_CERTIFICATE:
        return client->peer && client->has_name(client->peer, r->name.at, r->name.length);
    case WHO_HEADER:
        break;
    }
    value = client->find_header(client->head, r->name.at, r->name.length, &length);
    return secret_equals(r->value.at, r->value.length, value, length);
}

static bool is_about(const struct rule *r, enum ops_api api)
{
    return (r->apis & 1U << api) != 0;
}

bool access_allows(const struct access_rules *rules, enum ops_api api,
                   const struct access_client *client, const char *model, size_t length)
{
    if (api == OPS_API_OPEN)
        return true;
    for (size_t i = 0; i < rules->n_rules; i++) {
        const struct rule *r = &rules->rules[i];
        if (is_about(r, api) && rule_covers(r, model, length) && is_client_of(r, client))
            return true;
    }
    return false;
}

/* The rules that fit a client, for models that it names later. */
struct access_rights {
    struct access_rules *rules; /* a reference */
    size_t n;
    const struct rule *of[];
};

static struct status *refuse_access(void)
{
    return status_new(STATUS_UNAVAILABLE, "This protocol is " ACCESS_TEXT);
}

struct status *access_find(struct access_rules *rules, enum ops_api api,
                           const struct access_client *client, struct access_rights **ret_rights)
{
    struct access_rights *rights = NULL;
    *ret_rights = NULL;
    if (api == OPS_API_OPEN)
        return NULL;
    for (size_t i = 0; i < rules->n_rules; i++) {
        const struct rule *r = &rules->rules[i];
        if (!is_about(r, api) || !is_client_of(r, client))
            continue;
        if (r->of_all) {
            access_rights_free(rights);
            return NULL;
        }
        if (!rights) { /* room for this rule and all behind it */
            rights = mem_try_alloc(sizeof(*rights) + (rules->n_rules - i) * sizeof(rights->of[0]));
            if (!rights)
                return status_no_memory();
            rights->rules = access_rules_ref(rules);
            rights->n = 0;
        }
        rights->of[rights->n++] = r;
    }
    *ret_rights = rights;
    return rights ? NULL : refuse_access();
}

struct status *access_rights_cover(const struct access_rights *rights, const char *model,
                                   size_t length)
{
    if (!rights)
        return NULL;
    for (size_t i = 0; i < rights->n; i++) {
        if (rule_covers(rights->of[i], model, length))
            return NULL;
    }
    return refuse_access();
}

void access_rights_free(struct access_rights *rights)
{
    if (!rights)
        return;
    access_rules_unref(rights->rules);
    mem_free(rights);
}
