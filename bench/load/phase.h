/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The phases of a load client: requests flow for some time, then the outstanding ones are answered.
 *
 * The measured phase starts and ends without an outstanding request: the warm-up is drained first,
 * the CPU time is read, requests flow for the given time, the last ones are drained, and the CPU
 * time is read again. So the CPU time belongs to exactly the requests that are counted, however
 * slow one is.
 *
 *      phase_run() ──► begin() ──► event() … ──► phase_count_answer() …
 *
 * Thread: one.
 */
#ifndef BENCH_LOAD_PHASE_H
#define BENCH_LOAD_PHASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "options.h"
#include "tally.h"

struct phase {
    /* Set by the client, constant afterwards. */
    int epoll; /* has all connections, as data.ptr */
    void *client;
    /* Sends the first requests of the phase, as many as may be outstanding. */
    void (*begin)(void *client);
    /* Reads and writes; counts answers, and sends further requests while `issuing`. */
    void (*event)(void *client, void *conn, uint32_t events);

    /* The phase in progress. */
    bool issuing;
    uint64_t deadline_ns;
    uint64_t outstanding; /* requests; the client adds those that it begins */
    struct tally tally;
};

/*
 * phase_run - has requests sent for this many seconds, then waits until all are answered. With
 * seconds 0 only begin() sends. Exits when a server does not answer.
 */
void phase_run(struct phase *p, double seconds);

/* phase_count_answer - counts an answered request, and ends the issuing at the deadline. */
void phase_count_answer(struct phase *p, uint64_t begun_ns, uint64_t now_ns);

/*
 * phase_measure - writes the first answer to o->first_path, warms up, measures, and prints the line
 * of JSON.
 */
void phase_measure(struct phase *p, const struct load_options *o, const char *first,
                   size_t first_len);

#endif
