/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json - reads a model of XGBoost in JSON as events for xgboost.h. Numbers may be NaN and Infinity,
 * which XGBoost writes. A name may not spell letters as \u0061: treelite would read a name that the
 * check has not seen.
 */
#include <stdlib.h>
#include <string.h>

#include "fil/xgboost.h"

struct json_text {
    const char *begin, *at, *end;
    struct xgboost_scan *scan;
};

static bool refuse_json(const struct json_text *t, const char *what)
{
    return treefile_refuse(t->scan->why, "%s at byte %zu", what, (size_t)(t->at - t->begin));
}

static void skip_json_blanks(struct json_text *t)
{
    while (t->at < t->end && strchr(" \t\r\n", *t->at) && *t->at)
        t->at++;
}

static bool take_json_char(struct json_text *t, char c)
{
    skip_json_blanks(t);
    if (t->at == t->end || *t->at != c)
        return false;
    t->at++;
    return true;
}

/* Reads a string as it stands, without its quotes. */
static bool read_json_string(struct json_text *t, const char **ret_text, size_t *ret_len,
                             bool *ret_escaped)
{
    const char *from = ++t->at;

    *ret_escaped = false;
    for (; t->at < t->end && *t->at != '"'; t->at++) {
        if ((unsigned char)*t->at < 0x20)
            return refuse_json(t, "a control character in a string");
        if (*t->at == '\\') {
            *ret_escaped = true;
            if (++t->at == t->end)
                break;
        }
    }
    if (t->at == t->end)
        return refuse_json(t, "a string without its end");
    *ret_text = from;
    *ret_len = (size_t)(t->at - from);
    t->at++;
    return true;
}

static bool read_json_name(struct json_text *t)
{
    const char *text;
    size_t len;
    bool escaped;

    skip_json_blanks(t);
    if (t->at == t->end || *t->at != '"')
        return refuse_json(t, "a name is missing");
    if (!read_json_string(t, &text, &len, &escaped))
        return false;
    if (escaped && memmem(text, len, "\\u00", 4))
        return refuse_json(t, "a name with \\u00");
    if (!take_json_char(t, ':'))
        return refuse_json(t, "a colon is missing");
    return xgboost_name(t->scan, text, len);
}

static bool take_json_word(struct json_text *t, const char *word)
{
    size_t len = strlen(word);

    if ((size_t)(t->end - t->at) < len || memcmp(t->at, word, len) != 0)
        return false;
    t->at += len;
    return true;
}

static bool is_number_char(char c)
{
    return (c >= '0' && c <= '9') || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E';
}

static bool read_json_number(struct json_text *t)
{
    const char *from = t->at;
    bool whole = true;
    size_t len;
    char copy[24];

    if (take_json_word(t, "NaN") || take_json_word(t, "Infinity") || take_json_word(t, "Inf") ||
        take_json_word(t, "-Infinity") || take_json_word(t, "-Inf") || take_json_word(t, "-NaN"))
        return xgboost_number(t->scan, false, 0);
    for (; t->at < t->end && is_number_char(*t->at); t->at++)
        whole &= (*t->at >= '0' && *t->at <= '9') || (*t->at == '-' && t->at == from);
    len = (size_t)(t->at - from);
    if (len == 0)
        return refuse_json(t, "a value is missing");
    if (!whole || len >= sizeof(copy))
        return xgboost_number(t->scan, false, 0);
    memcpy(copy, from, len);
    copy[len] = '\0';
    return xgboost_number(t->scan, true, strtoll(copy, NULL, 10));
}

static bool read_json_scalar(struct json_text *t)
{
    const char *text;
    size_t len;
    bool escaped;

    if (*t->at == '"')
        return read_json_string(t, &text, &len, &escaped) && xgboost_text(t->scan, text, len);
    if (take_json_word(t, "true") || take_json_word(t, "false") || take_json_word(t, "null"))
        return xgboost_other(t->scan);
    return read_json_number(t);
}

/* After a value: a comma, or the ends of containers. */
static bool end_json_values(struct json_text *t)
{
    while (t->scan->depth > 0) {
        bool is_object = t->scan->levels[t->scan->depth - 1].is_object;

        if (take_json_char(t, ','))
            return !is_object || read_json_name(t);
        if (!take_json_char(t, is_object ? '}' : ']'))
            return refuse_json(t, "a comma or an end is missing");
        if (!xgboost_end(t->scan))
            return false;
    }
    return true;
}

/* Reads one value, or the begin of a container with something in it. */
static bool read_model_value(struct json_text *t)
{
    bool is_object;

    skip_json_blanks(t);
    if (t->at == t->end)
        return refuse_json(t, "a value is missing");
    if (*t->at != '{' && *t->at != '[')
        return read_json_scalar(t) && end_json_values(t);
    is_object = *t->at++ == '{';
    if (!xgboost_begin(t->scan, is_object))
        return false;
    if (take_json_char(t, is_object ? '}' : ']'))
        return xgboost_end(t->scan) && end_json_values(t);
    return !is_object || read_json_name(t);
}

static bool read_json_text(struct json_text *t)
{
    do {
        if (!read_model_value(t))
            return false;
    } while (t->scan->depth > 0);
    skip_json_blanks(t);
    if (t->at != t->end)
        return refuse_json(t, "there is more behind the model");
    return xgboost_finish(t->scan);
}

bool treefile_check_json(const char *data, size_t size, struct treefile_why *why)
{
    struct xgboost_scan scan;
    struct json_text t = {.begin = data, .at = data, .end = data + size, .scan = &scan};
    bool ok;

    xgboost_init(&scan, why);
    ok = read_json_text(&t);
    xgboost_done(&scan);
    return ok;
}
