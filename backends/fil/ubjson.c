/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ubjson - reads a model of XGBoost in UBJSON as events for xgboost.h. A value is a marker and its
 * bytes; an array or an object may name the type and the number of its values before them.
 *
 * Values that take no bytes, such as 2^40 times `true`, are refused where the type is named before:
 * the file's size would not bound them.
 */
#include <string.h>

#include "fil/xgboost.h"

struct ubjson_text {
    const unsigned char *begin, *at, *end;
    struct xgboost_scan *scan;
};

static bool refuse_ubjson(const struct ubjson_text *t, const char *what)
{
    return treefile_refuse(t->scan->why, "%s at byte %zu", what, (size_t)(t->at - t->begin));
}

/* Takes the next byte that is no no-op. */
static bool take_marker(struct ubjson_text *t, unsigned char *ret_marker)
{
    while (t->at < t->end && *t->at == 'N')
        t->at++;
    if (t->at == t->end)
        return refuse_ubjson(t, "the file ends within a value");
    *ret_marker = *t->at++;
    return true;
}

/* How many bytes a number of this marker has; 0: it is no number. */
static size_t number_size(unsigned char marker)
{
    switch (marker) {
    case 'i':
    case 'U':
        return 1;
    case 'I':
        return 2;
    case 'l':
    case 'd':
        return 4;
    case 'L':
    case 'D':
        return 8;
    default:
        return 0;
    }
}

static bool take_ubjson_bytes(struct ubjson_text *t, size_t n, const unsigned char **ret_bytes)
{
    if ((size_t)(t->end - t->at) < n)
        return refuse_ubjson(t, "the file ends within a value");
    *ret_bytes = t->at;
    t->at += n;
    return true;
}

static bool read_ubjson_number(struct ubjson_text *t, unsigned char marker, bool *ret_whole,
                               int64_t *ret_number)
{
    size_t n = number_size(marker);
    const unsigned char *bytes = NULL;
    uint64_t bits = 0;

    if (!take_ubjson_bytes(t, n, &bytes))
        return false;
    for (size_t i = 0; i < n; i++) /* the highest byte first */
        bits = bits << 8 | bytes[i];
    *ret_whole = marker != 'd' && marker != 'D';
    *ret_number = marker == 'i'   ? (int8_t)bits
                  : marker == 'I' ? (int16_t)bits
                  : marker == 'l' ? (int32_t)bits
                                  : (int64_t)bits;
    return true;
}

/* Reads a length: a number with its marker. */
static bool read_ubjson_length(struct ubjson_text *t, unsigned char marker, size_t *ret_length)
{
    bool whole;
    int64_t number;

    if (number_size(marker) == 0)
        return refuse_ubjson(t, "a length is missing");
    if (!read_ubjson_number(t, marker, &whole, &number))
        return false;
    if (!whole || number < 0 || (uint64_t)number > (uint64_t)(t->end - t->at))
        return refuse_ubjson(t, "a length is larger than the file");
    *ret_length = (size_t)number;
    return true;
}

static bool read_ubjson_text(struct ubjson_text *t, unsigned char marker, const char **ret_text,
                             size_t *ret_len)
{
    const unsigned char *bytes = NULL;

    if (!read_ubjson_length(t, marker, ret_len) || !take_ubjson_bytes(t, *ret_len, &bytes))
        return false;
    *ret_text = (const char *)bytes;
    return true;
}

static bool read_ubjson_value(struct ubjson_text *t, unsigned char marker);

static bool read_ubjson_string(struct ubjson_text *t)
{
    unsigned char marker = 0;
    const char *text;
    size_t len;

    return take_marker(t, &marker) && read_ubjson_text(t, marker, &text, &len) &&
           xgboost_text(t->scan, text, len);
}

/* What stands before the values of a container. */
struct ubjson_head {
    unsigned char type; /* of all values; 0: each has its marker */
    bool counted;
    size_t n;
};

static bool read_ubjson_head(struct ubjson_text *t, struct ubjson_head *h)
{
    unsigned char marker = 0;

    if (t->at < t->end && *t->at == '$') {
        t->at++;
        if (t->at == t->end)
            return refuse_ubjson(t, "the file ends within a value");
        h->type = *t->at++;
        if (h->type == '\0' || strchr("ZTFN]}", h->type))
            return refuse_ubjson(t, "values that take no bytes");
        if (t->at == t->end || *t->at != '#')
            return refuse_ubjson(t, "a type without a number of values");
    }
    if (t->at == t->end || *t->at != '#')
        return true;
    t->at++;
    h->counted = true;
    return take_marker(t, &marker) && read_ubjson_length(t, marker, &h->n);
}

static bool read_ubjson_member(struct ubjson_text *t, const struct ubjson_head *h, bool is_object,
                               unsigned char marker)
{
    const char *text;
    size_t len;

    if (is_object) {
        if (!read_ubjson_text(t, marker, &text, &len) || !xgboost_name(t->scan, text, len))
            return false;
        if (!h->type && !take_marker(t, &marker))
            return false;
    }
    return read_ubjson_value(t, h->type ? h->type : marker);
}

static bool read_ubjson_container(struct ubjson_text *t, bool is_object)
{
    struct ubjson_head h = {0};
    unsigned char marker = 0;

    if (!xgboost_begin(t->scan, is_object))
        return false;
    while (t->at < t->end && *t->at == 'N')
        t->at++;
    if (!read_ubjson_head(t, &h))
        return false;
    for (size_t i = 0; !h.counted || i < h.n; i++) {
        /* Values of a named type have no markers, names of members have. */
        if ((!h.type || is_object) && !take_marker(t, &marker))
            return false;
        if (!h.counted && marker == (is_object ? '}' : ']'))
            break;
        if (!read_ubjson_member(t, &h, is_object, marker))
            return false;
    }
    return xgboost_end(t->scan);
}

static bool read_ubjson_value(struct ubjson_text *t, unsigned char marker)
{
    const unsigned char *bytes = NULL;
    int64_t number;
    bool whole;

    switch (marker) {
    case '{':
    case '[':
        return read_ubjson_container(t, marker == '{');
    case 'S':
        return read_ubjson_string(t);
    case 'C':
        return take_ubjson_bytes(t, 1, &bytes) && xgboost_text(t->scan, (const char *)bytes, 1);
    case 'Z':
    case 'T':
    case 'F':
        return xgboost_other(t->scan);
    default:
        break;
    }
    if (number_size(marker) ==
        0) /* among them H, numbers of any length, which XGBoost never writes */
        return refuse_ubjson(t, "an unknown marker");
    return read_ubjson_number(t, marker, &whole, &number) && xgboost_number(t->scan, whole, number);
}

static bool read_ubjson_model(struct ubjson_text *t)
{
    unsigned char marker = 0;

    if (!take_marker(t, &marker) || !read_ubjson_value(t, marker))
        return false;
    while (t->at < t->end && *t->at == 'N')
        t->at++;
    if (t->at != t->end)
        return refuse_ubjson(t, "there is more behind the model");
    return xgboost_finish(t->scan);
}

bool treefile_check_ubjson(const char *data, size_t size, struct treefile_why *why)
{
    const unsigned char *bytes = (const unsigned char *)data;
    struct xgboost_scan scan;
    struct ubjson_text t = {.begin = bytes, .at = bytes, .end = bytes + size, .scan = &scan};
    bool ok;

    xgboost_init(&scan, why);
    ok = read_ubjson_model(&t);
    xgboost_done(&scan);
    return ok;
}
