/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The form of each flag's value, with Triton's words for its faults.
 */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/origin.h"
#include "options_priv.h"

static char *out_of_bound(const char *text, const char *valid)
{
    return option_message("Provided option value is out of bound. Got %s; valid are %s", text,
                          valid);
}

CHECK(check_not_negative)
{
    return v->number < 0 ? out_of_bound(text, "0 and more") : NULL;
}

CHECK(check_positive)
{
    return v->number < 1 ? out_of_bound(text, "1 and more") : NULL;
}

CHECK(check_interval)
{
    return v->real >= 0 && v->real <= INT32_MAX ? NULL : out_of_bound(text, "0 to 2147483647");
}

CHECK(check_response_pool)
{
    return v->number > 0
               ? NULL
               : option_message("Error: --grpc-max-response-pool-size must be greater than 0.");
}

CHECK(check_max_input_size)
{
    return v->number > 0 ? NULL
                         : option_message("Error: --http-max-input-size must be greater than 0.");
}

CHECK(check_memory_budget)
{
    enum { LEAST_MIB = 16 };
    if (v->number == 0 || v->number >= (int64_t)LEAST_MIB << 20)
        return NULL;
    return option_message("Error: --%s must be 0, or at least %d (%d MiB).", option->flag,
                          LEAST_MIB << 20, LEAST_MIB);
}

/* A client of gRPC that says no more than it must sends about half of this. */
CHECK(check_header_size)
{
    enum { LEAST = 1024, MOST = 1 << 20 };
    if (v->number >= LEAST && v->number <= MOST)
        return NULL;
    return option_message("Error: --%s must be from %d to %d.", option->flag, LEAST, MOST);
}

CHECK(check_grpc_threads)
{
    if (v->number >= 2 && v->number <= 128)
        return NULL;
    return option_message(
        "invalid argument for --grpc_infer_thread_count. Must be in the range 2 to "
        "128.");
}

/* ---- one word of several -------------------------------------------------------------------- */

static bool is_one_of(const char *text, const char *const words[])
{
    for (; *words; words++) {
        if (strcasecmp(text, *words) == 0)
            return true;
    }
    return false;
}

/* Refuses a value that is none of the words: the reference's text, then the words. Takes wrong. */
static char *refuse_unlisted_value(char *wrong, const char *const *words)
{
    char *all = option_message("%s; valid are %s", wrong, words[0]);
    free(wrong);
    for (size_t i = 1; words[i]; i++) {
        char *more = option_message("%s, %s", all, words[i]);
        free(all);
        all = more;
    }
    return all;
}

CHECK(check_log_format)
{
    static const char *const formats[] = {"default", "ISO8601", "json", NULL};
    for (size_t i = 0; formats[i]; i++) {
        if (strcmp(text, formats[i]) == 0)
            return NULL;
    }
    return refuse_unlisted_value(option_message("invalid argument for --log-format"), formats);
}

CHECK(check_control_mode)
{
    static const char *const modes[] = {"none", "poll", "explicit", NULL};
    if (is_one_of(text, modes))
        return NULL;
    return refuse_unlisted_value(option_message("invalid argument for --model-control-mode"),
                                 modes);
}

CHECK(check_rate_limit)
{
    static const char *const modes[] = {"execution_count", "off", NULL};
    if (is_one_of(text, modes))
        return NULL;
    return refuse_unlisted_value(option_message("invalid argument for --rate-limit"), modes);
}

CHECK(check_compression)
{
    static const char *const levels[] = {"none", "low", "medium", "high", NULL};
    if (is_one_of(text, levels))
        return NULL;
    return refuse_unlisted_value(
        option_message("invalid argument for --grpc_infer_response_compression_level"), levels);
}

CHECK(check_trace_level)
{
    static const char *const levels[] = {"off", "timestamps", "tensors", "false", "true",
                                         "on",  "min",        "max",     NULL};
    if (is_one_of(text, levels))
        return NULL;
    return refuse_unlisted_value(option_message("invalid value for trace level option: %s", text),
                                 levels);
}

static char *not_empty(const struct option *option, const char *text)
{
    return *text ? NULL : option_message("Error: empty argument for --%s", option->flag);
}

CHECK(check_config_name)
{
    return not_empty(option, text);
}

CHECK(check_agent_directory)
{
    return not_empty(option, text);
}

/* ---- settings: [name,]setting=value --------------------------------------------------------- */

/* Finds c in text, with something on both sides of it; NULL otherwise. */
static const char *find_inner_char(const char *text, char c)
{
    const char *at = strchr(text, c);
    return at && at != text && at[1] ? at : NULL;
}

CHECK(check_backend_config)
{
    const char *comma = strchr(text, ',');
    if (comma != text && find_inner_char(comma ? comma + 1 : text, '='))
        return NULL;
    return option_message(
        "--backend-config option format is '<backend name>,<setting>=<value>'. Got %s", text);
}

CHECK(check_cache_config)
{
    const char *comma = strchr(text, ',');
    if (!comma || comma == text)
        return option_message("No cache specified. --cache-config option format is <cache "
                              "name>,<setting>=<value>. Got %s",
                              text);
    if (find_inner_char(comma + 1, '='))
        return NULL;
    return option_message(
        "--cache-config option format is '<cache name>,<setting>=<value>'. Got %s", text);
}

CHECK(check_metrics_config)
{
    if (find_inner_char(text, '='))
        return NULL;
    return option_message("--metrics-config option format is <setting>=<value>. Got %s", text);
}

bool metrics_config_asks(const char *text)
{
    static const char name[] = "summary_latencies=";
    int64_t wanted = 0;
    if (strncmp(text, name, sizeof(name) - 1) == 0)
        free(option_parse_bool(text + sizeof(name) - 1,
                               &wanted)); /* the server reports it if it is none */
    return wanted;
}

CHECK(check_host_policy)
{
    const char *comma = find_inner_char(text, ',');
    if (comma && find_inner_char(comma + 1, '='))
        return NULL; /* the server knows which settings exist */
    return option_message(
        "--host-policy option format is '<policy name>,<setting>=<value>'. Got %s", text);
}

/* A setting of tracing in its parts; mode is empty for the global ones. */
struct trace_setting {
    const char *name, *value;
    size_t name_length;
    bool global;
};

static bool split_trace_setting(const char *text, struct trace_setting *ret_setting)
{
    const char *comma = strchr(text, ','), *name = text;
    const char *equals = strchr(text, '=');
    if (comma && equals && comma < equals)
        name = comma + 1;
    if (!find_inner_char(name, '=') || comma == text)
        return false;
    *ret_setting = (struct trace_setting){.name = name,
                                          .value = equals + 1,
                                          .name_length = (size_t)(equals - name),
                                          .global = name == text};
    return true;
}

static bool is_setting(const struct trace_setting *s, const char *name)
{
    return s->global && s->name_length == strlen(name) &&
           memcmp(s->name, name, s->name_length) == 0;
}

/* Whether text is "<mode>,<name>=…". */
static bool is_mode_setting(const char *text, const struct trace_setting *s, const char *mode,
                            const char *name)
{
    size_t length = strlen(mode);
    if (s->global || strncasecmp(text, mode, length) != 0 || text[length] != ',')
        return false;
    return !name || (s->name_length == strlen(name) && memcmp(s->name, name, s->name_length) == 0);
}

CHECK(check_trace_config)
{
    static const char *const modes[] = {"triton", "opentelemetry", NULL};
    struct trace_setting s;
    int64_t number;
    if (!split_trace_setting(text, &s))
        return option_message(
            "--trace-config option format is '<trace mode>,<setting>=<value>'. Got %s", text);
    if (is_setting(&s, "level"))
        return check_trace_level(option, v, s.value);
    if (is_setting(&s, "rate") || is_setting(&s, "count") ||
        is_mode_setting(text, &s, "triton", "log-frequency") ||
        is_mode_setting(text, &s, "opentelemetry", "bsp_max_queue_size") ||
        is_mode_setting(text, &s, "opentelemetry", "bsp_schedule_delay") ||
        is_mode_setting(text, &s, "opentelemetry", "bsp_max_export_batch_size"))
        return option_parse_int(s.value, INT32_MIN, INT32_MAX, &number);
    if (is_setting(&s, "mode"))
        return is_one_of(s.value, modes)
                   ? NULL
                   : refuse_unlisted_value(
                         option_message("invalid value for trace mode option: %s", s.value), modes);
    if (is_mode_setting(text, &s, "triton", "file") ||
        is_mode_setting(text, &s, "opentelemetry", "url") ||
        is_mode_setting(text, &s, "opentelemetry", "resource"))
        return NULL;
    return option_message("there is no such setting of traces: %s", text);
}

const char *trace_config_exporter(const char *text)
{
    struct trace_setting s;
    bool is_of_exporter =
        split_trace_setting(text, &s) && is_mode_setting(text, &s, "opentelemetry", NULL);
    return is_of_exporter ? s.name : NULL;
}

bool trace_mode_is_opentelemetry(const char *text)
{
    return strcasecmp(text, "opentelemetry") == 0;
}

const char *trace_config_value(const char *text, const char *name)
{
    struct trace_setting s;
    if (!split_trace_setting(text, &s))
        return NULL;
    const char *comma = strchr(name, ',');
    bool fits = comma ? is_mode_setting(text, &s, "triton", comma + 1) : is_setting(&s, name);
    return fits ? s.value : NULL;
}

bool trace_level_is_off(const char *text)
{
    static const char *const none[] = {"off", "false", NULL};
    return is_one_of(text, none);
}

bool trace_level_has_tensors(const char *text)
{
    return strcasecmp(text, "tensors") == 0;
}

/* ---- pairs ---------------------------------------------------------------------------------- */

/* Splits text at <first><c><second>: returns a copy of the first, which the caller frees, and
 * the second. */
static char *split_pair(const char *text, char c, char **ret_first, const char **ret_second)
{
    const char *at = strchr(text, c);
    if (!at || strchr(at + 1, c))
        return option_message(
            "Cannot parse pair option due to incorrect number of inputs.--<pair option> "
            "argument requires format <first>%c<second>. Found: %s",
            c, text);
    *ret_first = option_message("%.*s", (int)(at - text), text);
    *ret_second = at + 1;
    return NULL;
}

static char *parse_pair(const char *text, char c, int64_t max, int64_t *ret_first,
                        int64_t *ret_second)
{
    char *first;
    const char *second;
    char *wrong = split_pair(text, c, &first, &second);
    if (wrong)
        return wrong;
    wrong = option_parse_int(first, 0, max, ret_first);
    if (!wrong)
        wrong = option_parse_int(second, 0, max, ret_second);
    free(first);
    return wrong;
}

CHECK(check_gpu_size)
{
    int64_t gpu, bytes;
    return parse_pair(text, ':', INT64_MAX, &gpu, &bytes);
}

CHECK(check_port_range)
{
    int64_t from, to;
    return parse_pair(text, '-', 65535, &from, &to);
}

CHECK(check_gpu_limit)
{
    char *first;
    const char *second;
    int64_t gpu;
    double fraction;
    char *wrong = split_pair(text, ':', &first, &second);
    if (wrong)
        return wrong;
    wrong = option_parse_int(first, INT32_MIN, INT32_MAX, &gpu);
    if (!wrong && gpu < 0)
        wrong = option_message("expects device ID >= 0, got %s", first);
    if (!wrong)
        wrong = option_parse_real(second, &fraction);
    if (!wrong && !(fraction >= 0 && fraction <= 1))
        wrong = option_message("expects limit fraction to be in range [0.0, 1.0], got %s", second);
    free(first);
    return wrong;
}

CHECK(check_rate_resource)
{
    const char *colon = find_inner_char(text, ':');
    if (!colon)
        return option_message(
            "--rate-limit-resource option format is '<resource_name>:<count>:<device>' "
            "or '<resource_name>:<count>'. Got %s",
            text);
    const char *device = strchr(colon + 1, ':');
    int length = device ? (int)(device - colon) - 1 : (int)strlen(colon + 1);
    char *count = option_message("%.*s", length, colon + 1);
    int64_t number;
    char *wrong = option_parse_int(count, INT32_MIN, INT32_MAX, &number);
    if (!wrong && device)
        wrong = option_parse_int(device + 1, INT32_MIN, INT32_MAX, &number);
    free(count);
    return wrong;
}

/* ---- restrictions: <api>[,<api>…]:<key>=<value> --------------------------------------------- */

static const char *const apis[] = {
#define OPS_API(name, text) text,
#include "base/apis.def"
    NULL,
};

/* Is this name, of that length, among the names before the colon? */
static bool names_api(const char *restriction, const char *name, size_t length)
{
    const char *colon = strchr(restriction, ':');
    for (const char *p = restriction; p < colon;) {
        size_t n = strcspn(p, ",:");
        if (n == length && memcmp(p, name, n) == 0)
            return true;
        p += n + 1;
    }
    return false;
}

CHECK(check_restricted)
{
    const char *what = strstr(option->flag, "protocol") ? "protocol" : "api";
    const char *colon = find_inner_char(text, ':');
    if (!colon || !find_inner_char(colon + 1, '='))
        return option_message("--%s option format is '<config name>:<setting>=<value>'. Got %s",
                              option->flag, text);
    for (const char *p = text; p < colon;) {
        size_t n = strcspn(p, ",:");
        const char *const *known = apis;
        while (*known && !(strlen(*known) == n && memcmp(*known, p, n) == 0))
            known++;
        if (!*known)
            return option_message("unknown restricted %s '%.*s' ", what, (int)n, p);
        for (size_t i = 0; i < v->n_list; i++) {
            if (names_api(v->list[i], p, n))
                return option_message(
                    "restricted %s '%.*s' can not be specified in multiple config "
                    "groups",
                    what, (int)n, p);
        }
        p += n + 1;
    }
    return NULL;
}

CHECK(check_origins)
{
    const char *item;
    size_t length;
    const char *wrong = origin_list_check(text, &item, &length);
    return wrong ? option_message("'%.*s' is no origin: %s", (int)length, item, wrong) : NULL;
}

/* ---- between flags -------------------------------------------------------------------------- */

struct service {
    const char *name;
    enum option_id allow, address, port;
};

static const struct service services[] = {
    {"HTTP", OPT_ALLOW_HTTP, OPT_HTTP_ADDRESS, OPT_HTTP_PORT},
    {"GRPC", OPT_ALLOW_GRPC, OPT_GRPC_ADDRESS, OPT_GRPC_PORT},
    {"metrics", OPT_ALLOW_METRICS, OPT_METRICS_ADDRESS, OPT_METRICS_PORT},
    {"SageMaker", OPT_ALLOW_SAGEMAKER, OPT_HTTP_ADDRESS, OPT_SAGEMAKER_PORT},
    {"Vertex AI", OPT_ALLOW_VERTEX_AI, OPT_HTTP_ADDRESS, OPT_VERTEX_AI_PORT},
};

static const char *address_of(const struct options *o, const struct service *s)
{
    const char *address = option_text(o, s->address);
    return address ? address : option_text(o, OPT_HTTP_ADDRESS);
}

static bool is_unix(const char *address)
{
    return strncmp(address, "unix:", 5) == 0;
}

/* Does the service have a port that the user has chosen, or the default one? */
static bool has_port(const struct options *o, const struct service *s)
{
    return option_bool(o, s->allow) && option_int(o, s->port) != 0 && !is_unix(address_of(o, s));
}

/* The error when two services have the same file or name for their sockets; NULL: they have not. */
static char *check_unix_pair(const struct options *o, const struct service *a,
                             const struct service *b)
{
    const char *address = address_of(o, a);
    if (!option_bool(o, a->allow) || !option_bool(o, b->allow) || !is_unix(address) ||
        strcmp(address, address_of(o, b)) != 0)
        return NULL;
    return option_message("The server cannot listen to %s requests and %s requests at the "
                          "same address %s%s",
                          a->name, b->name, address,
                          option_text(o, b->address) ? "" : ": give --metrics-address, too");
}

static char *check_port_pair(const struct options *o, const struct service *a,
                             const struct service *b)
{
    int64_t port = option_int(o, a->port);
    if (!has_port(o, a) || !has_port(o, b) || option_int(o, b->port) != port ||
        strcmp(address_of(o, a), address_of(o, b)) != 0)
        return NULL;
    return option_message("The server cannot listen to %s requests and %s requests at the "
                          "same address and port %s:%d",
                          a->name, b->name, address_of(o, a), (int)port);
}

/* A service that is switched off may have any number, as in the reference. */
static char *check_port_numbers(const struct options *o)
{
    static const struct {
        enum option_id allow, port;
    } all[] = {
        {OPT_ALLOW_HTTP, OPT_HTTP_PORT},           {OPT_ALLOW_GRPC, OPT_GRPC_PORT},
        {OPT_ALLOW_METRICS, OPT_METRICS_PORT},     {OPT_ALLOW_SAGEMAKER, OPT_SAGEMAKER_PORT},
        {OPT_ALLOW_VERTEX_AI, OPT_VERTEX_AI_PORT},
    };
    for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
        int64_t port = option_int(o, all[i].port);
        if (option_bool(o, all[i].allow) && (port < 0 || port > 65535))
            return option_message(
                "Bad option: \"--%s\".\nProvided option value is out of bound. Got %s; valid are 0 to "
                "65535",
                option_table[all[i].port].flag, o->values[all[i].port].text);
    }
    return NULL;
}

/* SageMaker tells a container which ports its other services may have. */
static char *check_range(const struct options *o, const struct service *s, int64_t from, int64_t to)
{
    int64_t port = option_int(o, s->port);
    if (!has_port(o, s) || s->allow == OPT_ALLOW_SAGEMAKER || (port >= from && port <= to) ||
        strcmp(address_of(o, s), option_text(o, OPT_HTTP_ADDRESS)) != 0)
        return NULL;
    return option_message("The server cannot listen to %s requests at port %d, allowed port range "
                          "is [%d, %d]",
                          s->name, (int)port, (int)from, (int)to);
}

static char *check_safe_range(const struct options *o)
{
    const char *range = option_text(o, OPT_SAGEMAKER_SAFE_PORT_RANGE);
    int64_t from = 0, to = 0;
    char *wrong = NULL;
    if (!range || !option_bool(o, OPT_ALLOW_SAGEMAKER))
        return NULL;
    free(parse_pair(range, '-', 65535, &from, &to));
    for (size_t i = 0; i < ARRAY_SIZE(services) && !wrong; i++)
        wrong = check_range(o, &services[i], from, to);
    return wrong;
}

static char *check_ports(const struct options *o)
{
    char *wrong = check_safe_range(o);
    for (size_t i = 0; i < ARRAY_SIZE(services) && !wrong; i++) {
        for (size_t k = i + 1; k < ARRAY_SIZE(services) && !wrong; k++) {
            wrong = check_port_pair(o, &services[i], &services[k]);
            if (!wrong)
                wrong = check_unix_pair(o, &services[i], &services[k]);
        }
    }
    return wrong;
}

char *options_check_together(const struct options *o)
{
    const struct option_value *models = &o->values[OPT_LOAD_MODEL];
    if (models->given && strcasecmp(option_text(o, OPT_MODEL_CONTROL_MODE), "explicit") != 0)
        return option_message("Error: Use of '--load-model' requires setting "
                              "'--model-control-mode=explicit' as well.");
    if (o->values[OPT_CACHE_CONFIG].given && o->values[OPT_RESPONSE_CACHE_BYTE_SIZE].given)
        return option_message(
            "Error: Incompatible flags --response-cache-byte-size and --cache-config "
            "both provided. Please provide one or the other.");
    char *wrong = check_port_numbers(o);
    return wrong ? wrong : check_ports(o);
}
