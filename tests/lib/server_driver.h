/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one server of a test program, with a repository in a temporary folder:
 *
 *     struct server_options *o = prepare_server("/backends");
 *     repository_add(&repository, …);    models, and further options
 *     start_prepared_server(o);
 *
 * and stop_server() as the group's teardown. A test includes it after cmocka.h.
 */
#ifndef CONCH_TESTS_LIB_SERVER_DRIVER_H
#define CONCH_TESTS_LIB_SERVER_DRIVER_H

#include <stdio.h>

#include "base/status.h"
#include "core/options/server_options.h"
#include "core/server/server.h"
#include "lib/repository.h"

static struct test_repository repository;
static struct server *server;

/*
 * prepare_server - makes an empty repository, and the options of a server that has it and loads
 * only models that it is told to. The folder of backends is named below that of the build.
 */
static inline struct server_options *prepare_server(const char *backends)
{
    struct server_options *o = server_options_new();
    char path[512];
    repository_make(&repository);
    server_options_add_repository(o, repository.path);
    snprintf(path, sizeof(path), "%s%s", CONCH_BUILD_DIR, backends);
    server_options_set_string(&o->backend_directory, path);
    o->control_mode = CONTROL_EXPLICIT;
    return o;
}

/* start_prepared_server - starts the server; takes the options. */
static inline void start_prepared_server(struct server_options *o)
{
    assert_null(server_new(o, &server));
    server_options_free(o);
}

/* stop_server - a teardown: ends the server, and removes the repository. */
static inline int stop_server(void **state)
{
    (void)state;
    assert_null(server_stop(server));
    server_free(server);
    repository_remove(&repository);
    return 0;
}

#endif
