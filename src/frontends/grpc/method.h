/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The methods that clients may call, by their paths. Inferences and streams have kinds of their
 * own, which method.c lists. The other methods of the protocol have one request and one answer;
 * unary.c lists them. Further methods are those of the settings.
 */
#ifndef CONCH_FRONTENDS_GRPC_METHOD_H
#define CONCH_FRONTENDS_GRPC_METHOD_H

#include <stdbool.h>
#include <stddef.h>

#include "frontends/net/span.h"
#include "frontends/ops/restrictions.h"

struct grpc_kind;
struct unary_method;

/* A method besides those of the protocol. */
struct grpc_method {
    const char *path; /* "/grpc.testing.TestService/UnaryCall" */
    const struct grpc_kind *kind;
};

/* The methods that a service has. */
struct grpc_methods {
    bool has_reflection;
    const struct grpc_method *further; /* besides those of the protocol */
    size_t n_further;
};

struct found_method {
    const struct grpc_kind *kind;     /* NULL: there is no such method */
    const struct unary_method *unary; /* of grpc_unary_kind; else NULL */
    enum ops_api api;                 /* the part of the protocol to which it belongs */
};

/* method_find - finds the method of that path. Thread: any. */
struct found_method method_find(const struct grpc_methods *methods, struct span path);

/* The kinds (call.h). */
extern const struct grpc_kind grpc_unary_kind;      /* unary_call.c */
extern const struct grpc_kind grpc_infer_kind;      /* infer_call.c */
extern const struct grpc_kind grpc_stream_kind;     /* stream_call.c */
extern const struct grpc_kind grpc_watch_kind;      /* health_watch.c */
extern const struct grpc_kind grpc_reflection_kind; /* reflection_call.c */

#endif
