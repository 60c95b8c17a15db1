/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names, labels and numbers as Prometheus reads them. Numbers are written as C++ prints them,
 * whatever the process's locale is. There is no state: each function adds to the caller's buffer.
 */
#include "core/metrics/exposition.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/utf8.h"

/* Adds the text with a backslash before characters that would end the line, or the value. */
static void add_escaped(struct buf *out, const char *text, bool quoted)
{
    char *printable = LIKELY(utf8_is_valid(text, strlen(text))) ? NULL : utf8_printable(text);
    for (const char *p = printable ? printable : text; *p; p++) {
        if (*p == '\\' || *p == '\n' || (quoted && *p == '"'))
            buf_addc(out, '\\');
        buf_addc(out, *p == '\n' ? 'n' : *p);
    }
    mem_free(printable);
}

void exposition_family(struct buf *out, const char *name, const char *help, enum metric_kind kind)
{
    static const char *const types[] = {"counter", "gauge", "histogram"};
    buf_addf(out, "# HELP %s ", name);
    add_escaped(out, help, false);
    buf_addf(out, "\n# TYPE %s %s\n", name, types[kind]);
}

void exposition_label(struct buf *out, bool first, const char *name, const char *value)
{
    buf_addf(out, "%s%s=\"", first ? "" : ",", name);
    add_escaped(out, value, true);
    buf_addc(out, '"');
}

/*
 * Prints it as C and C++ do, since bounds of buckets are labels: a text comparison then finds those
 * of the reference. Sixteen digits are enough for nearly all numbers that people write.
 */
static void add_fraction(struct buf *out, double value)
{
    char text[40];
    snprintf(text, sizeof(text), "%.16g", value);
    if (strtod(text, NULL) != value)
        snprintf(text, sizeof(text), "%.17g", value);
    /* The character that an embedder's locale has instead of the point. */
    size_t digits = strspn(text, "-0123456789");
    size_t point = strcspn(text + digits, "0123456789e");
    buf_add(out, text, digits);
    if (point)
        buf_addc(out, '.');
    buf_adds(out, text + digits + point);
}

void exposition_number(struct buf *out, double value)
{
    if (isnan(value))
        buf_adds(out, "Nan");
    else if (isinf(value))
        buf_adds(out, value > 0 ? "+Inf" : "-Inf");
    else if (fabs(value) < 0x1p53 && trunc(value) == value)
        json_write_int64(out, (int64_t)value);
    else
        add_fraction(out, value);
}

void exposition_line(struct buf *out, const char *name, const char *suffix, const char *labels,
                     const double *le, double value)
{
    buf_adds(out, name);
    buf_adds(out, suffix);
    if (le || *labels) {
        buf_addc(out, '{');
        buf_adds(out, labels);
        if (le) {
            buf_adds(out, *labels ? ",le=\"" : "le=\"");
            exposition_number(out, *le);
            buf_addc(out, '"');
        }
        buf_addc(out, '}');
    }
    buf_addc(out, ' ');
    exposition_number(out, value);
    buf_addc(out, '\n');
}
