/* SPDX-License-Identifier: Apache-2.0 */
/* The answer of a collector, as protobuf and as JSON, and a Retry-After. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "frontends/tracing/otlp_encode.h"
#include "frontends/tracing/otlp_post.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct otlp_answer answer;
    char *copy = mem_alloc(size + !size);
    memcpy(copy, data, size);
    for (int is_json = 0; is_json < 2; is_json++) {
        otlp_read_answer(is_json, copy, size, &answer);
        if (answer.n_rejected > INT64_MAX || strlen(answer.message) >= sizeof(answer.message))
            abort();
    }
    if (otlp_retry_after_ms(copy, size) > UINT32_MAX * 1000ull)
        abort();
    mem_free(copy);
    return 0;
}
