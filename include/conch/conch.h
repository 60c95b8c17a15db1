/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What libtritonserver.so offers besides Triton's API: options that only Conch has, a server that
 * answers while its models load, and Conch's frontends in the process that embeds the server.
 *
 *     struct conch_http_options o;
 *     struct conch_http *http;
 *     conch_http_options_init(&o);
 *     o.port = 0;
 *     TRITONSERVER_Error *err = conch_http_start(server, &o, &http);
 *     if (!err) {
 *         printf("port %d\n", conch_http_port(http));
 *         …
 *         conch_http_stop(http, 30000);
 *     }
 */
#ifndef CONCH_CONCH_H
#define CONCH_CONCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "triton/core/tritonserver.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifndef CONCH_DECLSPEC
#define CONCH_DECLSPEC __attribute__((__visibility__("default")))
#endif

/* A format of the log beside Triton's, for TRITONSERVER_ServerOptionsSetLogFormat(): each line is a
 * JSON object, and all lines go to stdout, or to the log file. */
#define CONCH_LOG_JSON ((TRITONSERVER_LogFormat)2)

/*
 * conch_server_options_set - sets an option of the server from text. `conch --help` lists flags and
 * values; the flag is given without its dashes. An option that may be repeated gets one more value.
 * Options of the program and of the frontends are not options of the server.
 *
 * Errors: NOT_FOUND    the server has no such option
 *         INVALID_ARG  the text is not a valid value
 */
CONCH_DECLSPEC struct TRITONSERVER_Error *
conch_server_options_set(struct TRITONSERVER_ServerOptions *options, const char *flag,
                         const char *text);

/*
 * conch_server_options_set_follow_symlinks - whether symbolic links in a model repository may lead
 * out of it. By default a model with such a link is refused.
 */
CONCH_DECLSPEC struct TRITONSERVER_Error *
conch_server_options_set_follow_symlinks(struct TRITONSERVER_ServerOptions *options, bool follow);

/*
 * conch_server_options_set_connection_memory_budget - how much memory the requests and replies of
 * all connections of all frontends may take together. When it is short, new large requests are
 * refused with 503, then the connections that hold most and move least are closed; requests up to
 * 64 KiB are still served.
 *
 * @bytes   at least 16 MiB; 0 (the default): a quarter of the memory that the process may have
 * Errors:  INVALID_ARG  less than 16 MiB, and not 0
 */
CONCH_DECLSPEC struct TRITONSERVER_Error *
conch_server_options_set_connection_memory_budget(struct TRITONSERVER_ServerOptions *options,
                                                  uint64_t bytes);

/*
 * conch_server_options_set_warmup_timeout - how many seconds the warm-up of an instance may take
 * before the load fails; 0: no limit. The default is 600.
 */
CONCH_DECLSPEC struct TRITONSERVER_Error *
conch_server_options_set_warmup_timeout(struct TRITONSERVER_ServerOptions *options,
                                        unsigned int timeout_s);

/*
 * conch_server_options_set_inline_execution - whether TRITONSERVER_ServerInferAsync() may execute a
 * model itself, before it returns, on the thread that calls it. By default it never does. A request
 * then costs two switches of threads, some µs, which is most of the time of a quick model.
 *
 * With inline execution,
 *
 * - the call executes models that are known to be quick and bounded, as the server's own event
 *   loops do (docs/writing-a-backend.md), and models with CONCH_EXECUTION `inline`. All other
 *   models execute on threads of the server, as without this option;
 * - the calling thread also calls the callbacks of the request (allocator, response, release),
 *   inside TRITONSERVER_ServerInferAsync(). It may call those of requests of other threads that
 *   wait for the same model. So the caller must not hold a lock that one of them takes;
 * - the time of the callbacks counts as the model's, since no other request can use the thread
 *   meanwhile. A model whose callbacks are slow (some 40 µs, or once 5 ms) goes back to threads of
 *   the server. Hand long work to a thread of the embedding program;
 * - a request that a callback passes to TRITONSERVER_ServerInferAsync() is not executed inside that
 *   call, so that calls do not nest;
 * - models with a sequence batcher of the strategy "direct" and more than one slot stay on threads
 *   of the server.
 */
CONCH_DECLSPEC struct TRITONSERVER_Error *
conch_server_options_set_inline_execution(struct TRITONSERVER_ServerOptions *options,
                                          bool inline_execution);

/*
 * conch_catch_region_faults - installs a handler of SIGBUS for the whole process. A client may
 * shrink the shared memory that it has registered (allow-client-shm) while the server uses it. With
 * the handler, the request then fails; without it, the process ends by SIGBUS. Any other SIGBUS
 * goes to the action that was set before. Threads of the process must not block SIGBUS.
 *
 * Call it once, before the frontends start; code that sets an action of its own later takes it
 * away.
 */
CONCH_DECLSPEC void conch_catch_region_faults(void);

/*
 * conch_server_new - makes a server without its models. TRITONSERVER_ServerNew() loads them before
 * it returns; here conch_server_load() is a second step, and frontends may be started between the
 * two. Until the models are loaded,
 *
 * - TRITONSERVER_ServerIsLive() gives true, TRITONSERVER_ServerIsReady() false;
 * - a request for a model that is not loaded yet gets UNAVAILABLE.
 *
 * Errors: INVALID_ARG, INTERNAL  an option or the path of a repository is wrong
 */
CONCH_DECLSPEC struct TRITONSERVER_Error *
conch_server_new(struct TRITONSERVER_Server **server, struct TRITONSERVER_ServerOptions *options);

/*
 * The result of the loading. Called once, on a thread of the server; the callback must not stop or
 * delete the server.
 *
 * @error  NULL: the server runs. Otherwise an error, which the callback deletes:
 *         UNAVAILABLE            the server was stopped meanwhile
 *         INTERNAL, INVALID_ARG  a model failed, and exit-on-error is set: delete the server, on
 *                                another thread
 */
typedef void (*conch_server_loaded_fn)(struct TRITONSERVER_Error *error, void *userp);

/*
 * conch_server_load - loads the models that the options select, on threads of the server, and
 * returns at once. Each model serves as soon as it is ready. TRITONSERVER_ServerStop() ends the
 * loading early: no further load begins, and loads that have begun may take as long as the exit
 * timeout allows.
 *
 * @loaded  not called when the call itself gives an error
 * Errors:  ALREADY_EXISTS  the function has been called before
 *          UNAVAILABLE     the system has no room for another thread
 */
CONCH_DECLSPEC struct TRITONSERVER_Error *
conch_server_load(struct TRITONSERVER_Server *server, conch_server_loaded_fn loaded, void *userp);

/*
 * conch_server_stop_loading - no further load begins; loads that have begun go on, and models that
 * are ready serve, without delays for larger batches. Returns at once. Call it before a stop that
 * first lets the frontends answer their requests: TRITONSERVER_ServerStop() then waits less.
 */
CONCH_DECLSPEC struct TRITONSERVER_Error *
conch_server_stop_loading(struct TRITONSERVER_Server *server);

/*
 * conch_server_end_sequences - TRITONSERVER_ServerStop() waits for the end of open sequences, as
 * long as the exit timeout allows. After this call it does not: call it when no client is left that
 * could continue them.
 */
CONCH_DECLSPEC void conch_server_end_sequences(struct TRITONSERVER_Server *server);

/*
 * conch_server_log_unended - logs a line for each model that is being loaded or unloaded at this
 * moment. For a program that has waited long enough for a stop and is about to end the process.
 */
CONCH_DECLSPEC void conch_server_log_unended(struct TRITONSERVER_Server *server);

/*
 * conch_server_show_loading - shows which models are being loaded, and for how long: on a terminal
 * in place, below the log; elsewhere, if may_log, as a line of the log. For a program that waits
 * for conch_server_load().
 */
CONCH_DECLSPEC void conch_server_show_loading(struct TRITONSERVER_Server *server, bool may_log);

/*
 * conch_server_count_models - how many models serve with all their versions, and how many of these
 * execute requests in batches (dynamic_batching or sequence_batching, and a max_batch_size).
 */
CONCH_DECLSPEC void conch_server_count_models(struct TRITONSERVER_Server *server, size_t *serving,
                                              size_t *batched);

/*
 * conch_server_print_model_config - prints the configuration of a loaded model as config.pbtxt,
 * with what the server and the backend have completed.
 *
 * @version  -1: the latest
 * Errors:   NOT_FOUND, UNAVAILABLE  the model is not loaded
 *           INTERNAL                the file cannot be written
 */
CONCH_DECLSPEC struct TRITONSERVER_Error *
conch_server_print_model_config(struct TRITONSERVER_Server *server, const char *model,
                                int64_t version, FILE *out);

/*
 * conch_exit_when_exhausted - when the library has no memory to go on, it says so on stderr and
 * aborts. After this call it ends the process with exit code 1 instead. Call it before there are
 * threads.
 */
CONCH_DECLSPEC void conch_exit_when_exhausted(void);

/*
 * conch_log_print - prints a line without time and place to stdout, or to stderr for warnings and
 * errors, in order with the lines of the log. Never waits for a reader; no call that logs does,
 * once there is a server.
 */
CONCH_DECLSPEC void conch_log_print(enum TRITONSERVER_loglevel_enum level, const char *line);

/*
 * conch_log_await - waits until all log lines are written, for at most timeout_ms, since a reader
 * may be slow. For the moment before _exit(); may be called by a signal handler.
 *
 * Returns whether all lines are written.
 */
CONCH_DECLSPEC bool conch_log_await(uint64_t timeout_ms);

/*
 * conch_server_loops_turned - whether each event loop that serves HTTP and gRPC has come round
 * since the last call; true if there are none. For a watchdog: call it every few seconds, and do
 * not report that the program is well while it is false. Thread: one, none of a callback.
 */
CONCH_DECLSPEC bool conch_server_loops_turned(struct TRITONSERVER_Server *server);

struct conch_http;

/* Set by conch_http_options_init(), then by the caller. */
struct conch_http_options {
    size_t size;         /* of this struct, as the caller knows it; set by the initialiser */
    const char *address; /* a numeric address, a host name, unix:PATH or unix:@NAME */
    int port;            /* 0 = any free port: conch_http_port() gives it */
    bool reuse_port;     /* several processes may listen on the port */
    int n_threads;       /* event loops; 0 = one for each CPU, and never more than that */

    size_t max_input_bytes;       /* --http-max-input-size: JSON, JSON tensors, raw bodies */
    uint64_t max_body_bytes;      /* of a request, binary tensors included */
    size_t max_head_bytes;        /* of a request line and its headers */
    unsigned int max_connections; /* 0 = as many as the system allows */
    unsigned int max_pipeline;    /* requests of a connection that may be under way */

    /* Milliseconds; 0 = for ever. */
    uint64_t head_timeout_ms;  /* from the first byte of a request's head to its last */
    uint64_t body_timeout_ms;  /* without a byte of a body that is being received */
    uint64_t write_timeout_ms; /* without a byte of a reply going out */
    uint64_t idle_timeout_ms;  /* between two requests */

    uint64_t min_rate;    /* bytes per second of a body or a reply under way; 0 = no limit */
    uint64_t min_rate_ms; /* the time over which the rate is averaged */

    const char *const *restricted_apis; /* values of --http-restricted-api; copied */
    size_t n_restricted_apis;

    unsigned int max_connections_per_address; /* 0 = no limit; IPv6: per network of 64 bits */

    bool use_ssl;
    bool use_ssl_mutual;     /* implies use_ssl */
    const char *server_cert; /* paths of PEM files; "" = none */
    const char *server_key;
    const char *root_cert;

    const char *access_rules;           /* --access-rules: a path; "" = none */
    const char *header_forward_pattern; /* --http-header-forward-pattern; "" = none */
    const char *cors_origins;           /* --http-cors-origins; "" = none */
};

/* conch_http_options_init - the defaults: 0.0.0.0:8000, a loop for each CPU. */
CONCH_DECLSPEC void conch_http_options_init(struct conch_http_options *options);

/*
 * conch_http_start - serves HTTP/REST for a server, which must live until conch_http_stop().
 *
 * Errors: UNAVAILABLE  Socket 'a:p' already in use
 *         INVALID_ARG  an option makes no sense
 */
CONCH_DECLSPEC struct TRITONSERVER_Error *conch_http_start(struct TRITONSERVER_Server *server,
                                                           const struct conch_http_options *options,
                                                           struct conch_http **ret_http);

/* conch_http_port - the port on which the server listens; 0 with a unix: address. */
CONCH_DECLSPEC int conch_http_port(const struct conch_http *http);

/*
 * conch_http_begin_stop - accepts no new connections, and closes idle ones. Does not wait.
 * conch_http_stop() must follow. For several services that stop together: first all begin to stop,
 * then each is stopped.
 */
CONCH_DECLSPEC void conch_http_begin_stop(struct conch_http *http);

/*
 * conch_http_stop - accepts no new connections, closes idle ones at once, and answers the requests
 * under way for as long as timeout_ms allows; then closes all connections and frees http. (Requests
 * that a model still executes then keep their memory and the event loops until the process ends. If
 * the model executes on an event loop, which then does not answer, the log names that loop, and
 * TRITONSERVER_ServerStop() gives an error.)
 *
 * Returns how many connections were cut off or could not be closed.
 */
CONCH_DECLSPEC unsigned int conch_http_stop(struct conch_http *http, uint64_t timeout_ms);

/*
 * Set by conch_sagemaker_options_init() from the environment, then by the caller. Texts are copied
 * by conch_sagemaker_start().
 */
struct conch_sagemaker_options {
    size_t size; /* of this struct, as the caller knows it; set by the initialiser */
    const struct conch_http_options *http; /* address, port (SageMaker asks 8080), limits,
                                              restrictions; to be set by the caller */
    const char *ping_mode;                 /* "ready" or "live": SAGEMAKER_TRITON_PING_MODE */
    const char *default_model;  /* of /invocations: SAGEMAKER_TRITON_DEFAULT_MODEL_NAME */
    const char *inference_type; /* of /invocations: SAGEMAKER_TRITON_INFERENCE_TYPE */
};

CONCH_DECLSPEC void conch_sagemaker_options_init(struct conch_sagemaker_options *options);

/*
 * conch_sagemaker_start - serves SageMaker's protocol for a server, which must live until
 * conch_http_stop(). The functions above are for this service, too.
 *
 *     struct conch_http_options http;
 *     struct conch_sagemaker_options o;
 *     struct conch_http *service;
 *     conch_http_options_init(&http);
 *     http.port = 8080;
 *     conch_sagemaker_options_init(&o);
 *     o.http = &http;
 *     o.default_model = "digits";
 *     TRITONSERVER_Error *err = conch_sagemaker_start(server, &o, &service);
 *
 * Loads and deletes by POST and DELETE /models need TRITONSERVER_MODEL_CONTROL_EXPLICIT.
 *
 * Errors: as conch_http_start(), and
 *         INVALID_ARG  options.http is NULL; the inference type is unknown
 */
CONCH_DECLSPEC struct TRITONSERVER_Error *
conch_sagemaker_start(struct TRITONSERVER_Server *server,
                      const struct conch_sagemaker_options *options, struct conch_http **ret_http);

/*
 * Set by conch_vertex_ai_options_init() from the environment, then by the caller. Texts are copied
 * by conch_vertex_ai_start().
 */
struct conch_vertex_ai_options {
    size_t size; /* of this struct, as the caller knows it; set by the initialiser */
    const struct conch_http_options *http; /* address, port (AIP_HTTP_PORT), limits, restrictions;
                                              to be set by the caller */
    const char *predict_route; /* a regular expression of whole paths: AIP_PREDICT_ROUTE */
    const char *health_route;  /* likewise: AIP_HEALTH_ROUTE */
    const char *default_model; /* of predictions; "" = the only model that is ready */
};

CONCH_DECLSPEC void conch_vertex_ai_options_init(struct conch_vertex_ai_options *options);

/*
 * conch_vertex_ai_start - serves Vertex AI's protocol, likewise. Call it when the models are
 * loaded.
 *
 *     struct conch_vertex_ai_options o;
 *     conch_vertex_ai_options_init(&o);
 *     o.http = &http;
 *     o.predict_route = "/predict";
 *     o.health_route = "/health";
 *     TRITONSERVER_Error *err = conch_vertex_ai_start(server, &o, &service);
 *
 * Errors: as conch_http_start(), and
 *         INVALID_ARG  a route is missing, or no regular expression; the default model is not ready
 */
CONCH_DECLSPEC struct TRITONSERVER_Error *
conch_vertex_ai_start(struct TRITONSERVER_Server *server,
                      const struct conch_vertex_ai_options *options, struct conch_http **ret_http);

struct conch_grpc;

/*
 * Set by conch_grpc_options_init(), then by the caller. Texts and lists are copied by
 * conch_grpc_start(). A member with a flag behind it means what `conch --help` says of that flag.
 */
struct conch_grpc_options {
    size_t size;         /* of this struct, as the caller knows it; set by the initialiser */
    const char *address; /* a numeric address, a host name, unix:PATH or unix:@NAME */
    int port;            /* 0 = any free port: conch_grpc_port() gives it */
    bool reuse_port;     /* several processes may listen on the port */
    int n_threads;       /* event loops that take connections; 0 = one for each CPU, and never more
                            than that */

    const char *header_forward_pattern;      /* --grpc-header-forward-pattern; "" = none */
    const char *const *restricted_protocols; /* values of --grpc-restricted-protocol */
    size_t n_restricted_protocols;
    bool reflection; /* --grpc-reflection */

    bool use_ssl;
    bool use_ssl_mutual;     /* implies use_ssl */
    const char *server_cert; /* paths of PEM files; "" = none */
    const char *server_key;
    const char *root_cert;

    const char *compression_level; /* of answers to inferences: none, low, medium, high */
    size_t max_message_bytes;      /* of a request, unpacked; 2^31 - 1 at most */
    size_t max_header_bytes;       /* of the head of a call; each field counts 32 bytes more */
    unsigned int max_connections;  /* 0 = as many as the system allows */
    unsigned int max_streams;      /* calls of a connection at one time */
    unsigned int max_resets_per_s; /* calls that a connection may cancel; 0 = no limit */
    unsigned int n_kept_calls;     /* that each loop keeps the memory of, for use again: 8 to 128;
                                      --grpc-infer-allocation-pool-size */

    /* Of each decoupled request: responses that its client has not read yet. */
    size_t max_responses; /* --grpc-max-response-pool-size */
    size_t max_response_bytes;

    /* Milliseconds; 0 = for ever. */
    uint64_t stall_timeout_ms; /* without a byte of a message that is under way */
    uint64_t idle_timeout_ms;  /* of a connection without calls */

    /* Milliseconds; 0 = never, or no limit. INT32_MAX means the same, as in gRPC. */
    uint64_t keepalive_ms;         /* silence of the client before a PING of ours */
    uint64_t keepalive_timeout_ms; /* further silence, which closes the connection */
    bool keepalive_without_calls;
    unsigned int max_pings_without_data; /* of ours */
    uint64_t min_ping_interval_ms;       /* PINGs of the client that come faster are strikes */
    unsigned int max_ping_strikes;
    uint64_t max_connection_age_ms;
    uint64_t max_connection_age_grace_ms; /* for calls in progress, beyond that age */

    unsigned int max_connections_per_address; /* 0 = no limit; IPv6: per network of 64 bits */
    uint64_t min_rate;    /* bytes per second of a message or an answer; 0 = no limit */
    uint64_t min_rate_ms; /* the time over which the rate is averaged */

    const char *access_rules; /* --access-rules: a path; "" = none */
};

/* conch_grpc_options_init - the defaults: 0.0.0.0:8001, a loop for each CPU. */
CONCH_DECLSPEC void conch_grpc_options_init(struct conch_grpc_options *options);

/*
 * conch_grpc_start - serves gRPC for a server, which must live until conch_grpc_stop().
 *
 * Errors: UNAVAILABLE  Socket 'a:p' already in use
 *         INVALID_ARG  an option makes no sense
 */
CONCH_DECLSPEC struct TRITONSERVER_Error *conch_grpc_start(struct TRITONSERVER_Server *server,
                                                           const struct conch_grpc_options *options,
                                                           struct conch_grpc **ret_grpc);

/* conch_grpc_port - the port on which the server listens; 0 with a unix: address. */
CONCH_DECLSPEC int conch_grpc_port(const struct conch_grpc *grpc);

/* conch_grpc_begin_stop - likewise as conch_http_begin_stop(); new calls get UNAVAILABLE. */
CONCH_DECLSPEC void conch_grpc_begin_stop(struct conch_grpc *grpc);

/*
 * conch_grpc_stop - accepts no new connections and no new calls, closes idle connections at once,
 * and waits for calls in progress as long as timeout_ms allows; then closes all connections and
 * frees grpc. What conch_http_stop() says of requests that a model still executes is true here,
 * too.
 *
 * Returns how many connections were cut off or could not be closed.
 */
CONCH_DECLSPEC unsigned int conch_grpc_stop(struct conch_grpc *grpc, uint64_t timeout_ms);

struct conch_metrics;

/* Set by conch_metrics_options_init(), then by the caller. */
struct conch_metrics_options {
    size_t size;         /* of this struct, as the caller knows it; set by the initialiser */
    const char *address; /* a numeric address, a host name, unix:PATH or unix:@NAME */
    int port;            /* 0 = any free port: conch_metrics_port() gives it */

    bool use_ssl;
    bool use_ssl_mutual;     /* implies use_ssl */
    const char *server_cert; /* paths of PEM files; "" = none */
    const char *server_key;
    const char *root_cert;
};

/* conch_metrics_options_init - the defaults: 0.0.0.0:8002. */
CONCH_DECLSPEC void conch_metrics_options_init(struct conch_metrics_options *options);

/*
 * conch_metrics_start - serves GET /metrics, in Prometheus' text format, from a thread of its own.
 * The server must live until conch_metrics_stop(); it may be stopped before.
 *
 * Errors: UNAVAILABLE  Socket 'a:p' already in use
 *         INVALID_ARG  an option makes no sense
 */
CONCH_DECLSPEC struct TRITONSERVER_Error *
conch_metrics_start(struct TRITONSERVER_Server *server, const struct conch_metrics_options *options,
                    struct conch_metrics **ret_metrics);

/* conch_metrics_port - the port on which the server listens; 0 with a unix: address. */
CONCH_DECLSPEC int conch_metrics_port(const struct conch_metrics *metrics);

/* conch_metrics_stop - waits up to timeout_ms for pages under way, then closes all connections and
 * frees metrics. */
CONCH_DECLSPEC void conch_metrics_stop(struct conch_metrics *metrics, uint64_t timeout_ms);

struct conch_trace;

/* Set by conch_trace_options_init(), then by the caller. The settings of a server's traces. */
struct conch_trace_options {
    size_t size;            /* of this struct, as the caller knows it; set by the initialiser */
    const char *file;       /* copied; "" = none */
    unsigned int level;     /* TRITONSERVER_TRACE_LEVEL_TIMESTAMPS and _TENSORS; 0 = off */
    uint32_t rate;          /* of so many requests one is traced */
    int32_t count;          /* traces after which there are no more; -1 = no limit */
    uint32_t log_frequency; /* traces in each of several files; 0 = one file */
    /*
     * Traces go to a collector of OpenTelemetry, and not to a file. Its settings are
     * "<name>=<value>" with the names url, resource, bsp_max_queue_size, bsp_schedule_delay and
     * bsp_max_export_batch_size; variables OTEL_… and defaults are for the others. Copied.
     */
    bool opentelemetry;
    const char *const *settings;
    size_t n_settings;
};

/* conch_trace_options_init - the defaults: off, rate 1000. */
CONCH_DECLSPEC void conch_trace_options_init(struct conch_trace_options *options);

/*
 * conch_trace_start - traces the requests of the frontends, and lets clients change the settings.
 * Call it before the frontends start, and conch_trace_stop() when they and the server have stopped.
 * Without it clients may read the settings, and there is no file for traces.
 *
 * Errors: ALREADY_EXISTS          a frontend runs
 *         UNAVAILABLE             the system has no room for another thread; no libcurl
 *         INVALID_ARG, NOT_FOUND  the file cannot be written there; a setting is wrong
 *         UNSUPPORTED             traces are to be sent by gRPC
 */
CONCH_DECLSPEC struct TRITONSERVER_Error *
conch_trace_start(struct TRITONSERVER_Server *server, const struct conch_trace_options *options,
                  struct conch_trace **ret_trace);

/* conch_trace_stop - writes what was traced. NULL is fine. */
CONCH_DECLSPEC void conch_trace_stop(struct conch_trace *trace);

#ifdef __cplusplus
}
#endif

#endif
