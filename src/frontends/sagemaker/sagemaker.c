/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SageMaker's protocol (reference/features §1.3): a dialect of the HTTP frontend with routes of its
 * own. /ping and /invocations serve one model; /models loads, serves and deletes the models of a
 * multi-model endpoint.
 *
 * A load registers the model's folder as a repository, under the name that SageMaker gives, and
 * loads it; a delete does the reverse and waits until the model's memory is free. Both run on
 * control threads:
 *
 *     POST /models    body → archive → register → claim the name → load → confirm
 *     DELETE          found → unload → wait → unregister → remove
 *
 * Threads: handlers run on the loop, as find_sagemaker_route() does; load_archive() and
 * delete_model() on a control thread.
 */
#include "conch/conch.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/repo/model_mapping.h"
#include "core/server/server.h"
#include "frontends/http/admin_call.h"
#include "frontends/http/call.h"
#include "frontends/http/dialect.h"
#include "frontends/http/handlers.h"
#include "frontends/http/head_reading.h"
#include "frontends/http/infer.h"
#include "frontends/http/reply.h"
#include "frontends/ops/errors.h"
#include "frontends/sagemaker/archive.h"
#include "frontends/sagemaker/loaded.h"
#include "frontends/serve/service_options.h"

/* SageMaker gives a delete 360 s. */
#define DELETE_WITHIN_NS (350 * NS_PER_S)

/* Deletes that wait keep a control thread each; those of one line follow each other on one. */
enum { DELETE_LINES = 8 };

static const char archive_root[] = "/opt/ml/models";
static const char binary_type[] = "application/vnd.sagemaker-triton.binary+json;json-header-size=";

/* http_settings.dialect_data. */
struct sagemaker {
    void (*ping)(struct exchange *x);
    void (*invoke_default)(struct exchange *x);
    char *default_model;
    struct loaded_models loaded;
};

static struct sagemaker *sagemaker_of(struct exchange *x)
{
    return call_ctx(x)->settings->dialect_data;
}

/* ---- One model ------------------------------------------------------------------------------- */

static void handle_ping(struct exchange *x)
{
    sagemaker_of(x)->ping(x);
}

static void handle_invocation(struct exchange *x)
{
    struct http_call *call = exchange_part(x);
    const struct sagemaker *s = sagemaker_of(x);
    call->model =
        (struct ops_model_ref){.name = s->default_model, .name_length = strlen(s->default_model)};
    if (s->invoke_default != infer_handle)
        call->facts.header_length_kind = HEADER_LENGTH_NONE; /* the body is JSON alone */
    s->invoke_default(x);
}

/* ---- The models of a multi-model endpoint ------------------------------------------------------
 */

static void list_models(struct exchange *x)
{
    struct http_ctx *ctx = call_ctx(x);
    buf_reset(&ctx->json);
    loaded_print_all(&sagemaker_of(x)->loaded, ctx->settings->server, &ctx->json);
    reply_printed(x, 200, content_text);
}

static void tell_model(struct exchange *x)
{
    const struct http_call *call = exchange_part(x);
    struct buf *json = &call_ctx(x)->json;
    buf_reset(json);
    if (loaded_print_one(&sagemaker_of(x)->loaded, call->model.name, call->model.name_length, json))
        reply_printed(x, 200, content_text);
    else
        http_reply_bare(x, 404);
}

/* The header X-Amzn-SageMaker-Target-Model goes before the name that the model was loaded by. */
static void invoke_model(struct exchange *x)
{
    struct http_call *call = exchange_part(x);
    const char *target = NULL, *repository;
    if (!loaded_find(&sagemaker_of(x)->loaded, call->model.name, call->model.name_length, &x->arena,
                     &target, &repository)) {
        http_reply_bare(x, 404);
    } else if (!target) {
        reply_status(x, status_no_memory(), content_json);
    } else {
        call->model = call->target;
        if (!call->model.name)
            call->model = (struct ops_model_ref){.name = target, .name_length = strlen(target)};
        infer_handle(x);
    }
}

/* ---- Loading --------------------------------------------------------------------------------- */

/* Registers the repository, claims the name and loads the model. On error nothing of it is left. */
static struct status *load_from(struct server *server, struct loaded_models *loaded,
                                const char *name, const char *target, const struct archive *archive)
{
    struct model_mapping mapping = {.folder = archive->folder, .name = target};
    struct status *st = server_register_repository(server, archive->repository, &mapping, 1);
    if (st)
        return st;
    bool claimed = loaded_claim(loaded, name, target, archive->repository);
    if (claimed)
        st = server_load_model(server, target, NULL, 0);
    else
        st = status_new(STATUS_ALREADY_EXISTS, "model '%s' is loaded already", name);
    if (!st) {
        loaded_confirm(loaded, name);
        return NULL;
    }
    if (claimed)
        loaded_remove(loaded, name);
    status_free(server_unregister_repository(server, archive->repository));
    return st;
}

static struct status *load_archive(struct admin_call *a)
{
    const struct http_call *call = exchange_part(a->x);
    struct archive archive = {NULL, NULL};
    struct load_request request;
    a->content_type = content_text;
    struct status *st = admin_call_check_body(a);
    if (!st)
        st = load_request_read(a->x->body, a->x->body_size, &a->arena, &request);
    if (!st)
        st = archive_find(archive_root, request.url, &archive);
    if (st && status_code(st) == STATUS_NOT_FOUND) { /* as the reference: without a text */
        log_error("%s", status_message(st));
        status_free(st);
        a->bare_status = 400;
        return NULL;
    }
    if (!st) {
        AUTO(buf) target = BUF_INIT(1 << 16);
        buf_add(&target, call->target.name ? call->target.name : "", call->target.name_length);
        buf_addc(&target, '\0');
        log_info("loading SageMaker's model '%s' from '%s'", request.model_name, request.url);
        st = buf_status(&target);
        if (!st)
            st = load_from(admin_call_server(a), &sagemaker_of(a->x)->loaded, request.model_name,
                           call->target.name ? target.data : request.model_name, &archive);
    }
    archive_done(&archive);
    return st;
}

static void handle_load(struct exchange *x)
{
    struct http_call *call = exchange_part(x);
    call->model = (struct ops_model_ref){0}; /* loads do not wait for each other */
    admin_call_begin(x, load_archive, true, admin_call_control(x));
}

/* ---- Deleting -------------------------------------------------------------------------------- */

static void await_memory(struct server *server, const char *target)
{
    uint64_t from_ns = monotonic_ns();
    if (server_await_unloaded(server, target, DELETE_WITHIN_NS))
        log_info("SageMaker's model '%s' was unloaded within %.1f s", target,
                 (double)(monotonic_ns() - from_ns) / 1e9);
    else
        log_error("SageMaker's model '%s' is not unloaded after %d s", target,
                  (int)(DELETE_WITHIN_NS / NS_PER_S));
}

static struct status *delete_model(struct admin_call *a)
{
    struct loaded_models *loaded = &sagemaker_of(a->x)->loaded;
    struct server *server = admin_call_server(a);
    const char *name = a->name, *target = NULL, *repository = NULL;
    a->content_type = content_text;
    if (!name || !loaded_find(loaded, name, strlen(name), &a->arena, &target, &repository)) {
        a->bare_status = 404;
        return NULL;
    }
    if (!target || !repository)
        return status_no_memory();
    struct status *st = server_unload_model(server, target, true);
    if (st)
        return st;
    await_memory(server, target);
    st = server_unregister_repository(server, repository);
    loaded_remove(loaded, name);
    return st;
}

/* Deletes of the same name come after each other. */
static const char *delete_line(const struct ops_model_ref *model)
{
    static const char *const lines[DELETE_LINES] = {
        "/models/0", "/models/1", "/models/2", "/models/3",
        "/models/4", "/models/5", "/models/6", "/models/7",
    };
    unsigned int sum = 0;
    for (size_t i = 0; i < model->name_length; i++)
        sum = sum * 31 + (unsigned char)model->name[i];
    return lines[sum % DELETE_LINES];
}

static void handle_delete(struct exchange *x)
{
    const struct http_call *call = exchange_part(x);
    admin_call_begin_in_line(x, delete_model, admin_call_control(x), delete_line(&call->model));
}

/* ---- The dialect ------------------------------------------------------------------------------
 */

static void read_target(struct head_reading *r, const struct http_head *head)
{
    static const char target_name[] = "x-amzn-sagemaker-target-model";
    r->target = head_range_of(head, head_find(head, target_name, sizeof(target_name) - 1));
}

static void read_invocation(void *note, const struct http_head *head)
{
    read_binary_type(note, head, binary_type);
}

static void read_invoked_model(void *note, const struct http_head *head)
{
    read_binary_type(note, head, binary_type);
    read_target(note, head);
}

static void read_loaded_model(void *note, const struct http_head *head)
{
    read_target(note, head);
}

/* clang-format off */
static const struct route main_routes[] = {
    {METHOD_POST,   "/invocations",       handle_invocation, OPS_API_INFERENCE,        content_text, true,  read_invocation},
    {METHOD_GET,    "/ping",              handle_ping,       OPS_API_HEALTH,           content_text, false, NULL},
};
static const struct route model_routes[] = {
    {METHOD_POST,   "/models/{m}/invoke", invoke_model,      OPS_API_INFERENCE,        content_text, true,  read_invoked_model},
    {METHOD_GET,    "/models/{m}/invoke", tell_model,        OPS_API_MODEL_REPOSITORY, content_text, false, NULL},
    {METHOD_DELETE, "/models/{m}/invoke", handle_delete,     OPS_API_MODEL_REPOSITORY, content_text, false, NULL},
    {METHOD_GET,    "/models",            list_models,       OPS_API_MODEL_REPOSITORY, content_text, false, NULL},
    {METHOD_GET,    "/models/",           list_models,       OPS_API_MODEL_REPOSITORY, content_text, false, NULL},
    {METHOD_GET,    "/models/{m}",        tell_model,        OPS_API_MODEL_REPOSITORY, content_text, false, NULL},
    {METHOD_POST,   "/models",            handle_load,       OPS_API_MODEL_REPOSITORY, content_text, true,  read_loaded_model},
    {METHOD_POST,   "/models/",           handle_load,       OPS_API_MODEL_REPOSITORY, content_text, true,  read_loaded_model},
    {METHOD_POST,   "/models/{m}",        handle_load,       OPS_API_MODEL_REPOSITORY, content_text, true,  read_loaded_model},
    {METHOD_DELETE, "/models",            handle_delete,     OPS_API_MODEL_REPOSITORY, content_text, false, NULL},
    {METHOD_DELETE, "/models/",           handle_delete,     OPS_API_MODEL_REPOSITORY, content_text, false, NULL},
    {METHOD_DELETE, "/models/{m}",        handle_delete,     OPS_API_MODEL_REPOSITORY, content_text, false, NULL},
};
/* clang-format on */

/* Another method is 405 at the first routes, and 400 at /models, as in the reference. */
static struct route_match find_sagemaker_route(const struct http_settings *settings,
                                               const struct http_head *head)
{
    (void)settings;
    struct span path = head_path(head);
    struct route_match m = route_find(main_routes, ARRAY_SIZE(main_routes), head->method, path);
    if (m.route)
        return m;
    m = route_find(model_routes, ARRAY_SIZE(model_routes), head->method, path);
    return m.route && m.route->method == head->method ? m : (struct route_match){0};
}

/* A load names its model in the body, so that a rule for all models must allow it. */
static struct span find_sagemaker_model(struct exchange *x, const struct route *route,
                                        struct span named, struct span target)
{
    const char *loaded = NULL, *repository;
    struct sagemaker *s = sagemaker_of(x);
    if (route->handle == handle_invocation)
        return (struct span){s->default_model, strlen(s->default_model)};
    if (route->handle == handle_load)
        return (struct span){NULL, 0};
    if (route->handle == invoke_model && target.length > 0)
        return target;
    if (named.at &&
        loaded_find(&s->loaded, named.at, named.length, &x->arena, &loaded, &repository))
        return loaded ? (struct span){loaded, strlen(loaded)} : (struct span){NULL, 0};
    return named;
}

static void refuse_sagemaker_path(struct exchange *x)
{
    http_reply_bare(x, 400);
}

/* The reference looks for these in messages, to find out that memory has run out. */
static bool tells_of_memory(const char *message)
{
    static const char *const texts[] = {
        "CUDA out of memory",
        "CUDA_OUT_OF_MEMORY",
        "Out of memory",
        "Out Of Memory",
        "out of memory",
        "MemoryError",
        "OutOfMemory",
        "OOM",
        "Dst tensor is not initialized",
        "Src tensor is not initialized",
        "CNMEM_STATUS_OUT_OF_MEMORY",
        "CUDNN_STATUS_NOT_INITIALIZED",
        "CUBLAS_STATUS_ALLOC_FAILED",
        "CUBLAS_STATUS_NOT_INITIALIZED",
        "Failed to allocate memory",
        "failed to allocate memory",
        "No space left on device",
    };
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        if (strstr(message, texts[i]))
            return true;
    }
    return false;
}

/* Source: reference/behaviours §24.1. */
static int sagemaker_error_status(struct exchange *x, const struct status *st,
                                  const char **content_type)
{
    const struct http_call *call = exchange_part(x);
    const struct route *route = call->facts.route;
    if (route < model_routes || route >= model_routes + ARRAY_SIZE(model_routes))
        return ops_error_of(status_code(st))->http_status;
    if (route->handle == handle_load && status_code(st) == STATUS_ALREADY_EXISTS)
        return 409;
    if (route->handle == invoke_model)
        *content_type = content_json;
    bool may_tell = route->handle == handle_load || route->handle == invoke_model;
    return may_tell && tells_of_memory(status_message(st)) ? 507 : 400;
}

static void free_sagemaker(void *data)
{
    struct sagemaker *s = data;
    loaded_done(&s->loaded);
    mem_free(s->default_model);
    mem_free(s);
}

static const struct http_dialect dialect = {
    .service = "Sagemaker HTTPService",
    .protocol = "sagemaker",
    .find_route = find_sagemaker_route,
    .find_model = find_sagemaker_model,
    .refuse_path = refuse_sagemaker_path,
    .error_status = sagemaker_error_status,
    .binary_type = binary_type,
    .binary_reply_type = binary_type,
    .free_data = free_sagemaker,
};

/* ---- Start ----------------------------------------------------------------------------------- */

static const char *environment_or(const char *variable, const char *otherwise)
{
    const char *value = getenv(variable);
    return value ? value : otherwise;
}

void conch_sagemaker_options_init(struct conch_sagemaker_options *o)
{
    *o = (struct conch_sagemaker_options){
        .size = sizeof(*o),
        .ping_mode = environment_or("SAGEMAKER_TRITON_PING_MODE", "ready"),
        .default_model = environment_or("SAGEMAKER_TRITON_DEFAULT_MODEL_NAME",
                                        "unspecified_SAGEMAKER_TRITON_DEFAULT_MODEL_NAME"),
        .inference_type = environment_or("SAGEMAKER_TRITON_INFERENCE_TYPE", "infer"),
    };
}

static struct status *read_inference_type(const char *type, void (**ret)(struct exchange *x))
{
    static const struct {
        const char *name;
        void (*handle)(struct exchange *x);
    } types[] = {
        {"infer", infer_handle},
        {"generate", generate_handle},
        {"generate_stream", generate_stream_handle},
    };
    for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
        if (strcmp(type, types[i].name) == 0) {
            *ret = types[i].handle;
            return NULL;
        }
    }
    return status_new(STATUS_INVALID_ARG,
                      "Server has invalid inference type '%s'. Must be one of: infer, generate, "
                      "generate_stream.",
                      type);
}

static struct status *start_sagemaker_service(struct server *server,
                                              const struct conch_http_options *http,
                                              const struct conch_sagemaker_options *o,
                                              struct conch_http **ret_http)
{
    void (*invoke)(struct exchange * x) = NULL;
    struct status *st = read_inference_type(o->inference_type, &invoke);
    if (st)
        return st;
    struct sagemaker *s = mem_zalloc(sizeof(*s));
    s->ping = strcmp(o->ping_mode, "live") == 0 ? meta_live : meta_ready;
    s->invoke_default = invoke;
    s->default_model = mem_strdup(o->default_model);
    loaded_init(&s->loaded);
    return http_start(server, http, &dialect, s, ret_http);
}

TRITONSERVER_Error *conch_sagemaker_start(TRITONSERVER_Server *server,
                                          const struct conch_sagemaker_options *options,
                                          struct conch_http **ret_http)
{
    struct conch_sagemaker_options o;
    struct conch_http_options http;
    conch_sagemaker_options_init(&o);
    struct status *st = service_options_take("conch_sagemaker_start",
                                             server && ret_http ? options : NULL, &o, sizeof(o));
    if (!st)
        st = http_options_read(o.http, &http);
    if (!st)
        st = start_sagemaker_service((struct server *)server, &http, &o, ret_http);
    return (TRITONSERVER_Error *)st;
}
