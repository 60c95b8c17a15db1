/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The methods, and functions that they share. unary.c has the table of all methods; each method is
 * a function below. The parts of an answer are allocated in the call's arena.
 */
#ifndef CONCH_FRONTENDS_GRPC_UNARY_PRIV_H
#define CONCH_FRONTENDS_GRPC_UNARY_PRIV_H

#include "base/arena.h"
#include "base/buf.h"
#include "frontends/grpc/unary.h"
#include "frontends/ops/ops.h"

/* unary_health.c: whether the server or a model is live or ready. */
struct status *unary_server_live(struct unary_call *c);
struct status *unary_server_ready(struct unary_call *c);
struct status *unary_model_ready(struct unary_call *c);
struct status *unary_health_check(struct unary_call *c);

/* unary_models.c: descriptions of the server and its models. */
struct status *unary_server_metadata(struct unary_call *c);
struct status *unary_model_metadata(struct unary_call *c);
struct status *unary_model_config(struct unary_call *c);

/* unary_statistics.c */
struct status *unary_statistics(struct unary_call *c);

/* unary_repository.c: the index; loading and unloading. */
struct status *unary_repository_index(struct unary_call *c);
struct status *unary_model_load(struct unary_call *c);
struct status *unary_model_unload(struct unary_call *c);

/* unary_regions.c: shared memory of clients. */
struct status *unary_system_memory_status(struct unary_call *c);
struct status *unary_system_memory_register(struct unary_call *c);
struct status *unary_system_memory_unregister(struct unary_call *c);
struct status *unary_cuda_memory_status(struct unary_call *c);
struct status *unary_cuda_memory_register(struct unary_call *c);
struct status *unary_cuda_memory_unregister(struct unary_call *c);

/* unary_settings.c: the log and traces. */
struct status *unary_log_settings(struct unary_call *c);
struct status *unary_trace_setting(struct unary_call *c);

/*
 * unary_alloc - zeroed memory for n items; NULL: no memory.
 */
static inline void *unary_alloc(struct unary_call *c, size_t n, size_t item_bytes)
{
    size_t bytes;
    if (__builtin_mul_overflow(n, item_bytes, &bytes))
        return NULL;
    void *p = arena_alloc(c->arena, bytes);
    return p ? __builtin_memset(p, 0, bytes) : NULL;
}

/* unary_new - an initialised message in the arena; NULL: no memory. */
#define UNARY_NEW(c, type, init)                                                                   \
    ({                                                                                             \
        type *made_ = arena_alloc((c)->arena, sizeof(type));                                       \
        if (made_)                                                                                 \
            init(made_);                                                                           \
        made_;                                                                                     \
    })

/*
 * unary_reserve - makes room for the bytes of the answer. A method that has made its answer and
 * calls this before it changes anything has no effect when it fails for want of memory.
 */
static inline struct status *unary_reserve(struct unary_call *c)
{
    (void)buf_reserve(c->out, protobuf_c_message_get_packed_size(c->answer));
    return buf_status(c->out);
}

/*
 * unary_borrow - casts a string for a field that protobuf-c only reads. The string must outlive the
 * answer.
 */
static inline char *unary_borrow(const char *s)
{
    return (char *)(uintptr_t)s;
}

/* unary_model_ref - the model that a request names. */
static inline struct ops_model_ref unary_model_ref(const char *name, const char *version)
{
    return (struct ops_model_ref){name, __builtin_strlen(name), version, __builtin_strlen(version)};
}

#endif
