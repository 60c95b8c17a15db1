/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One pointer that many threads read and one thread at a time replaces. Reading takes no lock and
 * writes no memory that another core reads, except while a replacement is going on.
 *
 *     struct table *t = snapshot_enter(&s);     nanoseconds only: no waiting, no calls out
 *     …
 *     snapshot_exit();
 *
 * snapshot_replace() returns when no reader can have the old value any longer, so that the caller
 * may free it. (Hazard pointers: each thread announces the value that it is reading.)
 */
#ifndef CONCH_CORE_REPO_SNAPSHOT_H
#define CONCH_CORE_REPO_SNAPSHOT_H

#include <stdatomic.h>

struct snapshot {
    _Atomic(void *) current;
};

/* snapshot_enter, snapshot_exit - begin and end to read the value, which is borrowed in between.
 * Thread: any. A thread reads one snapshot at a time. */
void *snapshot_enter(struct snapshot *s);
void snapshot_exit(void);

/* snapshot_replace - sets the value; waits until no thread reads the old one, and returns that.
 * Thread: control, one writer. */
void *snapshot_replace(struct snapshot *s, void *next);

#endif
