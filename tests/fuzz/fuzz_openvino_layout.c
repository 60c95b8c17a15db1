/* SPDX-License-Identifier: Apache-2.0 */
/* The search for layouts in a graph of OpenVINO: it ends inside the text, whatever that is. */
#include "common/backend.c"
#include "common/doc.c"
#include "openvino/ir.c"
#include "openvino/layout.c"

#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    struct graph g = {0};

    assert(text);
    if (size > 0)
        memcpy(text, data, size);
    text[size] = '\0';
    blank_bodies(text);
    read_graph(&g, text);
    (void)all_have_batch(&g);
    assert(!strstr(text, "<body"));
    free(g.edges.items);
    free(g.results.items);
    free(g.batches.items);
    free(text);
    return 0;
}
