/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What libtritonserver.so offers besides Triton's API: options of ours, a server whose models load
 * while it is asked already, and starting Conch's frontends in the process that embeds the server.
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

#include "triton/core/tritonserver.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifndef CONCH_DECLSPEC
#define CONCH_DECLSPEC __attribute__((__visibility__("default")))
#endif

/*
 * conch_server_options_set - sets an option of a server by the name of its flag, without the
 * dashes, from text, as `conch --help` tells them; one that may be repeated gets one more value.
 * Options of the program and of frontends are none of a server's.
 *
 * Errors: NOT_FOUND    a server has no such option
 *         INVALID_ARG  the text is no value for it
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
 * refused with 503, then those connections go that keep most and move least; requests up to 64 KiB
 * are still served.
 *
 * @bytes   at least 16 MiB; 0, as by default: a quarter of the memory that the process may have
 * Errors:  INVALID_ARG  less
 */
CONCH_DECLSPEC struct TRITONSERVER_Error *
conch_server_options_set_connection_memory_budget(struct TRITONSERVER_ServerOptions *options,
                                                  uint64_t bytes);

/*
 * conch_server_options_set_warmup_timeout - for how many seconds an instance of a model may be
 * warmed up before the load fails; 0 is any time. By default 600.
 */
CONCH_DECLSPEC struct TRITONSERVER_Error *
conch_server_options_set_warmup_timeout(struct TRITONSERVER_ServerOptions *options,
                                        unsigned int timeout_s);

/*
 * conch_server_options_set_inline_execution - whether TRITONSERVER_ServerInferAsync() may execute a
 * model itself, before it returns, on the thread that calls it. By default it never does, and a
 * request costs two switches of threads, some µs, which for a quick model is most of it.
 *
 * When it may,
 *
 * - it does so for models that are known to be quick and bounded, as the server's own event loops
 *   do (docs/writing-a-backend.md), and for those with CONCH_EXECUTION `inline`; all others execute
 *   on threads of the server's, as without this option;
 * - the callbacks of the request (allocator, response, release) are then called by that thread,
 *   inside TRITONSERVER_ServerInferAsync(), and so are those of requests of other threads that wait
 *   for the same model: the caller must not hold a lock that one of them takes;
 * - the time that callbacks take counts as the model's, since nobody else's request can use the
 *   thread meanwhile: a model whose callbacks are slow (some 40 µs, or once 5 ms) goes back to
 *   threads of the server's. What takes long is better handed to a thread of the embedder's;
 * - what a callback brings by another TRITONSERVER_ServerInferAsync() is not executed inside it, so
 *   that calls do not nest;
 * - models with a sequence batcher of the strategy "direct" and more than one slot stay on threads
 *   of the server's.
 */
CONCH_DECLSPEC struct TRITONSERVER_Error *
conch_server_options_set_inline_execution(struct TRITONSERVER_ServerOptions *options,
                                          bool inline_execution);

/*
 * conch_server_new - a server without its models: as TRITONSERVER_ServerNew(), which loads them
 * before it returns, in two steps. conch_server_load() is the other one; frontends may be started
 * between the two. Until then
 *
 * - TRITONSERVER_ServerIsLive() says yes, TRITONSERVER_ServerIsReady() no;
 * - what is asked of a model that is still to come gives UNAVAILABLE.
 *
 * Errors: INVALID_ARG, INTERNAL  an option or the path of a repository is wrong
 */
CONCH_DECLSPEC struct TRITONSERVER_Error *
conch_server_new(struct TRITONSERVER_Server **server, struct TRITONSERVER_ServerOptions *options);

/*
 * What has become of the models. Called once, on a thread of the server's, which must not stop or
 * delete the server itself.
 *
 * @error  NULL: the server runs. The caller's to delete:
 *         UNAVAILABLE            the server has been stopped meanwhile
 *         INTERNAL, INVALID_ARG  a model failed, and the options say exit-on-error: the server is
 *                                to be deleted
 */
typedef void (*conch_server_loaded_fn)(struct TRITONSERVER_Error *error, void *userp);

/*
 * conch_server_load - loads the models that the options want, on threads of the server's, and
 * returns at once. Each model serves as soon as it is ready. TRITONSERVER_ServerStop() ends it
 * early: what is not being loaded by then is left out, what is may take as long as the exit
 * timeout allows.
 *
 * @loaded  not called when the call itself gives an error
 * Errors:  ALREADY_EXISTS  it has been called before
 *          UNAVAILABLE     the system has no room for another thread
 */
CONCH_DECLSPEC struct TRITONSERVER_Error *
conch_server_load(struct TRITONSERVER_Server *server, conch_server_loaded_fn loaded, void *userp);

/*
 * conch_server_stop_loading - no further model is loaded from now on; those that are being loaded
 * go on, and all that are ready serve, without delays for larger batches. Returns at once. For a
 * stop that first lets frontends answer what they have: TRITONSERVER_ServerStop() has less to wait
 * for then.
 */
CONCH_DECLSPEC struct TRITONSERVER_Error *
conch_server_stop_loading(struct TRITONSERVER_Server *server);

/*
 * conch_server_end_sequences - TRITONSERVER_ServerStop() lets sequences that have begun go on to
 * their end, for as long as the exit timeout allows. Not so after this: nobody is left who could go
 * on with them.
 */
CONCH_DECLSPEC void conch_server_end_sequences(struct TRITONSERVER_Server *server);

/*
 * conch_server_log_unended - a line in the log for each model that is being loaded or taken down at
 * this moment: for whoever has waited for a stop long enough, and is about to end the process.
 */
CONCH_DECLSPEC void conch_server_log_unended(struct TRITONSERVER_Server *server);

/*
 * conch_exit_when_exhausted - where the library has no memory to go on it says so on stderr and
 * aborts. After this call it ends the process with exit code 1 instead. Before there are threads.
 */
CONCH_DECLSPEC void conch_exit_when_exhausted(void);

/*
 * conch_log_print - a line without time and place, on stdout, or on stderr for warnings and errors,
 * in its order among those of the log. Never waits for whoever reads them, as no call that logs
 * does once there is a server.
 */
CONCH_DECLSPEC void conch_log_print(enum TRITONSERVER_loglevel_enum level, const char *line);

/*
 * conch_log_await - waits until all that was logged is written, for timeout_ms at most: a reader
 * may be slow. For the moment before _exit(); may be called by a signal handler.
 *
 * Returns whether all is.
 */
CONCH_DECLSPEC bool conch_log_await(uint64_t timeout_ms);

struct conch_http;

/* Set by conch_http_options_init(), then by the caller. */
struct conch_http_options {
    size_t size;         /* of this struct, as the caller knows it; set by the initialiser */
    const char *address; /* a numeric address or a host name */
    int port;            /* 0 = any that is free: conch_http_port() tells it */
    bool reuse_port;     /* several processes may listen on the port */
    int n_threads;       /* event loops; 0 = one for each CPU, and never more than that */

    size_t max_input_bytes;       /* --http-max-input-size: JSON, JSON tensors, raw bodies */
    uint64_t max_body_bytes;      /* of a request, binary tensors included */
    size_t max_head_bytes;        /* of a request line and its headers */
    unsigned int max_connections; /* 0 = no limit of ours */
    unsigned int max_pipeline;    /* requests of a connection that may be under way */

    /* Milliseconds; 0 = for ever. */
    uint64_t head_timeout_ms;  /* from the first byte of a request's head to its last */
    uint64_t body_timeout_ms;  /* without a byte of a body that is being received */
    uint64_t write_timeout_ms; /* without a byte of a reply going out */
    uint64_t idle_timeout_ms;  /* between two requests */

    uint64_t min_rate; /* bytes per second of a body, or a reply, that is under way; 0 = any … */
    uint64_t min_rate_ms; /* … as an average over so many milliseconds */
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

/* conch_http_port - the port that is listened on. */
CONCH_DECLSPEC int conch_http_port(const struct conch_http *http);

/*
 * conch_http_stop - no new connections; idle ones are closed at once; requests under way are
 * answered, for as long as timeout_ms allows; then all is closed and http is gone. (Requests that a
 * model still executes then keep their memory, and the event loops, until the process ends. If it
 * executes on an event loop, which does not answer therefore, the log names that, and
 * TRITONSERVER_ServerStop() gives an error.)
 *
 * Returns how many connections were cut off, or could not even be.
 */
CONCH_DECLSPEC unsigned int conch_http_stop(struct conch_http *http, uint64_t timeout_ms);

struct conch_metrics;

/* Set by conch_metrics_options_init(), then by the caller. */
struct conch_metrics_options {
    size_t size;         /* of this struct, as the caller knows it; set by the initialiser */
    const char *address; /* a numeric address or a host name */
    int port;            /* 0 = any that is free: conch_metrics_port() tells it */
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

/* conch_metrics_port - the port that is listened on. */
CONCH_DECLSPEC int conch_metrics_port(const struct conch_metrics *metrics);

/* conch_metrics_stop - pages that are on their way may take so long; then all is closed and gone.
 */
CONCH_DECLSPEC void conch_metrics_stop(struct conch_metrics *metrics, uint64_t timeout_ms);

#ifdef __cplusplus
}
#endif

#endif
