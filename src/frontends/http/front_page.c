/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a person finds at the server's address: `/` is a page for browsers with the models, their
 * states and links, and JSON for other clients; `/metrics` says where the metrics are.
 *
 * Threads: the handlers run on the loop, the functions that they name on a control thread, since
 * the index reads the repositories' folders.
 */
#include "frontends/http/handlers.h"

#include "base/json.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/repo/index_row.h"
#include "core/server/server.h"
#include "documents/documents.h"
#include "frontends/http/admin_call.h"
#include "frontends/http/call.h"
#include "frontends/http/reply.h"
#include "frontends/serve/service_metrics.h"

/* What the page shows. */
struct front {
    const struct server *server;
    struct server_progress progress;
    struct model_index_row *rows;
    size_t n_rows;
    int metrics_port; /* 0: there are none */
};

/* The index is empty before the server has found its repositories. */
static struct status *front_read(struct server *s, struct front *ret)
{
    *ret = (struct front){.server = s};
    struct status *st = server_progress(s, 0, &ret->progress);
    if (st)
        return st;
    ret->metrics_port = service_metrics_port(s, "metrics");
    st = server_index(s, false, &ret->rows, &ret->n_rows);
    if (st && status_code(st) == STATUS_UNAVAILABLE && st != status_no_memory()) {
        status_free(st);
        st = NULL;
    }
    return st;
}

static void front_done(struct front *f)
{
    mem_free(f->progress.rows);
    mem_free(f->rows);
}

/* ---- JSON ----------------------------------------------------------------------------------- */

static void put_text_member(struct json_writer *w, const char *name, const char *text)
{
    json_put_name(w, name);
    json_put_text(w, text);
}

static void print_front_json(const struct front *f, struct buf *out)
{
    struct json_writer w = {.out = out};
    json_put_open(&w, '{');
    put_text_member(&w, "name", "conch");
    put_text_member(&w, "version", server_version(f->server));
    put_text_member(&w, "state", f->progress.state);
    json_put_name(&w, "ready");
    json_put_bool(&w, f->progress.ready);
    json_put_name(&w, "links");
    json_put_open(&w, '{');
    put_text_member(&w, "server", "/v2");
    put_text_member(&w, "ready", "/v2/health/ready");
    put_text_member(&w, "statistics", "/v2/models/stats");
    json_put_close(&w, '}');
    if (f->metrics_port) {
        json_put_name(&w, "metrics_port");
        json_put_int64(&w, f->metrics_port);
    }
    json_put_name(&w, "models");
    document_index(f->rows, f->n_rows, out);
    buf_addc(out, '}');
}

/* ---- A page for browsers -------------------------------------------------------------------- */

static void add_html(struct buf *out, const char *text)
{
    for (; *text; text++) {
        switch (*text) {
        case '<':
            buf_adds(out, "&lt;");
            break;
        case '>':
            buf_adds(out, "&gt;");
            break;
        case '&':
            buf_adds(out, "&amp;");
            break;
        case '"':
            buf_adds(out, "&quot;");
            break;
        default:
            buf_addc(out, *text);
        }
    }
}

static void add_link(struct buf *out, const struct model_index_row *row, const char *rest,
                     const char *text)
{
    buf_adds(out, " <a href=\"/v2/models/");
    add_html(out, row->name);
    buf_addf(out, "/versions/%lld%s\">%s</a>", (long long)row->version, rest, text);
}

static void add_model_row(struct buf *out, const struct model_index_row *row)
{
    const char *state = version_state_name(row->state);
    bool is_ready = row->state == VERSION_READY;
    buf_adds(out, "<tr><td>");
    add_html(out, row->name);
    buf_adds(out, "</td><td>");
    if (row->version >= 0)
        buf_addf(out, "%lld", (long long)row->version);
    buf_addf(out, "</td><td class=\"%s\">%s</td><td>", is_ready ? "ready" : "other",
             *state ? state : "not loaded");
    add_html(out, row->reason);
    if (is_ready) {
        add_link(out, row, "", "inputs and outputs");
        add_link(out, row, "/config", "configuration");
        add_link(out, row, "/stats", "statistics");
    }
    buf_adds(out, "</td></tr>\n");
}

/* The script only writes the address that the browser has used into the commands. */
static void print_front_html(const struct front *f, struct buf *out)
{
    const char *example = NULL;
    buf_adds(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Conch</title>\n"
        "<meta name=\"viewport\" content=\"width=device-width\">\n<style>"
        "body{font-family:sans-serif;margin:2em;max-width:60em}"
        "td,th{text-align:left;padding:.2em 1em .2em 0;vertical-align:top}"
        ".ready{color:#070}.other{color:#a00}pre{overflow-x:auto;background:#eee;padding:.6em}"
        "</style></head><body>\n<h1>Conch</h1>\n<p>Version ");
    add_html(out, server_version(f->server));
    buf_addf(out, ", %s, %s.</p>\n", f->progress.state, f->progress.ready ? "ready" : "not ready");
    if (f->n_rows)
        buf_adds(out, "<table><tr><th>Model</th><th>Version</th><th>State</th><th></th></tr>\n");
    for (size_t i = 0; i < f->n_rows; i++) {
        add_model_row(out, &f->rows[i]);
        if (!example && f->rows[i].state == VERSION_READY)
            example = f->rows[i].name;
    }
    buf_adds(out, f->n_rows ? "</table>\n" : "<p>There are no models.</p>\n");
    buf_adds(out, "<p>From a terminal:</p>\n"
                  "<pre>curl <span class=\"o\">http://localhost:8000</span>/v2/health/ready -i\n");
    if (example) {
        buf_adds(out, "curl <span class=\"o\">http://localhost:8000</span>/v2/models/");
        add_html(out, example);
        buf_addc(out, '\n');
    }
    buf_adds(out, "</pre>\n<p><a href=\"/v2\">Server</a> · "
                  "<a href=\"/v2/models/stats\">statistics</a>");
    if (f->metrics_port)
        buf_addf(out, " · metrics: port %d, <code>/metrics</code>", f->metrics_port);
    buf_adds(out, "</p>\n<script>for(const o of document.querySelectorAll('.o'))"
                  "o.textContent=location.origin</script>\n</body></html>\n");
}

/* ---- Handlers ------------------------------------------------------------------------------- */

static struct status *write_front(struct admin_call *a,
                                  void (*print)(const struct front *f, struct buf *out))
{
    struct front f;
    struct status *st = front_read(admin_call_server(a), &f);
    if (!st)
        print(&f, &a->text);
    front_done(&f);
    return st ? st : buf_status(&a->text);
}

static struct status *write_json(struct admin_call *a)
{
    return write_front(a, print_front_json);
}

static struct status *write_html(struct admin_call *a)
{
    struct status *st = write_front(a, print_front_html);
    if (!st)
        a->content_type = "text/html; charset=utf-8";
    return st;
}

void front_page(struct exchange *x)
{
    const struct http_call *call = exchange_part(x);
    admin_call_begin(x, call->facts.wants_html ? write_html : write_json, false,
                     admin_call_control(x));
}

/* The port of the metrics is another one, and so may be its address: no redirection. */
static struct status *tell_metrics(struct admin_call *a)
{
    int port = service_metrics_port(admin_call_server(a), "metrics");
    if (!port)
        return status_new(STATUS_NOT_FOUND, "Not Found: this server has no metrics");
    return status_new(STATUS_NOT_FOUND, "Not Found: the metrics are at port %d, /metrics", port);
}

void front_metrics(struct exchange *x)
{
    admin_call_begin(x, tell_metrics, false, server_helpers(call_ctx(x)->settings->server));
}
