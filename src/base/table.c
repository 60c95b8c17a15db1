/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All cells are kept until the table is printed, since a column is as wide as its widest cell.
 * Widths count bytes, as the reference's do, and characters where a terminal shows the table. One
 * thread at a time uses a table.
 */
#include "base/table.h"

#include <stdbool.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"

struct table_text {
    size_t n_columns, n_rows; /* row 0 has the titles */
    size_t *widths;
    char **cells;
};

/* Replaces line ends: inside a cell one would break the frame, and could forge a row. */
static char *one_line(const char *text)
{
    char *copy = mem_strdup(text);
    for (char *p = copy; *p; p++) {
        if ((unsigned char)*p < ' ')
            *p = ' ';
    }
    return copy;
}

void table_text_row(struct table_text *t, const char *const *cells)
{
    size_t n = t->n_rows * t->n_columns;
    t->cells = mem_realloc(t->cells, (n + t->n_columns) * sizeof(char *));
    for (size_t i = 0; i < t->n_columns; i++) {
        t->cells[n + i] = one_line(cells[i]);
        t->widths[i] = MAX(t->widths[i], strlen(cells[i]));
    }
    t->n_rows++;
}

struct table_text *table_text_new(size_t n_columns, const char *const *titles)
{
    struct table_text *t = mem_zalloc(sizeof(*t));
    t->n_columns = n_columns;
    t->widths = mem_zalloc(n_columns * sizeof(*t->widths));
    table_text_row(t, titles);
    return t;
}

static void put_repeated(struct buf *out, char c, size_t n)
{
    while (n-- > 0)
        buf_addc(out, c);
}

static const char *cell_of(const struct table_text *t, size_t row, size_t column)
{
    return t->cells[row * t->n_columns + column];
}

/* A column of width 0 is not printed. */
static void print_rule(const struct table_text *t, const size_t *widths, struct buf *out)
{
    for (size_t i = 0; i < t->n_columns; i++) {
        if (!widths[i])
            continue;
        buf_addc(out, '+');
        put_repeated(out, '-', widths[i] + 2);
    }
    buf_adds(out, "+\n");
}

static void print_whole(const struct table_text *t, struct buf *out)
{
    print_rule(t, t->widths, out);
    for (size_t row = 0; row < t->n_rows; row++) {
        for (size_t i = 0; i < t->n_columns; i++) {
            const char *cell = cell_of(t, row, i);
            buf_addf(out, "| %s ", cell);
            put_repeated(out, ' ', t->widths[i] - strlen(cell));
        }
        buf_adds(out, "|\n");
        if (row == 0)
            print_rule(t, t->widths, out);
    }
    print_rule(t, t->widths, out);
}

/* ---- On a terminal --------------------------------------------------------------------------- */

enum { LEAST_COLUMNS = 8 }; /* no column is made narrower than that */

static bool begins_character(char c)
{
    return ((unsigned char)c & 0xc0) != 0x80;
}

static size_t count_characters(const char *text, size_t n_bytes)
{
    size_t n = 0;
    for (size_t i = 0; i < n_bytes; i++)
        n += begins_character(text[i]);
    return n;
}

/* The width of each column; 0: none of its cells has a text. */
static void measure_columns(const struct table_text *t, size_t *widths)
{
    for (size_t i = 0; i < t->n_columns; i++) {
        const char *title = cell_of(t, 0, i);
        size_t width = 0;
        for (size_t row = 1; row < t->n_rows; row++)
            width = MAX(width, count_characters(cell_of(t, row, i), strlen(cell_of(t, row, i))));
        widths[i] = width ? MAX(width, count_characters(title, strlen(title))) : 0;
    }
}

/* Narrows the widest columns to the next width, again and again, until the table fits. */
static void narrow_columns(size_t *widths, size_t n, size_t columns)
{
    for (;;) {
        size_t total = 1, widest = 0, next = LEAST_COLUMNS, n_widest = 0;
        for (size_t i = 0; i < n; i++) {
            total += widths[i] ? widths[i] + 3 : 0;
            widest = MAX(widest, widths[i]);
        }
        if (total <= columns || widest <= LEAST_COLUMNS)
            return;
        for (size_t i = 0; i < n; i++) {
            n_widest += widths[i] == widest;
            next = widths[i] < widest ? MAX(next, widths[i]) : next;
        }
        size_t share = (total - columns + n_widest - 1) / n_widest;
        for (size_t i = 0; i < n; i++) {
            if (widths[i] == widest)
                widths[i] -= MIN(share, widest - next);
        }
    }
}

/* How many bytes of the text are its next line: up to a blank, behind a comma or a slash, or as
 * many as fit. */
static size_t next_line(const char *text, size_t width)
{
    size_t n = 0, n_characters = 0, good = 0;
    while (text[n]) {
        if (begins_character(text[n]) && ++n_characters > width) {
            if (text[n] == ' ')
                return n;
            return good ? good : n;
        }
        if (n > 0 && text[n] == ' ')
            good = n;
        n++;
        if (text[n - 1] == ',' || text[n - 1] == '/')
            good = n;
    }
    return n;
}

/* @rest  the text of each cell that is still to be printed */
static void print_wrapped_row(const struct table_text *t, const size_t *widths, const char **rest,
                              struct buf *out)
{
    bool more = true;
    while (more) {
        more = false;
        for (size_t i = 0; i < t->n_columns; i++) {
            if (!widths[i])
                continue;
            size_t n = next_line(rest[i], widths[i]);
            buf_addf(out, "| %.*s ", (int)n, rest[i]);
            put_repeated(out, ' ', widths[i] - count_characters(rest[i], n));
            rest[i] += n;
            rest[i] += strspn(rest[i], " ");
            more |= *rest[i] != '\0';
        }
        buf_adds(out, "|\n");
    }
}

static void print_fitted(const struct table_text *t, size_t columns, struct buf *out)
{
    if (t->n_rows == 1)
        return;
    size_t *widths = mem_zalloc(t->n_columns * sizeof(*widths));
    const char **rest = mem_zalloc(t->n_columns * sizeof(*rest));
    measure_columns(t, widths);
    narrow_columns(widths, t->n_columns, columns);
    print_rule(t, widths, out);
    for (size_t row = 0; row < t->n_rows; row++) {
        for (size_t i = 0; i < t->n_columns; i++)
            rest[i] = cell_of(t, row, i);
        print_wrapped_row(t, widths, rest, out);
        if (row == 0)
            print_rule(t, widths, out);
    }
    print_rule(t, widths, out);
    mem_free(rest);
    mem_free(widths);
}

void table_text_print(const struct table_text *t, size_t columns, struct buf *out)
{
    if (columns)
        print_fitted(t, columns, out);
    else
        print_whole(t, out);
}

void table_text_free(struct table_text *t)
{
    if (!t)
        return;
    for (size_t i = 0; i < t->n_rows * t->n_columns; i++)
        mem_free(t->cells[i]);
    mem_free(t->cells);
    mem_free(t->widths);
    mem_free(t);
}
