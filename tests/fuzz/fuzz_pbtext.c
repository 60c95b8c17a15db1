/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A configuration's text: whatever is accepted prints to a text that reads back to the same
 * message, and to a JSON that does too; whatever the rules say of it, they say without harm.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/pbjson.h"
#include "base/pbtext.h"
#include "base/status.h"
#include "core/config/config.h"

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

    /* JSON writes a zero without its sign, so only that it reads back is asked. */
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
        st = model_config_place(c, &facts);
    if (!st)
        st = model_config_finish(c, &facts);
    status_free(st);
    model_config_free(c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena arena;
    struct pb_positions positions = {0};
    ProtobufCMessage *m = NULL;
    char *text = malloc(size + !size); /* exact, so that reading past the end is seen */

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
    free(text);
    return 0;
}
