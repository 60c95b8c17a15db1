/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fastclock - an LD_PRELOAD library under which each reading of the monotonic clock is a second
 * later than the last. What a program does only after a long time, it does at once.
 */
#include <dlfcn.h>
#include <stdatomic.h>
#include <time.h>

int clock_gettime(clockid_t clock, struct timespec *ret)
{
    static atomic_long looks;
    int (*next)(clockid_t, struct timespec *);
    *(void **)&next = dlsym(RTLD_NEXT, "clock_gettime");
    int result = next(clock, ret);
    if (result == 0 && clock == CLOCK_MONOTONIC)
        ret->tv_sec += atomic_fetch_add(&looks, 1) + 1;
    return result;
}
