/* SPDX-License-Identifier: Apache-2.0 */
#include "core/model.h"

#include <string.h>

#include "base/mem.h"
#include "base/status.h"
#include "core/backend/backend.h"
#include "core/backend/instance.h"
#include "core/labels.h"
#include "core/model_priv.h"
#include "core/sched/scheduler.h"

struct model *model_new(struct server *server, const char *name, int64_t version,
                        const char *directory, struct model_config *config)
{
    struct model *m = mem_zalloc(sizeof(*m));
    m->server = server;
    m->name = mem_strdup(name);
    m->version = version;
    m->version_text = mem_printf("%lld", (long long)version);
    m->directory = mem_strdup(directory);
    m->config = config;
    map_init(&m->input_by_name);
    map_init(&m->output_by_name);
    m->owner.name = m->name;
    atomic_init(&m->refs, 1);
    return m;
}

void model_ref(struct model *m)
{
    atomic_fetch_add_explicit(&m->refs, 1, memory_order_relaxed);
}

/* Names and specs; the backend is gone by now (model_unload()). */
void model_unref(struct model *m)
{
    if (!m || atomic_fetch_sub_explicit(&m->refs, 1, memory_order_acq_rel) != 1)
        return;
    map_done(&m->input_by_name);
    map_done(&m->output_by_name);
    for (uint32_t i = 0; i < m->n_outputs; i++)
        labels_free(m->outputs[i].labels);
    mem_free(m->inputs);
    mem_free(m->outputs);
    model_config_free(m->config);
    mem_free(m->directory);
    mem_free(m->version_text);
    mem_free(m->name);
    mem_free(m);
}

struct status *model_make_specs(struct model *m)
{
    const Inference__ModelConfig *pb = m->config->pb;

    m->max_batch_size = (uint32_t)pb->max_batch_size;
    m->batching = pb->max_batch_size > 0;
    m->decoupled = model_config_decoupled(m->config);

    m->n_inputs = (uint32_t)pb->n_input;
    m->inputs = mem_zalloc(pb->n_input * sizeof(*m->inputs));
    for (size_t i = 0; i < pb->n_input; i++) {
        const Inference__ModelInput *in = pb->input[i];
        struct tensor_spec *spec = &m->inputs[i];
        *spec = (struct tensor_spec){
            .name = in->name,
            .dtype = (enum dtype)in->data_type,
            .optional = in->optional,
            .n_dims = (uint32_t)in->n_dims,
            .dims = in->dims,
        };
        if (in->reshape) {
            spec->has_reshape = true;
            spec->n_reshape_dims = (uint32_t)in->reshape->n_shape;
            spec->reshape_dims = in->reshape->shape;
        }
        m->n_required_inputs += !in->optional;
        map_puts(&m->input_by_name, spec->name, spec);
    }

    m->n_outputs = (uint32_t)pb->n_output;
    m->outputs = mem_zalloc(pb->n_output * sizeof(*m->outputs));
    for (size_t i = 0; i < pb->n_output; i++) {
        const Inference__ModelOutput *out = pb->output[i];
        struct tensor_spec *spec = &m->outputs[i];
        *spec = (struct tensor_spec){
            .name = out->name,
            .dtype = (enum dtype)out->data_type,
            .n_dims = (uint32_t)out->n_dims,
            .dims = out->dims,
        };
        if (out->reshape) {
            spec->has_reshape = true;
            spec->n_reshape_dims = (uint32_t)out->reshape->n_shape;
            spec->reshape_dims = out->reshape->shape;
        }
        map_puts(&m->output_by_name, spec->name, spec);
        if (out->label_filename[0]) {
            struct status *st =
                labels_read(m->name, spec->name, m->directory, out->label_filename, &spec->labels);
            if (st)
                return st;
        }
    }
    return NULL;
}

const char *model_platform(const struct model *m)
{
    const Inference__ModelConfig *pb = m->config->pb;
    return pb->platform[0] ? pb->platform : pb->backend;
}

/* Few tensors: comparing is faster than hashing. */
enum { COMPARE_UP_TO = 4 };

static const struct tensor_spec *find(const struct tensor_spec *specs, uint32_t n,
                                      const struct map *by_name, const char *name)
{
    if (n > COMPARE_UP_TO)
        return map_gets(by_name, name);
    for (uint32_t i = 0; i < n; i++) {
        if (strcmp(specs[i].name, name) == 0)
            return &specs[i];
    }
    return NULL;
}

const struct tensor_spec *model_find_input(const struct model *m, const char *name)
{
    return find(m->inputs, m->n_inputs, &m->input_by_name, name);
}

const struct tensor_spec *model_find_output(const struct model *m, const char *name)
{
    return find(m->outputs, m->n_outputs, &m->output_by_name, name);
}
