/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connection bytes in random portions, replies in random order, short writes. The first byte
 * decides whether replies are deferred and how short writes are. Then follow portions, each after a
 * byte with its length (low six bits; 63: all the rest) and what happens after it (high two bits).
 */
#include <stdint.h>

#include "lib/http1_driver.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct driver d;
    if (size < 2)
        return 0;
    driver_init(&d);
    d.defer = data[0] & 1;
    d.max_send = data[0] >> 1;
    size_t at = 1;
    while (at < size) {
        unsigned int op = data[at++];
        size_t n = op & 63;
        if (n == 63 || n > size - at)
            n = size - at;
        /* An exact copy, so that a read beyond the portion is seen. */
        char *copy = malloc(n + !n);
        memcpy(copy, data + at, n);
        driver_feed(&d, copy, n);
        free(copy);
        at += n;
        if (op & 64 && d.n_waiting > 0)
            driver_reply(&d, op % d.n_waiting);
        if (op & 128)
            driver_flush(&d);
    }
    if (data[0] & 2)
        http1_end_input(&d.http1);
    if (data[0] & 64)
        http1_probe(&d.http1);
    driver_flush(&d);
    if (!driver_done(&d))
        abort();
    return 0;
}
