/* SPDX-License-Identifier: Apache-2.0 */
/* What a configuration asks OpenVINO for: all texts fit their places, and each property has a key
 * and a value. */
#include "common/backend.c"
#include "common/doc.c"
#include "openvino/parameters.c"

#include <assert.h>

static void read_and_check(const struct doc *config, const struct origin *origin)
{
    struct asked asked = {0};
    TRITONSERVER_Error *err = read_parameters(config, origin, &asked);
    size_t room = sizeof(asked.properties) / sizeof(asked.properties[0]), n = 0;

    if (err) {
        assert(TRITONSERVER_ErrorCode(err) == TRITONSERVER_ERROR_INVALID_ARG);
        TRITONSERVER_ErrorDelete(err);
        return;
    }
    assert(*asked.device && strnlen(asked.device, sizeof(asked.device)) < sizeof(asked.device));
    for (; n < room && asked.properties[n].key; n++)
        assert(strnlen(asked.properties[n].value, sizeof(asked.properties[n].value)) <
               sizeof(asked.properties[n].value));
    assert(n < room);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct origin other = {.threads = 3, .exact = true};
    const char *why;
    struct doc *config = doc_parse((const char *)data, size, &why);

    if (!config)
        return 0;
    read_and_check(config, NULL);
    read_and_check(config, &other);
    doc_free(config);
    return 0;
}
