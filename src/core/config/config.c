/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading and holding a configuration. All of a message lies in the arena, so that completion adds
 * to it without a question of ownership.
 */
#include "core/config/config.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/pbjson.h"
#include "base/pbtext.h"
#include "base/pbmsg.h"
#include "base/status.h"
#include "core/config/config_priv.h"

static const ProtobufCMessageDescriptor *const config_type = &inference__model_config__descriptor;

/* Makes a configuration without a message. */
static struct model_config *new_empty(const char *file)
{
    struct model_config *c = mem_zalloc(sizeof(*c));
    arena_init(&c->arena, NULL, 0, CONFIG_MAX_MEMORY, NULL, NULL);
    c->file = file ? mem_strdup(file) : NULL;
    atomic_init(&c->refs, 1);
    return c;
}

struct model_config *model_config_new(void)
{
    struct model_config *c = new_empty(NULL);
    c->pb = (Inference__ModelConfig *)pb_new(&c->arena, config_type);
    BUG_ON(!c->pb); /* a few hundred bytes, whose size we choose */
    return c;
}

struct model_config *model_config_ref(struct model_config *c)
{
    atomic_fetch_add_explicit(&c->refs, 1, memory_order_relaxed);
    return c;
}

void model_config_free(struct model_config *c)
{
    if (!c || atomic_fetch_sub_explicit(&c->refs, 1, memory_order_acq_rel) > 1)
        return;
    pb_positions_done(&c->positions);
    arena_reset(&c->arena);
    mem_free(c->file);
    mem_free(c);
}

void model_config_give(struct model_config *c, struct mem_owner *owner)
{
    mem_give(c, owner, MEM_CONFIG);
    mem_give(c->file, owner, MEM_CONFIG);
    mem_give(c->positions.items, owner, MEM_CONFIG);
    arena_give(&c->arena, owner, MEM_CONFIG);
}

/* Counts the elements of lists, in the message and all messages inside it, up to `enough`. */
static size_t count_elements(const ProtobufCMessage *m, size_t enough)
{
    size_t n = 0;
    for (unsigned i = 0; i < m->descriptor->n_fields && n <= enough; i++) {
        const ProtobufCFieldDescriptor *f = &m->descriptor->fields[i];
        bool is_message = f->type == PROTOBUF_C_TYPE_MESSAGE;
        if (!pb_is_set(m, f))
            continue;
        if (f->label != PROTOBUF_C_LABEL_REPEATED) {
            if (is_message)
                n += count_elements(*(ProtobufCMessage *const *)pb_value(m, f), enough);
            continue;
        }
        n += pb_count(m, f);
        for (size_t k = 0; is_message && k < pb_count(m, f) && n <= enough; k++)
            n += count_elements(*(ProtobufCMessage *const *)pb_element(m, f, k), enough);
    }
    return n;
}

/* Checked before anything is made of them: later each costs at least some hundred bytes. */
NODISCARD static struct status *check_elements(const ProtobufCMessage *m)
{
    if (count_elements(m, CONFIG_MAX_ELEMENTS) <= CONFIG_MAX_ELEMENTS)
        return NULL;
    return status_new(STATUS_INVALID_ARG,
                      "its lists have more than %d elements together, which is too many",
                      CONFIG_MAX_ELEMENTS);
}

struct status *model_config_parse_text(const char *text, size_t length, const char *file,
                                       struct model_config **ret_config)
{
    struct model_config *c = new_empty(file);
    ProtobufCMessage *m = NULL;
    struct status *st = pbtext_parse(config_type, text, length, file, &c->arena, &c->positions, &m);
    if (!st)
        st = status_prefix(check_elements(m), "%s: ", file);
    if (st) {
        model_config_free(c);
        if (status_code(st) == STATUS_UNAVAILABLE)
            return st; /* no memory: not the text's fault */
        struct status *whole =
            status_new(STATUS_INTERNAL, "failed to read text proto from %s", status_message(st));
        status_free(st);
        return whole;
    }
    c->pb = (Inference__ModelConfig *)m;
    c->provided = true;
    *ret_config = c;
    return NULL;
}

/* The listener gets the text's faults like all others. */
static void report_text_fault(void *arg, const struct pbtext_fault *fault)
{
    struct config_listener *listener = arg;
    struct config_fault reported = {.kind = CONFIG_FAULT_TEXT,
                                    .line = fault->line,
                                    .column = fault->column,
                                    .text = fault->text,
                                    .advice = fault->advice};
    listener->n_faults++;
    listener->on_fault(listener->arg, &reported);
}

struct status *model_config_parse_all(const char *text, size_t length, const char *file,
                                      struct config_listener *listener,
                                      struct model_config **ret_config)
{
    struct model_config *c = new_empty(file);
    ProtobufCMessage *m = NULL;
    struct status *st = pbtext_parse_all(config_type, text, length, file, &c->arena, &c->positions,
                                         report_text_fault, listener, &m);
    *ret_config = NULL;
    if (!st && m)
        st = status_prefix(check_elements(m), "%s: ", file);
    if (st || !m) {
        model_config_free(c);
        return st;
    }
    c->pb = (Inference__ModelConfig *)m;
    c->provided = true;
    c->listener = listener;
    *ret_config = c;
    return NULL;
}

struct status *model_config_parse_json(const char *json, size_t length,
                                       struct model_config **ret_config)
{
    ProtobufCMessage *m = NULL;
    if (length > CONFIG_MAX_BYTES)
        return status_new(STATUS_INVALID_ARG, "%zu bytes of text, at most %d are read", length,
                          CONFIG_MAX_BYTES);
    struct model_config *c = new_empty(NULL);
    struct status *st = pbjson_parse(config_type, json, length, &c->arena, &m);
    if (!st)
        st = check_elements(m);
    if (st) {
        model_config_free(c);
        return st;
    }
    c->pb = (Inference__ModelConfig *)m;
    c->provided = true;
    *ret_config = c;
    return NULL;
}

struct status *model_config_parse_file(struct status *failed, const struct buf *text,
                                       const char *path, struct model_config **ret_config)
{
    if (!failed)
        return model_config_parse_text(buf_text(text), text->size, path, ret_config);
    if (status_code(failed) == STATUS_UNAVAILABLE)
        return failed; /* no memory, no descriptors */
    struct status *whole;
    if (status_code(failed) == STATUS_NOT_FOUND)
        whole = status_new(STATUS_INTERNAL,
                           "failed to open text file for read %s: No such file or directory", path);
    else
        whole = status_new(STATUS_INTERNAL, "failed to read text proto from %s: %s", path,
                           status_message(failed));
    status_free(failed);
    return whole;
}

struct status *model_config_read_file(const char *path, struct model_config **ret_config)
{
    AUTO(buf) text = BUF_INIT(CONFIG_MAX_BYTES);
    return model_config_parse_file(file_read(path, &text), &text, path, ret_config);
}

/* Returns the position of the message itself: that of the value of a field that was read. */
static const struct pb_position *find_message_position(const struct pb_positions *positions,
                                                       const void *message)
{
    for (size_t i = 0; i < positions->count; i++) {
        const struct pb_position *at = &positions->items[i];
        const ProtobufCMessage *outer = at->message;
        const ProtobufCFieldDescriptor *f =
            protobuf_c_message_descriptor_get_field(outer->descriptor, at->field_id);
        if (f->type != PROTOBUF_C_TYPE_MESSAGE)
            continue;
        bool repeated = f->label == PROTOBUF_C_LABEL_REPEATED;
        if (repeated && at->index >= pb_count(outer, f))
            continue;
        const void *value = repeated ? pb_element(outer, f, at->index) : pb_value(outer, f);
        if (*(void *const *)value == message)
            return at;
    }
    return NULL;
}

static const struct pb_position *find_text_position(const struct model_config *c,
                                                    struct config_position position)
{
    const ProtobufCMessage *m = position.message;
    if (!m)
        return NULL;
    if (position.field) {
        const ProtobufCFieldDescriptor *f =
            pb_field_named(m->descriptor, position.field, strlen(position.field));
        const struct pb_position *at =
            f ? pb_positions_find(&c->positions, m, f->id, position.index) : NULL;
        if (at)
            return at;
    }
    return find_message_position(&c->positions, m);
}

bool model_config_where(const struct model_config *c, const void *message, const char *field,
                        size_t index, uint32_t *ret_line, uint32_t *ret_column)
{
    const struct pb_position *at = find_text_position(c, at_element(message, field, index));
    if (!at)
        return false;
    *ret_line = at->line;
    *ret_column = at->column;
    return true;
}

bool model_config_is_given(const struct model_config *c, const void *message, const char *field)
{
    const ProtobufCMessage *m = message;
    const ProtobufCFieldDescriptor *f = pb_field_named(m->descriptor, field, strlen(field));
    return f && pb_positions_find(&c->positions, m, f->id, 0);
}

/* Reports the fault to the listener; the step goes on as if there were none. */
static void report_fault(const struct model_config *c, struct config_position position,
                         struct status *st)
{
    bool unsupported = status_code(st) == STATUS_UNSUPPORTED;
    struct config_fault fault = {
        .kind = unsupported ? CONFIG_FAULT_UNSUPPORTED : CONFIG_FAULT_RULE,
        .text = status_message(st),
        .advice = position.advice,
    };
    /* Finding a position takes time: not for all of a million faults. */
    if (c->listener->n_faults++ < CONFIG_MAX_FAULTS)
        model_config_where(c, position.message, position.field, position.index, &fault.line,
                           &fault.column);
    c->listener->on_fault(c->listener->arg, &fault);
    status_free(st);
}

struct status *config_add_position(const struct model_config *c, struct config_position position,
                                   struct status *st)
{
    if (!st)
        return NULL;
    if (c->listener && status_code(st) != STATUS_UNAVAILABLE) {
        report_fault(c, position, st);
        return NULL;
    }
    if ((!c->file && !position.advice) || c->listener)
        return st;
    const struct pb_position *at = find_text_position(c, position);
    const char *colon = position.advice ? ": " : "",
               *advice = position.advice ? position.advice : "";
    struct status *whole;
    if (!c->file)
        whole = status_new(status_code(st), "%s (%s)", status_message(st), advice);
    else if (at)
        whole = status_new(status_code(st), "%s (%s:%" PRIu32 ":%" PRIu32 ")%s%s",
                           status_message(st), c->file, at->line, at->column, colon, advice);
    else
        whole =
            status_new(status_code(st), "%s (%s%s)%s%s", status_message(st), c->file,
                       c->from_backend ? ", as the backend has completed it" : "", colon, advice);
    status_free(st);
    return whole;
}

struct status *model_config_add_position(const struct model_config *c, const void *message,
                                         const char *field, struct status *st)
{
    return config_add_position(c, at_field(message, field), st);
}

struct status *config_fail(const struct model_config *c, struct config_position position,
                           const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    struct status *st = status_newv(STATUS_INVALID_ARG, fmt, ap);
    va_end(ap);
    return config_add_position(c, position, st);
}

struct config_advice config_advise_batch(const struct model_config *c)
{
    struct config_advice a;
    snprintf(a.text, sizeof(a.text), "max_batch_size is %" PRId32, c->pb->max_batch_size);
    return a;
}

char *config_text(struct model_config *c, const char *fmt, ...)
{
    AUTO(buf) text = BUF_INIT(CONFIG_MAX_BYTES);
    va_list ap;
    va_start(ap, fmt);
    buf_addv(&text, fmt, ap);
    va_end(ap);
    return text.failed ? NULL : arena_strndup(&c->arena, buf_text(&text), text.size);
}

const char *model_config_parameter(const struct model_config *c, const char *key)
{
    for (size_t i = 0; i < c->pb->n_parameters; i++) {
        const Inference__ModelConfig__ParametersEntry *p = c->pb->parameters[i];
        if (strcmp(p->key, key) == 0)
            return p->value->string_value;
    }
    return NULL;
}

bool model_config_is_ensemble(const struct model_config *c)
{
    return config_is_ensemble(c->pb);
}

const Inference__ModelSequenceBatching *model_config_sequences(const struct model_config *c)
{
    bool has = c->pb->scheduling_choice_case ==
               INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE_SEQUENCE_BATCHING;
    return has ? c->pb->sequence_batching : NULL;
}

bool model_config_joins_requests(const struct model_config *c)
{
    return c->pb->scheduling_choice_case ==
               INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE_DYNAMIC_BATCHING ||
           model_config_sequences(c);
}

bool model_config_decoupled(const struct model_config *c)
{
    return c->pb->model_transaction_policy && c->pb->model_transaction_policy->decoupled;
}

struct status *model_config_set_decoupled(struct model_config *c, bool decoupled)
{
    if (!c->pb->model_transaction_policy)
        c->pb->model_transaction_policy =
            (void *)pb_new(&c->arena, &inference__model_transaction_policy__descriptor);
    if (!c->pb->model_transaction_policy)
        return status_no_memory();
    c->pb->model_transaction_policy->decoupled = decoupled;
    return NULL;
}

NODISCARD static struct status *check_folder(const struct model_config *c,
                                             const struct config_facts *facts)
{
    if (strcmp(c->pb->name, facts->model_name) == 0)
        return NULL;
    return config_fail(c, at_field(c->pb, "name"),
                       "unexpected directory name '%s' for model '%s', directory name must equal "
                       "model name",
                       facts->model_name, c->pb->name);
}

struct status *model_config_prepare(struct model_config *c, const struct config_facts *facts)
{
    struct status *st = config_fill_backend(c, facts);
    if (!st)
        st = config_normalise(c);
    if (!st)
        st = config_validate_backend(c);
    if (!st)
        st = config_validate_general(c);
    if (!st && !facts->auto_complete)
        st = config_validate_io(c);
    if (!st)
        st = check_folder(c, facts);
    return st ? st : model_config_validate_honoured(c);
}

struct status *model_config_validate_all(struct model_config *c, const struct config_facts *facts)
{
    size_t before = c->listener ? c->listener->n_faults : 0;
    struct status *st = config_fill_backend(c, facts);
    if (!st)
        st = config_normalise(c);
    if (!st && (!c->listener || c->listener->n_faults == before)) /* once is enough */
        st = config_validate_backend(c);
    if (!st)
        st = config_validate_general(c);
    if (!st)
        st = check_folder(c, facts);
    if (!st)
        st = model_config_complete_groups(c, facts);
    if (!st)
        st = config_validate_io(c);
    if (!st)
        st = config_validate_data(c);
    return st ? st : model_config_validate_honoured(c);
}

struct status *model_config_finish(struct model_config *c, const struct config_facts *facts)
{
    if (!c->provided)
        return status_new(STATUS_NOT_FOUND, "model configuration is not provided for model '%s'",
                          c->pb->name);
    struct status *st = config_normalise(c);
    if (!st)
        st = config_validate_backend(c);
    if (!st)
        st = config_validate_general(c);
    if (!st)
        st = config_validate_io(c);
    if (!st)
        st = config_validate_data(c);
    if (!st)
        st = model_config_validate_honoured(c);
    if (!st)
        pb_positions_done(&c->positions);
    return st;
}
