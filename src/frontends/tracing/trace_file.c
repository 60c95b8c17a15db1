/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A trace is written over the closing bracket, with a bracket behind it. `end` is where the bracket
 * is while no trace is being written. Thread: one at a time; none that must not wait for a disk.
 */
#include "frontends/tracing/trace_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/status.h"

enum { FLUSH_BYTES = 64 << 10 };

struct status *trace_file_open(const char *path, struct trace_file **ret)
{
    int fd;
    do {
        fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    } while (fd < 0 && errno == EINTR);
    if (fd < 0)
        return status_from_errno(errno, "failed to open trace file '%s'", path);
    struct trace_file *f = mem_zalloc(sizeof(*f));
    f->fd = fd;
    f->path = mem_strdup(path);
    buf_init(&f->text, INT32_MAX);
    *ret = f;
    return NULL;
}

/* Writes all bytes at a place of the file; returns errno, or 0. */
static int write_at(int fd, const char *bytes, size_t n_bytes, int64_t at)
{
    while (n_bytes > 0) {
        ssize_t n = pwrite(fd, bytes, n_bytes, at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? errno : EIO;
        bytes += n;
        at += n;
        n_bytes -= (size_t)n;
    }
    return 0;
}

struct buf *trace_file_begin(struct trace_file *f)
{
    buf_reset(&f->text);
    f->written = f->end;
    f->error = 0;
    buf_addc(&f->text, f->end == 0 ? '[' : ',');
    return &f->text;
}

static void write_text(struct trace_file *f)
{
    if (f->text.failed)
        f->error = ENOMEM;
    if (!f->error)
        f->error = write_at(f->fd, f->text.data, f->text.size, f->written);
    f->written += (int64_t)f->text.size;
    buf_reset(&f->text);
}

void trace_file_flush(struct trace_file *f)
{
    if (f->text.size >= FLUSH_BYTES)
        write_text(f);
}

struct status *trace_file_commit(struct trace_file *f)
{
    buf_addc(&f->text, ']');
    write_text(f);
    if (!f->error) {
        f->end = f->written - 1;
        return NULL;
    }
    /* The bracket had its place before. If even that fails, the next trace tries again. */
    if (ftruncate(f->fd, f->end) == 0 && f->end > 0)
        (void)!pwrite(f->fd, "]", 1, f->end);
    return status_from_errno(f->error, "failed to write trace file '%s'", f->path);
}

struct status *trace_file_append(struct trace_file *f, const struct trace_file *other)
{
    char bytes[16 << 10];
    struct buf *text = trace_file_begin(f);
    for (int64_t at = 1; at < other->end;) { /* without the brackets */
        size_t wanted = sizeof(bytes);
        if (other->end - at < (int64_t)wanted)
            wanted = (size_t)(other->end - at);
        ssize_t n = pread(other->fd, bytes, wanted, at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            f->error = n < 0 ? errno : EIO;
            break;
        }
        buf_add(text, bytes, (size_t)n);
        trace_file_flush(f);
        at += n;
    }
    return trace_file_commit(f);
}

void trace_file_close(struct trace_file *f)
{
    if (!f)
        return;
    close(f->fd);
    buf_done(&f->text);
    mem_free(f->path);
    mem_free(f);
}
