/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parameters of the agent `checksum`: an accepted name has a file below the model's folder, and
 * is the name of its algorithm, a colon and that file.
 */
#include "checksum/rule.c"

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct checksum_rule rule;
    char *name = malloc(size + 1);
    if (!name)
        abort();
    memcpy(name, data, size);
    name[size] = '\0';
    if (checksum_rule_read(name, &rule) == RULE_FINE) {
        const char *algorithm = checksum_algorithm_name(rule.algorithm);
        size_t n = strlen(algorithm);
        assert(strncmp(name, algorithm, n) == 0 && name[n] == ':' && rule.file == name + n + 1);
        assert(rule.file[0] && rule.file[0] != '/');
        int depth = 0;
        for (const char *at = rule.file; *at;) {
            size_t part = strcspn(at, "/");
            depth += part == 2 && memcmp(at, "..", 2) == 0 ? -1 : part > 0;
            assert(depth >= 0);
            at += part + (at[part] == '/');
        }
    }
    free(name);
    return 0;
}
