/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The repository agent `checksum`: a model is loaded only if its files have the digests that its
 * configuration names.
 *
 *     model_repository_agents { agents { name: "checksum"
 *         parameters { key: "SHA256:1/model.onnx" value: "9f86d0…" } } }
 *
 * The texts are those of Triton's agent of that name. It keeps no state, so any number of models
 * are checked at a time.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checksum/digest.h"
#include "checksum/rule.h"
#include "triton/core/tritonrepoagent.h"

enum { MAX_TEXT = 8192 };

#define TRY(call)                                                                                  \
    do {                                                                                           \
        TRITONSERVER_Error *try_error = (call);                                                    \
        if (try_error)                                                                             \
            return try_error;                                                                      \
    } while (0)

static TRITONSERVER_Error *refuse_rule(const char *key, enum rule_fault fault)
{
    char text[MAX_TEXT];
    if (fault == RULE_UNKNOWN_ALGORITHM)
        snprintf(text, sizeof(text), "Unsupported checksum algorithm: %.*s",
                 (int)(strchr(key, ':') - key), key);
    else if (fault == RULE_OUTSIDE)
        snprintf(text, sizeof(text),
                 "failed to parse key: %s: the file is outside the model's folder", key);
    else if (fault == RULE_NO_FILE)
        snprintf(text, sizeof(text), "failed to parse key: %s: no file is named", key);
    else
        snprintf(text, sizeof(text), "failed to parse key: %s", key);
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INVALID_ARG, text);
}

static TRITONSERVER_Error *check_file(const char *location, const char *key, const char *expected)
{
    struct checksum_rule rule;
    enum rule_fault fault = checksum_rule_read(key, &rule);
    char digest[DIGEST_MAX_TEXT], text[MAX_TEXT];
    if (fault != RULE_FINE)
        return refuse_rule(key, fault);

    size_t size = strlen(location) + strlen(rule.file) + 2;
    char *path = malloc(size);
    if (!path)
        return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    snprintf(path, size, "%s/%s", location, rule.file);
    TRITONSERVER_Error *err = digest_file(rule.algorithm, path, digest);
    free(path);
    if (err || strcmp(digest, expected) == 0)
        return err;
    snprintf(text, sizeof(text), "Mismatched %s hash for file %s, expect: %s, got: %s",
             checksum_algorithm_name(rule.algorithm), rule.file, expected, digest);
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INVALID_ARG, text);
}

TRITONSERVER_Error *TRITONREPOAGENT_Initialize(TRITONREPOAGENT_Agent *agent)
{
    uint32_t major, minor;
    char text[MAX_TEXT];
    (void)agent;
    TRY(TRITONREPOAGENT_ApiVersion(&major, &minor));
    if (major == TRITONREPOAGENT_API_VERSION_MAJOR && minor >= TRITONREPOAGENT_API_VERSION_MINOR)
        return NULL;
    snprintf(text, sizeof(text),
             "repository agent 'checksum' needs repository agent API %d.%d, the server has %u.%u",
             TRITONREPOAGENT_API_VERSION_MAJOR, TRITONREPOAGENT_API_VERSION_MINOR, major, minor);
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNSUPPORTED, text);
}

TRITONSERVER_Error *TRITONREPOAGENT_ModelAction(TRITONREPOAGENT_Agent *agent,
                                                TRITONREPOAGENT_AgentModel *model,
                                                const TRITONREPOAGENT_ActionType action_type)
{
    TRITONREPOAGENT_ArtifactType type;
    const char *location, *key, *value;
    uint32_t n = 0;
    if (action_type != TRITONREPOAGENT_ACTION_LOAD)
        return NULL;
    TRY(TRITONREPOAGENT_ModelRepositoryLocation(agent, model, &type, &location));
    if (type != TRITONREPOAGENT_ARTIFACT_FILESYSTEM)
        return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNSUPPORTED,
                                     "checksums are computed of local files only");
    TRY(TRITONREPOAGENT_ModelParameterCount(agent, model, &n));
    for (uint32_t i = 0; i < n; i++) {
        TRY(TRITONREPOAGENT_ModelParameter(agent, model, i, &key, &value));
        TRY(check_file(location, key, value));
    }
    return NULL;
}
