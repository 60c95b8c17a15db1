/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the names of parameters, which come from a model's configuration. A file outside the
 * model's folder is refused: an error shows the digest of a file.
 */
#include "checksum/rule.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

static const char *const algorithm_names[] = {[CHECKSUM_MD5] = "MD5", [CHECKSUM_SHA256] = "SHA256"};

const char *checksum_algorithm_name(enum checksum_algorithm a)
{
    return algorithm_names[a];
}

static bool find_algorithm(const char *name, size_t length, enum checksum_algorithm *ret)
{
    for (size_t i = 0; i < sizeof(algorithm_names) / sizeof(algorithm_names[0]); i++) {
        if (strlen(algorithm_names[i]) == length && memcmp(name, algorithm_names[i], length) == 0) {
            *ret = (enum checksum_algorithm)i;
            return true;
        }
    }
    return false;
}

/* Is it absolute, or does it go up? */
static bool leads_out(const char *path)
{
    if (path[0] == '/')
        return true;
    for (const char *part = path; part; part = strchr(part, '/')) {
        part += *part == '/';
        if (strncmp(part, "..", 2) == 0 && (part[2] == '/' || !part[2]))
            return true;
    }
    return false;
}

enum rule_fault checksum_rule_read(const char *name, struct checksum_rule *ret_rule)
{
    struct checksum_rule rule;
    const char *colon = strchr(name, ':');
    if (!colon)
        return RULE_NO_COLON;
    if (!find_algorithm(name, (size_t)(colon - name), &rule.algorithm))
        return RULE_UNKNOWN_ALGORITHM;
    rule.file = colon + 1;
    if (!*rule.file)
        return RULE_NO_FILE;
    if (leads_out(rule.file))
        return RULE_OUTSIDE;
    *ret_rule = rule;
    return RULE_FINE;
}
