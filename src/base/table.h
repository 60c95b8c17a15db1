/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text tables with a frame, as the start-up log shows them:
 *
 *     +-------+---------+--------+
 *     | Model | Version | Status |
 *     +-------+---------+--------+
 *     | add   | 1       | READY  |
 *     +-------+---------+--------+
 */
#ifndef CONCH_BASE_TABLE_H
#define CONCH_BASE_TABLE_H

#include <stddef.h>

struct buf;
struct table_text;

struct table_text *table_text_new(size_t n_columns, const char *const *titles);
/*
 * table_text_row - adds a row; the cells are copied. Control characters, such as newlines, are
 * shown as blanks.
 */
void table_text_row(struct table_text *t, const char *const *cells);
/*
 * table_text_print - prints the table.
 *
 * @columns  the width of the terminal that shows it: long cells are wrapped, so that the table fits
 *           if that is possible; a column without a text is left out, and so is a table without a
 *           row. 0: the whole table, as wide as it is
 */
void table_text_print(const struct table_text *t, size_t columns, struct buf *out);
void table_text_free(struct table_text *t);

#endif
