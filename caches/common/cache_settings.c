/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A reader of one flat object of JSON.
 */
#include "common/cache_settings.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char *skip_setting_blanks(const char *p)
{
    return p + strspn(p, " \t\r\n");
}

static int hex_digit(char c)
{
    static const char digits[] = "0123456789abcdef";
    const char *at = c ? strchr(digits, c >= 'A' && c <= 'F' ? c - 'A' + 'a' : c) : NULL;
    return at ? (int)(at - digits) : -1;
}

/* Reads \uXXXX of a character below 0x80, which is all that needs it; NULL: it is something else.
 */
static const char *read_unicode(const char *p, char *ret_c)
{
    int c = 0;
    for (int i = 0; i < 4; i++) {
        int digit = hex_digit(p[i]);
        if (digit < 0)
            return NULL;
        c = c << 4 | digit;
    }
    *ret_c = (char)c;
    return c > 0 && c < 0x80 ? p + 4 : NULL;
}

static const char *read_setting_escape(const char *p, char *ret_c)
{
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    if (*p == 'u')
        return read_unicode(p + 1, ret_c);
    const char *at = *p ? strchr(names, *p) : NULL;
    if (!at)
        return NULL;
    *ret_c = values[at - names];
    return p + 1;
}

/* Reads a string behind its first quote; returns what follows it, or NULL. */
static const char *read_setting_text(const char *p, char **ret_text)
{
    size_t n = 0;
    char *text = malloc(strlen(p) + 1);
    while (text && p && *p && *p != '"') {
        char c = *p++;
        if (c == '\\')
            p = read_setting_escape(p, &c);
        text[n++] = c;
    }
    if (!text || !p || *p != '"') {
        free(text);
        return NULL;
    }
    text[n] = '\0';
    *ret_text = text;
    return p + 1;
}

/* Reads a number, true or false as it is written. */
static const char *read_setting_word(const char *p, char **ret_text)
{
    size_t n = strspn(p, "+-.0123456789abcdefghijklmnopqrstuvwxyzE");
    *ret_text = n > 0 ? strndup(p, n) : NULL;
    return *ret_text ? p + n : NULL;
}

static const char *read_setting(const char *p, struct setting *s)
{
    p = *p == '"' ? read_setting_text(p + 1, &s->name) : NULL;
    p = p ? skip_setting_blanks(p) : NULL;
    if (!p || *p != ':')
        return NULL;
    p = skip_setting_blanks(p + 1);
    s->is_text = *p == '"';
    return s->is_text ? read_setting_text(p + 1, &s->value) : read_setting_word(p, &s->value);
}

bool settings_parse(struct settings *s, const char *json)
{
    memset(s, 0, sizeof(*s));
    const char *p = skip_setting_blanks(json);
    if (*p != '{')
        return false;
    p = skip_setting_blanks(p + 1);
    while (*p != '}' && s->n < SETTINGS_MAX) {
        p = read_setting(p, &s->list[s->n++]);
        p = p ? skip_setting_blanks(p) : NULL;
        if (!p || (*p != ',' && *p != '}'))
            return false;
        if (*p == ',')
            p = skip_setting_blanks(p + 1);
    }
    return *p == '}' && !*skip_setting_blanks(p + 1);
}

void settings_done(struct settings *s)
{
    for (size_t i = 0; i < s->n; i++) {
        free(s->list[i].name);
        free(s->list[i].value);
    }
    s->n = 0;
}

const struct setting *settings_find(const struct settings *s, const char *name)
{
    for (size_t i = s->n; i-- > 0;) {
        if (strcmp(s->list[i].name, name) == 0)
            return &s->list[i];
    }
    return NULL;
}

bool settings_to_number(const char *text, uint64_t max, uint64_t *ret_number)
{
    char *end;
    if (text[0] < '0' || text[0] > '9')
        return false;
    errno = 0;
    unsigned long long n = strtoull(text, &end, 10);
    if (*end || errno || n > max)
        return false;
    *ret_number = n;
    return true;
}
