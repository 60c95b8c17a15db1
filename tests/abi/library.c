/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A backend that test_libraries.py compiles with one thing wrong or special:
 *
 *     FAILS=name     the function of that name returns an error
 *     CRASHES=name   the function of that name writes to an invalid address
 *     NO_EXECUTE     the mandatory function is missing
 *     NEEDS_NOBODY   it calls a function that no library has
 *     BESIDE         it asks a function of another library for its answer
 *     WANTS_MINOR=n  it demands at least this minor version of the server's interface
 *
 * Without any of these, it answers OUT (a string): its own name (SAYS), how often it has been
 * asked, and the configuration of the backend. All its symbols are global, so that two such
 * libraries have the same ones.
 */
#include <stdio.h>
#include <string.h>

#include "triton/core/tritonbackend.h"

#define TEXT(x)   #x
#define EXPAND(x) TEXT(x)

#ifndef SAYS
#define SAYS library
#endif
#ifndef FAILS
#define FAILS nothing
#endif
#ifndef CRASHES
#define CRASHES nothing
#endif

int times_asked;

#ifdef BESIDE
extern const char *beside(void);
const char *what_to_say(void)
{
    return beside();
}
#else
const char *what_to_say(void)
{
    return EXPAND(SAYS);
}
#endif

#ifdef NEEDS_NOBODY
extern void function_that_nobody_has(void);
void (*needed)(void) = function_that_nobody_has;
#endif

static TRITONSERVER_Error *step(const char *function)
{
    char line[100];

    snprintf(line, sizeof(line), EXPAND(SAYS) ": %s", function);
    TRITONSERVER_ErrorDelete(
        TRITONSERVER_LogMessage(TRITONSERVER_LOG_INFO, __FILE__, __LINE__, line));
    if (strcmp(function, EXPAND(CRASHES)) == 0)
        *(volatile char *)(uintptr_t)times_asked = 1; /* 0: an invalid address */
    if (strcmp(function, EXPAND(FAILS)) == 0)
        return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNAVAILABLE, "not today");
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_Initialize(TRITONBACKEND_Backend *backend)
{
    uint32_t major = 0, minor = 0;

    (void)backend;
    TRITONSERVER_ErrorDelete(TRITONBACKEND_ApiVersion(&major, &minor));
#ifdef WANTS_MINOR
    if (minor < WANTS_MINOR)
        return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNSUPPORTED,
                                     "Triton backend API version does not support this backend");
#endif
    return step("Initialize");
}

TRITONSERVER_Error *TRITONBACKEND_Finalize(TRITONBACKEND_Backend *backend)
{
    (void)backend;
    return step("Finalize");
}

TRITONSERVER_Error *
TRITONBACKEND_GetBackendAttribute(TRITONBACKEND_Backend *backend,
                                  TRITONBACKEND_BackendAttribute *backend_attributes)
{
    (void)backend;
    (void)backend_attributes;
    return step("GetBackendAttribute");
}

TRITONSERVER_Error *TRITONBACKEND_ModelInitialize(TRITONBACKEND_Model *model)
{
    (void)model;
    return step("ModelInitialize");
}

TRITONSERVER_Error *TRITONBACKEND_ModelFinalize(TRITONBACKEND_Model *model)
{
    (void)model;
    return step("ModelFinalize");
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceInitialize(TRITONBACKEND_ModelInstance *instance)
{
    (void)instance;
    return step("ModelInstanceInitialize");
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceFinalize(TRITONBACKEND_ModelInstance *instance)
{
    (void)instance;
    return step("ModelInstanceFinalize");
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceReady(TRITONBACKEND_ModelInstance *instance)
{
    (void)instance;
    return strcmp(EXPAND(FAILS), "ModelInstanceReady") == 0 ? step("ModelInstanceReady") : NULL;
}

#ifndef NO_EXECUTE
static TRITONSERVER_Error *settings_of(TRITONBACKEND_ModelInstance *instance, const char **ret_text,
                                       size_t *ret_size)
{
    TRITONSERVER_Message *message = NULL;
    TRITONBACKEND_Backend *backend = NULL;
    TRITONBACKEND_Model *model = NULL;
    TRITONSERVER_Error *err = TRITONBACKEND_ModelInstanceModel(instance, &model);

    if (!err)
        err = TRITONBACKEND_ModelBackend(model, &backend);
    if (!err)
        err = TRITONBACKEND_BackendConfig(backend, &message);
    return err ? err : TRITONSERVER_MessageSerializeToJson(message, ret_text, ret_size);
}

static TRITONSERVER_Error *answer(TRITONBACKEND_Response *response, const char *text)
{
    TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
    uint32_t size = (uint32_t)strlen(text);
    TRITONBACKEND_Output *output;
    int64_t one = 1, memory_id = 0;
    TRITONSERVER_Error *err;
    void *to;

    err = TRITONBACKEND_ResponseOutput(response, &output, "OUT", TRITONSERVER_TYPE_BYTES, &one, 1);
    if (!err)
        err = TRITONBACKEND_OutputBuffer(output, &to, size + sizeof(size), &memory, &memory_id);
    if (err)
        return err;
    memcpy(to, &size, sizeof(size));
    memcpy((char *)to + sizeof(size), text, size);
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceExecute(TRITONBACKEND_ModelInstance *instance,
                                                       TRITONBACKEND_Request **requests,
                                                       const uint32_t request_count)
{
    TRITONSERVER_Error *err = step("ModelInstanceExecute");
    const char *settings = "";
    size_t size = 0;

    if (err)
        return err;
    err = settings_of(instance, &settings, &size);
    for (uint32_t i = 0; !err && i < request_count; i++) {
        TRITONBACKEND_Response *response;
        char text[4096];

        snprintf(text, sizeof(text), "%s %d %.*s", what_to_say(), ++times_asked, (int)size,
                 settings);
        err = TRITONBACKEND_ResponseNew(&response, requests[i]);
        if (err)
            break;
        err = answer(response, text);
        TRITONSERVER_ErrorDelete(
            TRITONBACKEND_ResponseSend(response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, err));
        TRITONSERVER_ErrorDelete(err);
        err = NULL;
        TRITONSERVER_ErrorDelete(
            TRITONBACKEND_RequestRelease(requests[i], TRITONSERVER_REQUEST_RELEASE_ALL));
    }
    return err;
}
#endif
