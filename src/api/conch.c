/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conch.h: a server whose models load while it runs already.
 */
#include "conch/conch.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "api/handles.h"
#include "base/buf.h"
#include "base/log.h"
#include "base/log_sink.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/config/config.h"
#include "core/model/model.h"
#include "core/server/server.h"

enum { MAX_CONFIG_TEXT_BYTES = 256 << 20 };

static struct status *refuse_missing_argument(const char *function, const char *argument)
{
    return status_new(STATUS_INVALID_ARG, "%s: '%s' was nullptr", function, argument);
}

TRITONSERVER_Error *conch_server_new(TRITONSERVER_Server **server,
                                     TRITONSERVER_ServerOptions *options)
{
    struct server *s;
    if (!server || !options)
        return as_status(refuse_missing_argument(__func__, server ? "options" : "server"));
    struct status *st = server_create(to_options(options), &s);
    if (!st)
        *server = as_server(s);
    return as_status(st);
}

/* The callback of a load, and its argument; freed after the call. */
struct listener {
    conch_server_loaded_fn loaded;
    void *userp;
};

static void on_server_loaded(void *arg, struct status *st)
{
    struct listener listener = *(struct listener *)arg;
    mem_free(arg);
    listener.loaded(as_status(st), listener.userp);
}

TRITONSERVER_Error *conch_server_load(TRITONSERVER_Server *server, conch_server_loaded_fn loaded,
                                      void *userp)
{
    if (!server || !loaded)
        return as_status(refuse_missing_argument(__func__, server ? "loaded" : "server"));
    struct listener *listener = mem_alloc(sizeof(*listener));
    *listener = (struct listener){.loaded = loaded, .userp = userp};
    struct status *st = server_load_start(to_server(server), on_server_loaded, listener);
    if (st)
        mem_free(listener);
    return as_status(st);
}

TRITONSERVER_Error *conch_server_stop_loading(TRITONSERVER_Server *server)
{
    if (!server)
        return as_status(refuse_missing_argument(__func__, "server"));
    server_stop_loading(to_server(server));
    return NULL;
}

void conch_server_end_sequences(TRITONSERVER_Server *server)
{
    if (server)
        server_end_sequences(to_server(server));
}

void conch_server_log_unended(TRITONSERVER_Server *server)
{
    if (server)
        server_log_unended(to_server(server));
}

void conch_server_show_loading(TRITONSERVER_Server *server, bool may_log)
{
    if (server)
        server_show_loading(to_server(server), may_log);
}

void conch_server_count_models(TRITONSERVER_Server *server, size_t *serving, size_t *batched)
{
    if (server)
        server_count_models(to_server(server), serving, batched);
}

TRITONSERVER_Error *conch_server_print_model_config(TRITONSERVER_Server *server, const char *model,
                                                    int64_t version, FILE *out)
{
    struct model *m;
    AUTO(buf) text = BUF_INIT(MAX_CONFIG_TEXT_BYTES);
    if (!server || !model || !out)
        return as_status(refuse_missing_argument(__func__, !server ? "server"
                                                           : model ? "out"
                                                                   : "model"));
    struct status *st = server_find_model(to_server(server), model, strlen(model),
                                          version < 0 ? CONCH_VERSION_LATEST : version, &m);
    if (st)
        return as_status(st);
    model_print_config_text(m, &text);
    model_unref(m);
    st = buf_status(&text);
    if (!st && fwrite(buf_text(&text), 1, text.size, out) != text.size)
        st = status_from_errno(errno, "failed to write the configuration of '%s'", model);
    return as_status(st);
}

void conch_exit_when_exhausted(void)
{
    mem_exit_when_exhausted();
}

void conch_log_print(TRITONSERVER_LogLevel level, const char *line)
{
    if (line)
        log_print((enum log_level)level, line);
}

bool conch_log_await(uint64_t timeout_ms)
{
    return log_await(timeout_ms);
}
