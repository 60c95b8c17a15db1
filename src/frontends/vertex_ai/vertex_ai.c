/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Vertex AI's protocol (reference/features §1.4): a dialect of the HTTP frontend with two routes,
 * whose paths the platform chooses. Their requests ask the default model, or what the header
 * X-Vertex-Ai-Triton-Redirect names: a path of HTTP without its first slash. The table of what it
 * may name is made from HTTP's own routes, so that nothing there is reached in another way: what
 * changes the server is refused, and what only HTTP has is unknown.
 *
 * Threads: start on the caller's, all else on the loop; print_metrics() on a helper.
 */
#include "conch/conch.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/regex.h"
#include "base/status.h"
#include "core/server/server.h"
#include "frontends/http/admin_call.h"
#include "frontends/http/call.h"
#include "frontends/http/dialect.h"
#include "frontends/http/handlers.h"
#include "frontends/http/head_reading.h"
#include "frontends/http/reply.h"
#include "frontends/serve/service_options.h"

static const char binary_type[] = "application/vnd.vertex-ai-triton.binary+json;json-header-size=";

/* http_settings.dialect_data. */
struct vertex_ai {
    struct regex *health, *predict; /* of a whole path */
    char *default_model;
    size_t n_redirects;
    struct route *redirects; /* what the header may name, all by POST */
};

static struct vertex_ai *vertex_ai_of(struct exchange *x)
{
    return call_ctx(x)->settings->dialect_data;
}

/* ---- Handlers -------------------------------------------------------------------------------- */

static void ask_default_model(struct exchange *x)
{
    struct http_call *call = exchange_part(x);
    const struct vertex_ai *v = vertex_ai_of(x);
    call->model =
        (struct ops_model_ref){.name = v->default_model, .name_length = strlen(v->default_model)};
    infer_handle(x);
}

static void refuse_method(struct exchange *x)
{
    http_reply_bare(x, 405);
}

static void refuse_change(struct exchange *x)
{
    http_reply_bare(x, 403);
}

static void refuse_vertex_path(struct exchange *x)
{
    http_reply_bare(x, 400);
}

static struct status *print_metrics(struct admin_call *a)
{
    a->content_type = "text/plain; charset=utf-8";
    return server_metrics(admin_call_server(a), &a->text);
}

/* The page of thousands of models takes long, so a helper prints it. */
static void reply_metrics(struct exchange *x)
{
    struct server *server = call_ctx(x)->settings->server;
    if (server_has_metrics(server))
        admin_call_begin(x, print_metrics, false, server_helpers(server));
    else
        http_reply_bare(x, 400);
}

/* ---- Routes ---------------------------------------------------------------------------------- */

static void read_vertex_headers(void *note, const struct http_head *head)
{
    read_binary_type(note, head, binary_type);
}

static const struct route health_route = {METHOD_GET,   "",    meta_ready, OPS_API_HEALTH,
                                          content_text, false, NULL};
static const struct route predict_route = {
    METHOD_POST, "", ask_default_model, OPS_API_INFERENCE, content_text, true, read_vertex_headers};
/* The page tells what the statistics of all models tell, so who may not read these gets neither. */
static const struct route metrics_redirect = {
    METHOD_POST, "metrics", reply_metrics, OPS_API_STATISTICS, content_text, false, NULL};
/* A redirection by another method than POST; the method is the request's. */
static const struct route wrong_redirects[] = {
    {METHOD_GET, "", refuse_method, OPS_API_OPEN, content_text, false, NULL},
    {METHOD_HEAD, "", refuse_method, OPS_API_OPEN, content_text, false, NULL},
    {METHOD_DELETE, "", refuse_method, OPS_API_OPEN, content_text, false, NULL},
    {METHOD_OPTIONS, "", refuse_method, OPS_API_OPEN, content_text, false, NULL},
    {METHOD_OTHER, "", refuse_method, OPS_API_OPEN, content_text, false, NULL},
};

/* Adds the redirection to one of HTTP's routes, if it has one. */
static void add_redirect(struct vertex_ai *v, const struct route *route)
{
    struct route *r = &v->redirects[v->n_redirects];
    *r = *route;
    r->pattern++; /* the header's value has no first slash */
    r->method = METHOD_POST;
    switch (route->api) {
    case OPS_API_HEALTH:
    case OPS_API_METADATA:
    case OPS_API_STATISTICS:
    case OPS_API_MODEL_CONFIG:
        break;
    case OPS_API_INFERENCE:
        if (route->handle != infer_handle)
            return;
        r->read_head = read_vertex_headers;
        break;
    case OPS_API_MODEL_REPOSITORY:
        if (route->handle != admin_index)
            r->handle = refuse_change;
        break;
    case OPS_API_SHARED_MEMORY:
        if (route->method != METHOD_GET)
            r->handle = refuse_change;
        break;
    default:
        return;
    }
    if (r->handle == refuse_change)
        r->takes_body = false;
    v->n_redirects++;
}

static void make_redirects(struct vertex_ai *v)
{
    size_t n;
    const struct route *routes = http_routes(&n);
    v->redirects = mem_alloc((n + 1) * sizeof(*v->redirects));
    v->redirects[v->n_redirects++] = metrics_redirect;
    for (size_t i = 0; i < n; i++)
        add_redirect(v, &routes[i]);
}

static struct route_match find_redirect(const struct vertex_ai *v, const struct http_head *head,
                                        struct span redirect)
{
    if (head->method == METHOD_POST)
        return route_find(v->redirects, v->n_redirects, METHOD_POST, redirect);
    for (size_t i = 0; i < ARRAY_SIZE(wrong_redirects); i++) {
        if (wrong_redirects[i].method == head->method)
            return (struct route_match){.route = &wrong_redirects[i]};
    }
    return (struct route_match){0};
}

static struct route_match find_vertex_route(const struct http_settings *settings,
                                            const struct http_head *head)
{
    static const char redirect_name[] = "x-vertex-ai-triton-redirect";
    const struct vertex_ai *v = settings->dialect_data;
    struct span path = head_path(head);
    if (regex_matches(v->health, path.at, path.length))
        return (struct route_match){.route = &health_route};
    if (!regex_matches(v->predict, path.at, path.length))
        return (struct route_match){0};
    struct span redirect = head_find(head, redirect_name, sizeof(redirect_name) - 1);
    return redirect.at ? find_redirect(v, head, redirect)
                       : (struct route_match){.route = &predict_route};
}

static struct span find_vertex_model(struct exchange *x, const struct route *route,
                                     struct span named, struct span target)
{
    const char *name = vertex_ai_of(x)->default_model;
    (void)target;
    return route == &predict_route ? (struct span){name, strlen(name)} : named;
}

static void free_vertex_ai(void *data)
{
    struct vertex_ai *v = data;
    regex_free(v->health);
    regex_free(v->predict);
    mem_free(v->default_model);
    mem_free(v->redirects);
    mem_free(v);
}

static const struct http_dialect dialect = {
    .service = "Vertex AI HTTPService",
    .protocol = "vertex_ai",
    .find_route = find_vertex_route,
    .find_model = find_vertex_model,
    .refuse_path = refuse_vertex_path,
    .binary_type = binary_type,
    .free_data = free_vertex_ai,
};

/* ---- Start ----------------------------------------------------------------------------------- */

static const char *environment_or_empty(const char *variable)
{
    const char *value = getenv(variable);
    return value ? value : "";
}

void conch_vertex_ai_options_init(struct conch_vertex_ai_options *o)
{
    *o = (struct conch_vertex_ai_options){
        .size = sizeof(*o),
        .predict_route = environment_or_empty("AIP_PREDICT_ROUTE"),
        .health_route = environment_or_empty("AIP_HEALTH_ROUTE"),
        .default_model = "",
    };
}

/* The expression must match a whole path. It is compiled alone first, since "a)(b" would be right
 * inside a group. */
static struct status *compile_route(const char *variable, const char *pattern, struct regex **ret)
{
    struct regex *alone = NULL;
    struct status *st = regex_new(pattern, false, &alone);
    regex_free(alone);
    if (st)
        return status_prefix(st, "%s: ", variable);
    char *whole = mem_printf("\\A(?:%s)\\z", pattern);
    st = regex_new(whole, false, ret);
    mem_free(whole);
    return st ? status_prefix(st, "%s: ", variable) : NULL;
}

static struct status *compile_routes(struct vertex_ai *v, const struct conch_vertex_ai_options *o)
{
    if (!*o->predict_route) /* with the reference's slip in the name */
        return status_new(STATUS_INVALID_ARG,
                          "API_PREDICT_ROUTE is not defined for Vertex AI endpoint");
    if (!*o->health_route)
        return status_new(STATUS_INVALID_ARG,
                          "AIP_HEALTH_ROUTE is not defined for Vertex AI endpoint");
    struct status *st = compile_route("AIP_PREDICT_ROUTE", o->predict_route, &v->predict);
    return st ? st : compile_route("AIP_HEALTH_ROUTE", o->health_route, &v->health);
}

/* The name of the only model that is ready; NULL: there are none or several. The rows are sorted by
 * name. */
static const char *only_model(const struct model_index_row *rows, size_t n)
{
    return n > 0 && strcmp(rows[0].name, rows[n - 1].name) == 0 ? rows[0].name : NULL;
}

static bool is_in_index(const struct model_index_row *rows, size_t n, const char *name)
{
    size_t i = 0;
    while (i < n && strcmp(rows[i].name, name) != 0)
        i++;
    return i < n;
}

static struct status *find_default_model(struct server *server, const char *wanted, char **ret)
{
    struct model_index_row *rows;
    size_t n;
    struct status *st = server_index(server, true, &rows, &n);
    if (st)
        return st;
    const char *name = *wanted ? wanted : only_model(rows, n);
    if (!name)
        st = status_new(STATUS_INVALID_ARG,
                        "Expect the model repository contains only a single model if default "
                        "model is not specified");
    else if (!is_in_index(rows, n, name))
        st = status_new(STATUS_INVALID_ARG, "Expect the default model '%s' is loaded", name);
    else
        *ret = mem_strdup(name);
    mem_free(rows);
    return st;
}

static struct status *start_vertex_service(struct server *server,
                                           const struct conch_http_options *http,
                                           const struct conch_vertex_ai_options *o,
                                           struct conch_http **ret_http)
{
    struct vertex_ai *v = mem_zalloc(sizeof(*v));
    struct status *st = compile_routes(v, o);
    if (!st)
        st = find_default_model(server, o->default_model, &v->default_model);
    if (st) {
        free_vertex_ai(v);
        return st;
    }
    make_redirects(v);
    return http_start(server, http, &dialect, v, ret_http);
}

TRITONSERVER_Error *conch_vertex_ai_start(TRITONSERVER_Server *server,
                                          const struct conch_vertex_ai_options *options,
                                          struct conch_http **ret_http)
{
    struct conch_vertex_ai_options o;
    struct conch_http_options http;
    conch_vertex_ai_options_init(&o);
    struct status *st = service_options_take("conch_vertex_ai_start",
                                             server && ret_http ? options : NULL, &o, sizeof(o));
    if (!st)
        st = http_options_read(o.http, &http);
    if (!st)
        st = start_vertex_service((struct server *)server, &http, &o, ret_http);
    return (TRITONSERVER_Error *)st;
}
