/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All cells are kept until the table is printed, since a column is as wide as its widest cell.
 * Widths count bytes. One thread at a time uses a table.
 */
#include "base/table.h"

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

static void print_rule(const struct table_text *t, struct buf *out)
{
    for (size_t i = 0; i < t->n_columns; i++) {
        buf_addc(out, '+');
        put_repeated(out, '-', t->widths[i] + 2);
    }
    buf_adds(out, "+\n");
}

void table_text_print(const struct table_text *t, struct buf *out)
{
    print_rule(t, out);
    for (size_t row = 0; row < t->n_rows; row++) {
        for (size_t i = 0; i < t->n_columns; i++) {
            const char *cell = t->cells[row * t->n_columns + i];
            buf_addf(out, "| %s ", cell);
            put_repeated(out, ' ', t->widths[i] - strlen(cell));
        }
        buf_adds(out, "|\n");
        if (row == 0)
            print_rule(t, out);
    }
    print_rule(t, out);
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
