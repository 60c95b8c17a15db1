/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A configuration's JSON, as a load request or a backend gives it. An accepted configuration prints
 * as a text and as JSON that can be read again.
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
    AUTO(buf) json = BUF_INIT((size_t)64 << 20);
    AUTO(buf) again = BUF_INIT((size_t)64 << 20);
    ProtobufCMessage *copy = NULL;

    pbtext_print(m, NULL, &text);
    if (!text.failed)
        BUG_ON(pbtext_parse(type, buf_text(&text), text.size, "t", arena, NULL, &copy) != NULL);
    pbjson_print(m, NULL, &json);
    if (json.failed)
        return;
    BUG_ON(pbjson_parse(type, buf_text(&json), json.size, arena, &copy) != NULL);
    pbjson_print(copy, NULL, &again);
    BUG_ON(strcmp(buf_text(&json), buf_text(&again)) != 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena arena;
    ProtobufCMessage *m = NULL;
    char *text = malloc(size + !size);

    memcpy(text, data, size);
    arena_init(&arena, NULL, 0, (size_t)64 << 20, NULL, NULL);
    struct status *st = pbjson_parse(type, text, size, &arena, &m);
    BUG_ON(!st != !!m);
    if (m)
        check_same(m, &arena);
    status_free(st);
    arena_reset(&arena);

    struct model_config *c = model_config_new();
    status_free(model_config_merge_from_backend(c, text, size));
    model_config_free(c);
    free(text);
    return 0;
}
