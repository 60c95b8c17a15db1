/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A repository agent that does what the parameters of each model say, and tells what the server
 * answers. It appends a line for each call to the file that the parameter `log` names.
 *
 *     LOAD, LOAD_COMPLETE, LOAD_FAIL, UNLOAD, UNLOAD_COMPLETE, INITIALIZE, FINALIZE
 *         what to do then: commands separated by ';'
 *
 *     acquire [remote]   gets a folder of its own
 *     release            gives it back
 *     where              tells the model's location
 *     copy               copies the files of the model's folder there (the folder, and versions)
 *     write PATH=TEXT    writes a file in the acquired folder; \n and \s stand for newline, ';'
 *     update PATH        moves the model; '.' is the acquired folder
 *     remote PATH        the same, as a remote file system
 *     config             tells the configuration
 *     parameters         tells the parameters, but `log`
 *     states             sets both states, and reads them again
 *     wrong              calls functions with arguments that do not fit
 *     wait PATH          tells that it waits, while the file exists
 *     error TEXT         returns this error
 */

#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "triton/core/tritonrepoagent.h"

struct told {
    TRITONREPOAGENT_Agent *agent;
    TRITONREPOAGENT_AgentModel *model;
    const char *log;
    const char *acquired; /* NULL: nothing is */
};

static const char *find_value(TRITONREPOAGENT_Agent *agent, TRITONREPOAGENT_AgentModel *model,
                              const char *wanted)
{
    uint32_t n = 0;
    const char *name, *value;
    TRITONSERVER_ErrorDelete(TRITONREPOAGENT_ModelParameterCount(agent, model, &n));
    for (uint32_t i = 0; i < n; i++) {
        TRITONSERVER_Error *err = TRITONREPOAGENT_ModelParameter(agent, model, i, &name, &value);
        if (!err && strcmp(name, wanted) == 0)
            return value;
        TRITONSERVER_ErrorDelete(err);
    }
    return NULL;
}

__attribute__((format(printf, 2, 3))) static void tell(const struct told *t, const char *format,
                                                       ...)
{
    FILE *out = t->log ? fopen(t->log, "a") : NULL;
    if (!out)
        return;
    va_list args;
    va_start(args, format);
    vfprintf(out, format, args);
    va_end(args);
    fputc('\n', out);
    fclose(out);
}

/* Tells what a call has answered, and ends the error. Returns whether it has succeeded. */
static int told_fine(const struct told *t, const char *what, TRITONSERVER_Error *err)
{
    if (!err)
        return 1;
    tell(t, "  %s: %s: %s", what, TRITONSERVER_ErrorCodeString(err),
         TRITONSERVER_ErrorMessage(err));
    TRITONSERVER_ErrorDelete(err);
    return 0;
}

static void copy_file(const char *from, const char *to)
{
    char bytes[4096];
    size_t n;
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    while (in && out && (n = fread(bytes, 1, sizeof(bytes), in)) > 0)
        fwrite(bytes, 1, n, out);
    if (in)
        fclose(in);
    if (out)
        fclose(out);
}

static void copy_folder(const char *from, const char *to, int depth)
{
    DIR *dir = opendir(from);
    struct dirent *entry;
    while (dir && (entry = readdir(dir))) {
        char *a, *b;
        struct stat info;
        if (entry->d_name[0] == '.' || asprintf(&a, "%s/%s", from, entry->d_name) < 0)
            continue;
        if (asprintf(&b, "%s/%s", to, entry->d_name) >= 0) {
            if (stat(a, &info) == 0 && S_ISDIR(info.st_mode) && depth < 4) {
                mkdir(b, 0700);
                copy_folder(a, b, depth + 1);
            } else {
                copy_file(a, b);
            }
            free(b);
        }
        free(a);
    }
    if (dir)
        closedir(dir);
}

static void write_text(const struct told *t, char *argument)
{
    char *text = strchr(argument, '='), *path;
    if (!text || !t->acquired)
        return;
    *text++ = '\0';
    if (asprintf(&path, "%s/%s", t->acquired, argument) < 0)
        return;
    for (char *at = path + strlen(t->acquired) + 1; (at = strchr(at, '/')); *at++ = '/') {
        *at = '\0';
        mkdir(path, 0700);
    }
    FILE *out = fopen(path, "w");
    for (const char *at = text; out && *at; at++) {
        if (at[0] == '\\' && at[1]) {
            at++;
            fputc(*at == 'n' ? '\n' : *at == 's' ? ';' : *at, out);
        } else {
            fputc(*at, out);
        }
    }
    if (out)
        fclose(out);
    free(path);
}

static void tell_where(const struct told *t)
{
    TRITONREPOAGENT_ArtifactType type = 77;
    const char *location = NULL;
    if (told_fine(t, "location",
                  TRITONREPOAGENT_ModelRepositoryLocation(t->agent, t->model, &type, &location)))
        tell(t, "  location: type %d, %s", (int)type, location);
}

static void copy_location(const struct told *t)
{
    TRITONREPOAGENT_ArtifactType type;
    const char *location = NULL;
    if (t->acquired &&
        told_fine(t, "location",
                  TRITONREPOAGENT_ModelRepositoryLocation(t->agent, t->model, &type, &location)))
        copy_folder(location, t->acquired, 0);
}

static void acquire(struct told *t, const char *argument)
{
    TRITONREPOAGENT_ArtifactType type = strcmp(argument, "remote") == 0
                                            ? TRITONREPOAGENT_ARTIFACT_REMOTE_FILESYSTEM
                                            : TRITONREPOAGENT_ARTIFACT_FILESYSTEM;
    const char *location = NULL;
    struct stat info;
    if (!told_fine(
            t, "acquire",
            TRITONREPOAGENT_ModelRepositoryLocationAcquire(t->agent, t->model, type, &location)))
        return;
    tell(t, "  acquire: %s", stat(location, &info) == 0 ? "a folder" : "nothing");
    t->acquired = location;
    (void)TRITONREPOAGENT_ModelSetState(t->model, (void *)(uintptr_t)location);
}

static void release(struct told *t)
{
    told_fine(t, "release",
              TRITONREPOAGENT_ModelRepositoryLocationRelease(
                  t->agent, t->model, t->acquired ? t->acquired : "/nowhere"));
}

static void update(const struct told *t, TRITONREPOAGENT_ArtifactType type, const char *path)
{
    if (strcmp(path, ".") == 0)
        path = t->acquired;
    told_fine(t, "update", TRITONREPOAGENT_ModelRepositoryUpdate(t->agent, t->model, type, path));
}

static void tell_config(const struct told *t)
{
    TRITONSERVER_Message *message = NULL;
    const char *json;
    size_t size;
    if (!told_fine(t, "config", TRITONREPOAGENT_ModelConfig(t->agent, t->model, 1, &message)))
        return;
    TRITONSERVER_ErrorDelete(TRITONSERVER_MessageSerializeToJson(message, &json, &size));
    tell(t, "  config: %.*s", (int)size, json);
    TRITONSERVER_ErrorDelete(TRITONSERVER_MessageDelete(message));
}

static void tell_parameters(const struct told *t)
{
    uint32_t n = 0;
    const char *name, *value;
    told_fine(t, "count", TRITONREPOAGENT_ModelParameterCount(t->agent, t->model, &n));
    for (uint32_t i = 0; i < n; i++) {
        if (told_fine(t, "parameter",
                      TRITONREPOAGENT_ModelParameter(t->agent, t->model, i, &name, &value)) &&
            strcmp(name, "log") != 0)
            tell(t, "  parameter: %s = %s", name, value);
    }
}

static void tell_states(const struct told *t)
{
    void *of_agent = NULL, *of_model = NULL;
    static int here;
    TRITONREPOAGENT_State(t->agent, &of_agent);
    told_fine(t, "set", TRITONREPOAGENT_SetState(t->agent, &here));
    told_fine(t, "get", TRITONREPOAGENT_State(t->agent, &of_agent));
    TRITONREPOAGENT_ModelState(t->model, &of_model);
    tell(t, "  states: agent %s, model %s", of_agent == &here ? "kept" : "lost",
         of_model ? "set" : "NULL");
}

static void call_wrongly(const struct told *t)
{
    TRITONSERVER_Message *message = NULL;
    const char *name, *value;
    told_fine(t, "config of version 2",
              TRITONREPOAGENT_ModelConfig(t->agent, t->model, 2, &message));
    told_fine(t, "parameter 99",
              TRITONREPOAGENT_ModelParameter(t->agent, t->model, 99, &name, &value));
}

static void wait_while_exists(const struct told *t, const char *path)
{
    const struct timespec moment = {.tv_nsec = 1000000};
    tell(t, "  waits");
    while (access(path, F_OK) == 0)
        nanosleep(&moment, NULL);
}

/* Carries out one command; returns the error that the agent returns. */
static TRITONSERVER_Error *obey(struct told *t, char *command)
{
    char *argument = strchrnul(command, ' ');
    if (*argument)
        *argument++ = '\0';
    if (strcmp(command, "error") == 0)
        return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INVALID_ARG, argument);
    if (strcmp(command, "acquire") == 0)
        acquire(t, argument);
    else if (strcmp(command, "release") == 0)
        release(t);
    else if (strcmp(command, "where") == 0)
        tell_where(t);
    else if (strcmp(command, "copy") == 0)
        copy_location(t);
    else if (strcmp(command, "wait") == 0)
        wait_while_exists(t, argument);
    else if (strcmp(command, "write") == 0)
        write_text(t, argument);
    else if (strcmp(command, "update") == 0)
        update(t, TRITONREPOAGENT_ARTIFACT_FILESYSTEM, argument);
    else if (strcmp(command, "remote") == 0)
        update(t, TRITONREPOAGENT_ARTIFACT_REMOTE_FILESYSTEM, argument);
    else if (strcmp(command, "config") == 0)
        tell_config(t);
    else if (strcmp(command, "parameters") == 0)
        tell_parameters(t);
    else if (strcmp(command, "states") == 0)
        tell_states(t);
    else if (strcmp(command, "wrong") == 0)
        call_wrongly(t);
    else
        tell(t, "  unknown command '%s'", command);
    return NULL;
}

static TRITONSERVER_Error *obey_all(TRITONREPOAGENT_Agent *agent, TRITONREPOAGENT_AgentModel *model,
                                    const char *when)
{
    struct told t = {.agent = agent, .model = model, .log = find_value(agent, model, "log")};
    const char *who = find_value(agent, model, "who"), *todo = find_value(agent, model, when);
    void *state = NULL;
    TRITONSERVER_Error *err = NULL;
    TRITONSERVER_ErrorDelete(TRITONREPOAGENT_ModelState(model, &state));
    t.acquired = state;
    tell(&t, "%s%s%s", who ? who : "", who ? ": " : "", when);
    char *commands = strdup(todo ? todo : ""), *rest = commands, *command;
    while (!err && (command = strsep(&rest, ";"))) {
        if (*command)
            err = obey(&t, command);
    }
    free(commands);
    return err;
}

TRITONSERVER_Error *TRITONREPOAGENT_ModelInitialize(TRITONREPOAGENT_Agent *agent,
                                                    TRITONREPOAGENT_AgentModel *model)
{
    return obey_all(agent, model, "INITIALIZE");
}

TRITONSERVER_Error *TRITONREPOAGENT_ModelFinalize(TRITONREPOAGENT_Agent *agent,
                                                  TRITONREPOAGENT_AgentModel *model)
{
    return obey_all(agent, model, "FINALIZE");
}

TRITONSERVER_Error *TRITONREPOAGENT_ModelAction(TRITONREPOAGENT_Agent *agent,
                                                TRITONREPOAGENT_AgentModel *model,
                                                const TRITONREPOAGENT_ActionType action_type)
{
    static const char *const names[] = {"LOAD", "LOAD_COMPLETE", "LOAD_FAIL", "UNLOAD",
                                        "UNLOAD_COMPLETE"};
    return obey_all(agent, model, (unsigned int)action_type < 5 ? names[action_type] : "?");
}
