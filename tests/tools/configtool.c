/* SPDX-License-Identifier: Apache-2.0 */
/*
 * configtool NAME FILE [ENTRY…] - prepares a configuration without a server. It reads FILE as the
 * configuration of model NAME whose first version folder has the ENTRYs, completes and validates
 * it, and prints the JSON that GET /v2/models/NAME/config would answer. An error goes to stderr.
 * CONFIGTOOL_TEXT=1 prints the text form, CONFIGTOOL_STRICT=1 is --disable-auto-complete-config,
 * CONFIGTOOL_ALL=1 passes over fields that the server does not honour yet.
 *
 * configtool --fields - prints each field that a configuration can have, and what the server does
 * with it: lines of "message field yes|tunes|no".
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/status.h"
#include "core/config/honoured.h"

/* Both steps examine last whether the fields are honoured. */
static struct status *pass_unsupported(struct status *st)
{
    if (st && status_code(st) == STATUS_UNSUPPORTED && getenv("CONFIGTOOL_ALL")) {
        status_free(st);
        return NULL;
    }
    return st;
}

/* Prints the fields of a message and of the messages inside it. A field inside one that is not
 * examined has that one's answer. */
static void print_fields(const ProtobufCMessageDescriptor *type, enum config_answer outer)
{
    static const char *const words[] = {
        [CONFIG_YES] = "yes", [CONFIG_TUNES] = "tunes", [CONFIG_LOOK] = "yes", [CONFIG_NO] = "no"};
    const struct config_table *t = outer == CONFIG_LOOK ? config_table_of(type) : NULL;
    for (unsigned i = 0; i < type->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &type->fields[i];
        enum config_answer answer = t ? t->lines[i].answer : outer;
        printf("%s %s %s\n", type->name, f->name, words[answer]);
        if (f->type == PROTOBUF_C_TYPE_MESSAGE)
            print_fields(f->descriptor, answer);
    }
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--fields") == 0) {
        print_fields(&inference__model_config__descriptor, CONFIG_LOOK);
        return 0;
    }
    if (argc < 3)
        return 2;
    struct config_facts facts = {
        .model_name = argv[1],
        .version_files = (const char *const *)argv + 3,
        .n_version_files = (size_t)argc - 3,
        .auto_complete = !getenv("CONFIGTOOL_STRICT"),
    };
    struct model_config *c = NULL;
    struct status *st = model_config_read_file(argv[2], &c);
    if (!st)
        st = pass_unsupported(model_config_prepare(c, &facts));
    if (!st)
        st = model_config_complete_groups(c, &facts);
    if (!st)
        st = pass_unsupported(model_config_finish(c, &facts));
    if (!st) {
        AUTO(buf) out = BUF_INIT((size_t)1 << 28);
        if (getenv("CONFIGTOOL_TEXT"))
            model_config_print_text(c, &out);
        else
            model_config_print_json(c, &out);
        puts(buf_text(&out));
    }
    if (st)
        fprintf(stderr, "%s: %s\n", status_code_name(status_code(st)), status_message(st));
    int rc = st ? 1 : 0;
    status_free(st);
    model_config_free(c);
    return rc;
}
