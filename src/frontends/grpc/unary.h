/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls with one request and one answer, other than inferences: the bytes of a message in, the
 * bytes of a message out. This layer knows neither HTTP/2 nor connections.
 *
 *     const struct unary_method *m = unary_find(path, length);
 *     st = unary_read(m, bytes, n_bytes, &arena, &request);      on the loop
 *     st = unary_run(m, server, request, &arena, &out);          on the thread that m->thread names
 */
#ifndef CONCH_FRONTENDS_GRPC_UNARY_H
#define CONCH_FRONTENDS_GRPC_UNARY_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/compiler.h"
#include "frontends/ops/restrictions.h"

struct arena;
struct buf;
struct regions;
struct server;
struct status;

/* The longest message of a method that does not carry files. */
enum { UNARY_MESSAGE_BYTES = 64 << 10 };

/* The threads that may run a method. */
enum unary_thread {
    UNARY_LOOP,    /* the loop's: the method does not block */
    UNARY_HELPER,  /* server_helpers(): the method may take long */
    UNARY_CONTROL, /* ops_control(): the method may block */
    UNARY_LOAD,    /* … and is a load */
};

/* The arguments of a method. */
struct unary_call {
    struct server *server;
    struct regions *regions;         /* of shared memory */
    struct arena *arena;             /* where the answer's parts are allocated */
    const ProtobufCMessage *request; /* of the method's type */
    ProtobufCMessage *answer;        /* likewise; empty on entry */
    struct buf *out;                 /* gets the bytes of the answer, see unary_reserve() */
};

struct unary_method {
    const char *path;   /* "/inference.GRPCInferenceService/ServerLive" */
    enum ops_api api;   /* the part of the protocol to which it belongs */
    bool carries_files; /* its messages may be as long as the service allows */
    const ProtobufCMessageDescriptor *request, *answer;
    enum unary_thread (*thread)(const ProtobufCMessage *request); /* NULL: UNARY_LOOP */
    /* The model that a load or an unload names: jobs of one model run one after the other. NULL:
     * none. */
    const char *(*model)(const ProtobufCMessage *request);
    /* The name of the model that a request is about, for access rules; "": none. NULL: requests
     * name none. */
    const char *(*subject)(const ProtobufCMessage *request);
    struct status *(*run)(struct unary_call *c);
};

/* unary_find - the method of that path, or NULL. Thread: any. */
const struct unary_method *unary_find(const char *path, size_t length);

/* unary_thread - the thread that is to run the method for that request. */
enum unary_thread unary_thread(const struct unary_method *m, const ProtobufCMessage *request);

/*
 * unary_read - parses the message into the arena.
 *
 * Thread: any. Errors: STATUS_INTERNAL  Unable to parse request; or the arena is full
 */
NODISCARD struct status *unary_read(const struct unary_method *m, const void *bytes, size_t n_bytes,
                                    struct arena *arena, const ProtobufCMessage **ret_request);

/*
 * unary_run - runs the method and appends the bytes of its answer to out.
 *
 * Thread: as unary_thread() says. Errors: those of the operation (ops.h); STATUS_UNAVAILABLE  no
 * memory
 */
NODISCARD struct status *unary_run(const struct unary_method *m, struct server *server,
                                   struct regions *regions, const ProtobufCMessage *request,
                                   struct arena *arena, struct buf *out);

#endif
