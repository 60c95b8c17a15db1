/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lint_print_start() and lint_print_end() frame the report; one function for each format prints a
 * finding (that of SARIF is in sarif.c). Texts from outside pass through add_clean() or
 * put_clean(), so that no name forges a line. Thread: the caller's.
 */
#include "lint/print.h"

#include <string.h>

#include "base/buf.h"
#include "base/compiler.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "lint/findings.h"
#include "lint/sarif.h"

enum {
    MAX_LINE_BYTES = 1 << 20,
    QUOTE_COLUMNS = 120, /* of a line of the configuration, at most */
    QUOTE_BEFORE = 40    /* of them before the word, where the line is cut */
};

static const char *severity_name(const struct lint_finding *item)
{
    return lint_codes[item->code].is_warning ? "warning" : "error";
}

/* ---- names and texts from outside ------------------------------------------------------------ */

/* How many bytes here would move a terminal's cursor or end the line? */
static size_t control_bytes(const char *s)
{
    unsigned char c = (unsigned char)s[0], next = (unsigned char)s[c != '\0'];
    if (c < 0x20 || c == 0x7f)
        return 1;
    return c == 0xc2 && next >= 0x80 && next < 0xa0 ? 2 : 0; /* U+0080 to U+009F */
}

/* Adds a text on one line, harmless to terminals. */
static void add_clean(struct buf *out, const char *s)
{
    char *text = utf8_printable(s);
    for (const char *c = text; *c; c++) {
        size_t n = control_bytes(c);
        if (*c == '\n') {
            buf_adds(out, "\\n");
        } else if (n == 0) {
            buf_addc(out, *c);
        } else {
            for (size_t i = 0; i < n; i++)
                buf_addf(out, "\\x%02X", (unsigned char)c[i]);
            c += n - 1;
        }
    }
    mem_free(text);
}

/* ---- For people ------------------------------------------------------------------------------ */

static const char *style(const struct lint_printer *p, const char *escape)
{
    return p->colour ? escape : "";
}

static const char *severity_style(const struct lint_printer *p, const struct lint_finding *item)
{
    return style(p, lint_codes[item->code].is_warning ? "\x1b[1;35m" : "\x1b[1;31m");
}

static void print_headline(struct lint_printer *p, const struct lint_finding *item, bool advice,
                           struct buf *line)
{
    const char *off = style(p, "\x1b[0m");

    buf_adds(line, style(p, "\x1b[1m"));
    add_clean(line, item->file);
    if (item->line)
        buf_addf(line, ":%u:%u", item->line, item->column);
    buf_addf(line, ":%s %s%s:%s ", off, severity_style(p, item), severity_name(item), off);
    add_clean(line, item->text);
    if (advice && item->advice) {
        buf_adds(line, "; ");
        add_clean(line, item->advice);
    }
    buf_addf(line, " [%s]\n", lint_codes[item->code].name);
}

/* What a terminal shows for the character at s, and how many bytes the character has. */
struct glyph {
    char text[16];
    size_t n_bytes, columns;
};

static struct glyph glyph_at(const char *s, size_t room, size_t column)
{
    enum { TAB_COLUMNS = 8 };
    struct glyph g = {.n_bytes = utf8_sequence(s, room)};
    unsigned char c = (unsigned char)*s;
    if (c == '\t') {
        g.columns = TAB_COLUMNS - column % TAB_COLUMNS;
        memset(g.text, ' ', g.columns);
    } else if (!g.n_bytes || c < 0x20 || c == 0x7f || (g.n_bytes == 2 && c == 0xc2)) {
        /* With the control characters behind U+0080, some harmless signs are shown so. */
        size_t n = g.n_bytes ? g.n_bytes : 1;
        for (size_t i = 0; i < n; i++)
            snprintf(g.text + 4 * i, sizeof(g.text) - 4 * i, "\\x%02X", (unsigned char)s[i]);
        g.n_bytes = n;
        g.columns = 4 * n;
    } else {
        memcpy(g.text, s, g.n_bytes);
        g.columns = 1;
    }
    return g;
}

/* The columns of the line's first n bytes. */
static size_t columns_of(const struct lint_line *l, size_t n)
{
    size_t column = 0;
    for (size_t i = 0; i < n && i < l->length;) {
        struct glyph g = glyph_at(l->text + i, l->length - i, column);
        column += g.columns;
        i += g.n_bytes;
    }
    return column;
}

/* Adds the line, cut to the columns around its word; returns the column of the first glyph. */
static size_t add_quote(struct buf *out, const struct lint_line *l, size_t word)
{
    size_t first = word > QUOTE_COLUMNS - QUOTE_BEFORE ? word - QUOTE_BEFORE : 0, column = 0;
    bool begun = first == 0;
    for (size_t i = 0; i < l->length;) {
        struct glyph g = glyph_at(l->text + i, l->length - i, column);
        if (!begun && column >= first) {
            begun = true;
            first = column;
            buf_adds(out, "...");
        }
        if (begun && column + g.columns > first + QUOTE_COLUMNS) {
            buf_adds(out, "...");
            break;
        }
        if (begun)
            buf_adds(out, g.text);
        column += g.columns;
        i += g.n_bytes;
    }
    return first;
}

/* Adds the line of the configuration, and marks the word below it. */
static void print_source(struct lint_printer *p, const struct lint_finding *item,
                         const struct lint_line *l, struct buf *line)
{
    char number[16];
    int digits = snprintf(number, sizeof(number), "%u", item->line);
    const char *frame = style(p, "\x1b[1;34m"), *off = style(p, "\x1b[0m");
    size_t word = columns_of(l, l->at), end = columns_of(l, l->at + l->width);

    buf_addf(line, "%s %s |%s ", frame, number, off);
    size_t first = add_quote(line, l, word);
    buf_addf(line, "\n%s %*s |%s %*s%s", frame, digits, "", off,
             (int)(word - first + (first ? 3 : 0)), "", severity_style(p, item));
    if (end > first + QUOTE_COLUMNS)
        end = first + QUOTE_COLUMNS;
    buf_addc(line, '^');
    for (size_t i = word + 1; i < end; i++)
        buf_addc(line, '^');
    buf_addf(line, "%s\n", off);
}

static void print_human(struct lint_printer *p, const struct storage *storage,
                        const struct lint_finding *item, struct buf *line)
{
    struct lint_line source;

    if (!p->explained)
        p->explained = lint_codes[item->code].name;
    print_headline(p, item, false, line);
    if (lint_source_line(&p->sources, storage, item, &source))
        print_source(p, item, &source, line);
    if (item->advice) {
        buf_addf(line, "   %s= help:%s ", style(p, "\x1b[1;36m"), style(p, "\x1b[0m"));
        add_clean(line, item->advice);
        buf_addc(line, '\n');
    }
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void put_clean(struct json_writer *w, const char *name, const char *s)
{
    json_put_name(w, name);
    if (!s) {
        json_put_value(w);
        buf_adds(w->out, "null");
        return;
    }
    char *text = utf8_printable(s);
    json_put_text(w, text);
    mem_free(text);
}

static void print_json(struct lint_printer *p, const struct lint_finding *item, struct buf *line)
{
    struct json_writer w = {.out = line};
    buf_adds(line, p->comma ? ",\n" : "\n");
    p->comma = true;
    json_put_open(&w, '{');
    put_clean(&w, "file", item->file);
    json_put_name(&w, "line");
    json_put_uint64(&w, item->line);
    json_put_name(&w, "column");
    json_put_uint64(&w, item->column);
    put_clean(&w, "severity", severity_name(item));
    put_clean(&w, "code", lint_codes[item->code].name);
    put_clean(&w, "model", item->model);
    put_clean(&w, "text", item->text);
    put_clean(&w, "suggestion", item->advice);
    json_put_close(&w, '}');
}

/* ---- GitHub ---------------------------------------------------------------------------------- */

/* Escapes GitHub's own syntax; in properties also : and , */
static void add_github(struct buf *out, const char *s, bool property)
{
    AUTO(buf) clean = BUF_INIT(MAX_LINE_BYTES);
    add_clean(&clean, s);
    for (const char *c = buf_text(&clean); *c; c++) {
        if (*c == '%' || (property && (*c == ':' || *c == ',')))
            buf_addf(out, "%%%02X", (unsigned char)*c);
        else
            buf_addc(out, *c);
    }
}

static void print_github(const struct lint_finding *item, struct buf *line)
{
    buf_addf(line, "::%s file=", severity_name(item));
    add_github(line, item->file, true);
    if (item->line)
        buf_addf(line, ",line=%u,col=%u", item->line, item->column);
    buf_adds(line, ",title=");
    add_github(line, lint_codes[item->code].name, true);
    buf_adds(line, "::");
    add_github(line, item->text, false);
    if (item->advice) {
        buf_adds(line, "; ");
        add_github(line, item->advice, false);
    }
    buf_addc(line, '\n');
}

/* ---- the report ------------------------------------------------------------------------------ */

/* A note goes on its own line, before the findings. */
static void print_note(struct lint_printer *p, const char *note)
{
    AUTO(buf) line = BUF_INIT(MAX_LINE_BYTES);
    if (p->format == CONCH_CHECK_GITHUB) {
        buf_adds(&line, "::notice title=conch check::");
        add_github(&line, note, false);
    } else {
        buf_addf(&line, "%snote:%s ", style(p, "\x1b[1;36m"), style(p, "\x1b[0m"));
        add_clean(&line, note);
    }
    fprintf(p->out, "%s\n", buf_text(&line));
}

static void print_json_notes(struct lint_printer *p, const struct lint_totals *t)
{
    AUTO(buf) line = BUF_INIT(MAX_LINE_BYTES);
    struct json_writer w = {.out = &line};
    json_put_open(&w, '[');
    for (size_t i = 0; i < t->n_notes; i++) {
        char *text = utf8_printable(t->notes[i]);
        json_put_text(&w, text);
        mem_free(text);
    }
    json_put_close(&w, ']');
    fprintf(p->out, "{\"notes\":%s,\"findings\":[", buf_text(&line));
}

void lint_print_start(struct lint_printer *p, const struct lint_totals *t)
{
    if (p->format == CONCH_CHECK_JSON) {
        print_json_notes(p, t);
    } else if (p->format == CONCH_CHECK_SARIF) {
        sarif_print_start(p);
    } else {
        for (size_t i = 0; i < t->n_notes; i++)
            print_note(p, t->notes[i]);
    }
}

void lint_print_findings(struct lint_printer *p, const struct lint_findings *f)
{
    AUTO(buf) line = BUF_INIT(MAX_LINE_BYTES);
    for (size_t i = 0; i < f->n; i++) {
        const struct lint_finding *item = &f->items[i];
        buf_reset(&line);
        switch (p->format) {
        case CONCH_CHECK_JSON:
            print_json(p, item, &line);
            break;
        case CONCH_CHECK_GITHUB:
            print_github(item, &line);
            break;
        case CONCH_CHECK_SARIF:
            sarif_print_finding(p, f->storage, item, &line);
            break;
        case CONCH_CHECK_SHORT:
            print_headline(p, item, true, &line);
            break;
        default:
            print_human(p, f->storage, item, &line);
        }
        fwrite(buf_text(&line), 1, line.size, p->out);
    }
}

static const char *plural_ending(size_t n)
{
    return n == 1 ? "" : "s";
}

void lint_print_end(struct lint_printer *p, const struct lint_totals *t)
{
    if (p->format == CONCH_CHECK_JSON) {
        fprintf(p->out,
                "\n],\"models\":%zu,\"errors\":%zu,\"warnings\":%zu,\"hidden\":%zu,"
                "\"seconds\":%.3f}\n",
                t->n_models, t->n_errors, t->n_warnings, t->n_hidden, t->seconds);
    } else if (p->format == CONCH_CHECK_SARIF) {
        sarif_print_end(p, t);
    } else {
        if (p->explained)
            fprintf(p->out, "\n'conch check --explain %s' shows an example and its cure\n",
                    p->explained);
        fprintf(p->out, "%zu model%s, %zu error%s, %zu warning%s", t->n_models,
                plural_ending(t->n_models), t->n_errors, plural_ending(t->n_errors), t->n_warnings,
                plural_ending(t->n_warnings));
        if (t->n_hidden)
            fprintf(p->out, " (%zu not shown: at most %d of each model)", t->n_hidden,
                    LINT_MAX_FINDINGS);
        fprintf(p->out, ", %.3f s\n", t->seconds);
    }
    fflush(p->out);
}
