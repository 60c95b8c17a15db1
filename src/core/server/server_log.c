/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The log lines of a start: which models are being loaded, and when all have been tried the tables
 * and a line with the result. In a pipe or a file the tables are the reference's; on a terminal
 * they fit it, and lack what is empty. Also the wait of a stop for the start.
 */
#include <stdio.h>

#include "base/buf.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "base/table.h"
#include "core/options/server_options.h"
#include "core/repo/repository.h"
#include "core/server/server_priv.h"

enum { MAX_TABLE_BYTES = 64 << 20, MAX_NAMES = 8, MAX_NAMES_BYTES = 4096 };

static void option_row(struct table_text *t, const char *name, char *value)
{
    table_text_row(t, (const char *const[]){name, value});
    mem_free(value);
}

static void print_options(struct server *s, size_t columns, struct buf *out)
{
    static const char *const modes[] = {[CONTROL_NONE] = "MODE_NONE",
                                        [CONTROL_POLL] = "MODE_POLL",
                                        [CONTROL_EXPLICIT] = "MODE_EXPLICIT"};
    const struct server_options *o = s->options;
    struct table_text *t = table_text_new(2, (const char *const[]){"Option", "Value"});
    AUTO(buf) extensions = BUF_INIT(4096);
    for (const char *const *e = server_extensions(s); *e; e++)
        buf_addf(&extensions, "%s%s", extensions.size ? " " : "", *e);

    option_row(t, "server_id", mem_strdup(o->server_id));
    option_row(t, "server_version", mem_strdup(server_version(s)));
    option_row(t, "server_extensions", mem_strdup(buf_text(&extensions)));
    for (size_t i = 0; i < o->n_repositories; i++) {
        char name[64];
        snprintf(name, sizeof(name), "model_repository_path[%zu]", i);
        option_row(t, name, mem_strdup(o->repositories[i]));
    }
    option_row(t, "model_control_mode", mem_strdup(modes[o->control_mode]));
    for (size_t i = 0; i < o->n_startup_models; i++) {
        char name[64];
        snprintf(name, sizeof(name), "startup_models_%zu", i);
        option_row(t, name, mem_strdup(o->startup_models[i]));
    }
    option_row(t, "strict_model_config", mem_printf("%d", o->strict_model_config));
    option_row(t, "model_config_name", mem_strdup(o->model_config_name));
    option_row(t, "rate_limit", mem_strdup(o->limits_rate ? "EXEC_COUNT" : "OFF"));
    option_row(t, "strict_readiness", mem_printf("%d", o->strict_readiness));
    option_row(t, "exit_timeout", mem_printf("%u", o->exit_timeout_s));
    option_row(t, "cache_enabled", mem_strdup(s->cache ? "1" : "0"));
    table_text_print(t, columns, out);
    table_text_free(t);
}

static void add_agent_row(void *arg, const char *name, const char *path)
{
    table_text_row(arg, (const char *const[]){name, path});
}

static void print_agents(struct server *s, size_t columns, struct buf *out)
{
    struct table_text *t = table_text_new(2, (const char *const[]){"Repository Agent", "Path"});
    repo_agent_print(&s->agents, add_agent_row, t);
    table_text_print(t, columns, out);
    table_text_free(t);
}

static void print_backends(struct server *s, size_t columns, struct buf *out)
{
    struct table_text *t = table_text_new(3, (const char *const[]){"Backend", "Path", "Config"});
    mutex_lock(&s->backends.mu);
    LIST_FOR_EACH (link, &s->backends.backends) {
        const struct backend *b = LIST_ENTRY(link, struct backend, link);
        if (b->stage == BACKEND_LOADED)
            table_text_row(t, (const char *const[]){b->name, b->library_path, b->config.json});
    }
    mutex_unlock(&s->backends.mu);
    table_text_print(t, columns, out);
    table_text_free(t);
}

void server_log_tables(struct server *s)
{
    AUTO(buf) agents = BUF_INIT(MAX_TABLE_BYTES);
    AUTO(buf) backends = BUF_INIT(MAX_TABLE_BYTES);
    AUTO(buf) models = BUF_INIT(MAX_TABLE_BYTES);
    AUTO(buf) options = BUF_INIT(MAX_TABLE_BYTES);

    if (!log_is_on(LOG_INFO, 0))
        return;
    size_t columns = log_columns(LOG_INFO);
    print_agents(s, columns, &agents);
    print_backends(s, columns, &backends);
    repository_print_table(s->repository, columns, &models);
    print_options(s, columns, &options);
    struct buf *const tables[] = {&agents, &backends, &models, &options};
    for (size_t i = 0; i < ARRAY_SIZE(tables); i++) {
        if (tables[i]->size)
            log_table(LOG_INFO, __FILE__, __LINE__, buf_text(tables[i]));
    }
}

void server_log_loaded(struct server *s, uint64_t ns)
{
    struct server_progress p;
    struct status *st = repository_progress(s->repository, 0, &p);
    if (!st)
        log_info("Loaded %zu of %zu models in %.3f s", p.n_serving, p.n_models, (double)ns / 1e9);
    status_free(st);
    mem_free(st ? NULL : p.rows);
}

/* Which models are being loaded, and for how long; "" if there is none. */
static void print_loading(const struct server_progress *p, struct buf *out)
{
    for (size_t i = 0; i < p->n_loading; i++)
        buf_addf(out, "%s'%s' for %.0f s", i ? ", " : "Loading: ", p->rows[i].name,
                 (double)p->rows[i].loading_ns / 1e9);
    if (p->n_loading)
        buf_addf(out, "%s; %zu of %zu models are ready", p->n_loading == MAX_NAMES ? ", ..." : "",
                 p->n_serving, p->n_models);
}

void server_show_loading(struct server *s, bool may_log)
{
    struct server_progress p;
    AUTO(buf) text = BUF_INIT(MAX_NAMES_BYTES);
    if (!log_is_on(LOG_INFO, 0))
        return;
    struct status *st = repository_progress(s->repository, MAX_NAMES, &p);
    if (st) {
        status_free(st);
        return;
    }
    print_loading(&p, &text);
    mem_free(p.rows);
    bool is_seen = !text.size || log_show(buf_text(&text));
    if (!is_seen && may_log)
        log_info("%s", buf_text(&text));
}

void server_count_models(struct server *s, size_t *ret_serving, size_t *ret_batched)
{
    struct server_progress p = {0};
    struct status *st = repository_progress(s->repository, 0, &p);
    mem_free(st ? NULL : p.rows);
    *ret_serving = p.n_serving;
    *ret_batched = p.n_batched;
    status_free(st);
}

void server_log_loading(struct server *s, unsigned int seconds_left)
{
    struct server_progress p;
    AUTO(buf) names = BUF_INIT(MAX_NAMES_BYTES);
    struct status *st = repository_progress(s->repository, MAX_NAMES, &p);
    if (st) {
        status_free(st);
        return;
    }
    for (size_t i = 0; i < p.n_loading; i++)
        buf_addf(&names, "%s'%s'", i ? ", " : "", p.rows[i].name);
    mem_free(p.rows);
    log_info("Timeout %u: Waiting for models that are being loaded: %s", seconds_left,
             buf_text(&names));
}
