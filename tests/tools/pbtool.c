/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pbtool - the mapper of protobuf messages as a program, so that tests in Python can compare it
 * with another implementation. Requests and answers on stdin and stdout, many per process:
 *
 *     <from> <to> <n bytes>\n<bytes>     from, to: text, json, wire (the binary form)
 *     ok <n bytes>\n<bytes>  or  error <n bytes>\n<message>
 *
 * The message type is ModelConfig.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/mem.h"
#include "base/pbjson.h"
#include "base/pbtext.h"
#include "base/status.h"
#include "proto/model_config.pb-c.h"

static const ProtobufCMessageDescriptor *const type = &inference__model_config__descriptor;

static struct status *read_message(const char *from, const char *bytes, size_t n,
                                   struct arena *arena, ProtobufCMessage **ret_m)
{
    if (strcmp(from, "text") == 0)
        return pbtext_parse(type, bytes, n, "text", arena, NULL, ret_m);
    if (strcmp(from, "json") == 0)
        return pbjson_parse(type, bytes, n, arena, ret_m);

    ProtobufCMessage *unpacked = protobuf_c_message_unpack(type, NULL, n, (const uint8_t *)bytes);
    if (!unpacked)
        return status_new(STATUS_INVALID_ARG, "not a message");
    *ret_m = pb_copy(arena, unpacked);
    protobuf_c_message_free_unpacked(unpacked, NULL);
    return *ret_m ? NULL : status_no_memory();
}

static void write_message(const char *to, const ProtobufCMessage *m, struct buf *out)
{
    if (strcmp(to, "text") == 0) {
        pbtext_print(m, NULL, out);
    } else if (strcmp(to, "json") == 0) {
        pbjson_print(m, NULL, out);
    } else {
        size_t n = protobuf_c_message_get_packed_size(m);
        uint8_t *packed = mem_alloc(n + 1);
        protobuf_c_message_pack(m, packed);
        buf_add(out, packed, n);
        mem_free(packed);
    }
}

static void reply(const char *verdict, const char *bytes, size_t n)
{
    printf("%s %zu\n", verdict, n);
    fwrite(bytes, 1, n, stdout);
    fflush(stdout);
}

int main(void)
{
    char line[128], from[16], to[16];
    size_t n;

    while (fgets(line, sizeof(line), stdin)) {
        if (sscanf(line, "%15s %15s %zu", from, to, &n) != 3)
            return 2;
        char *bytes = mem_alloc(n + 1);
        if (fread(bytes, 1, n, stdin) != n)
            return 2;

        struct arena arena;
        AUTO(buf) out = BUF_INIT((size_t)1 << 30);
        ProtobufCMessage *m = NULL;
        arena_init(&arena, NULL, 0, (size_t)256 << 20, NULL, NULL);
        struct status *st = read_message(from, bytes, n, &arena, &m);
        if (!st)
            write_message(to, m, &out);
        if (st)
            reply("error", status_message(st), strlen(status_message(st)));
        else
            reply("ok", buf_text(&out), out.size);
        status_free(st);
        arena_reset(&arena);
        mem_free(bytes);
    }
    return 0;
}
