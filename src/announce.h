/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a start tells: where the services listen, which models it waits for, and at its end where to
 * ask. Thread: main.
 */
#ifndef CONCH_ANNOUNCE_H
#define CONCH_ANNOUNCE_H

#include <stdbool.h>
#include <stdint.h>

struct TRITONSERVER_Server;
struct options;

/* The services that run. A port is 0 with an address of unix:. */
struct open_ports {
    bool has_http, has_grpc, has_metrics, has_sagemaker;
    int http, grpc, metrics;
};

/* announce_services - logs the one line that says what is served where. */
void announce_services(const struct options *o, const struct open_ports *ports);

/* When a start that loads models is to tell about it; times since its beginning. */
struct loading_watch {
    uint64_t look_ms; /* the next call of announce_loading() is due */
    uint64_t line_ms; /* … which may log a line */
};
#define LOADING_WATCH_INIT                                                                         \
    {                                                                                              \
        .look_ms = 2000, .line_ms = 2000                                                           \
    }

/* announce_loading - tells which models are being loaded, at since_ms. To be called while they are;
 * sets when the next call is due. */
void announce_loading(struct TRITONSERVER_Server *server, struct loading_watch *w,
                      uint64_t since_ms);

/*
 * announce_ready - logs, as the last line of the start, where to ask, how many models there are and
 * how long the start took.
 */
void announce_ready(struct TRITONSERVER_Server *server, const struct options *o,
                    const struct open_ports *ports, uint64_t since_ms);

#endif
