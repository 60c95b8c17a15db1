/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device - the device that executes a model, as TARGET_DEVICE names it: one, CPU or GPU.0, or one
 * that OpenVINO makes of others, AUTO, HETERO:GPU,CPU. OpenVINO takes properties for each of them
 * alone. No state.
 */
#include "openvino/model.h"

#include <stdlib.h>
#include <string.h>

/* Is it one that OpenVINO makes of others? Without their names it chooses among all. */
static bool is_made_of_others(const char *device)
{
    static const char *const made[] = {"AUTO", "HETERO", "MULTI", "BATCH", NULL};
    size_t len = strcspn(device, ":");

    for (const char *const *at = made; *at; at++)
        if (strlen(*at) == len && strncmp(*at, device, len) == 0)
            return true;
    return false;
}

/* The names in it, one after the other: of HETERO:GPU,CPU these are HETERO, GPU and CPU. One with a
 * minus, which is not to be used, is none. AUTO alone also has CPU.
 * @at  0 before the first call
 * Returns whether there is a further one. */
static bool next_name(const char *device, size_t *at, char ret_name[64])
{
    while (*at < strlen(device)) {
        const char *name = device + *at;
        size_t len = strcspn(name, ":,(");

        *at += strcspn(name, ":,");
        *at += device[*at] != '\0';
        if (*name == '-' || len == 0)
            continue;
        snprintf(ret_name, 64, "%.*s", (int)len, name);
        return true;
    }
    if (*at > strlen(device) || !is_made_of_others(device) || strchr(device, ':'))
        return false;
    *at = strlen(device) + 1;
    snprintf(ret_name, 64, "CPU");
    return true;
}

/* A device of several has a number: GPU.0. Without it any of them is meant. */
static bool is_device_there(const struct ov_devices *there, const char *name)
{
    size_t len = strlen(name);

    for (size_t i = 0; i < there->n; i++) {
        const char *has = there->names[i];

        if (strncmp(has, name, len) == 0 && (has[len] == '\0' || has[len] == '.'))
            return true;
    }
    return false;
}

static TRITONSERVER_Error *refuse_device(const struct model *m, const struct ov_devices *there,
                                         const char *name)
{
    TRITONSERVER_Error *err;
    char *all = NULL;
    size_t all_len;
    FILE *to = open_memstream(&all, &all_len);

    for (size_t i = 0; to && i < there->n; i++)
        fprintf(to, "%s%s", i ? ", " : "", there->names[i]);
    if (to)
        fclose(to);
    err = backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                        "model '%s': OpenVINO finds no device %s here (TARGET_DEVICE is %s); it "
                        "finds: %s",
                        m->name, name, m->asked.device, all ? all : "?");
    free(all);
    return err;
}

static TRITONSERVER_Error *check_devices_there(const struct model *m)
{
    const struct library *l = &m->rt->lib;
    TRITONSERVER_Error *err = NULL;
    struct ov_devices there = {0};
    char name[64];

    if (strcmp(m->asked.device, "CPU") == 0)
        return NULL;
    TRY_OV(l, "looking for devices", core_get_available_devices, m->core, &there);
    for (size_t at = 0; !err && next_name(m->asked.device, &at, name);)
        if (!is_made_of_others(name) && !is_device_there(&there, name))
            err = refuse_device(m, &there, name);
    l->api.available_devices_free(&there);
    return err;
}

/* ---- Properties ------------------------------------------------------------------------------ */

/* Is the word in the list, whose words have blanks between them? */
static bool lists_word(const char *list, const char *word)
{
    size_t len = strlen(word);

    for (const char *at = list; (at = strstr(at, word)) != NULL; at += len)
        if ((at == list || at[-1] == ' ') && (at[len] == ' ' || at[len] == '\0'))
            return true;
    return false;
}

/* Devices refuse properties that they do not have, when the model is compiled. */
static TRITONSERVER_Error *has_property(const struct model *m, const char *device, const char *key,
                                        bool *ret_has)
{
    const struct library *l = &m->rt->lib;
    char *all = NULL;

    TRY_OV(l, "reading the properties of the device", core_get_property, m->core, device,
           "SUPPORTED_PROPERTIES", &all);
    *ret_has = lists_word(all, key);
    l->api.free(all);
    return NULL;
}

/* Sets it for each device that has it.
 * @ret_n  of these devices */
static TRITONSERVER_Error *set_property(const struct model *m, const char *key, const char *value,
                                        size_t *ret_n)
{
    char device[64];

    *ret_n = 0;
    for (size_t at = 0; next_name(m->asked.device, &at, device);) {
        bool has = false;

        TRY(has_property(m, device, key, &has));
        if (!has)
            continue;
        BACKEND_LOG(VERBOSE, "model '%s': %s of %s is %s", m->name, key, device, value);
        TRY_OV(&m->rt->lib, "configuring openvino core", core_set_property, m->core, device, key,
               value);
        (*ret_n)++;
    }
    return NULL;
}

/* OpenVINO itself keeps compiled models, for any device, which does not list the property. */
static TRITONSERVER_Error *set_cache_dir(const struct model *m)
{
    char device[64];

    for (size_t at = 0; m->rt->cache_dir && next_name(m->asked.device, &at, device);)
        TRY_OV(&m->rt->lib, "setting the folder of compiled models", core_set_property, m->core,
               device, "CACHE_DIR", m->rt->cache_dir);
    return NULL;
}

TRITONSERVER_Error *device_prepare(const struct model *m)
{
    size_t n;

    TRY(check_devices_there(m));
    for (const struct property *p = m->asked.properties; p->key; p++) {
        TRY(set_property(m, p->key, p->value, &n));
        if (n == 0)
            BACKEND_LOG(WARN,
                        "model '%s': OpenVINO's device %s has no %s; the parameter has no effect",
                        m->name, m->asked.device, p->key);
    }
    return set_cache_dir(m);
}
