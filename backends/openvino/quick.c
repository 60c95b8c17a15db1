/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quick - small models, which execute on the threads that read the network (conch/backend.h).
 *
 * OpenVINO computes in the thread that calls it if the compiled model has no stream; with several
 * streams it hands each inference over to a thread of its own. So a small model gets no stream,
 * unless its configuration says something about threads or has several instances, and it is
 * declared only if OpenVINO says that it has none. No state.
 */
#include "openvino/model.h"

#include <stdlib.h>
#include <string.h>

#include "common/onnx_cost.h"
#include "openvino/ir.h"
#include "openvino/ir_cost.h"

/* A small model has a small graph; its weights are in another file. */
#define MAX_GRAPH_BYTES ((long)1 << 20)

/* Extensions and other devices may take any time, ragged inputs have any length, and a model
 * that was reshaped has not the shapes of its file. */
static bool is_as_in_file(const struct model *m)
{
    for (size_t i = 0; i < m->inputs.n; i++)
        if (m->inputs.tensors[i].ragged || m->inputs.tensors[i].made)
            return false;
    return !m->reshaped && !m->asked.extension && strcmp(m->asked.device, "CPU") == 0;
}

static bool is_onnx_file(const char *path)
{
    size_t len = strlen(path);

    return len > 5 && strcmp(path + len - 5, ".onnx") == 0;
}

static TRITONSERVER_Error *judge_graph(const struct model *m, bool *ret_small, uint64_t *ret_cost)
{
    TRITONSERVER_Error *err = NULL;
    char *text = ir_read(m->path, MAX_GRAPH_BYTES, &err);

    *ret_small = text && ir_cost_is_small(text, m->frame->max_batch_size, ret_cost);
    free(text);
    return err;
}

TRITONSERVER_Error *quick_prepare(struct model *m)
{
    uint64_t cost = 0;

    if (!is_as_in_file(m))
        return NULL;
    if (ir_is_file(m->path))
        TRY(judge_graph(m, &m->small, &cost));
    else if (is_onnx_file(m->path))
        m->small = onnx_cost_is_small(m->path, m->frame->max_batch_size, &cost);
    if (!m->small)
        return NULL;
    BACKEND_LOG(VERBOSE,
                "model '%s' is small: a run takes at most the time of %llu multiplications",
                m->name, (unsigned long long)cost);
    ask_for_callers_thread(&m->asked);
    return NULL;
}

TRITONSERVER_Error *quick_declare(const struct model *m)
{
    bool in_caller;

    if (!m->small)
        return NULL;
    TRY(compiled_computes_in_caller(m, &in_caller));
    if (in_caller)
        return backend_declare_bounded(m->frame->handle);
    BACKEND_LOG(VERBOSE, "model '%s' is small, but OpenVINO executes it on threads of its own",
                m->name);
    return NULL;
}
