/* SPDX-License-Identifier: Apache-2.0 */
/*
 * They are a protobuf message, ConfigProto, of which these fields are written:
 *
 *     2 intra_op_parallelism_threads, 5 inter_op_parallelism_threads, 7 allow_soft_placement,
 *     9 use_per_session_threads, 10 graph_options (3 optimizer_options (5 global_jit_level))
 */
#include "tensorflow/tf_options.h"

#include <stdlib.h>
#include <string.h>

/* An execution of so few nodes takes less time than to hand it to another thread. */
#define SMALL_NODES 256

struct options_text {
    unsigned char bytes[64];
    size_t n;
};

static void put_session_option(struct options_text *to, unsigned int field, int64_t value)
{
    uint64_t left = (uint64_t)value;

    to->bytes[to->n++] = (unsigned char)(field << 3);
    for (; left > 0x7f; left >>= 7)
        to->bytes[to->n++] = (unsigned char)(left | 0x80);
    to->bytes[to->n++] = (unsigned char)left;
}

static void put_part(struct options_text *to, unsigned int field, const struct options_text *part)
{
    to->bytes[to->n++] = (unsigned char)(field << 3 | 2);
    to->bytes[to->n++] = (unsigned char)part->n;
    memcpy(to->bytes + to->n, part->bytes, part->n);
    to->n += part->n;
}

/* A level of the configuration as TensorFlow's: -1 off, 1, and 2 for all above; others: none. */
static void put_level(struct options_text *to, int64_t level)
{
    struct options_text optimizer = {{0}, 0}, graph = {{0}, 0};

    if (level < -1 || level == 0)
        return;
    put_session_option(&optimizer, 5, level <= 1 ? level : 2);
    put_part(&graph, 3, &optimizer);
    put_part(to, 10, &graph);
}

TRITONSERVER_Error *tf_make_options(const struct tf_loaded *l, struct tf_status *status,
                                    struct tf_session_options **ret_options)
{
    const struct tf_asked *a = &l->m->asked;
    const struct tf_api *api = &l->lib->api;
    struct options_text text = {{0}, 0};
    int64_t intra_threads = a->intra_threads, inter_threads = a->inter_threads;

    if (inter_threads == 0 && l->m->signature.facts.n_nodes <= SMALL_NODES)
        inter_threads = -1; /* the caller's thread */
    if (intra_threads == 0)
        intra_threads = backend_cpu_limit("TF_NUM_INTRAOP_THREADS");
    if (inter_threads == 0)
        inter_threads = backend_cpu_limit("TF_NUM_INTEROP_THREADS");
    if (intra_threads != 0)
        put_session_option(&text, 2, intra_threads);
    if (inter_threads != 0)
        put_session_option(&text, 5, inter_threads);
    if (a->soft_placement)
        put_session_option(&text, 7, 1);
    if (a->own_threads)
        put_session_option(&text, 9, 1);
    put_level(&text, a->graph_level);
    *ret_options = api->NewSessionOptions();
    api->SetConfig(*ret_options, text.bytes, text.n, status);
    return tf_library_error(l->lib, status, "setting options");
}

/* TensorFlow compiles for CPUs only if its own flag says so, too. */
void tf_warn_of_level(const struct tf_model *m)
{
    const char *flags = getenv("TF_XLA_FLAGS");

    if (m->asked.graph_level > 0 && (!flags || !strstr(flags, "--tf_xla_cpu_global_jit")))
        BACKEND_LOG(WARN,
                    "model '%s': optimization.graph.level %lld has no effect on CPUs unless the "
                    "server's environment has TF_XLA_FLAGS=--tf_xla_cpu_global_jit",
                    m->name, (long long)m->asked.graph_level);
}
