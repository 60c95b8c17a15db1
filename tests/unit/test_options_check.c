/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The form of each flag's value, its bounds, and which flags do not go together; refused in the
 * reference's words.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "lib/command_line.h"

static void a_wrong_value_is_refused_in_the_references_words(void **unused)
{
    (void)unused;
    static const struct {
        const char *line, *text;
    } cases[] = {
        {"--http-max-input-size=0",
         "Bad option: \"--http-max-input-size\".\nError: --http-max-input-size must be greater "
         "than 0."},
        {"--grpc-max-response-pool-size=0",
         "Bad option: \"--grpc-max-response-pool-size\".\nError: --grpc-max-response-pool-size "
         "must be greater than 0."},
        {"--exit-timeout-secs=-5",
         "Bad option: \"--exit-timeout-secs\".\nProvided option value is out of bound. Got -5"},
        {"--http-thread-count=0",
         "Bad option: \"--http-thread-count\".\nProvided option value is out of bound. Got 0"},
        {"--log-format=foo", "Bad option: \"--log-format\".\ninvalid argument for --log-format"},
        {"--model-control-mode=foo",
         "Bad option: \"--model-control-mode\".\ninvalid argument for --model-control-mode"},
        {"--model-config-name=",
         "Bad option: \"--model-config-name\".\nError: empty argument for --model-config-name"},
        {"--repoagent-directory=",
         "Bad option: \"--repoagent-directory\".\nError: empty argument for "
         "--repoagent-directory"},
        {"--rate-limit=foo", "Bad option: \"--rate-limit\".\ninvalid argument for --rate-limit"},
        {"--rate-limit-resource=foo",
         "Bad option: \"--rate-limit-resource\".\n--rate-limit-resource option format is "
         "'<resource_name>:<count>:<device>' or '<resource_name>:<count>'. Got foo"},
        {"--rate-limit-resource=a:b:c",
         "Bad option: \"--rate-limit-resource\".\nInvalid option value. Got b"},
        {"--rate-limit-resource=a:1:c",
         "Bad option: \"--rate-limit-resource\".\nInvalid option value. Got c"},
        {"--grpc-infer-thread-count=1",
         "Bad option: \"--grpc-infer-thread-count\".\ninvalid argument for "
         "--grpc_infer_thread_count. Must be in the range 2 to 128."},
        {"--grpc-infer-response-compression-level=x",
         "Bad option: \"--grpc-infer-response-compression-level\".\ninvalid argument for "
         "--grpc_infer_response_compression_level"},
        {"--backend-config=foo",
         "Bad option: \"--backend-config\".\n--backend-config option format is '<backend "
         "name>,<setting>=<value>'. Got foo"},
        {"--backend-config=,a=b",
         "Bad option: \"--backend-config\".\n--backend-config option format is '<backend "
         "name>,<setting>=<value>'. Got ,a=b"},
        {"--cache-config=foo",
         "Bad option: \"--cache-config\".\nNo cache specified. --cache-config option format is "
         "<cache name>,<setting>=<value>. Got foo"},
        {"--cache-config=local,foo",
         "Bad option: \"--cache-config\".\n--cache-config option format is '<cache "
         "name>,<setting>=<value>'. Got local,foo"},
        {"--metrics-interval-ms=-1", "Bad option: \"--metrics-interval-ms\".\nProvided option "
                                     "value is out of bound. Got -1"},
        {"--metrics-interval-ms=nan", "Bad option: \"--metrics-interval-ms\".\nProvided option "
                                      "value is out of bound. Got nan"},
        {"--metrics-config=foo",
         "Bad option: \"--metrics-config\".\n--metrics-config option format is "
         "<setting>=<value>. Got foo"},
        {"--trace-config=foo",
         "Bad option: \"--trace-config\".\n--trace-config option format is '<trace "
         "mode>,<setting>=<value>'. Got foo"},
        {"--trace-config=level=FOO",
         "Bad option: \"--trace-config\".\ninvalid value for trace level option: FOO"},
        {"--trace-config=rate=x", "Bad option: \"--trace-config\".\nInvalid option value. Got x"},
        {"--trace-config=mode=x",
         "Bad option: \"--trace-config\".\ninvalid value for trace mode option: x"},
        {"--trace-config=rat=1",
         "Bad option: \"--trace-config\".\nthere is no such setting of traces: rat=1"},
        {"--trace-config=opentelemetry,rat=1",
         "Bad option: \"--trace-config\".\nthere is no such setting of traces: opentelemetry,rat=1"},
        {"--trace-config=opentelemetry,bsp_max_queue_size=x",
         "Bad option: \"--trace-config\".\nInvalid option value. Got x"},
        {"--trace-config=triton,log-frequency=x",
         "Bad option: \"--trace-config\".\nInvalid option value. Got x"},
        {"--trace-level=FOO",
         "Bad option: \"--trace-level\".\ninvalid value for trace level option: FOO"},
        {"--host-policy=foo",
         "Bad option: \"--host-policy\".\n--host-policy option format is '<policy "
         "name>,<setting>=<value>'. Got foo"},
        {"--host-policy=p,numa-node=",
         "Bad option: \"--host-policy\".\n--host-policy option format is '<policy "
         "name>,<setting>=<value>'. Got p,numa-node="},
        {"--model-load-gpu-limit=-1:0.3",
         "Bad option: \"--model-load-gpu-limit\".\nexpects device ID >= 0, got -1"},
        {"--model-load-gpu-limit=0:-0.4",
         "Bad option: \"--model-load-gpu-limit\".\nexpects limit fraction to be in range [0.0, "
         "1.0], got -0.4"},
        {"--model-load-gpu-limit=0:x",
         "Bad option: \"--model-load-gpu-limit\".\nInvalid option value. Got x"},
        {"--cuda-memory-pool-byte-size=1",
         "Bad option: \"--cuda-memory-pool-byte-size\".\nCannot parse pair option due to "
         "incorrect number of inputs.--<pair option> argument requires format "
         "<first>:<second>. Found: 1"},
        {"--cuda-virtual-address-size=a:1",
         "Bad option: \"--cuda-virtual-address-size\".\nInvalid option value. Got a"},
        {"--sagemaker-safe-port-range=1",
         "Bad option: \"--sagemaker-safe-port-range\".\nCannot parse pair option due to "
         "incorrect number of inputs.--<pair option> argument requires format "
         "<first>-<second>. Found: 1"},
        {"--http-restricted-api=foo",
         "Bad option: \"--http-restricted-api\".\n--http-restricted-api option format is "
         "'<config name>:<setting>=<value>'. Got foo"},
        {"--http-restricted-api=health:a",
         "Bad option: \"--http-restricted-api\".\n--http-restricted-api option format is "
         "'<config name>:<setting>=<value>'. Got health:a"},
        {"--http-restricted-api=health,foo:a=b",
         "Bad option: \"--http-restricted-api\".\nunknown restricted api 'foo' "},
        {"--grpc-restricted-protocol=foo:a=b",
         "Bad option: \"--grpc-restricted-protocol\".\nunknown restricted protocol 'foo' "},
        {"--http-restricted-api=trace,health:a=b --http-restricted-api=health:c=d",
         "Bad option: \"--http-restricted-api\".\nrestricted api 'health' can not be specified in "
         "multiple config groups"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        expect_wrong(cases[i].line, cases[i].text);
}

/* The last value that is accepted and the first that is refused, at each bound. */
static void each_flag_has_its_bounds(void **unused)
{
    (void)unused;
    static const struct {
        const char *flag, *taken[6], *refused[6];
    } cases[] = {
        {"exit-timeout-secs", {"0", "2147483647"}, {"-1", "2147483648"}},
        {"http-thread-count", {"1", "2147483647"}, {"0", "-1"}},
        {"grpc-infer-thread-count", {"2", "128"}, {"1", "129"}},
        {"grpc-max-response-pool-size", {"1"}, {"0", "-1"}},
        {"grpc-max-message-size", {"1", "2147483647"}, {"0", "2147483648"}},
        {"grpc-max-header-size", {"1024", "1048576"}, {"1023", "1048577", "-1"}},
        {"grpc-keepalive-time", {"0", "2147483647"}, {"-1", "2147483648"}},
        {"grpc-infer-response-compression-level", {"none", "LOW", "medium", "high"}, {"", "best"}},
        {"http-max-input-size", {"1", "9223372036854775807"}, {"0", "-1"}},
        {"connection-memory-budget", {"0", "16777216"}, {"1", "16777215", "-1"}},
        {"metrics-interval-ms", {"0", "2147483647"}, {"-0.5", "2147483648", "inf"}},
        {"log-format", {"default", "ISO8601", "json"}, {"Default", "iso8601", "", "x"}},
        {"model-control-mode", {"none", "poll", "EXPLICIT"}, {"polls", "", "non"}},
        {"rate-limit", {"off", "OFF", "execution_count"}, {"on", ""}},
        {"trace-level", {"off", "false", "OFF"}, {"none", ""}},
        {"model-config-name", {"x", "a/b"}, {""}},
        {"backend-config", {"a=b", "a,b=c", "a,b=c,d=e"}, {"a", "=b", "a=", ",a=b", "a,=b", "a,b"}},
        {"metrics-config", {"a=b", "a=b=c"}, {"a", "=b", "a="}},
        {"host-policy", {"p,a=b"}, {"p", ",a=b", "p,a", "p,=b", "p,a="}},
        {"rate-limit-resource", {"R:1", "R:1:0", "R:-1"}, {"R", ":1", "R:", "R:x", "R:1:"}},
        {"cuda-memory-pool-byte-size", {"0:0", "3:9"}, {"0", "0:1:2", ":", "-1:5", "0:-1"}},
        {"model-load-gpu-limit", {"0:0", "7:1.0"}, {"0:1.01", "0:-0.01", "-1:0.5", "0:nan", "0"}},
        {"sagemaker-safe-port-range", {"1-65535"}, {"1-65536", "1", "1-2-3", "-1"}},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char line[128];
        for (size_t k = 0; k < 6 && cases[i].taken[k]; k++) {
            snprintf(line, sizeof(line), "--%s=%s", cases[i].flag, cases[i].taken[k]);
            expect_ok(line);
        }
        for (size_t k = 0; k < 6 && cases[i].refused[k]; k++) {
            struct options o;
            snprintf(line, sizeof(line), "--%s=%s", cases[i].flag, cases[i].refused[k]);
            char *wrong = parse_line(&o, line);
            if (!wrong || !strstr(wrong, cases[i].flag))
                fail_msg("%s was answered with: %s", line, wrong ? wrong : "nothing");
            free(wrong);
            options_done(&o);
        }
    }
}

static void settings_of_a_collector_are_found(void **unused)
{
    (void)unused;
    assert_string_equal(trace_config_exporter("opentelemetry,url=x=y"), "url=x=y");
    assert_string_equal(trace_config_exporter("OpenTelemetry,resource=a=b"), "resource=a=b");
    assert_null(trace_config_exporter("mode=opentelemetry"));
    assert_null(trace_config_exporter("triton,file=opentelemetry"));
    assert_null(trace_config_exporter("no setting"));
    assert_true(trace_mode_is_opentelemetry("OpenTelemetry"));
    assert_false(trace_mode_is_opentelemetry("triton"));
}

/* Of a setting that is not implemented, only the value that asks for the feature is refused. */
static void a_value_that_asks_for_a_missing_feature_is_refused(void **unused)
{
    (void)unused;
    assert_true(metrics_config_asks("summary_latencies=true"));
    assert_false(metrics_config_asks("summary_latencies=false"));
    assert_false(metrics_config_asks("summary_latencies=x") ||
                 metrics_config_asks("counter_latencies=true"));
}

static void flags_that_do_not_go_together_are_refused(void **unused)
{
    (void)unused;
    static const struct {
        const char *line, *text;
    } cases[] = {
        {"--http-port=70000",
         "Bad option: \"--http-port\".\nProvided option value is out of bound. Got 70000"},
        {"--http-port=-1",
         "Bad option: \"--http-port\".\nProvided option value is out of bound. Got -1"},
        {"--grpc-port=70000",
         "Bad option: \"--grpc-port\".\nProvided option value is out of bound. Got 70000"},
        {"--metrics-port=-7 --allow-metrics=false --allow-metrics=true",
         "Bad option: \"--metrics-port\".\nProvided option value is out of bound. Got -7"},
        {"--load-model=x", "Error: Use of '--load-model' requires setting "
                           "'--model-control-mode=explicit' as well."},
        {"--cache-config=a,b=1 --response-cache-byte-size=5",
         "Error: Incompatible flags --response-cache-byte-size and --cache-config both provided. "
         "Please provide one or the other."},
        {"--http-port=18700 --grpc-port=18700",
         "The server cannot listen to HTTP requests and GRPC requests at the same address and "
         "port 0.0.0.0:18700"},
        {"--http-port=18700 --http-address=127.0.0.1 --metrics-port=18700",
         "The server cannot listen to HTTP requests and metrics requests at the same address and "
         "port 127.0.0.1:18700"},
        {"--http-port=8002",
         "The server cannot listen to HTTP requests and metrics requests at the same address and "
         "port 0.0.0.0:8002"},
        {"--http-port=8001",
         "The server cannot listen to HTTP requests and GRPC requests at the same address and port "
         "0.0.0.0:8001"},
        {"--allow-sagemaker=1 --http-port=500 --sagemaker-safe-port-range=1000-2000",
         "The server cannot listen to HTTP requests at port 500, allowed port range is [1000, "
         "2000]"},
        {"--allow-sagemaker=1 --sagemaker-safe-port-range=8000-8001",
         "The server cannot listen to metrics requests at port 8002, allowed port range is [8000, "
         "8001]"},
        {"--allow-sagemaker=1 --http-port=8080",
         "The server cannot listen to HTTP requests and SageMaker requests at the same address and "
         "port 0.0.0.0:8080"},
        {"--allow-sagemaker=1 --allow-vertex-ai=1",
         "The server cannot listen to SageMaker requests and Vertex AI requests at the same "
         "address and port 0.0.0.0:8080"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        expect_wrong(cases[i].line, cases[i].text);
    expect_ok("--http-port=18700 --grpc-port=18700 --grpc-address=127.0.0.1");
    expect_ok("--http-port=18700 --grpc-port=18700 --allow-grpc=false");
    expect_ok("--http-port=8001 --allow-grpc=false");
    expect_ok("--grpc-port=70000 --allow-grpc=false");
    expect_ok("--allow-http=false --http-port=-1");
    expect_ok("--metrics-port=65536 --allow-metrics=false");
    expect_ok("--sagemaker-port=70000 --vertex-ai-port=-1"); /* accepted, because off */
    expect_ok("--http-port=8002 --allow-metrics=false");
    expect_ok("--http-port=8002 --metrics-address=127.0.0.1");
    expect_ok("--sagemaker-safe-port-range=1000-2000"); /* without SageMaker it bounds nothing */
    expect_ok("--allow-sagemaker=1 --sagemaker-safe-port-range=8000-8002");
    expect_ok("--allow-sagemaker=1 --http-port=0 --grpc-port=0 --allow-metrics=0 "
              "--sagemaker-safe-port-range=1000-2000");
    expect_ok("--allow-sagemaker=1 --metrics-address=127.0.0.1 "
              "--sagemaker-safe-port-range=8000-8001");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_wrong_value_is_refused_in_the_references_words, clear_environment),
        cmocka_unit_test_setup(each_flag_has_its_bounds, clear_environment),
        cmocka_unit_test_setup(settings_of_a_collector_are_found, clear_environment),
        cmocka_unit_test_setup(a_value_that_asks_for_a_missing_feature_is_refused,
                               clear_environment),
        cmocka_unit_test_setup(flags_that_do_not_go_together_are_refused, clear_environment),
    };
    return cmocka_run_group_tests(tests, NULL, clear_environment);
}
