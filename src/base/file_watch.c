/* SPDX-License-Identifier: Apache-2.0 */
/* Threads: the watch's own looks at the files; `read` and `seen` are its, after the start. */
#include "base/file_watch.h"

#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/mutex.h"
#include "base/status.h"
#include "base/thread.h"

enum { LEVEL = 893 }; /* a leaf in the table of core/README.md */

/* What a look at the files finds. */
struct look {
    struct file_info of[FILE_WATCH_MAX_FILES];
};

struct file_watch {
    /* Constant. */
    struct file_watch_options options;
    char *paths[FILE_WATCH_MAX_FILES];
    struct thread thread;
    bool has_thread;

    struct mutex mu;
    struct cond stopped;
    bool stopping; /* under mu */

    struct look read; /* before the files were read */
    struct look seen; /* the last */
};

static struct look look_at_files(const struct file_watch *w)
{
    struct look look;
    memset(&look, 0, sizeof(look));
    for (int i = 0; i < FILE_WATCH_MAX_FILES; i++) {
        struct file_info info;
        if (!w->paths[i])
            continue;
        struct status *st = file_stat(w->paths[i], &info);
        if (st)
            info.kind = FILE_MISSING;
        status_free(st);
        look.of[i].kind = info.kind;
        if (info.kind == FILE_MISSING)
            continue;
        look.of[i].size_bytes = info.size_bytes;
        look.of[i].modified_ns = info.modified_ns;
    }
    return look;
}

static bool same_look(const struct look *a, const struct look *b)
{
    for (int i = 0; i < FILE_WATCH_MAX_FILES; i++) {
        if (a->of[i].kind != b->of[i].kind || a->of[i].size_bytes != b->of[i].size_bytes ||
            a->of[i].modified_ns != b->of[i].modified_ns)
            return false;
    }
    return true;
}

static void check_watched_files(struct file_watch *w)
{
    struct look now = look_at_files(w);
    bool still = same_look(&now, &w->seen);
    w->seen = now;
    if (!still || same_look(&now, &w->read))
        return;
    if (w->options.on_change(w->options.arg))
        w->read = now;
}

static void watch_files(void *arg)
{
    struct file_watch *w = arg;
    mutex_lock(&w->mu);
    while (!w->stopping) {
        if (cond_wait_until(&w->stopped, &w->mu, monotonic_ns() + w->options.check_ns))
            continue;
        mutex_unlock(&w->mu);
        check_watched_files(w);
        mutex_lock(&w->mu);
    }
    mutex_unlock(&w->mu);
}

struct file_watch *file_watch_new(const struct file_watch_options *o)
{
    struct file_watch *w = mem_zalloc(sizeof(*w));
    w->options = *o;
    if (w->options.check_ns == 0)
        w->options.check_ns = NS_PER_S;
    for (int i = 0; i < FILE_WATCH_MAX_FILES; i++)
        w->paths[i] = o->paths[i] ? mem_strdup(o->paths[i]) : NULL;
    mutex_init(&w->mu, LEVEL, "file_watch.mu");
    cond_init(&w->stopped);
    w->read = w->seen = look_at_files(w);
    return w;
}

struct status *file_watch_start(struct file_watch *w)
{
    struct status *st = thread_start(&w->thread, w->options.thread_name, watch_files, w);
    w->has_thread = !st;
    return st;
}

void file_watch_free(struct file_watch *w)
{
    if (!w)
        return;
    mutex_lock(&w->mu);
    w->stopping = true;
    cond_signal(&w->stopped);
    mutex_unlock(&w->mu);
    if (w->has_thread)
        thread_join(&w->thread);
    for (int i = 0; i < FILE_WATCH_MAX_FILES; i++)
        mem_free(w->paths[i]);
    cond_done(&w->stopped);
    mutex_done(&w->mu);
    mem_free(w);
}
