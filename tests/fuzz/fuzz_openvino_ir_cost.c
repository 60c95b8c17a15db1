/* SPDX-License-Identifier: Apache-2.0 */
/* The cost of a graph in OpenVINO's own format. Whatever the text, the count ends inside of it, and
 * a graph that it calls small is small. */
#include "common/backend.c"
#include "common/doc.c"
#include "openvino/ir.c"
#include "openvino/ir_cost.c"

#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    uint64_t cost;

    assert(text);
    if (size > 0)
        memcpy(text, data, size);
    text[size] = '\0';
    for (int64_t batch = 0; batch < 1000; batch = 16 * batch + 1)
        assert(!ir_cost_is_small(text, batch, &cost) || (cost > 0 && cost <= COST_SMALL));
    free(text);
    return 0;
}
