/* SPDX-License-Identifier: Apache-2.0 */
/*
 * accept - a backend that accepts every configuration and executes nothing, so that a test sees a
 * server's own treatment of a repository without the frameworks. It is installed under the names of
 * all of them.
 *
 * Model parameters, for what a backend may do to a configuration:
 *   set       the JSON for TRITONBACKEND_ModelSetConfig(); "" is sent as it is
 *   set_then  a second JSON, after the first
 *   version   the config_version of these calls; 1
 *   when      "model" (while the model is initialised; the default) or "instance" (later)
 *   ignore    "yes": an error of these calls is dropped
 *   expects   what TRITONBACKEND_ModelAutoCompleteConfig() must answer: "yes" or "no"
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/backend.h"

static TRITONSERVER_Error *set(TRITONBACKEND_Model *model, const struct doc *config,
                               const char *text)
{
    int64_t version;
    TRITONSERVER_Message *message;

    TRY(backend_parameter_int(config, "version", 0, 1000, 1, &version));
    TRY(TRITONSERVER_MessageNewFromSerializedJson(&message, text, strlen(text)));
    TRITONSERVER_Error *err = TRITONBACKEND_ModelSetConfig(model, (uint32_t)version, message);
    backend_ignore(TRITONSERVER_MessageDelete(message), "deleting a message");
    return err;
}

static bool says(const struct doc *config, const char *key, const char *word)
{
    const char *text = backend_parameter(config, key);
    return text && strcmp(text, word) == 0;
}

static TRITONSERVER_Error *set_all(TRITONBACKEND_Model *model, const struct doc *config)
{
    static const char *const keys[] = {"set", "set_then"};
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        const char *text = backend_parameter(config, keys[i]);
        TRITONSERVER_Error *err = text ? set(model, config, text) : NULL;
        if (err && !says(config, "ignore", "yes"))
            return err;
        if (err)
            TRITONSERVER_ErrorDelete(err);
    }
    return NULL;
}

static TRITONSERVER_Error *check_mode(TRITONBACKEND_Model *model, const struct doc *config)
{
    bool complete;
    TRY(TRITONBACKEND_ModelAutoCompleteConfig(model, &complete));
    if (says(config, "expects", complete ? "no" : "yes"))
        return backend_error(TRITONSERVER_ERROR_INTERNAL, "auto-completion is %s",
                             complete ? "on" : "off");
    return NULL;
}

static TRITONSERVER_Error *tell_config(TRITONBACKEND_Model *model)
{
    TRITONSERVER_Message *message;
    const char *name, *json;
    size_t size;

    TRY(TRITONBACKEND_ModelName(model, &name));
    TRY(TRITONBACKEND_ModelConfig(model, 1, &message));
    TRITONSERVER_Error *err = TRITONSERVER_MessageSerializeToJson(message, &json, &size);
    if (!err)
        BACKEND_LOG(INFO, "accept has been given '%s': %.*s", name, (int)size, json);
    backend_ignore(TRITONSERVER_MessageDelete(message), "deleting a message");
    return err;
}

/* Does what the model's parameters ask for at this moment. */
static TRITONSERVER_Error *act(TRITONBACKEND_Model *model, bool late)
{
    struct doc *config;
    TRY(backend_model_config(model, &config));
    TRITONSERVER_Error *err = check_mode(model, config);
    if (!err && says(config, "when", "instance") == late)
        err = set_all(model, config);
    doc_free(config);
    return err;
}

TRITONSERVER_Error *TRITONBACKEND_Initialize(TRITONBACKEND_Backend *backend)
{
    return backend_check_version();
}

TRITONSERVER_Error *TRITONBACKEND_ModelInitialize(TRITONBACKEND_Model *model)
{
    TRY(tell_config(model));
    return act(model, false);
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceInitialize(TRITONBACKEND_ModelInstance *instance)
{
    TRITONBACKEND_Model *model;
    TRY(TRITONBACKEND_ModelInstanceModel(instance, &model));
    return act(model, true);
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceExecute(TRITONBACKEND_ModelInstance *instance,
                                                       TRITONBACKEND_Request **requests,
                                                       const uint32_t request_count)
{
    for (uint32_t i = 0; i < request_count; i++) {
        backend_send_error(
            requests[i], NULL,
            backend_error(TRITONSERVER_ERROR_UNSUPPORTED, "this backend executes nothing"));
        backend_ignore(TRITONBACKEND_RequestRelease(requests[i], TRITONSERVER_REQUEST_RELEASE_ALL),
                       "releasing a request");
    }
    return NULL;
}
