/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The traces of a server's requests: the settings that clients read and change, and the choice of
 * the requests that are traced. There is one tracer for each server in the process, which all its
 * frontends share. While nothing is to be traced a request costs one comparison.
 *
 *     loop: trace_sample() ──► NULL, or a struct traced for the request
 *     client: tracer_change() ──► another view of all settings, which each loop takes over at its
 *                                 next request
 *
 * Source: reference/behaviours §22
 */
#ifndef CONCH_FRONTENDS_TRACING_TRACER_H
#define CONCH_FRONTENDS_TRACING_TRACER_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "frontends/tracing/trace_setting.h"
#include "frontends/tracing/traced.h"

struct otlp_settings;
struct pool;
struct server;
struct status;
struct trace_view;

struct tracer {
    /* 0 while nothing is to be traced; else the number of the present view. */
    atomic_uint_least64_t version;
    struct tracer_priv *priv;
};

/* What the server begins with. */
struct tracer_options {
    const char *path;           /* copied; "" for none */
    struct otlp_settings *otlp; /* mode opentelemetry; taken on success. NULL: mode triton */
    struct trace_values values;
};

/*
 * tracer_start - makes the tracer of a server, before any frontend starts. tracer_stop() ends it.
 *
 * Thread: any but a loop's.
 * Errors: STATUS_ALREADY_EXISTS  the server has one: tracer_get() was called
 *         STATUS_UNAVAILABLE     no thread, no libcurl
 *         another                the file cannot be written there
 */
NODISCARD struct status *tracer_start(struct server *server, const struct tracer_options *options,
                                      struct tracer **ret);
/* tracer_stop - writes what was traced, traces no more, and ends the caller's use. */
void tracer_stop(struct tracer *t);

/*
 * tracer_get - the tracer of a server, which is made without a file if there is none; tracer_put()
 * ends the use. Thread: any, without locks.
 */
struct tracer *tracer_get(struct server *server);
void tracer_put(struct tracer *t);

/* The settings as clients see them. */
struct tracer_settings {
    struct trace_values values;
    /* These live as long as the tracer. */
    const char *path;
    const struct otlp_settings *otlp; /* NULL: mode triton */
};

/* The fields that clients see: those before, or all. */
static inline int tracer_settings_fields(const struct tracer_settings *s)
{
    return s->otlp ? TRACE_LOG_FREQUENCY : N_TRACE_FIELDS;
}

/* tracer_reads_heads - whether traceparent and tracestate count: the mode is opentelemetry. */
bool tracer_reads_heads(const struct tracer *t);

/* tracer_settings - those of a model, or of the server ("" as name). Thread: any. */
struct tracer_settings tracer_settings(struct tracer *t, const char *model_name);

/* Makes the answer to a change, which has the settings as they are going to be. Called without
 * locks, and again when another thread has changed the settings meanwhile. */
struct trace_answer {
    struct status *(*make)(void *arg, const struct tracer_settings *settings);
    void *arg;
};

/*
 * tracer_change - changes the settings of a model, or of the server and with it what the models do
 * not set themselves. After an error they are as they were.
 *
 * Thread: any.
 * @answer  NULL: none is made
 * Errors: STATUS_INVALID_ARG  such settings trace nothing: no file, rate 0, count 0
 *         STATUS_UNAVAILABLE  no thread
 *         those of the answer
 */
NODISCARD struct status *tracer_change(struct tracer *t, const char *model_name,
                                       const struct trace_change *change,
                                       const struct trace_answer *answer);

/* ---- Requests -------------------------------------------------------------------------------- */

/* A loop's copy of the settings; the loop's. */
struct trace_sampler {
    struct tracer *tracer;
    struct pool *pool; /* of the memory of traces */
    struct trace_view *view;
    struct trace_home *home;
    uint64_t version; /* of the view; 0: there is none yet */
};

/*
 * trace_sampler_init - trace_sampler_done() ends it.
 *
 * @tracer  NULL: nothing is traced
 * @pool    the loop's; a trace is a block of it, until it is written or sent
 */
void trace_sampler_init(struct trace_sampler *s, struct tracer *tracer, struct pool *pool);
void trace_sampler_done(struct trace_sampler *s);

/* trace_sampler_is_on - whether a request might be traced. */
static inline bool trace_sampler_is_on(const struct trace_sampler *s)
{
    /* Pairs with nothing: what the number stands for is read under a lock. */
    return atomic_load_explicit(&s->tracer->version, memory_order_relaxed) != 0;
}

struct traced *trace_sample_slow(struct trace_sampler *s, const char *model_name,
                                 const struct trace_parent *parent);

/*
 * trace_sample - a trace for the next request of a model; NULL: it is not traced.
 *
 * @parent  what the head of the request says, if tracer_reads_heads(); NULL: nothing
 */
static inline struct traced *trace_sample(struct trace_sampler *s, const char *model_name,
                                          const struct trace_parent *parent)
{
    return LIKELY(!trace_sampler_is_on(s)) ? NULL : trace_sample_slow(s, model_name, parent);
}

#endif
