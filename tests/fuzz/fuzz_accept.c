/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Accept. What is found is named in the value; further types, and letters of the other case, change
 * nothing of it, and each form that is added to a value is found. (Accept-Encoding: fuzz_coding.c.)
 */
#include <ctype.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "frontends/http/accept.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Whether the part is in the value, in any case. */
static bool accept_contains(const char *value, size_t size, const char *part)
{
    size_t n = strlen(part);
    for (size_t i = 0; i + n <= size; i++) {
        if (span_is((struct span){value + i, n}, part))
            return true;
    }
    return false;
}

/* Reads the value between two others, from an exact copy, so that a read beyond it is seen. */
static struct accepted read_between(const char *before, const uint8_t *value, size_t size,
                                    const char *behind)
{
    size_t n_before = strlen(before), n_behind = strlen(behind), n = n_before + size + n_behind;
    char *copy = mem_alloc(n ? n : 1);
    memcpy(copy, before, n_before);
    if (size > 0)
        memcpy(copy + n_before, value, size);
    memcpy(copy + n_before + size, behind, n_behind);
    struct accepted a = accept_read((struct span){copy, n});
    mem_free(copy);
    return a;
}

static void expect_same_forms(struct accepted a, struct accepted b)
{
    if (a.json != b.json || a.html != b.html || a.shortest_floats != b.shortest_floats)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    struct accepted found = read_between("", data, size, "");
    if (found.html && !accept_contains(text, size, "text/html"))
        abort();
    if (found.json && !accept_contains(text, size, "application/json"))
        abort();
    if (found.shortest_floats && !(found.json && accept_contains(text, size, "floats") &&
                                   accept_contains(text, size, "shortest")))
        abort();

    expect_same_forms(found, read_between("*/*;q=1,", data, size, ""));
    expect_same_forms(found, read_between("", data, size, ", application/yaml;floats=shortest"));
    struct accepted all = {.json = true, .html = true, .shortest_floats = true};
    expect_same_forms(
        all, read_between("", data, size, ",Application/JSON;q=0;floats=\"shortest\" , text/HTML"));
    uint8_t *other = mem_alloc(size ? size : 1);
    for (size_t i = 0; i < size; i++) {
        bool is_letter = data[i] < 128 && isalpha(data[i]);
        other[i] = is_letter ? data[i] ^ 0x20 : data[i];
    }
    expect_same_forms(found, read_between("", other, size, ""));
    mem_free(other);
    return 0;
}
