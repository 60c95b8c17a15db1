/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An HTTP/2 session with frames split anywhere. The first byte says how short writes are, how much
 * memory long messages may have, and whether the client's preface is given; then come portions,
 * each behind a byte that says how long it is (low five bits, 31: all the rest) and what happens
 * after it (high three): a flush, an answer, time; all three are a lack of memory, too.
 */
#include <stdint.h>

#include "base/log.h"
#include "lib/http2_driver.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void act(struct h2_driver *d, unsigned int op)
{
    if (op & 32)
        h2_flush(d);
    if (op & 64 && d->n_waiting > 0)
        h2_answer(d, op % d->n_waiting);
    for (int i = 0; op & 128 && i < 20; i++) {
        d->now_ns += NS_PER_S;
        http2_protocol.check_time(d->session, d->now_ns);
    }
    if ((op & 224) == 224)
        http2_protocol.refuse(d->session, REFUSAL_MEMORY);
    if (d->session->paused) {
        d->requests_left = 2;
        http2_protocol.resume(d->session);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct h2_driver d;
    static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0";
    if (size < 2)
        return 0;
    log_set_settings(&(struct log_settings){0});
    h2_init(&d);
    unsigned int first = data[0];
    d.max_send = (first & 15) * 7;
    d.memory_left = first & 16 ? 100000 : SIZE_MAX / 2;
    d.settings.times.keepalive_ns = first & 32 ? 30 * NS_PER_S : 0;
    d.settings.times.max_age_ns = first & 64 ? 50 * NS_PER_S : 0;
    d.settings.limits.max_streams = 20;
    d.big_bytes = 100000;
    d.big = calloc(1, d.big_bytes);
    h2_begin(&d);
    if (!(first & 128))
        h2_feed(&d, preface, sizeof(preface));
    size_t at = 1;
    while (at < size) {
        unsigned int op = data[at++];
        size_t n = op & 31;
        if (n == 31 || n > size - at)
            n = size - at;
        h2_feed(&d, data + at, n);
        at += n;
        act(&d, op);
    }
    h2_flush(&d);
    if (first & 1)
        http2_protocol.end_input(d.session);
    if (!h2_done(&d))
        abort();
    return 0;
}
