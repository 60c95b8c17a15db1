/* SPDX-License-Identifier: Apache-2.0 */
/*
 * platforms - a program that embeds the server and serves SageMaker's and Vertex AI's protocols,
 * each at a port that the system chooses. What is not an argument comes from the environment, as on
 * the platforms.
 *
 *     platforms REPOSITORY BACKEND_DIRECTORY DEFAULT_MODEL
 *
 * It prints `sagemaker PORT` and `vertex_ai PORT`, serves until its input ends, and prints
 * `stopped CUT_OFF`: how many connections were.
 */
#include <stdio.h>
#include <stdlib.h>

#include "conch/conch.h"
#include "triton/core/tritonserver.h"

enum { STOP_WITHIN_MS = 30000 };

static void must(TRITONSERVER_Error *error)
{
    if (!error)
        return;
    fprintf(stderr, "platforms: %s: %s\n", TRITONSERVER_ErrorCodeString(error),
            TRITONSERVER_ErrorMessage(error));
    exit(1);
}

static TRITONSERVER_Server *start_server(const char *repository, const char *backends)
{
    TRITONSERVER_ServerOptions *options;
    TRITONSERVER_Server *server;
    must(TRITONSERVER_ServerOptionsNew(&options));
    must(TRITONSERVER_ServerOptionsSetModelRepositoryPath(options, repository));
    must(TRITONSERVER_ServerOptionsSetBackendDirectory(options, backends));
    must(TRITONSERVER_ServerOptionsSetModelControlMode(options,
                                                       TRITONSERVER_MODEL_CONTROL_EXPLICIT));
    must(TRITONSERVER_ServerOptionsSetStartupModel(options, "*"));
    must(TRITONSERVER_ServerNew(&server, options));
    must(TRITONSERVER_ServerOptionsDelete(options));
    return server;
}

static struct conch_http *start_sagemaker(TRITONSERVER_Server *server,
                                          const struct conch_http_options *http, const char *model)
{
    struct conch_sagemaker_options o;
    struct conch_http *service;
    conch_sagemaker_options_init(&o);
    o.http = http;
    o.default_model = model;
    must(conch_sagemaker_start(server, &o, &service));
    return service;
}

static struct conch_http *start_vertex_ai(TRITONSERVER_Server *server,
                                          const struct conch_http_options *http, const char *model)
{
    struct conch_vertex_ai_options o;
    struct conch_http *service;
    conch_vertex_ai_options_init(&o);
    o.http = http;
    o.default_model = model;
    must(conch_vertex_ai_start(server, &o, &service));
    return service;
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: platforms REPOSITORY BACKEND_DIRECTORY DEFAULT_MODEL\n");
        return 2;
    }
    TRITONSERVER_Server *server = start_server(argv[1], argv[2]);
    struct conch_http_options http;
    conch_http_options_init(&http);
    http.address = "127.0.0.1";
    http.port = 0;
    struct conch_http *sagemaker = start_sagemaker(server, &http, argv[3]);
    struct conch_http *vertex_ai = start_vertex_ai(server, &http, argv[3]);
    printf("sagemaker %d\nvertex_ai %d\n", conch_http_port(sagemaker), conch_http_port(vertex_ai));
    fflush(stdout);

    while (getchar() != EOF)
        ;
    conch_http_begin_stop(sagemaker);
    conch_http_begin_stop(vertex_ai);
    unsigned int n_cut_off = conch_http_stop(sagemaker, STOP_WITHIN_MS);
    n_cut_off += conch_http_stop(vertex_ai, STOP_WITHIN_MS);
    must(TRITONSERVER_ServerStop(server));
    must(TRITONSERVER_ServerDelete(server));
    printf("stopped %u\n", n_cut_off);
    return 0;
}
