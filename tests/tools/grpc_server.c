/* SPDX-License-Identifier: Apache-2.0 */
/*
 * grpc_server REPOSITORY BACKENDS [gzip|deflate]: serves the models of a repository by gRPC, on a
 * free port of this machine, until stdin ends. Prints the port. With an encoding, answers to
 * inferences are packed for clients that accept it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/status.h"
#include "core/options/server_options.h"
#include "core/server/server.h"
#include "frontends/grpc/grpc.h"
#include "frontends/grpc/text.h"

static void must(struct status *st, const char *what)
{
    if (!st)
        return;
    fprintf(stderr, "grpc_server: %s: %s\n", what, status_message(st));
    exit(1);
}

static struct server *make_server(const char *repository, const char *backends)
{
    struct server_options *o = server_options_new();
    struct server *server;
    server_options_add_repository(o, repository);
    server_options_set_string(&o->backend_directory, backends);
    o->control_mode = CONTROL_EXPLICIT;
    o->exit_on_error = false;
    server_options_add_startup_model(o, "*");
    must(server_new(o, &server), "server");
    server_options_free(o);
    return server;
}

int main(int argc, char **argv)
{
    struct grpc_options o;
    struct grpc_service *service;
    char byte;
    if (argc < 3) {
        fprintf(stderr, "grpc_server REPOSITORY BACKENDS [gzip|deflate]\n");
        return 2;
    }
    struct server *server = make_server(argv[1], argv[2]);
    grpc_options_init(&o);
    o.address = "127.0.0.1";
    o.port = 0;
    if (argc > 3)
        o.reply_encodings |= strcmp(argv[3], "gzip") == 0 ? GRPC_GZIP : GRPC_DEFLATE;
    must(grpc_service_start(server, &o, &service), "start");
    printf("port %d\n", grpc_service_port(service));
    fflush(stdout);
    while (read(STDIN_FILENO, &byte, 1) > 0) {
    }
    unsigned int n = grpc_service_stop(service, 30000);
    must(server_stop(server), "stop");
    server_free(server);
    return n ? 3 : 0;
}
