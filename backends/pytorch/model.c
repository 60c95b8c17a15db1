/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_model_open() is the list of all steps: the parameters, the file, the configuration.
 */
#include "pytorch/model.h"

#include <stdlib.h>
#include <string.h>

#include "common/model_file.h"
#include "pytorch/aoti.h"

/* ---- Parameters ------------------------------------------------------------------------------ */

/* A setting of PyTorch that the whole process has: the model that is loaded last decides. */
static TRITONSERVER_Error *set_if_given(const struct doc *config, const char *key,
                                        void (*set)(bool on))
{
    bool on;

    if (!backend_parameter(config, key))
        return NULL;
    TRY(backend_parameter_bool(config, key, false, &on));
    if (set) /* it has no effect on packages */
        set(on);
    return NULL;
}

static TRITONSERVER_Error *set_inter_op(const struct shim *shim, const struct frame_model *m)
{
    int64_t n;
    char *text;

    TRY(backend_parameter_int(m->config, "INTER_OP_THREAD_COUNT", 1, 4096, 0, &n));
    text = n > 0 && shim->set_inter_op_threads ? shim->set_inter_op_threads((int32_t)n) : NULL;
    if (text)
        BACKEND_LOG(WARN,
                    "model '%s': INTER_OP_THREAD_COUNT has no effect, the process has another "
                    "count already: %s",
                    m->name, text);
    free(text);
    return NULL;
}

static TRITONSERVER_Error *read_options(struct torch_model *t, const struct frame_model *m)
{
    const struct shim *shim = t->shim;
    bool unoptimized, ignored;
    int64_t threads;

    TRY(backend_parameter_bool(m->config, "DISABLE_OPTIMIZED_EXECUTION", false, &unoptimized));
    TRY(backend_parameter_bool(m->config, "INFERENCE_MODE", true, &t->options.inference));
    TRY(backend_parameter_int(m->config, "INTRA_OP_THREAD_COUNT", 1, 4096, 0, &threads));
    t->options.optimizes = !unoptimized;
    t->options.threads = (int32_t)threads;
    t->options.most_threads = getenv("MKL_NUM_THREADS") ? 0 : backend_cpu_limit("OMP_NUM_THREADS");
    if (threads > 0 && t->is_package && !aoti_sets_threads())
        BACKEND_LOG(WARN,
                    "model '%s': INTRA_OP_THREAD_COUNT has no effect: this PyTorch is without "
                    "OpenMP",
                    m->name);
    /* For GPUs; no answer depends on them. */
    TRY(backend_parameter_bool(m->config, "ENABLE_CACHE_CLEANING", false, &ignored));
    TRY(backend_parameter_bool(m->config, "DISABLE_CUDNN", false, &ignored));
    TRY(set_inter_op(shim, m));
    TRY(set_if_given(m->config, "ENABLE_JIT_PROFILING", shim->set_profiling));
    TRY(set_if_given(m->config, "ENABLE_JIT_EXECUTOR", shim->set_executor));
    return set_if_given(m->config, "ENABLE_TENSOR_FUSER", shim->set_fuser);
}

/* ---- Life ------------------------------------------------------------------------------------ */

/* A configuration that names no file has it by its platform. */
static bool names_package(const struct doc *config)
{
    const char *platform = doc_string(doc_get(doc_root(config), "platform"), "");
    const char *file = doc_string(doc_get(doc_root(config), "default_model_filename"), "");
    size_t n = strlen(file);

    return n > 0 ? n > 4 && strcmp(file + n - 4, ".pt2") == 0 : strcmp(platform, "torch_aoti") == 0;
}

static TRITONSERVER_Error *choose_shim(struct torch_model *t, const struct frame_model *m)
{
    t->is_package = names_package(m->config);
    t->shim = t->is_package ? t->lib->aoti : t->lib->shim;
    if (t->shim)
        return NULL;
    return backend_error(TRITONSERVER_ERROR_UNSUPPORTED, "model '%s': %s", m->name,
                         t->is_package ? t->lib->why_no_aoti : t->lib->why_no_shim);
}

static size_t sum_instances(const struct doc *config)
{
    size_t n = 0;

    for (const struct doc_value *v = doc_first(doc_get(doc_root(config), "instance_group")); v;
         v = v->next) {
        int64_t count = 1;

        if (doc_int(doc_get(v, "count"), &count) && count > 0)
            n += (size_t)count;
        else
            n++;
    }
    return n > 0 ? n : 1;
}

static TRITONSERVER_Error *load_module(struct torch_model *t, const struct frame_model *m)
{
    const char *file = t->is_package ? "model.pt2" : "model.pt";
    TRITONSERVER_Error *err = NULL;
    char *path, *text, *what = NULL;

    TRY(model_file_find(m->handle, m->config, m->name, file, file, &path));
    text = t->shim->load(path, sum_instances(m->config), &t->module);
    if (!t->module && asprintf(&what, "failed to load model '%s' from '%s'", m->name, path) < 0)
        what = NULL;
    if (!t->module)
        err = library_error(TRITONSERVER_ERROR_INVALID_ARG, what ? what : "failed to load a model",
                            text);
    free(what);
    free(path);
    return err;
}

/* Instances share the module unless that would change an answer. */
static TRITONSERVER_Error *choose_sharing(struct torch_model *t, const struct frame_model *m)
{
    TRY(backend_parameter_bool(m->config, "ENABLE_WEIGHT_SHARING", !t->module->writes_itself,
                               &t->shares));
    BACKEND_LOG(VERBOSE, "model '%s': %llu bytes of tensors; %s%s", t->name,
                (unsigned long long)t->module->size,
                t->shares ? "instances share them" : "each instance has its own",
                t->module->writes_argument ? "; forward() may write its arguments, they are copied"
                                           : "");
    return NULL;
}

static TRITONSERVER_Error *open_torch_model(struct torch_model *t, const struct frame_model *m)
{
    TRY(choose_shim(t, m));
    TRY(read_options(t, m));
    TRY(load_module(t, m));
    TRY(choose_sharing(t, m));
    TRY(ports_read(t, m->config));
    return backend_report_memory(m->handle, NULL, t->module->size);
}

TRITONSERVER_Error *torch_model_open(struct frame_model *m)
{
    struct torch_model *t = calloc(1, sizeof(*t));

    if (!t)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    m->state = t;
    t->lib = m->backend;
    t->name = m->name;
    t->max_batch_size = m->max_batch_size;
    return open_torch_model(t, m);
}

void torch_model_close(struct frame_model *m)
{
    struct torch_model *t = m->state;

    if (!t)
        return;
    ports_done(t);
    if (t->module)
        t->shim->free(t->module);
    free(t);
}
