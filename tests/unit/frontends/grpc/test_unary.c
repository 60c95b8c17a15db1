/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The unary methods on a server with two models: each answer as protobuf-c reads it, and the
 * errors. The bytes are those that a client would send.
 */
#include "frontends/grpc/unary.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/log.h"
#include "base/status.h"
#include "core/model/model.h"
#include "core/server/server.h"
#include "core/options/server_options.h"
#include "documents/documents.h"
#include "lib/repository.h"
#include "proto/health.pb-c.h"
#include "proto/inference.pb-c.h"

#define CONFIG                                                                                     \
    "backend: 'identity' max_batch_size: 4 "                                                       \
    "input { name: 'I' data_type: TYPE_FP32 dims: [ -1, 2 ] } "                                    \
    "output { name: 'O' data_type: TYPE_FP32 dims: [ -1, 2 ] }"

static struct test_repository repository;
static struct server *server;

static int start(void **state)
{
    (void)state;
    struct server_options *o = server_options_new();
    repository_make(&repository);
    repository_add(&repository, "a", CONFIG, 3);
    repository_add(&repository, "b", CONFIG, 1);
    server_options_add_repository(o, repository.path);
    server_options_set_string(&o->backend_directory, CONCH_BUILD_DIR "/backends");
    server_options_set_string(&o->server_id, "the server");
    o->control_mode = CONTROL_EXPLICIT;
    assert_null(server_new(o, &server));
    server_options_free(o);
    assert_null(server_load_model(server, "a", NULL, 0));
    return 0;
}

static int stop(void **state)
{
    (void)state;
    assert_null(server_stop(server));
    server_free(server);
    repository_remove(&repository);
    return 0;
}

/* ---- A call --------------------------------------------------------------------------------- */

/* Returns the answer to a message of that method, which the caller frees; or the error. */
static struct status *call_bytes(const char *path, const void *bytes, size_t n_bytes,
                                 ProtobufCMessage **ret_answer)
{
    const struct unary_method *m = unary_find(path, strlen(path));
    const ProtobufCMessage *request;
    AUTO(buf) out = BUF_INIT(1 << 20);
    struct arena arena;
    assert_non_null(m);
    arena_init(&arena, NULL, 0, 1 << 20, NULL, NULL);
    struct status *st = unary_read(m, bytes, n_bytes, &arena, &request);
    if (!st)
        st = unary_run(m, server, NULL, request, &arena, &out);
    arena_reset(&arena);
    if (st)
        return st;
    *ret_answer =
        protobuf_c_message_unpack(m->answer, NULL, out.size, (const uint8_t *)buf_text(&out));
    assert_non_null(*ret_answer);
    return NULL;
}

static struct status *call_message(const char *name, const ProtobufCMessage *request,
                                   ProtobufCMessage **ret_answer)
{
    char path[128];
    uint8_t bytes[1024];
    snprintf(path, sizeof(path), "/inference.GRPCInferenceService/%s", name);
    assert_true(protobuf_c_message_get_packed_size(request) <= sizeof(bytes));
    return call_bytes(path, bytes, protobuf_c_message_pack(request, bytes), ret_answer);
}

#define MAKE(type, init)                                                                           \
    ({                                                                                             \
        type made;                                                                                 \
        init(&made);                                                                               \
        made;                                                                                      \
    })

/* A request with the fields `name` and `version`; all such messages have the same bytes. */
static struct status *call_named(const char *method, const char *name, const char *version,
                                 ProtobufCMessage **ret_answer)
{
    Inference__ModelReadyRequest r =
        MAKE(Inference__ModelReadyRequest, inference__model_ready_request__init);
    char own_name[64], own_version[64];
    strcpy(own_name, name);
    strcpy(own_version, version);
    r.name = own_name;
    r.version = own_version;
    return call_message(method, &r.base, ret_answer);
}

static void *must_call(const char *method, const char *name, const char *version)
{
    ProtobufCMessage *answer = NULL;
    struct status *st = call_named(method, name, version, &answer);
    if (st)
        fail_msg("%s: %s", method, status_message(st));
    return answer;
}

static void free_answer(void *answer)
{
    protobuf_c_message_free_unpacked(answer, NULL);
}

static void expect_error(struct status *st, enum status_code code, const char *text)
{
    assert_non_null(st);
    assert_string_equal(status_message(st), text);
    assert_int_equal(status_code(st), code);
    status_free(st);
}

/* ---- Health and metadata -------------------------------------------------------------------- */

static void health_reports_live_and_ready(void **state)
{
    (void)state;
    Inference__ServerLiveResponse *live = must_call("ServerLive", "", "");
    assert_true(live->live);
    free_answer(live);
    Inference__ServerReadyResponse *ready = must_call("ServerReady", "", "");
    assert_true(ready->ready);
    free_answer(ready);
    Inference__ModelReadyResponse *model = must_call("ModelReady", "a", "3");
    assert_true(model->ready);
    free_answer(model);

    ProtobufCMessage *answer;
    expect_error(call_named("ModelReady", "none", "", &answer), STATUS_NOT_FOUND,
                 "Request for unknown model: 'none' is not found");
    expect_error(call_named("ModelReady", "a", "x", &answer), STATUS_INVALID_ARG,
                 "failed to get model version from specified version string 'x' (details: stol), "
                 "version should be an integral value > 0");
    assert_null(call_bytes("/grpc.health.v1.Health/Check", "\x0a\x03xyz", 5, &answer));
    assert_int_equal(((Grpc__Health__V1__HealthCheckResponse *)answer)->status,
                     GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING);
    free_answer(answer);
}

static void metadata_names_server_model_and_tensors(void **state)
{
    (void)state;
    Inference__ServerMetadataResponse *s = must_call("ServerMetadata", "", "");
    assert_string_equal(s->name, "the server");
    assert_string_equal(s->version, server_version(server));
    size_t n = 0;
    while (server_extensions(server)[n]) {
        assert_true(n < s->n_extensions);
        assert_string_equal(s->extensions[n], server_extensions(server)[n]);
        n++;
    }
    assert_int_equal(s->n_extensions, n);
    free_answer(s);

    Inference__ModelMetadataResponse *m = must_call("ModelMetadata", "a", "");
    assert_string_equal(m->name, "a");
    assert_int_equal(m->n_versions, 1);
    assert_string_equal(m->versions[0], "3");
    assert_string_equal(m->platform, "identity");
    assert_int_equal(m->n_inputs, 1);
    assert_string_equal(m->inputs[0]->name, "I");
    assert_string_equal(m->inputs[0]->datatype, "FP32");
    assert_int_equal(m->inputs[0]->n_shape, 3);
    assert_int_equal(m->inputs[0]->shape[0], -1);
    assert_int_equal(m->inputs[0]->shape[2], 2);
    assert_int_equal(m->n_outputs, 1);
    assert_string_equal(m->outputs[0]->name, "O");
    free_answer(m);

    Inference__ModelConfigResponse *c = must_call("ModelConfig", "a", "3");
    assert_string_equal(c->config->name, "a");
    assert_int_equal(c->config->max_batch_size, 4);
    assert_int_equal(c->config->n_input, 1);
    assert_string_equal(c->config->input[0]->name, "I");
    free_answer(c);
}

static void statistics_are_of_one_model_or_of_all(void **state)
{
    (void)state;
    Inference__ModelStatisticsResponse *r = must_call("ModelStatistics", "a", "3");
    assert_int_equal(r->n_model_stats, 1);
    assert_string_equal(r->model_stats[0]->name, "a");
    assert_string_equal(r->model_stats[0]->version, "3");
    assert_non_null(r->model_stats[0]->inference_stats);
    assert_int_equal(r->model_stats[0]->inference_stats->success->count, 0);
    assert_int_equal(r->model_stats[0]->n_memory_usage, 1);
    assert_string_equal(r->model_stats[0]->memory_usage[0]->type, "CPU");
    assert_true(r->model_stats[0]->memory_usage[0]->byte_size > 0);
    free_answer(r);
    r = must_call("ModelStatistics", "", "");
    assert_int_equal(r->n_model_stats, 1);
    free_answer(r);

    /* Memory elsewhere has a line where there is some; over HTTP, too. */
    struct server_statistics statistics;
    AUTO(buf) json = BUF_INIT(1 << 16);
    struct model *model;
    assert_null(server_find_model(server, "a", 1, 3, &model));
    atomic_store(&model->reported_bytes[PLACE_GPU + 1], 9);
    r = must_call("ModelStatistics", "a", "3");
    assert_int_equal(r->model_stats[0]->n_memory_usage, 2);
    assert_string_equal(r->model_stats[0]->memory_usage[1]->type, "GPU");
    assert_int_equal(r->model_stats[0]->memory_usage[1]->id, 1);
    assert_int_equal(r->model_stats[0]->memory_usage[1]->byte_size, 9);
    free_answer(r);
    assert_null(server_statistics(server, "a", 1, 3, &statistics));
    document_statistics(&statistics, &json);
    assert_non_null(strstr(buf_text(&json), ",{\"type\":\"GPU\",\"id\":1,\"byte_size\":9}]"));
    server_statistics_done(&statistics);
    atomic_store(&model->reported_bytes[PLACE_GPU + 1], 0);
    model_unref(model);

    const struct unary_method *m =
        unary_find("/inference.GRPCInferenceService/ModelStatistics", 47);
    Inference__ModelStatisticsRequest asked =
        MAKE(Inference__ModelStatisticsRequest, inference__model_statistics_request__init);
    char name[] = "a";
    assert_int_equal(unary_thread(m, &asked.base), UNARY_HELPER);
    asked.name = name;
    assert_int_equal(unary_thread(m, &asked.base), UNARY_LOOP);
    ProtobufCMessage *answer;
    expect_error(call_named("ModelStatistics", "none", "", &answer), STATUS_INVALID_ARG,
                 "requested model 'none' is not available");
}

/* ---- The repository ------------------------------------------------------------------------- */

typedef Inference__RepositoryModelLoadRequest load_request;
typedef Inference__RepositoryModelLoadRequest__ParametersEntry load_entry;
typedef Inference__ModelRepositoryParameter load_value;

static struct status *load_with(const char *key, load_value *value)
{
    load_entry entry =
        MAKE(load_entry, inference__repository_model_load_request__parameters_entry__init);
    load_entry *list[] = {&entry};
    load_request r = MAKE(load_request, inference__repository_model_load_request__init);
    ProtobufCMessage *answer;
    char name[] = "b", own_key[64];
    strcpy(own_key, key);
    r.model_name = name;
    r.n_parameters = 1;
    r.parameters = list;
    entry.key = own_key;
    entry.value = value;
    struct status *st = call_message("RepositoryModelLoad", &r.base, &answer);
    if (!st)
        free_answer(answer);
    return st;
}

static void the_index_lists_models_with_their_states(void **state)
{
    (void)state;
    Inference__RepositoryIndexResponse *r = must_call("RepositoryIndex", "", "");
    assert_int_equal(r->n_models, 2);
    assert_string_equal(r->models[0]->name, "a");
    assert_string_equal(r->models[0]->version, "3");
    assert_string_equal(r->models[0]->state, "READY");
    assert_string_equal(r->models[1]->name, "b");
    assert_string_equal(r->models[1]->version, "");
    assert_string_equal(r->models[1]->state, "");
    free_answer(r);
    ProtobufCMessage *answer;
    expect_error(call_named("RepositoryIndex", "somewhere", "", &answer), STATUS_UNSUPPORTED,
                 "'repository_name' specification is not supported");
    /* the field `ready` */
    assert_null(
        call_bytes("/inference.GRPCInferenceService/RepositoryIndex", "\x10\x01", 2, &answer));
    assert_int_equal(((Inference__RepositoryIndexResponse *)answer)->n_models, 1);
    free_answer(answer);
}

static void a_model_is_loaded_and_unloaded(void **state)
{
    (void)state;
    load_request r = MAKE(load_request, inference__repository_model_load_request__init);
    ProtobufCMessage *answer;
    char name[] = "b";
    r.model_name = name;
    assert_null(call_message("RepositoryModelLoad", &r.base, &answer));
    free_answer(answer);
    Inference__ModelReadyResponse *ready = must_call("ModelReady", "b", "");
    assert_true(ready->ready);
    free_answer(ready);
    assert_null(call_message("RepositoryModelUnload", &r.base, &answer));
    free_answer(answer);
    struct status *st = call_named("ModelReady", "b", "", &answer);
    assert_non_null(st); /* its text has the progress of the unload */
    assert_int_equal(status_code(st), STATUS_NOT_FOUND);
    status_free(st);

    load_value config = MAKE(load_value, inference__model_repository_parameter__init);
    char json[] = "{\"backend\":\"identity\",\"max_batch_size\":7,"
                  "\"input\":[{\"name\":\"I\",\"data_type\":\"TYPE_FP32\",\"dims\":[2]}],"
                  "\"output\":[{\"name\":\"O\",\"data_type\":\"TYPE_FP32\",\"dims\":[2]}]}";
    config.parameter_choice_case =
        INFERENCE__MODEL_REPOSITORY_PARAMETER__PARAMETER_CHOICE_STRING_PARAM;
    config.string_param = json;
    assert_null(load_with("config", &config));
    Inference__ModelConfigResponse *c = must_call("ModelConfig", "b", "");
    assert_int_equal(c->config->max_batch_size, 7);
    free_answer(c);
    expect_error(load_with("file:1/x", &config), STATUS_INVALID_ARG,
                 "invalid value type for load parameter 'file:1/x', expected bytes_param.");
    expect_error(load_with("other", &config), STATUS_INVALID_ARG,
                 "unrecognized load parameter 'other'.");
    config.parameter_choice_case =
        INFERENCE__MODEL_REPOSITORY_PARAMETER__PARAMETER_CHOICE_INT64_PARAM;
    config.int64_param = 1;
    expect_error(load_with("config", &config), STATUS_INVALID_ARG,
                 "invalid value type for load parameter 'config', expected string_param.");
    assert_null(server_unload_model(server, "b", false));

    const struct unary_method *load =
        unary_find("/inference.GRPCInferenceService/RepositoryModelLoad", 51);
    assert_int_equal(unary_thread(load, &r.base), UNARY_LOAD);
    assert_string_equal(load->model(&r.base), "b");
}

/* ---- Settings ------------------------------------------------------------------------------- */

typedef Inference__LogSettingsRequest log_request;
typedef Inference__LogSettingsRequest__SettingsEntry log_entry;
typedef Inference__LogSettingsRequest__SettingValue log_value;

#define CHOICE(name) INFERENCE__LOG_SETTINGS_REQUEST__SETTING_VALUE__PARAMETER_CHOICE_##name##_PARAM

static struct status *set_log(const char *key, log_value value,
                              Inference__LogSettingsResponse **ret_answer)
{
    log_value v = MAKE(log_value, inference__log_settings_request__setting_value__init);
    log_entry entry = MAKE(log_entry, inference__log_settings_request__settings_entry__init);
    log_entry *list[] = {&entry};
    log_request r = MAKE(log_request, inference__log_settings_request__init);
    ProtobufCMessage *answer;
    char own_key[64];
    strcpy(own_key, key);
    value.base = v.base;
    entry.key = own_key;
    entry.value = &value;
    r.n_settings = 1;
    r.settings = list;
    struct status *st = call_message("LogSettings", &r.base, &answer);
    if (!st)
        *ret_answer = (Inference__LogSettingsResponse *)answer;
    return st;
}

static void log_settings_change_what_they_name(void **state)
{
    (void)state;
    struct log_settings before, now;
    Inference__LogSettingsResponse *answer;
    char iso[] = "ISO8601", other[] = "other";
    log_get_settings(&before);
    assert_null(set_log("log_verbose_level",
                        (log_value){.parameter_choice_case = CHOICE(UINT32), .uint32_param = 2},
                        &answer));
    assert_int_equal(answer->n_settings, 6);
    assert_string_equal(answer->settings[0]->key, "log_file");
    assert_string_equal(answer->settings[0]->value->string_param, "");
    assert_string_equal(answer->settings[4]->key, "log_verbose_level");
    assert_int_equal(answer->settings[4]->value->uint32_param, 2);
    free_answer(answer);
    assert_null(set_log("log_format",
                        (log_value){.parameter_choice_case = CHOICE(STRING), .string_param = iso},
                        &answer));
    assert_string_equal(answer->settings[5]->value->string_param, "ISO8601");
    free_answer(answer);
    assert_null(set_log(
        "log_info", (log_value){.parameter_choice_case = CHOICE(BOOL), .bool_param = 0}, &answer));
    free_answer(answer);
    log_get_settings(&now);
    log_set_settings(&before);
    assert_int_equal(now.verbose_level, 2);
    assert_int_equal(now.format, LOG_FORMAT_ISO8601);
    assert_false(now.info);
    assert_int_equal(now.error, before.error);

    log_value wrong = {.parameter_choice_case = CHOICE(STRING), .string_param = other};
    expect_error(set_log("log_info", wrong, &answer), STATUS_INVALID_ARG,
                 "expect boolean for 'log_info'");
    expect_error(set_log("log_verbose_level", wrong, &answer), STATUS_INVALID_ARG,
                 "expect int32 for 'log_verbose_level'");
    expect_error(set_log("log_format", wrong, &answer), STATUS_INVALID_ARG,
                 "invalid argument for log_format, got: other");
    expect_error(set_log("log_file", wrong, &answer), STATUS_UNSUPPORTED,
                 "log file location can not be updated through network protocol");
}

static void missing_features_are_refused_by_name(void **state)
{
    (void)state;
    static const char *const methods[] = {
        "SystemSharedMemoryRegister",
        "SystemSharedMemoryUnregister",
        "CudaSharedMemoryRegister",
        "CudaSharedMemoryUnregister",
    };
    ProtobufCMessage *answer;
    for (size_t i = 0; i < ARRAY_SIZE(methods); i++)
        expect_error(call_named(methods[i], "", "", &answer), STATUS_UNSUPPORTED,
                     "Client shared memory is disabled. Start the server with "
                     "'--allow-client-shm=true' to enable.");
    assert_null(call_named("SystemSharedMemoryStatus", "", "", &answer));
    free_answer(answer);
    assert_null(call_named("CudaSharedMemoryStatus", "", "", &answer));
    free_answer(answer);
    assert_null(call_named("TraceSetting", "", "", &answer));
    free_answer(answer);
    expect_error(call_named("TraceSetting", "", "none", &answer), STATUS_NOT_FOUND,
                 "Request for unknown model: 'none' is not found");
}

static void malformed_messages_are_refused(void **state)
{
    (void)state;
    ProtobufCMessage *answer;
    expect_error(call_bytes("/inference.GRPCInferenceService/ModelReady", "\x0a\x05x", 3, &answer),
                 STATUS_INTERNAL, "Unable to parse request");
    assert_null(unary_find("/inference.GRPCInferenceService/ModelReadyX", 43));
    assert_null(unary_find("", 0));
}

/* Access rules depend on it: a message that names a model has it told by its method. */
static void methods_tell_the_model_that_a_request_names(void **state)
{
    (void)state;
    size_t n_named = 0;
    const ProtobufCServiceDescriptor *service = &inference__grpcinference_service__descriptor;
    for (unsigned int i = 0; i < service->n_methods; i++) {
        char path[128], bytes[] = "M";
        int length = snprintf(path, sizeof(path), "/inference.GRPCInferenceService/%s",
                              service->methods[i].name);
        const struct unary_method *m = unary_find(path, (size_t)length);
        if (!m || m->api == OPS_API_SHARED_MEMORY) /* inferences; names of regions */
            continue;
        const ProtobufCMessageDescriptor *d = m->request;
        const ProtobufCFieldDescriptor *f =
            protobuf_c_message_descriptor_get_field_by_name(d, "model_name");
        if (!f)
            f = protobuf_c_message_descriptor_get_field_by_name(d, "name");
        assert_true((f != NULL) == (m->subject != NULL));
        if (!f)
            continue;
        ProtobufCMessage *request = calloc(1, d->sizeof_message);
        protobuf_c_message_init(d, request);
        *(char **)(void *)((char *)request + f->offset) = bytes;
        assert_ptr_equal(m->subject(request), bytes);
        free(request);
        n_named++;
    }
    assert_int_equal(n_named, 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(health_reports_live_and_ready),
        cmocka_unit_test(metadata_names_server_model_and_tensors),
        cmocka_unit_test(statistics_are_of_one_model_or_of_all),
        cmocka_unit_test(the_index_lists_models_with_their_states),
        cmocka_unit_test(a_model_is_loaded_and_unloaded),
        cmocka_unit_test(log_settings_change_what_they_name),
        cmocka_unit_test(missing_features_are_refused_by_name),
        cmocka_unit_test(malformed_messages_are_refused),
        cmocka_unit_test(methods_tell_the_model_that_a_request_names),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
