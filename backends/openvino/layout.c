/* SPDX-License-Identifier: Apache-2.0 */
/*
 * OpenVINO's C interface does not tell the layout of a tensor, which says what each dimension is.
 * In its own format the layout is an attribute of the input, or of the port that makes the output:
 *
 *     <layer id="0" name="A" type="Parameter" …> … <attribute name="layout" … layout="[N,C,H,W]" />
 *     … </layer>
 *     …
 *     <edge from-layer="3" from-port="2" to-layer="4" to-port="0" />
 *
 * So the file is searched for these attributes. Bodies of loops, which have inputs and outputs of
 * their own, are skipped. OpenVINO has read the file before; what this finds decides only whether a
 * configuration without max_batch_size gets one.
 */
#include "openvino/model.h"

#include <stdlib.h>
#include <string.h>

/* Nobody writes a graph of that many bytes; weights are in another file. */
#define MAX_FILE ((long)256 << 20)

static char *read_graph_text(const char *path)
{
    FILE *f = fopen(path, "re");
    char *text = NULL;
    long size = -1;

    if (f && fseek(f, 0, SEEK_END) == 0)
        size = ftell(f);
    if (size >= 0 && size <= MAX_FILE)
        text = malloc((size_t)size + 1);
    if (text) {
        rewind(f);
        text[fread(text, 1, (size_t)size, f)] = '\0';
    }
    if (f)
        fclose(f);
    return text;
}

/* Overwrites bodies of loops with blanks. */
static void blank_bodies(char *text)
{
    for (char *body; (body = strstr(text, "<body")) != NULL; text = body) {
        size_t depth = 0;

        do {
            if (strncmp(body, "<body", 5) == 0)
                depth++;
            else if (strncmp(body, "</body", 6) == 0)
                depth--;
            *body++ = ' ';
        } while (*body && depth > 0);
    }
}

/* A part of the text. */
struct span {
    const char *at, *end;
};

/* The value of an attribute of the tag that begins here: empty if the tag has none. */
static struct span attribute_of(const char *tag, const char *name)
{
    const char *end = strchrnul(tag, '>'), *at = tag;
    size_t len = strlen(name);

    while ((at = strstr(at, name)) != NULL && at < end) {
        if (at[-1] == ' ' && at[len] == '=' && at[len + 1] == '"') {
            at += len + 2;
            return (struct span){at, strchrnul(at, '"')};
        }
        at += len;
    }
    return (struct span){end, end};
}

static bool is_span(struct span s, const char *text)
{
    size_t len = (size_t)(s.end - s.at);

    return strlen(text) == len && memcmp(s.at, text, len) == 0;
}

static bool are_spans_equal(struct span a, struct span b)
{
    return a.end - a.at == b.end - b.at && memcmp(a.at, b.at, (size_t)(a.end - a.at)) == 0;
}

/* From the first tag of that name with this value of an attribute to its end; empty: none. */
static struct span find_element(struct span in, const char *open, const char *close,
                                const char *attribute, struct span value)
{
    const char *at = in.at;

    while ((at = strstr(at, open)) != NULL && at < in.end) {
        if (are_spans_equal(attribute_of(at, attribute), value)) {
            const char *end = strstr(at, close);

            return (struct span){at, end && end < in.end ? end : in.end};
        }
        at++;
    }
    return (struct span){in.end, in.end};
}

/* Does the part of the text have a layout whose first dimension is N? */
static bool span_has_batch(struct span s)
{
    const char *at = strstr(s.at, "name=\"layout\"");

    if (!at || at >= s.end)
        return false;
    at = strstr(at, " layout=\"[N");
    return at && at < s.end;
}

/* The layout of an output is that of the port which it is the result of. */
static bool result_has_batch(struct span all, const char *layer)
{
    struct span edge = find_element(all, "<edge ", "/>", "to-layer", attribute_of(layer, "id"));
    const char *output;
    struct span from;

    if (edge.at == edge.end)
        return false;
    from = find_element(all, "<layer ", "</layer>", "id", attribute_of(edge.at, "from-layer"));
    output = strstr(from.at, "<output>");
    if (!output || output >= from.end)
        return false;
    return span_has_batch(find_element((struct span){output, from.end}, "<port ", "</port>", "id",
                                       attribute_of(edge.at, "from-port")));
}

static bool all_have_batch(const char *text)
{
    struct span all = {text, text + strlen(text)};
    size_t n = 0;

    for (const char *at = text; (at = strstr(at, "<layer ")) != NULL; at++) {
        struct span type = attribute_of(at, "type"), layer = {at, strstr(at, "</layer>")};

        if (is_span(type, "Parameter")) {
            if (!layer.end || !span_has_batch(layer))
                return false;
        } else if (is_span(type, "Result")) {
            if (!result_has_batch(all, at))
                return false;
        } else {
            continue;
        }
        n++;
    }
    return n > 0;
}

bool layout_has_batch(const char *path)
{
    size_t len = strlen(path);
    char *text;
    bool all;

    if (len < 4 || strcmp(path + len - 4, ".xml") != 0)
        return false;
    text = read_graph_text(path);
    if (!text)
        return false;
    blank_bodies(text);
    all = all_have_batch(text);
    free(text);
    return all;
}
