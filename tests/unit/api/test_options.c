/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of the public ABI around the server: names of values, parameters, messages, buffer
 * attributes, and options. An option that asks for a missing feature is refused; an option that
 * only sizes or places such a feature is accepted.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "conch/conch.h"
#include "core/options/server_options.h"
#include "triton/core/tritonbackend.h"
#include "triton/core/tritonserver.h"

static void ok(TRITONSERVER_Error *error)
{
    if (error)
        fail_msg("%s", TRITONSERVER_ErrorMessage(error));
}

static void refused(TRITONSERVER_Error *error, TRITONSERVER_Error_Code code, const char *text)
{
    assert_non_null(error);
    assert_int_equal(TRITONSERVER_ErrorCode(error), code);
    assert_string_equal(TRITONSERVER_ErrorMessage(error), text);
    TRITONSERVER_ErrorDelete(error);
}

static void values_have_their_names(void **state)
{
    (void)state;
    static const struct {
        TRITONSERVER_DataType type;
        const char *name;
        uint32_t size;
    } types[] = {
        {TRITONSERVER_TYPE_BOOL, "BOOL", 1},     {TRITONSERVER_TYPE_UINT8, "UINT8", 1},
        {TRITONSERVER_TYPE_UINT16, "UINT16", 2}, {TRITONSERVER_TYPE_UINT32, "UINT32", 4},
        {TRITONSERVER_TYPE_UINT64, "UINT64", 8}, {TRITONSERVER_TYPE_INT8, "INT8", 1},
        {TRITONSERVER_TYPE_INT16, "INT16", 2},   {TRITONSERVER_TYPE_INT32, "INT32", 4},
        {TRITONSERVER_TYPE_INT64, "INT64", 8},   {TRITONSERVER_TYPE_FP16, "FP16", 2},
        {TRITONSERVER_TYPE_FP32, "FP32", 4},     {TRITONSERVER_TYPE_FP64, "FP64", 8},
        {TRITONSERVER_TYPE_BYTES, "BYTES", 0},   {TRITONSERVER_TYPE_BF16, "BF16", 2},
    };
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        assert_string_equal(TRITONSERVER_DataTypeString(types[i].type), types[i].name);
        assert_int_equal(TRITONSERVER_StringToDataType(types[i].name), types[i].type);
        assert_int_equal(TRITONSERVER_DataTypeByteSize(types[i].type), types[i].size);
    }
    assert_string_equal(TRITONSERVER_DataTypeString(TRITONSERVER_TYPE_INVALID), "<invalid>");
    assert_int_equal(TRITONSERVER_StringToDataType("fp32"), TRITONSERVER_TYPE_INVALID);
    assert_string_equal(TRITONSERVER_MemoryTypeString(TRITONSERVER_MEMORY_CPU_PINNED),
                        "CPU_PINNED");
    assert_string_equal(TRITONSERVER_MemoryTypeString((TRITONSERVER_MemoryType)77), "<invalid>");
    assert_string_equal(TRITONSERVER_ParameterTypeString(TRITONSERVER_PARAMETER_BYTES), "BYTES");
    assert_string_equal(TRITONSERVER_InstanceGroupKindString(TRITONSERVER_INSTANCEGROUPKIND_MODEL),
                        "MODEL");

    uint32_t major, minor;
    ok(TRITONSERVER_ApiVersion(&major, &minor));
    assert_int_equal(major, 1);
    assert_int_equal(minor, 34);
    ok(TRITONBACKEND_ApiVersion(&major, &minor));
    assert_int_equal(major, 1);
    assert_int_equal(minor, 19);
}

static void parameters_and_messages_keep_their_values(void **state)
{
    (void)state;
    int64_t number = 7;
    bool yes = true;
    double real = 0.5;
    TRITONSERVER_Parameter *p[] = {
        TRITONSERVER_ParameterNew("s", TRITONSERVER_PARAMETER_STRING, "text"),
        TRITONSERVER_ParameterNew("i", TRITONSERVER_PARAMETER_INT, &number),
        TRITONSERVER_ParameterNew("b", TRITONSERVER_PARAMETER_BOOL, &yes),
        TRITONSERVER_ParameterNew("d", TRITONSERVER_PARAMETER_DOUBLE, &real),
        TRITONSERVER_ParameterBytesNew("y", "bytes", 5),
    };
    for (size_t i = 0; i < sizeof(p) / sizeof(p[0]); i++) {
        assert_non_null(p[i]);
        TRITONSERVER_ParameterDelete(p[i]);
    }
    assert_null(TRITONSERVER_ParameterNew("y", TRITONSERVER_PARAMETER_BYTES, "bytes"));
    assert_null(TRITONSERVER_ParameterNew(NULL, TRITONSERVER_PARAMETER_STRING, "text"));

    TRITONSERVER_Message *message;
    const char *base;
    size_t size;
    ok(TRITONSERVER_MessageNewFromSerializedJson(&message, "{\"a\":1}", 7));
    ok(TRITONSERVER_MessageSerializeToJson(message, &base, &size));
    assert_int_equal(size, 7);
    assert_memory_equal(base, "{\"a\":1}", 7);
    ok(TRITONSERVER_MessageDelete(message));
    ok(TRITONSERVER_MessageNewFromSerializedJson(&message, "{a:", 3)); /* messages are not parsed */
    ok(TRITONSERVER_MessageSerializeToJson(message, &base, &size));
    assert_memory_equal(base, "{a:", 3);
    ok(TRITONSERVER_MessageDelete(message));
}

static void buffer_attributes_keep_their_values(void **state)
{
    (void)state;
    TRITONSERVER_BufferAttributes *a;
    TRITONSERVER_MemoryType type;
    int64_t id;
    size_t size;
    void *handle, *ours = &size;
    ok(TRITONSERVER_BufferAttributesNew(&a));
    ok(TRITONSERVER_BufferAttributesSetMemoryType(a, TRITONSERVER_MEMORY_GPU));
    ok(TRITONSERVER_BufferAttributesSetMemoryTypeId(a, 3));
    ok(TRITONSERVER_BufferAttributesSetByteSize(a, 99));
    ok(TRITONSERVER_BufferAttributesSetCudaIpcHandle(a, ours));
    ok(TRITONSERVER_BufferAttributesMemoryType(a, &type));
    ok(TRITONSERVER_BufferAttributesMemoryTypeId(a, &id));
    ok(TRITONSERVER_BufferAttributesByteSize(a, &size));
    ok(TRITONSERVER_BufferAttributesCudaIpcHandle(a, &handle));
    assert_int_equal(type, TRITONSERVER_MEMORY_GPU);
    assert_int_equal(id, 3);
    assert_int_equal(size, 99);
    assert_ptr_equal(handle, ours);
    ok(TRITONSERVER_BufferAttributesDelete(a));
}

static void options_that_size_or_place_are_accepted(void **state)
{
    (void)state;
    TRITONSERVER_ServerOptions *o;
    ok(TRITONSERVER_ServerOptionsNew(&o));
    ok(TRITONSERVER_ServerOptionsSetServerId(o, "me"));
    ok(TRITONSERVER_ServerOptionsSetModelControlMode(o, TRITONSERVER_MODEL_CONTROL_NONE));
    ok(TRITONSERVER_ServerOptionsSetModelControlMode(o, TRITONSERVER_MODEL_CONTROL_EXPLICIT));
    ok(TRITONSERVER_ServerOptionsSetStartupModel(o, "m"));
    ok(TRITONSERVER_ServerOptionsSetStrictModelConfig(o, true));
    ok(TRITONSERVER_ServerOptionsSetModelConfigName(o, "special"));
    ok(TRITONSERVER_ServerOptionsSetExitOnError(o, false));
    ok(TRITONSERVER_ServerOptionsSetStrictReadiness(o, false));
    ok(TRITONSERVER_ServerOptionsSetExitTimeout(o, 3));
    ok(TRITONSERVER_ServerOptionsSetModelLoadThreadCount(o, 2));
    ok(TRITONSERVER_ServerOptionsSetModelLoadRetryCount(o, 1));
    ok(TRITONSERVER_ServerOptionsSetModelNamespacing(o, true));
    ok(conch_server_options_set_follow_symlinks(o, true));
    ok(conch_server_options_set_warmup_timeout(o, 5));
    ok(TRITONSERVER_ServerOptionsSetRateLimiterMode(o, TRITONSERVER_RATE_LIMIT_EXEC_COUNT));
    ok(TRITONSERVER_ServerOptionsSetRateLimiterMode(o, TRITONSERVER_RATE_LIMIT_OFF));
    ok(TRITONSERVER_ServerOptionsAddRateLimiterResource(o, "R", 1, 0));
    ok(TRITONSERVER_ServerOptionsSetPinnedMemoryPoolByteSize(o, 1));
    ok(TRITONSERVER_ServerOptionsSetCudaMemoryPoolByteSize(o, 0, 1));
    ok(TRITONSERVER_ServerOptionsSetCudaVirtualAddressSize(o, 0, 1));
    ok(TRITONSERVER_ServerOptionsSetMinSupportedComputeCapability(o, 6.0));
    ok(TRITONSERVER_ServerOptionsSetBufferManagerThreadCount(o, 1));
    ok(TRITONSERVER_ServerOptionsSetEnablePeerAccess(o, true));
    ok(TRITONSERVER_ServerOptionsSetModelLoadDeviceLimit(o, TRITONSERVER_INSTANCEGROUPKIND_GPU, 0,
                                                         0.5));
    ok(TRITONSERVER_ServerOptionsSetResponseCacheByteSize(o, 0));
    ok(TRITONSERVER_ServerOptionsSetCacheDirectory(o, "/c"));
    ok(TRITONSERVER_ServerOptionsSetRepoAgentDirectory(o, "/r"));
    ok(TRITONSERVER_ServerOptionsSetBackendDirectory(o, "/b"));
    ok(TRITONSERVER_ServerOptionsSetBackendConfig(o, "b", "key", "value"));
    ok(TRITONSERVER_ServerOptionsSetHostPolicy(o, "p", "numa-node", "0"));
    ok(TRITONSERVER_ServerOptionsSetHostPolicy(o, "p", "cpu-cores", "0-3"));
    ok(TRITONSERVER_ServerOptionsSetMetrics(o, true));
    ok(TRITONSERVER_ServerOptionsSetGpuMetrics(o, false));
    ok(TRITONSERVER_ServerOptionsSetCpuMetrics(o, true));
    ok(TRITONSERVER_ServerOptionsSetMetricsInterval(o, 1000));
    ok(TRITONSERVER_ServerOptionsSetMetricsConfig(o, "", "counter_latencies", "false"));
    ok(TRITONSERVER_ServerOptionsSetMetricsConfig(o, "", "histogram_latencies", "TRUE"));
    ok(TRITONSERVER_ServerOptionsSetMetricsConfig(o, "", "summary_latencies", "false"));
    ok(TRITONSERVER_ServerOptionsSetMetricsConfig(o, "", "summary_quantiles", "0.5:0.05"));
    ok(TRITONSERVER_ServerOptionsDelete(o));
}

static void options_that_ask_for_missing_features_are_refused(void **state)
{
    (void)state;
    TRITONSERVER_ServerOptions *o;
    const TRITONSERVER_Error_Code no = TRITONSERVER_ERROR_UNSUPPORTED,
                                  wrong = TRITONSERVER_ERROR_INVALID_ARG;
    ok(TRITONSERVER_ServerOptionsNew(&o));
    refused(TRITONSERVER_ServerOptionsSetRateLimiterMode(o, (TRITONSERVER_RateLimitMode)7), wrong,
            "unknown rate limit mode '7'");
    refused(TRITONSERVER_ServerOptionsSetMetricsConfig(o, "", "summary_latencies", "true"), no,
            "metrics setting 'summary_latencies' is 'true': quantiles are not supported yet");
    refused(TRITONSERVER_ServerOptionsSetMetricsConfig(o, "m", "counter_latencies", "true"), no,
            "metrics settings of 'm': there are only those of all metrics");
    refused(TRITONSERVER_ServerOptionsSetMetricsConfig(o, "", "counter_latencies", "no"), wrong,
            "metrics setting 'counter_latencies' is 'no', expected true or false");
    refused(TRITONSERVER_ServerOptionsSetMetricsConfig(o, "", "s", "v"), wrong,
            "there is no metrics setting 's': there are counter_latencies, histogram_latencies, "
            "summary_latencies and summary_quantiles");

    refused(TRITONSERVER_ServerOptionsSetHostPolicy(o, "p", "cores", "0"), no,
            "Unsupported host policy setting 'cores' is specified, supported settings are "
            "'numa-node', 'cpu-cores'");
    refused(TRITONSERVER_ServerOptionsSetModelConfigName(o, "../x"), wrong,
            "model configuration name '../x' leads out of the folder 'configs'");
    refused(TRITONSERVER_ServerOptionsSetModelLoadThreadCount(o, 0), wrong,
            "model load thread count must be at least 1, got 0");
    refused(TRITONSERVER_ServerOptionsSetModelLoadDeviceLimit(o, TRITONSERVER_INSTANCEGROUPKIND_GPU,
                                                              -1, 0.5),
            wrong, "expects device ID >= 0, got -1");
    refused(TRITONSERVER_ServerOptionsSetStartupModel(o, NULL), wrong,
            "TRITONSERVER_ServerOptionsSetStartupModel: 'model_name' was nullptr");
    refused(TRITONSERVER_ServerOptionsSetModelControlMode(o, (TRITONSERVER_ModelControlMode)7),
            wrong, "unknown model control mode '7'");
    refused(conch_server_options_set_warmup_timeout(NULL, 1), wrong,
            "conch_server_options_set_warmup_timeout: 'options' was nullptr");
    refused(conch_server_options_set_follow_symlinks(NULL, true), wrong,
            "conch_server_options_set_follow_symlinks: 'options' was nullptr");
    refused(TRITONSERVER_ServerOptionsSetServerId(NULL, "me"), wrong,
            "TRITONSERVER_ServerOptionsSetServerId: 'options' was nullptr");
    ok(TRITONSERVER_ServerOptionsDelete(o));
}

/* The values that options.def gives a server, by the names of the flags, and nothing else. */
static void options_are_set_by_the_names_of_their_flags(void **state)
{
    (void)state;
    TRITONSERVER_ServerOptions *so = NULL;
    ok(TRITONSERVER_ServerOptionsNew(&so));
    struct server_options *o = (struct server_options *)so;
    assert_int_equal(o->exit_timeout_s, 30);
    assert_int_equal(o->execution_warning_s, 10);
    assert_true(o->exit_on_error);
    assert_string_equal(o->server_id, "triton");

    ok(conch_server_options_set(so, "exit-timeout-secs", "7"));
    ok(conch_server_options_set(so, "execution-warning-secs", "0"));
    ok(conch_server_options_set(so, "exit-on-error", "Off"));
    ok(conch_server_options_set(so, "id", "mine"));
    ok(conch_server_options_set(so, "metrics-interval-ms", "5000000000"));
    ok(conch_server_options_set(so, "model-repository", "/a"));
    ok(conch_server_options_set(so, "model-repository", "/b"));
    assert_int_equal(o->exit_timeout_s, 7);
    assert_int_equal(o->execution_warning_s, 0);
    assert_false(o->exit_on_error);
    assert_string_equal(o->server_id, "mine");
    assert_int_equal(o->metrics_interval_ms, 5000000000);
    assert_int_equal(o->n_repositories, 2);

    struct server_options *copy = server_options_copy(o);
    server_options_free(o);
    assert_string_equal(copy->server_id, "mine");
    assert_string_equal(copy->repositories[1], "/b");
    so = (TRITONSERVER_ServerOptions *)copy;

    refused(conch_server_options_set(so, "exit-timeout-secs", "soon"),
            TRITONSERVER_ERROR_INVALID_ARG,
            "option 'exit-timeout-secs' is 'soon', expected a number");
    refused(conch_server_options_set(so, "exit-timeout-secs", "-1"), TRITONSERVER_ERROR_INVALID_ARG,
            "option 'exit-timeout-secs' is '-1', expected a number from 0 to 4294967295");
    refused(conch_server_options_set(so, "exit-on-error", "maybe"), TRITONSERVER_ERROR_INVALID_ARG,
            "option 'exit-on-error' is 'maybe', expected true or false");
    refused(conch_server_options_set(so, "model-load-thread-count", "0"),
            TRITONSERVER_ERROR_INVALID_ARG, "model load thread count must be at least 1, got 0");
    refused(conch_server_options_set(so, "http-port", "1"), TRITONSERVER_ERROR_NOT_FOUND,
            "there is no option 'http-port' that is a server's value");
    refused(conch_server_options_set(so, "", "1"), TRITONSERVER_ERROR_NOT_FOUND,
            "there is no option '' that is a server's value");
    assert_int_equal(copy->exit_timeout_s, 7);
    ok(TRITONSERVER_ServerOptionsDelete(so));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_are_set_by_the_names_of_their_flags),
        cmocka_unit_test(values_have_their_names),
        cmocka_unit_test(parameters_and_messages_keep_their_values),
        cmocka_unit_test(buffer_attributes_keep_their_values),
        cmocka_unit_test(options_that_size_or_place_are_accepted),
        cmocka_unit_test(options_that_ask_for_missing_features_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
