/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The page of metrics: those of the server's models and of the machine, then those that backends
 * and embedders have defined. Only model_metrics.h has measurements for the page alone; all else is
 * read from the statistics when the page is printed.
 *
 * Source: reference/features §5, reference/behaviours §16
 */
#ifndef CONCH_CORE_SERVER_PAGE_H
#define CONCH_CORE_SERVER_PAGE_H

#include "base/compiler.h"

struct budget;
struct buf;
struct machine;
struct model;
struct server;
struct server_options;
struct status;

/* What the page is about. */
struct page_source {
    const struct server_options *options;
    struct clock *clock;
    struct model *const *models; /* NULL ends; NULL: there are none */
    struct machine *machine;     /* NULL: its metrics are switched off */
    struct budget *connections;  /* of what the frontends' connections keep */
    const struct server *server; /* for parts of the page that others print */
};

/* Prints whole families, whose names begin with "conch_frontend_"; nothing is printed yet of them.
 */
typedef void page_part_fn(const struct server *server, struct buf *out);

/*
 * page_add_part - has the function called for each page, behind the server's own families. A part
 * is left out when metrics are switched off. Thread: the one that loads the library.
 */
void page_add_part(page_part_fn *print);

/*
 * page_print - the whole page; see server_metrics().
 *
 * Thread: any. Takes instance.stats.mu of one instance after the other, each for a few additions,
 * and the lock of each scheduler in which requests wait.
 */
NODISCARD struct status *page_print(const struct page_source *source, struct buf *out);

#endif
