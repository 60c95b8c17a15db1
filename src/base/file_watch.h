/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files that are read again when they change. A thread looks at them, once a second unless told
 * otherwise. When they have changed, and then not for one look, it calls the owner, who reads them:
 *
 *      as they were read ◄────────────────────────────────────────────┐
 *           │ a look finds another size or time                       │ on_change()
 *           ▼                                                         │
 *      they are changing ──the next look finds the same as this one───┘
 *           ▲                                                         │
 *           └──────── on_change() lacks memory or descriptors ────────┘
 *
 * Waiting for the second look keeps the first of two files from being read before the second one is
 * written.
 */
#ifndef CONCH_BASE_FILE_WATCH_H
#define CONCH_BASE_FILE_WATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

struct file_watch;
struct status;

enum { FILE_WATCH_MAX_FILES = 3 };

struct file_watch_options {
    const char *thread_name; /* constant */
    const char *paths[FILE_WATCH_MAX_FILES];
    uint64_t check_ns; /* the time between two looks; 0: a second */
    /* On the watch's thread, with no lock held. False: the files could not be read for want of
     * memory or of descriptors, so it is called again after the next look. */
    bool (*on_change)(void *arg);
    void *arg;
};

/*
 * file_watch_new - looks at the files for the first time. The owner reads them after this, so that
 * no change is missed, then starts the watch. The caller ends it with file_watch_free().
 *
 * @o  copied; a path that is NULL is no file
 */
struct file_watch *file_watch_new(const struct file_watch_options *o);

/*
 * file_watch_start - starts the thread; once.
 *
 * Errors: STATUS_UNAVAILABLE  no thread is left
 */
NODISCARD struct status *file_watch_start(struct file_watch *w);

/*
 * file_watch_free - ends the thread if it was started, and frees all; NULL is fine. Waits for a
 * call of on_change(). Thread: any but the watch's.
 */
void file_watch_free(struct file_watch *w);

#endif
