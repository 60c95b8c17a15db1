/* SPDX-License-Identifier: Apache-2.0 */
/* OpenVINO has read the file before, by a parser of XML; what is found here decides nothing that
 * OpenVINO relies on. */
#include "openvino/ir.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool ir_is_file(const char *path)
{
    size_t len = strlen(path);

    return len > 4 && strcmp(path + len - 4, ".xml") == 0;
}

char *ir_read(const char *path, long most, TRITONSERVER_Error **ret_err)
{
    FILE *f = fopen(path, "re");
    char *text = NULL;
    long size = -1;

    if (f && fseek(f, 0, SEEK_END) == 0)
        size = ftell(f);
    if (size >= 0 && size <= most) {
        text = malloc((size_t)size + 1);
        if (!text)
            *ret_err = backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    }
    if (text) {
        rewind(f);
        text[fread(text, 1, (size_t)size, f)] = '\0';
    }
    if (f)
        fclose(f);
    return text;
}

/* strchrnul() under the address sanitizer reads the rest of the text each time. */
const char *ir_find_char(const char *at, char wanted)
{
    while (*at && *at != wanted)
        at++;
    return at;
}

struct span ir_attribute(const char *tag, const char *name)
{
    const char *end = ir_find_char(tag, '>'), *at = tag;
    size_t len = strlen(name);

    while ((at = memmem(at, (size_t)(end - at), name, len)) != NULL) {
        if (at[-1] == ' ' && at[len] == '=' && at[len + 1] == '"') {
            at += len + 2;
            return (struct span){at, ir_find_char(at, '"')};
        }
        at += len;
    }
    return (struct span){end, end};
}

bool ir_is(struct span s, const char *text)
{
    size_t len = (size_t)(s.end - s.at);

    return strlen(text) == len && memcmp(s.at, text, len) == 0;
}

bool ir_is_tag(const char *at, const char *name)
{
    return strncmp(at, name, strlen(name)) == 0;
}
