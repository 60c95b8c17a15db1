/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the server treats each field. A field that it does not act upon yet is refused by name,
 * because a configuration must never be silently misread. A field at its default asks for nothing.
 *
 * One line per field; support for a field changes its line here.
 */
#include <string.h>

#include "base/buf.h"
#include "base/status.h"
#include "core/config/config.h"
#include "core/config/config_priv.h"
#include "core/config/honoured.h"

enum { MAX_PATH_BYTES = 200 };

#define YES   CONFIG_YES
#define TUNES CONFIG_TUNES
#define LOOK  CONFIG_LOOK
#define NO    CONFIG_NO

#define TABLE(message, ...)                                                                        \
    {                                                                                              \
        &inference__##message##__descriptor, (const struct config_line[])                          \
        {                                                                                          \
            __VA_ARGS__,                                                                           \
            {                                                                                      \
                NULL, NO                                                                           \
            }                                                                                      \
        }                                                                                          \
    }

/* clang-format off */
const struct config_table config_tables[] = {
    TABLE(model_config,
        {"name", YES},
        {"platform", YES},
        {"version_policy", LOOK},
        {"max_batch_size", YES},
        {"input", LOOK},
        {"output", LOOK},
        {"instance_group", LOOK},
        {"default_model_filename", YES},
        {"cc_model_filenames", TUNES},
        {"metric_tags", YES},
        {"dynamic_batching", LOOK},
        {"optimization", LOOK},
        {"sequence_batching", LOOK},
        {"parameters", YES},
        {"ensemble_scheduling", YES},
        {"model_warmup", YES},
        {"backend", YES},
        {"model_operations", YES},      /* for the backend */
        {"model_transaction_policy", LOOK},
        {"batch_input", YES},           /* for the backend */
        {"batch_output", YES},          /* for the backend */
        {"model_repository_agents", LOOK},
        {"response_cache", YES},
        {"runtime", YES},
        {"model_metrics", LOOK}),
    TABLE(model_version_policy,
        {"latest", LOOK},
        {"all", YES},
        {"specific", LOOK}),
    TABLE(model_version_policy__specific,
        {"versions", YES}),
    TABLE(model_version_policy__latest,
        {"num_versions", YES}),
    TABLE(model_input,
        {"name", YES},
        {"data_type", YES},
        {"format", YES},                /* for clients and backends; no bytes are converted */
        {"dims", YES},
        {"reshape", YES},
        {"is_shape_tensor", YES},       /* for the backend */
        {"allow_ragged_batch", YES},
        {"optional", YES},
        {"is_non_linear_format_io", NO}),
    TABLE(model_output,
        {"name", YES},
        {"data_type", YES},
        {"dims", YES},
        {"label_filename", YES},
        {"reshape", YES},
        {"is_shape_tensor", YES},       /* for the backend */
        {"is_non_linear_format_io", NO}),
    TABLE(model_instance_group,
        {"name", YES},
        {"count", YES},
        {"gpus", YES},                  /* the rules of model_config_complete_groups() */
        {"kind", YES},                  /* as above */
        {"profile", YES},               /* as above: for TensorRT only */
        {"rate_limiter", YES},
        {"passive", YES},
        {"secondary_devices", YES},     /* for the backend */
        {"host_policy", YES}),
    TABLE(model_dynamic_batching,
        {"preferred_batch_size", YES},
        {"max_queue_delay_microseconds", YES},
        {"preserve_ordering", YES},
        {"priority_levels", YES},
        {"default_priority_level", YES},
        {"default_queue_policy", YES},
        {"priority_queue_policy", YES}),
    TABLE(model_optimization_policy,
        {"graph", YES},                 /* for the backend */
        {"priority", TUNES},
        {"cuda", TUNES},
        {"execution_accelerators", YES},    /* for the backend */
        {"input_pinned_memory", TUNES},
        {"output_pinned_memory", TUNES},
        {"gather_kernel_buffer_threshold", TUNES},
        {"eager_batching", TUNES}),
    TABLE(model_sequence_batching,
        {"max_sequence_idle_microseconds", YES},
        {"control_input", YES},
        {"direct", YES},
        {"oldest", LOOK},
        {"state", LOOK},
        {"iterative_sequence", YES}),
    TABLE(model_sequence_batching__strategy_oldest,
        {"max_candidate_sequences", YES},
        {"preferred_batch_size", YES},
        {"max_queue_delay_microseconds", YES},
        {"preserve_ordering", YES}),
    TABLE(model_sequence_batching__state,
        {"input_name", YES},
        {"output_name", YES},
        {"data_type", YES},
        {"dims", YES},
        {"initial_state", YES},
        {"use_same_buffer_for_input_output", YES},
        {"use_growable_memory", NO}),       /* works on GPUs only */
    TABLE(model_transaction_policy,
        {"decoupled", YES}),
    TABLE(model_repository_agents,
        {"agents", YES}),
    TABLE(model_metrics,
        {"metric_control", YES}),
};
/* clang-format on */

const size_t config_n_tables = ARRAY_SIZE(config_tables);

const struct config_table *config_table_of(const ProtobufCMessageDescriptor *type)
{
    for (size_t i = 0; i < ARRAY_SIZE(config_tables); i++) {
        if (config_tables[i].type == type)
            return &config_tables[i];
    }
    return NULL;
}

/* The path from the whole configuration to the field, for the error. */
struct path {
    const struct path *outer;
    const char *field;
};

static void print_field_path(const struct path *p, struct buf *out)
{
    if (!p)
        return;
    print_field_path(p->outer, out);
    if (out->size)
        buf_addc(out, '.');
    buf_adds(out, p->field);
}

NODISCARD static struct status *refuse_field(const struct model_config *c,
                                             const ProtobufCMessage *m, const struct path *path,
                                             const char *why)
{
    AUTO(buf) name = BUF_INIT(MAX_PATH_BYTES);
    print_field_path(path, &name);
    if (name.failed)
        return buf_status(&name);
    struct status *st =
        status_new(STATUS_UNSUPPORTED, "model '%s': field '%s' %sis not supported yet by Conch",
                   c->pb->name, buf_text(&name), why);
    return config_add_position(c, at_field(m, path->field), st);
}

NODISCARD static struct status *check_message(const struct model_config *c,
                                              const ProtobufCMessage *m, const struct path *outer);

NODISCARD static struct status *check_field(const struct model_config *c, const ProtobufCMessage *m,
                                            const ProtobufCFieldDescriptor *f,
                                            const struct path *path, enum config_answer answer)
{
    if (answer == NO)
        return refuse_field(c, m, path, "");
    if (answer != LOOK)
        return NULL;
    if (f->label != PROTOBUF_C_LABEL_REPEATED)
        return check_message(c, *(ProtobufCMessage *const *)pb_value(m, f), path);
    struct status *st = NULL;
    for (size_t i = 0; i < pb_count(m, f) && !st; i++)
        st = check_message(c, *(ProtobufCMessage **)pb_element(m, f, i), path);
    return st;
}

NODISCARD static struct status *check_message(const struct model_config *c,
                                              const ProtobufCMessage *m, const struct path *outer)
{
    const struct config_line *lines = config_table_of(m->descriptor)->lines;
    for (unsigned i = 0; i < m->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &m->descriptor->fields[i];
        if (!pb_is_set(m, f))
            continue;
        /* The unit test compares the tables with the descriptors: same fields, same order. */
        struct path path = {.outer = outer, .field = f->name};
        struct status *st = check_field(c, m, f, &path, lines[i].answer);
        if (st)
            return st;
    }
    return NULL;
}

struct status *model_config_validate_honoured(const struct model_config *c)
{
    return check_message(c, &c->pb->base, NULL);
}
