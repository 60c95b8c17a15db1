/* SPDX-License-Identifier: Apache-2.0 */
/* text - see text.h. */
#include "python/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool text_add(struct text *t, const char *bytes, size_t len)
{
    if (len > t->room - t->len) {
        const size_t room = (t->len + len) * 2 + 256;
        char *grown = realloc(t->bytes, room);

        if (!grown)
            return false;
        t->bytes = grown;
        t->room = room;
    }
    memcpy(t->bytes + t->len, bytes, len);
    t->len += len;
    return true;
}

void text_done(struct text *t)
{
    free(t->bytes);
    *t = (struct text){0};
}

static bool add_escape(struct text *t, unsigned char byte)
{
    char escape[8];
    const int len = byte < 0x20 ? snprintf(escape, sizeof escape, "\\u%04x", byte)
                                : snprintf(escape, sizeof escape, "\\%c", byte);

    return text_add(t, escape, (size_t)len);
}

static bool add_quoted(struct text *t, const char *string)
{
    bool added = text_add(t, "\"", 1);

    while (*string && added) {
        const char *plain = string;

        while (*string && *string != '"' && *string != '\\' && (unsigned char)*string >= 0x20)
            string++;
        added = text_add(t, plain, (size_t)(string - plain)) &&
                (!*string || add_escape(t, (unsigned char)*string++));
    }
    return added && text_add(t, "\"", 1);
}

/* A whole number of this kind stays a float in Python; NaN and Infinity are Python's words. */
static bool add_float(struct text *t, double value)
{
    char digits[48];
    int len;

    if (value - value != 0)
        len = snprintf(digits, sizeof digits, "%s",
                       value != value ? "NaN"
                       : value > 0    ? "Infinity"
                                      : "-Infinity");
    else
        len = snprintf(digits, sizeof digits, "%.17g", value);
    return text_add(t, digits, (size_t)len) && (strpbrk(digits, ".eIN") || text_add(t, ".0", 2));
}

static bool add_parameter_value(struct text *t, TRITONSERVER_ParameterType type, const void *value)
{
    char digits[32];

    switch (type) {
    case TRITONSERVER_PARAMETER_STRING:
        return add_quoted(t, value);
    case TRITONSERVER_PARAMETER_INT:
        return text_add(
            t, digits,
            (size_t)snprintf(digits, sizeof digits, "%" PRId64, *(const int64_t *)value));
    case TRITONSERVER_PARAMETER_BOOL:
        return *(const bool *)value ? text_add(t, "true", 4) : text_add(t, "false", 5);
    case TRITONSERVER_PARAMETER_DOUBLE:
        return add_float(t, *(const double *)value);
    default:
        return text_add(t, "null", 4);
    }
}

bool text_add_member(struct text *t, bool is_first, const char *key,
                     TRITONSERVER_ParameterType type, const void *value)
{
    return text_add(t, is_first ? "{" : ",", 1) && add_quoted(t, key) && text_add(t, ":", 1) &&
           add_parameter_value(t, type, value);
}
