/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A configuration's text. An accepted text prints as a text that reads as the same message, and as
 * JSON that does, too. The rules may refuse it, without harm.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/pbjson.h"
#include "base/pbtext.h"
#include "base/status.h"
#include "core/config/config.h"
#include "core/config/ensemble.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const ProtobufCMessageDescriptor *const type = &inference__model_config__descriptor;

static void check_same(const ProtobufCMessage *m, struct arena *arena)
{
    AUTO(buf) text = BUF_INIT((size_t)64 << 20);
    AUTO(buf) again = BUF_INIT((size_t)64 << 20);
    AUTO(buf) json = BUF_INIT((size_t)64 << 20);
    ProtobufCMessage *copy = NULL;

    pbtext_print(m, NULL, &text);
    if (text.failed)
        return;
    BUG_ON(pbtext_parse(type, buf_text(&text), text.size, "printed", arena, NULL, &copy) != NULL);
    pbtext_print(copy, NULL, &again);
    BUG_ON(strcmp(buf_text(&text), buf_text(&again)) != 0);

    /* JSON writes a zero without its sign, so only the success of its reading is tested. */
    pbjson_print(m, NULL, &json);
    if (!json.failed)
        BUG_ON(pbjson_parse(type, buf_text(&json), json.size, arena, &copy) != NULL);
}

static void live(const char *text, size_t size)
{
    static const char *const files[] = {"model.onnx"};
    struct config_facts facts = {
        .model_name = "m", .version_files = files, .n_version_files = 1, .auto_complete = true};
    struct model_config *c = NULL;
    struct status *st = model_config_parse_text(text, size, "f", &c);
    if (!st)
        st = model_config_prepare(c, &facts);
    if (!st)
        st = model_config_complete_groups(c, &facts);
    if (!st)
        st = model_config_finish(c, &facts);
    status_free(st);
    model_config_free(c);
}

/* ---- the same for a listener ----------------------------------------------------------------- */

struct faults {
    size_t n;       /* without fields that are not supported yet */
    char first[64]; /* the position of the first fault: "line:column" */
    bool is_text;   /* a fault of the text */
};

static void on_fault(void *arg, const struct config_fault *fault)
{
    struct faults *h = arg;
    if (fault->kind == CONFIG_FAULT_UNSUPPORTED)
        return;
    if (h->n++ == 0)
        snprintf(h->first, sizeof(h->first), "f:%u:%u: ", fault->line, fault->column);
    h->is_text |= fault->kind == CONFIG_FAULT_TEXT;
}

static enum ensemble_answer find_itself(void *arg, const Inference__ModelEnsembling__Step *step,
                                        struct ensemble_member *ret)
{
    const struct model_config *c = arg;
    *ret = (struct ensemble_member){.pb = c->pb, .is_complete = step->model_version == -1};
    return step->model_version == 7 ? ENSEMBLE_NO_VERSION : ENSEMBLE_FOUND;
}

/* The steps with auto-completion, as far as no backend is needed. */
static struct status *first_fault(const char *text, size_t size, const struct config_facts *facts,
                                  bool *ret_is_text)
{
    struct model_config *c = NULL;
    struct status *st = model_config_parse_text(text, size, "f", &c);
    *ret_is_text = st != NULL;
    if (!st)
        st = model_config_prepare(c, facts);
    if (!st || status_code(st) == STATUS_UNSUPPORTED) {
        status_free(st);
        st = model_config_complete_groups(c, facts);
    }
    if (!st)
        st = model_config_finish(c, facts);
    if (st && status_code(st) == STATUS_UNSUPPORTED) {
        status_free(st);
        st = NULL;
    }
    model_config_free(c);
    return st;
}

/* A listener gets a fault if and only if there is one, and a text's first mistake first. */
static void listen(const char *text, size_t size)
{
    static const char *const files[] = {"model.onnx"};
    const struct config_facts facts = {
        .model_name = "m", .version_files = files, .n_version_files = 1, .auto_complete = true};
    struct faults faults = {0};
    struct config_listener listener = {.on_fault = on_fault, .arg = &faults};
    struct model_config *c = NULL;
    bool is_text;
    struct status *first = first_fault(text, size, &facts, &is_text);
    struct status *st = model_config_parse_all(text, size, "f", &listener, &c);
    BUG_ON(!st && !c && faults.n == 0);
    if (!st && c)
        st = model_config_validate_all(c, &facts);
    if (!st) {
        BUG_ON(!first != (faults.n == 0));
        BUG_ON(is_text != faults.is_text);
        BUG_ON(is_text && !strstr(status_message(first), faults.first));
    }
    if (!st && c && faults.n == 0 &&
        c->pb->scheduling_choice_case ==
            INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE_ENSEMBLE_SCHEDULING) {
        const struct ensemble_lookup lookup = {.find = find_itself, .arg = c};
        st = ensemble_check(c, &lookup);
        if (!st)
            st = ensemble_check_cycle(c, &lookup);
    }
    status_free(st);
    status_free(first);
    model_config_free(c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena arena;
    struct pb_positions positions = {0};
    ProtobufCMessage *m = NULL;
    char *text = malloc(size + !size); /* an exact copy, so that a read beyond its end is seen */

    memcpy(text, data, size);
    arena_init(&arena, NULL, 0, (size_t)64 << 20, NULL, NULL);
    struct status *st = pbtext_parse(type, text, size, "f", &arena, &positions, &m);
    BUG_ON(!st != !!m);
    if (m)
        check_same(m, &arena);
    status_free(st);
    arena_reset(&arena);
    pb_positions_done(&positions);
    live(text, size);
    listen(text, size);
    free(text);
    return 0;
}
