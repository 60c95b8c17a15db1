/* SPDX-License-Identifier: Apache-2.0 */
#include "micro/one_model.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/backend/backend.h"
#include "core/load/model_load.h"
#include "core/model/model_priv.h"
#include "core/options/server_options.h"
#include "core/repo/scan.h"
#include "core/server/server_priv.h"
#include "core/storage/source.h"
#include "core/storage/storage.h"

void must(struct status *st, const char *what)
{
    if (!st)
        return;
    fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what, status_message(st));
    exit(1);
}

struct server *quiet_server_new(const char *repository, const char *backends)
{
    return quiet_server_new_with(repository, backends, NULL, NULL, NULL);
}

struct server *quiet_server_new_with(const char *repository, const char *backends,
                                     const char *backend, const char *key, const char *value)
{
    struct log_settings settings;
    struct server_options *options = server_options_new();
    struct server *s;

    log_get_settings(&settings);
    settings.info = false;
    log_set_settings(&settings);
    server_options_add_repository(options, repository);
    server_options_set_string(&options->backend_directory, backends);
    if (backend)
        server_options_add_backend_setting(options, backend, key, value);
    must(server_new(options, &s), "server");
    server_options_free(options);
    return s;
}

void quiet_server_end(struct server *s)
{
    must(server_stop(s), "stop");
    server_free(s);
}

struct model *one_model_load(struct server *s, const char *repository, const char *name)
{
    struct scanned_model scanned;
    struct storage *storage;
    struct model *m;

    must(storage_open(repository, true, &storage), "repository");
    struct scan_place place = {.storage = storage, .folder = name};
    struct model_config *config;
    must(scan_config(storage, name, NULL, s->options, &config), "configuration");
    must(scan_model(name, &place, config, s->options, true, &scanned), "scan");
    struct source *source = source_of_folder(storage, name);
    must(source_fetch(source), "fetch");
    struct config_facts facts = scan_facts(name, &scanned, s->options);
    must(model_load(&s->services, &s->backends, name, scanned.versions[0], source,
                    TAKE(scanned.config), &facts, NULL, &m),
         "load");
    source_unref(source);
    scanned_model_done(&scanned);
    storage_unref(storage);
    return m;
}

void one_model_unload(struct server *s, struct model *m)
{
    model_stop(m);
    model_unload(m, &s->backends);
    model_unref(m);
}
