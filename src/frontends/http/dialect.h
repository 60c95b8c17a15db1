/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A dialect of the HTTP frontend: the same handlers at other paths, with some rules of its own.
 * KServe's own paths (routes.def) are one, SageMaker and Vertex AI are others. Each is a service
 * with its own port; conch_http_port(), conch_http_begin_stop() and conch_http_stop() are for all.
 */
#ifndef CONCH_FRONTENDS_HTTP_DIALECT_H
#define CONCH_FRONTENDS_HTTP_DIALECT_H

#include <stddef.h>

#include "base/compiler.h"
#include "frontends/http/route.h"

struct conch_http;
struct conch_http_options;
struct exchange;
struct http_settings;
struct server;
struct status;

struct http_dialect {
    const char *service;  /* its name in the log: "Started <service> at …" */
    const char *protocol; /* … and in metrics */
    /*
     * Finds the route for a head. A route with another method than the head's is refused with 405.
     * Thread: the loop's, as below.
     */
    struct route_match (*find_route)(const struct http_settings *s, const struct http_head *head);
    /*
     * The model that a request is about, for access rules; .at is NULL: none, or any. Optional.
     *
     * @named, @target  what the path and a header name
     */
    struct span (*find_model)(struct exchange *x, const struct route *route, struct span named,
                              struct span target);
    /* Replies to a request that has no route. */
    void (*refuse_path)(struct exchange *x);
    /* The HTTP status of an error, which may get another content type; NULL: that of
     * base/status.def. */
    int (*error_status)(struct exchange *x, const struct status *st, const char **content_type);
    /*
     * The MIME type of requests with binary tensors, and that of replies, to which the length of
     * the JSON is added. NULL: that length is in the header Inference-Header-Content-Length.
     */
    const char *binary_type, *binary_reply_type;
    /* Frees http_settings.dialect_data, when no request is left. */
    void (*free_data)(void *data);
};

extern const struct http_dialect http_kserve; /* that of conch_http_start() */

/*
 * http_options_read - the options that a caller gives, completed: its header may be older.
 *
 * Errors: STATUS_INVALID_ARG  given is NULL or has an impossible size
 */
NODISCARD struct status *http_options_read(const struct conch_http_options *given,
                                           struct conch_http_options *ret);

/*
 * http_start - serves a dialect; see conch_http_start().
 *
 * @options  complete: of this library's size
 * @data     for http_settings.dialect_data; taken, also on error
 */
NODISCARD struct status *http_start(struct server *server, const struct conch_http_options *options,
                                    const struct http_dialect *dialect, void *data,
                                    struct conch_http **ret_http);

/* http_routes - the routes of KServe, *ret_n of them. */
const struct route *http_routes(size_t *ret_n);

/* http_reply_bare - replies with an empty body. */
void http_reply_bare(struct exchange *x, int status);

#endif
