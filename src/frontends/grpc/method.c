/* SPDX-License-Identifier: Apache-2.0 */
/* The table of the methods that have kinds of their own. Constant data; any thread. */
#include "frontends/grpc/method.h"

#include <string.h>

#include "frontends/grpc/unary.h"

struct special_method {
    const char *path;
    size_t length;
    const struct grpc_kind *kind;
    enum ops_api api;
    bool is_reflection;
};

#define METHOD(name, api_, kind_, ...)                                                             \
    {                                                                                              \
        .path = name, .length = sizeof(name) - 1, .api = OPS_API_##api_, .kind = &(kind_),         \
        __VA_ARGS__                                                                                \
    }

/* The most frequent first. */
static const struct special_method specials[] = {
    METHOD("/inference.GRPCInferenceService/ModelInfer", INFERENCE, grpc_infer_kind),
    METHOD("/inference.GRPCInferenceService/ModelStreamInfer", INFERENCE, grpc_stream_kind),
    METHOD("/grpc.health.v1.Health/Watch", HEALTH, grpc_watch_kind),
    METHOD("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", OPEN, grpc_reflection_kind,
           .is_reflection = true),
    METHOD("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", OPEN,
           grpc_reflection_kind, .is_reflection = true),
};

static bool is_path(struct span path, const char *text, size_t length)
{
    return path.length == length && memcmp(path.at, text, length) == 0;
}

/* The kind of a method besides those of the protocol; NULL: there is none of that path. */
static const struct grpc_kind *find_further_kind(const struct grpc_methods *methods,
                                                 struct span path)
{
    for (size_t i = 0; i < methods->n_further; i++) {
        if (is_path(path, methods->further[i].path, strlen(methods->further[i].path)))
            return methods->further[i].kind;
    }
    return NULL;
}

struct found_method method_find(const struct grpc_methods *methods, struct span path)
{
    for (size_t i = 0; i < ARRAY_SIZE(specials); i++) {
        const struct special_method *m = &specials[i];
        if (is_path(path, m->path, m->length) && (!m->is_reflection || methods->has_reflection))
            return (struct found_method){.kind = m->kind, .api = m->api};
    }
    const struct unary_method *unary = unary_find(path.at, path.length);
    if (unary)
        return (struct found_method){.kind = &grpc_unary_kind, .unary = unary, .api = unary->api};
    return (struct found_method){.kind = find_further_kind(methods, path), .api = OPS_API_OPEN};
}
