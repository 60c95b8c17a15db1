/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An operation that may take long, such as the load of a model. So the loop gives it to a control
 * thread, with its body, which may be large, and goes on. The answer returns as a message.
 */
#ifndef CONCH_FRONTENDS_HTTP_ADMIN_CALL_H
#define CONCH_FRONTENDS_HTTP_ADMIN_CALL_H

#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/compiler.h"
#include "frontends/ops/control_call.h"

struct exchange;
struct server;
struct status;

struct admin_call {
    struct exchange *x; /* its body may be read */
    struct status *(*work)(struct admin_call *a);
    char *name; /* of the model; NULL: none */
    struct control_call call;

    struct arena arena; /* for values read from the body */

    /* The answer. */
    struct status *st;
    struct buf text;          /* a document; pooled */
    const char *content_type; /* constant; application/json unless `work` sets another */
    int bare_status;          /* set by `work`: the HTTP status of a reply without a body; 0: 200 */
};

/*
 * admin_call_begin - has `work` called on a control thread, and then replies with its error, or
 * with what it has written to a->text.
 *
 * Thread: the loop's.
 * @is_load, @control  as in control_call_begin()
 */
void admin_call_begin(struct exchange *x, struct status *(*work)(struct admin_call *a),
                      bool is_load, struct control *control);

/*
 * admin_call_begin_in_line - the same, for work that may wait long: those of one line follow each
 * other, so that they keep one thread.
 *
 * @line  constant
 */
void admin_call_begin_in_line(struct exchange *x, struct status *(*work)(struct admin_call *a),
                              struct control *control, const char *line);

/* admin_call_server - the server that the work is for. Thread: any. */
struct server *admin_call_server(const struct admin_call *a);

/* admin_call_control - the threads for operations that change something. */
struct control *admin_call_control(struct exchange *x);

/*
 * admin_call_check_body - Errors: the body is no JSON, or too large. It may be empty.
 */
NODISCARD struct status *admin_call_check_body(const struct admin_call *a);

#endif
