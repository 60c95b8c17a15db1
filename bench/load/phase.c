/* SPDX-License-Identifier: Apache-2.0 */
#include "phase.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

enum { STALL_LIMIT_S = 60 }; /* without an answer for this long the server hangs */

void phase_run(struct phase *p, double seconds)
{
    uint64_t last_messages = 0, last_progress = tally_now_ns();

    tally_reset(&p->tally);
    p->issuing = true;
    p->deadline_ns = last_progress + (uint64_t)(seconds * 1e9);
    p->begin(p->client);
    if (seconds <= 0)
        p->issuing = false;

    while (p->issuing || p->outstanding > 0) {
        struct epoll_event events[64];
        int n = epoll_wait(p->epoll, events, 64, 100);

        if (n < 0 && errno != EINTR)
            tally_die("epoll_wait: %s", strerror(errno));
        for (int i = 0; i < n; i++)
            p->event(p->client, events[i].data.ptr, events[i].events);
        if (n > 0 && p->tally.messages > last_messages) {
            last_messages = p->tally.messages;
            last_progress = tally_now_ns();
            continue;
        }
        if (tally_now_ns() > p->deadline_ns)
            p->issuing = false;
        if (tally_now_ns() - last_progress > STALL_LIMIT_S * 1000000000ull)
            tally_die("no answer for %d s with %llu requests outstanding", STALL_LIMIT_S,
                      (unsigned long long)p->outstanding);
    }
}

void phase_count_answer(struct phase *p, uint64_t begun_ns, uint64_t now_ns)
{
    tally_record(&p->tally, now_ns - begun_ns);
    p->outstanding--;
    if (now_ns >= p->deadline_ns)
        p->issuing = false;
}

static void write_first(const char *path, const char *first, size_t first_len)
{
    FILE *f = fopen(path, "we");

    if (!f || fwrite(first, 1, first_len, f) != first_len || fclose(f) != 0)
        tally_die("%s: %s", path, strerror(errno));
}

void phase_measure(struct phase *p, const struct load_options *o, const char *first,
                   size_t first_len)
{
    struct tally_frame frame;

    if (o->first_path)
        write_first(o->first_path, first, first_len);
    phase_run(p, o->warmup_s);
    tally_begin(&frame, o->server, o->cpus, o->counters_path);
    phase_run(p, o->seconds);
    tally_end(&frame, o->server, o->cpus, o->counters_path);
    tally_report(&p->tally, &frame, first_len);
}
