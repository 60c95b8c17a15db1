/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command line, by tables: every flag, in every form. test_options_check.c tests the values.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lib/command_line.h"
#include "options_apply.c"

static void the_table_has_all_flags_of_triton_and_ours(void **unused)
{
    (void)unused;
    int n_of_triton = 0;
    for (int id = 0; id < N_OPTIONS; id++)
        n_of_triton += option_table[id].group != GROUP_CONCH;
    assert_int_equal(n_of_triton, 91);
    for (int a = 0; a < N_OPTIONS; a++) {
        for (int b = a + 1; b < N_OPTIONS; b++)
            assert_string_not_equal(option_table[a].flag, option_table[b].flag);
        assert_non_null(option_table[a].help);
        assert_true((option_table[a].kind == KIND_NONE) == !option_table[a].argument);
    }
}

static void defaults_are_those_of_the_reference(void **unused)
{
    (void)unused;
    struct options o;
    assert_null(parse_line(&o, ""));
    assert_string_equal(option_text(&o, OPT_ID), "triton");
    assert_int_equal(option_int(&o, OPT_EXIT_TIMEOUT_SECS), 30);
    assert_true(option_bool(&o, OPT_LOG_INFO));
    assert_int_equal(option_int(&o, OPT_LOG_VERBOSE), 0);
    assert_int_equal(o.values[OPT_MODEL_REPOSITORY].n_list, 0);
    assert_true(option_bool(&o, OPT_EXIT_ON_ERROR));
    assert_true(option_bool(&o, OPT_STRICT_READINESS));
    assert_false(option_bool(&o, OPT_DISABLE_AUTO_COMPLETE_CONFIG));
    assert_true(option_bool(&o, OPT_ALLOW_HTTP));
    assert_string_equal(option_text(&o, OPT_HTTP_ADDRESS), "0.0.0.0");
    assert_int_equal(option_int(&o, OPT_HTTP_PORT), 8000);
    assert_int_equal(option_int(&o, OPT_HTTP_THREAD_COUNT), 8);
    assert_int_equal(option_int(&o, OPT_HTTP_MAX_INPUT_SIZE), 67108864);
    assert_true(option_bool(&o, OPT_ALLOW_GRPC));
    assert_false(o.values[OPT_ALLOW_GRPC].given);
    assert_int_equal(option_int(&o, OPT_MODEL_LOAD_THREAD_COUNT), 4);
    assert_int_equal(option_int(&o, OPT_GRPC_MAX_RESPONSE_POOL_SIZE), INT32_MAX);
    assert_true(option_real(&o, OPT_METRICS_INTERVAL_MS) == 2000.0);
    assert_int_equal(o.n_notices, 0);
    options_done(&o);
}

static void options_of_grpc_reach_the_service(void **unused)
{
    (void)unused;
    static const char keepalive[] = "--grpc-keepalive-time=7 --grpc-keepalive-timeout=8 "
                                    "--grpc-keepalive-permit-without-calls=true "
                                    "--grpc-http2-max-pings-without-data=9 "
                                    "--grpc-http2-min-recv-ping-interval-without-data=10 "
                                    "--grpc-http2-max-ping-strikes=11 --grpc-max-connection-age=12 "
                                    "--grpc-max-connection-age-grace=13";
    static const char limits[] = "--grpc-address=here --grpc-port=1 --reuse-grpc-port=true "
                                 "--grpc-infer-allocation-pool-size=2 "
                                 "--grpc-max-response-pool-size=3 --grpc-server-cert=c "
                                 "--grpc-server-key=k --grpc-root-cert=r --grpc-max-streams=4 "
                                 "--grpc-infer-response-compression-level=low "
                                 "--grpc-stall-timeout-secs=5 --grpc-infer-thread-count=6 "
                                 "--grpc-max-connections-per-address=14 --grpc-min-rate=15 "
                                 "--grpc-min-rate-secs=16";
    struct conch_grpc_options grpc = {0};
    struct options o;
    assert_null(parse_line(&o, keepalive));
    options_apply_grpc(&o, &grpc);
    assert_int_equal(grpc.keepalive_ms, 7);
    assert_int_equal(grpc.keepalive_timeout_ms, 8);
    assert_true(grpc.keepalive_without_calls);
    assert_int_equal(grpc.max_pings_without_data, 9);
    assert_int_equal(grpc.min_ping_interval_ms, 10);
    assert_int_equal(grpc.max_ping_strikes, 11);
    assert_int_equal(grpc.max_connection_age_ms, 12);
    assert_int_equal(grpc.max_connection_age_grace_ms, 13);
    assert_int_equal(grpc.n_threads, 8); /* that of HTTP, since it has none of its own */
    assert_int_equal(grpc.port, 8001);
    assert_int_equal(grpc.n_restricted_protocols, 0);
    assert_string_equal(grpc.header_forward_pattern, "");
    assert_true(grpc.reflection);
    options_done(&o);

    assert_null(parse_line(&o, limits));
    options_apply_grpc(&o, &grpc);
    assert_string_equal(grpc.address, "here");
    assert_int_equal(grpc.port, 1);
    assert_true(grpc.reuse_port);
    assert_int_equal(grpc.n_kept_calls, 2);
    assert_int_equal(grpc.max_responses, 3);
    assert_string_equal(grpc.server_cert, "c");
    assert_string_equal(grpc.server_key, "k");
    assert_string_equal(grpc.root_cert, "r");
    assert_int_equal(grpc.max_streams, 4);
    assert_string_equal(grpc.compression_level, "low");
    assert_int_equal(grpc.stall_timeout_ms, 5000);
    assert_int_equal(grpc.max_connections_per_address, 14);
    assert_int_equal(grpc.min_rate, 15);
    assert_int_equal(grpc.min_rate_ms, 16000);
    assert_int_equal(grpc.n_threads, 6);
    options_done(&o);
}

/* For every flag: a value that parses. A flag that must be off is given that value. */
static const char *good_value(const struct option *option)
{
    static const struct {
        const char *flag, *value;
    } special[] = {
        {"http-restricted-api", "health,metadata:k=v"},
        {"grpc-restricted-protocol", "health:k=v"},
        {"sagemaker-safe-port-range", "1000-9000"},
        {"metrics-config", "histogram_latencies=true"},
        {"trace-config", "triton,file=/tmp/x"},
        {"backend-config", "onnxruntime,default-max-batch-size=8"},
        {"cache-config", "local,size=100"},
        {"rate-limit", "execution_count"},
        {"rate-limit-resource", "R:4:0"},
        {"cuda-memory-pool-byte-size", "0:100"},
        {"cuda-virtual-address-size", "0:100"},
        {"host-policy", "p,cpu-cores=0-1"},
        {"model-load-gpu-limit", "0:0.5"},
        {"trace-level", "OFF"},
        {"log-format", "ISO8601"},
        {"connection-memory-budget", "100000000"},
        {"grpc-max-header-size", "8192"},
        {"grpc-infer-response-compression-level", "low"},
        {"model-control-mode", "explicit"},
        {"http-cors-origins", "https://example.com"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(special); i++) {
        if (strcmp(special[i].flag, option->flag) == 0)
            return special[i].value;
    }
    if (option->harmless && *option->harmless)
        return option->harmless;
    switch (option->kind) {
    case KIND_BOOL:
        return "false";
    case KIND_REAL:
        return "1.5";
    case KIND_TEXT:
    case KIND_LIST:
        return "word";
    default:
        return "7";
    }
}

static void every_flag_parses_in_both_forms(void **unused)
{
    (void)unused;
    for (int id = 0; id < N_OPTIONS; id++) {
        const struct option *option = &option_table[id];
        if (id == OPT_CONFIG) /* a file has to be there: test_options_sources.c */
            continue;
        bool refused = option->effect == EFFECT_ONLY && (!option->harmless || !*option->harmless);
        for (int two_words = 0; two_words < 2; two_words++) {
            char line[256];
            struct options o;
            if (option->kind == KIND_NONE)
                snprintf(line, sizeof(line), "--%s", option->flag);
            else
                snprintf(line, sizeof(line), "--%s%c%s", option->flag, two_words ? ' ' : '=',
                         good_value(option));
            char *wrong = parse_line(&o, line);
            if (id == OPT_LOAD_MODEL) {
                assert_non_null(strstr(wrong, "--model-control-mode=explicit"));
            } else if (refused) {
                assert_non_null(wrong);
                assert_non_null(strstr(wrong, "asks for what Conch does not have yet"));
                assert_non_null(strstr(wrong, option->flag));
            } else if (wrong) {
                fail_msg("%s: %s", line, wrong);
            }
            assert_true(o.values[id].given);
            if (!wrong && option->effect == EFFECT_INERT) {
                assert_true(o.n_notices >= 1);
                assert_non_null(strstr(o.notices[0], option->flag));
                assert_non_null(strstr(o.notices[0], "has no effect yet"));
            } else if (!wrong && option->effect == EFFECT_HONOURED &&
                       option->group != GROUP_DEPRECATED) {
                assert_int_equal(o.n_notices, 0);
            }
            free(wrong);
            options_done(&o);
        }
    }
}

static void values_reach_the_servers_options(void **unused)
{
    (void)unused;
    struct options o;
    assert_null(parse_line(&o, "--model-store=/a --model-repository /b --http-port=0 --id x --id=y "
                               "--log-verbose=true --strict-model-config=TRUE"));
    assert_int_equal(o.values[OPT_MODEL_REPOSITORY].n_list, 2);
    assert_string_equal(o.values[OPT_MODEL_REPOSITORY].list[0], "/a");
    assert_string_equal(o.values[OPT_MODEL_REPOSITORY].list[1], "/b");
    assert_int_equal(option_int(&o, OPT_HTTP_PORT), 0);
    assert_string_equal(option_text(&o, OPT_ID), "y");
    assert_int_equal(option_int(&o, OPT_LOG_VERBOSE), 1);
    assert_true(option_bool(&o, OPT_DISABLE_AUTO_COMPLETE_CONFIG));
    options_done(&o);

    assert_null(parse_line(&o, "--log-info=OFF --log-warning 0 --log-error=False --log-verbose 3"));
    assert_false(option_bool(&o, OPT_LOG_INFO));
    assert_false(option_bool(&o, OPT_LOG_WARNING));
    assert_false(option_bool(&o, OPT_LOG_ERROR));
    assert_int_equal(option_int(&o, OPT_LOG_VERBOSE), 3);
    options_done(&o);

    assert_null(parse_line(&o, "--http-max-input-size=9000000000 --backend-config=a=b "
                               "--backend-config=onnx,c=d=e"));
    assert_true(option_int(&o, OPT_HTTP_MAX_INPUT_SIZE) == 9000000000);
    assert_int_equal(o.values[OPT_BACKEND_CONFIG].n_list, 2);
    assert_string_equal(o.values[OPT_BACKEND_CONFIG].list[1], "onnx,c=d=e");
    options_done(&o);
}

static void flags_are_parsed_as_by_getopt(void **unused)
{
    (void)unused;
    struct options o;
    assert_null(parse_line(&o, "--http-po=5 --exit-t 9 --"));
    assert_int_equal(option_int(&o, OPT_HTTP_PORT), 5);
    assert_int_equal(option_int(&o, OPT_EXIT_TIMEOUT_SECS), 9);
    options_done(&o);
    /* Our own flags have no prefixes. */
    expect_ok("--id=x");
    expect_wrong("--vers", "unrecognized option '--vers'");
    assert_null(parse_line(&o, "--http-max-i=5 --http-max-connections=7"));
    assert_int_equal(option_int(&o, OPT_HTTP_MAX_INPUT_SIZE), 5);
    assert_int_equal(option_int(&o, OPT_HTTP_MAX_CONNECTIONS), 7);
    options_done(&o);
    assert_null(parse_line(&o, "--http-m=5")); /* only one flag of Triton begins so */
    options_done(&o);
    expect_wrong("--foo", "unrecognized option '--foo'");
    expect_wrong("--foo=1", "unrecognized option '--foo'");
    expect_wrong("--=1", "unrecognized option '--'");
    expect_wrong("--trace-l", "option '--trace-l' is ambiguous; possibilities: '--trace-level' "
                              "'--trace-log-frequency'");
    expect_wrong("--http-port", "option '--http-port' requires an argument");
    expect_wrong("--help=1", "option '--help' doesn't allow an argument");
    expect_wrong("--disable-auto-complete-config=true",
                 "option '--disable-auto-complete-config' doesn't allow an argument");
    expect_wrong("-x", "invalid option -- 'x'");
    expect_wrong("stray", "Unexpected argument: stray");
    expect_wrong("-", "Unexpected argument: -");
    expect_wrong("--id=a -- stray", "Unexpected argument: stray");
    expect_ok("--help --foo");
    /* --version prints values of other flags, so these are parsed; options that only a start
     * needs are not demanded. */
    expect_ok("--version --backend-directory=/b");
    expect_ok("--allow-http=false --allow-metrics=false --version --allow-grpc=true");
    expect_wrong("--version stray", "Unexpected argument: stray");
}

static void values_that_do_not_parse_are_refused(void **unused)
{
    (void)unused;
    static const struct {
        const char *line, *text;
    } cases[] = {
        {"--http-port=x", "Bad option: \"--http-port\".\nInvalid option value. Got x"},
        {"--http-port=", "Bad option: \"--http-port\".\nInvalid option value. Got "},
        {"--http-port=5x", "Bad option: \"--http-port\".\nInvalid option value. Got 5x"},
        {"--allow-http=false --http-port=x",
         "Bad option: \"--http-port\".\nInvalid option value. Got x"},
        {"--grpc-keepalive-time=99999999999",
         "Bad option: \"--grpc-keepalive-time\".\nProvided option value is out of bound. Got "
         "99999999999"},
        {"--http-max-input-size=99999999999999999999",
         "Bad option: \"--http-max-input-size\".\nProvided option value is out of bound. Got "
         "99999999999999999999"},
        {"--allow-http=maybe",
         "Bad option: \"--allow-http\".\ninvalid value for bool option: maybe; valid are true, "
         "on, 1, false, off, 0"},
        {"--log-verbose=x", "Bad option: \"--log-verbose\".\nInvalid option value. Got x"},
        {"--min-supported-compute-capability=x",
         "Bad option: \"--min-supported-compute-capability\".\nInvalid option value. Got x"},
        {"--min-supported-compute-capability=1e999",
         "Bad option: \"--min-supported-compute-capability\".\nProvided option value is out of "
         "bound. Got 1e999"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        expect_wrong(cases[i].line, cases[i].text);
}

static void flags_of_missing_features_are_refused_by_name(void **unused)
{
    (void)unused;
    static const char *const lines[] = {
        "--metrics-config=summary_latencies=true",
    };
    for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
        char want[256];
        struct options o;
        char *wrong = parse_line(&o, lines[i]);
        assert_non_null(wrong);
        snprintf(want, sizeof(want), "%s asks for what Conch does not have yet: ", lines[i]);
        if (strncmp(wrong, want, strlen(want)) != 0)
            fail_msg("%s", wrong);
        free(wrong);
        options_done(&o);
    }
    /* The last value counts, as with all flags that are not lists. */
    expect_ok("--model-control-mode=Explicit --load-model=a --load-model=b");
    expect_ok("--model-load-retry-count=3 --model-control-mode=NONE --rate-limit=off");
    expect_ok("--trace-config=level=OFF --trace-config=rate=5 --trace-config=mode=triton");
    expect_ok("--grpc-infer-response-compression-level=none --response-cache-byte-size=5");
    expect_ok("--cache-config=local,size=1 --cache-config=redis,host=x");
    expect_ok("--trace-config=mode=opentelemetry --trace-config=opentelemetry,url=x "
              "--trace-config=opentelemetry,resource=a=b "
              "--trace-config=opentelemetry,bsp_schedule_delay=5");
}

static void deprecated_flags_are_logged(void **unused)
{
    (void)unused;
    static const char *const lines[] = {
        "--strict-model-config=false",
        "--response-cache-byte-size=0",
        "--trace-file=x",
        "--trace-level=OFF",
        "--trace-rate=1",
        "--trace-count=1",
        "--trace-log-frequency=1",
    };
    for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
        struct options o;
        assert_null(parse_line(&o, lines[i]));
        char want[64];
        snprintf(want, sizeof(want), "Warning: '%.*s' has been deprecated",
                 (int)strcspn(lines[i], "="), lines[i]);
        assert_true(o.n_notices > 0);
        assert_int_equal(strncmp(o.notices[o.n_notices - 1], want, strlen(want)), 0);
        options_done(&o);
    }
    struct options o;
    assert_null(parse_line(&o, "--strict-model-config=false --disable-auto-complete-config"));
    assert_true(option_bool(&o, OPT_DISABLE_AUTO_COMPLETE_CONFIG));
    assert_int_equal(o.n_notices, 2);
    assert_string_equal(o.notices[1],
                        "Warning: Overriding deprecated '--strict-model-config' from False to "
                        "True in favor of '--disable-auto-complete-config'!");
    options_done(&o);
}

static void vertex_ai_is_enabled_by_its_environment(void **unused)
{
    (void)unused;
    struct options o;
    setenv("AIP_STORAGE_URI", "/models", 1);
    assert_null(parse_line(&o, ""));
    assert_int_equal(o.values[OPT_MODEL_REPOSITORY].n_list, 1);
    assert_string_equal(o.values[OPT_MODEL_REPOSITORY].list[0], "/models");
    options_done(&o);
    assert_null(parse_line(&o, "--model-repository=/mine"));
    assert_int_equal(o.values[OPT_MODEL_REPOSITORY].n_list, 1);
    assert_string_equal(o.values[OPT_MODEL_REPOSITORY].list[0], "/mine");
    options_done(&o);

    setenv("AIP_MODE", "PREDICTION", 1);
    assert_null(parse_line(&o, ""));
    assert_true(option_bool(&o, OPT_ALLOW_VERTEX_AI));
    assert_int_equal(option_int(&o, OPT_VERTEX_AI_PORT), 8080);
    options_done(&o);
    setenv("AIP_HTTP_PORT", "7080", 1);
    assert_null(parse_line(&o, ""));
    assert_int_equal(option_int(&o, OPT_VERTEX_AI_PORT), 7080);
    options_done(&o);
    assert_null(parse_line(&o, "--vertex-ai-port=9080"));
    assert_int_equal(option_int(&o, OPT_VERTEX_AI_PORT), 9080);
    options_done(&o);
    expect_wrong("--metrics-port=7080", "The server cannot listen to metrics requests and Vertex "
                                        "AI requests at the same address and port 0.0.0.0:7080");
    setenv("AIP_HTTP_PORT", "http", 1);
    expect_wrong("", "AIP_HTTP_PORT: Invalid option value. Got http");
    expect_ok("--allow-vertex-ai=false");
    unsetenv("AIP_HTTP_PORT");
    assert_null(parse_line(&o, "--allow-vertex-ai=false"));
    assert_false(option_bool(&o, OPT_ALLOW_HTTP));
    assert_false(option_bool(&o, OPT_ALLOW_GRPC));
    options_done(&o);
    assert_null(parse_line(&o, "--allow-vertex-ai=false --allow-http=true"));
    assert_true(option_bool(&o, OPT_ALLOW_HTTP));
    options_done(&o);
    setenv("AIP_MODE", "other", 1);
    assert_null(parse_line(&o, ""));
    assert_true(option_bool(&o, OPT_ALLOW_HTTP));
    options_done(&o);
}

static void help_names_every_flag_within_100_columns(void **unused)
{
    (void)unused;
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    assert_true(options_help(out, "conch", "all"));
    fclose(out);
    for (int id = 0; id < N_OPTIONS; id++) {
        char want[128], inert[128];
        snprintf(want, sizeof(want), "\n  --%s%s", option_table[id].flag,
                 option_table[id].argument ? " <" : " ");
        snprintf(inert, sizeof(inert), "--%s", option_table[id].flag);
        const char *paragraph = strstr(text, "\nWithout effect yet\n");
        if (!strstr(text, want) && !(is_inert(&option_table[id]) && strstr(paragraph, inert)))
            fail_msg("--help does not name --%s", option_table[id].flag);
    }
    for (const char *line = text; *line;) {
        size_t length = strcspn(line, "\n");
        if (count_columns(line, length) > ALL_COLUMNS)
            fail_msg("too wide: %.*s", (int)length, line);
        line += length + 1;
    }
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(the_table_has_all_flags_of_triton_and_ours, clear_environment),
        cmocka_unit_test_setup(options_of_grpc_reach_the_service, clear_environment),
        cmocka_unit_test_setup(defaults_are_those_of_the_reference, clear_environment),
        cmocka_unit_test_setup(every_flag_parses_in_both_forms, clear_environment),
        cmocka_unit_test_setup(values_reach_the_servers_options, clear_environment),
        cmocka_unit_test_setup(flags_are_parsed_as_by_getopt, clear_environment),
        cmocka_unit_test_setup(values_that_do_not_parse_are_refused, clear_environment),
        cmocka_unit_test_setup(flags_of_missing_features_are_refused_by_name, clear_environment),
        cmocka_unit_test_setup(deprecated_flags_are_logged, clear_environment),
        cmocka_unit_test_setup(vertex_ai_is_enabled_by_its_environment, clear_environment),
        cmocka_unit_test_setup(help_names_every_flag_within_100_columns, clear_environment),
    };
    return cmocka_run_group_tests(tests, NULL, clear_environment);
}
