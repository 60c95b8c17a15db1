/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that cannot be started, as when the system has no memory for their stacks. */
#ifndef CONCH_TESTS_LIB_THREAD_FAULT_H
#define CONCH_TESTS_LIB_THREAD_FAULT_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

/*
 * fail_threads - from now on each start of a thread fails with EAGAIN, or succeeds again. The stack
 * that it asks for is larger than the address space.
 */
static inline void fail_threads(bool fails)
{
    static size_t usual_bytes;
    pthread_attr_t attr;
    pthread_getattr_default_np(&attr);
    if (usual_bytes == 0)
        pthread_attr_getstacksize(&attr, &usual_bytes);
    pthread_attr_setstacksize(&attr, fails ? (size_t)1 << 50 : usual_bytes);
    pthread_setattr_default_np(&attr);
    pthread_attr_destroy(&attr);
}

#endif
