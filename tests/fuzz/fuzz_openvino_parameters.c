/* SPDX-License-Identifier: Apache-2.0 */
/* What a configuration asks OpenVINO for: all texts fit their places, and each property has a key
 * and a value. */
#include "common/backend.c"
#include "common/doc.c"
#include "openvino/parameters.c"

#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    TRITONSERVER_Error *err;
    struct asked asked = {0};
    const char *why;
    struct doc *config = doc_parse((const char *)data, size, &why);

    if (!config)
        return 0;
    err = read_parameters(config, &asked);
    if (err) {
        assert(TRITONSERVER_ErrorCode(err) == TRITONSERVER_ERROR_INVALID_ARG);
        TRITONSERVER_ErrorDelete(err);
    } else {
        size_t room = sizeof(asked.properties) / sizeof(asked.properties[0]), n = 0;

        assert(*asked.device && strnlen(asked.device, sizeof(asked.device)) < sizeof(asked.device));
        for (; n < room && asked.properties[n].key; n++)
            assert(strnlen(asked.properties[n].value, sizeof(asked.properties[n].value)) <
                   sizeof(asked.properties[n].value));
        assert(n < room);
    }
    doc_free(config);
    return 0;
}
