/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The header endpoint-load-metrics of ORCA: how full the cache of a language model is
 * (reference/behaviours §5.8). A backend tells it by a family of metrics of its own.
 */
#ifndef CONCH_FRONTENDS_HTTP_LOAD_METRICS_H
#define CONCH_FRONTENDS_HTTP_LOAD_METRICS_H

#include <stddef.h>

#include "frontends/http/call.h"

enum { LOAD_METRICS_BYTES = 256 };

/* load_metrics_form_of - the form that a client has named; the letters' case counts. */
enum load_metrics_form load_metrics_form_of(const char *name, size_t length);

/*
 * load_metrics_header - prints the header with its CR LF. Returns its length; 0 when none is
 * wanted, or no backend has set all of the metric's values.
 *
 * Thread: any. Takes the lock of the families.
 */
size_t load_metrics_header(enum load_metrics_form form, char text[LOAD_METRICS_BYTES]);

#endif
