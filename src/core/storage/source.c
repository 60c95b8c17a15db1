/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A source is a reference to a model's folder, in a repository or in a temporary folder of this
 * process. Most of the file handles temporary folders: it makes and fills them, and removes those
 * that a killed server left.
 *
 * Sources are counted atomically. The one folder with all temporary ones is under `temporary.mu`;
 * its lock file stays locked while there are any (`n_roots`), so that no other server removes them.
 */
#include "core/storage/source.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/mutex.h"
#include "base/status.h"
#include "core/storage/storage.h"

static struct source *source_new(void)
{
    struct source *s = mem_zalloc(sizeof(*s));
    atomic_init(&s->refs, 1);
    return s;
}

struct source *source_of_folder(struct storage *storage, const char *folder)
{
    struct source *s = source_new();
    s->storage = storage_ref(storage);
    s->folder = mem_strdup(folder);
    return s;
}

struct status *source_fetch(struct source *s)
{
    if (s->directory)
        return NULL;
    if (!s->origin || s->is_moved)
        return storage_fetch(s->storage, s->folder, &s->directory);
    struct status *st = source_fetch(s->origin);
    if (!st)
        s->directory = mem_strdup(s->origin->directory);
    return st;
}

struct status *source_of_agents(struct source *origin, const char *location, bool follow_links,
                                struct source **ret_source)
{
    struct storage *storage = NULL;
    char *folder = NULL;
    if (location) {
        struct status *st =
            storage_local_open_folder(location, follow_links, origin->storage, &storage, &folder);
        if (st)
            return st;
    }
    struct source *s = source_new();
    s->is_moved = location;
    s->storage = location ? storage : storage_ref(origin->storage);
    s->folder = location ? folder : mem_strdup(origin->folder);
    s->origin = origin;
    source_ref(origin);
    *ret_source = s;
    return NULL;
}

void source_keep_agents(struct source *s, struct agent_chain *agents,
                        void (*end_agents)(struct agent_chain *agents))
{
    s->agents = agents;
    s->end_agents = end_agents;
}

/* Compared by their full paths: a folder may be "group/digits" of one storage and "digits" of
 * another. */
bool source_is_same_folder(const struct source *a, const struct source *b)
{
    a = a->origin ? a->origin : a;
    b = b->origin ? b->origin : b;
    char *path_a = storage_path(a->storage, a->folder);
    char *path_b = storage_path(b->storage, b->folder);
    bool same = strcmp(path_a, path_b) == 0;
    mem_free(path_a);
    mem_free(path_b);
    return same;
}

/* ---- Temporary folders ---------------------------------------------------------------------- */

/*
 * All temporary folders of this process lie in one folder, TMPDIR/conch-model-XXXXXX. Its file
 * .lock is locked while the folder is in use. A killed server leaves a folder without a lock, and
 * the next one removes it (source_sweep()).
 */
#define PREFIX    "conch-model-"
#define LOCK_NAME ".lock"

enum { TEMPORARY_LEVEL = 880 };

static struct {
    struct mutex mu; /* level 880 in core/README.md; a leaf */
    /* Under mu. */
    char *path; /* NULL: there is none */
    int lock_fd;
    size_t n_roots; /* folders in it */
    unsigned long long next;
    bool has_rest; /* part of it could not be removed */
} temporary = {
    .mu = {.mu = PTHREAD_MUTEX_INITIALIZER, .level = TEMPORARY_LEVEL, .name = "temporary"},
};

static const char *temporary_parent(void)
{
    const char *parent = getenv("TMPDIR");
    return parent && parent[0] ? parent : "/tmp";
}

/* The state of remove_tree(), on this thread. */
static _Thread_local struct {
    const char *what;
    bool keeps_lock; /* that file stays, and its folder */
    bool has_rest;
} removal;

/* Links in it are removed, not followed. */
static int remove_one(const char *path, const struct stat *info, int type, struct FTW *place)
{
    (void)info;
    if (removal.keeps_lock &&
        (place->level == 0 || (place->level == 1 && strcmp(path + place->base, LOCK_NAME) == 0)))
        return 0;
    if (type != FTW_DNR && remove(path) == 0) /* an unreadable folder may be empty */
        return 0;
    int why = type == FTW_DNR && rmdir(path) == 0 ? 0 : errno;
    if (why) {
        removal.has_rest = true;
        log_warn("cannot remove '%s', %s: %s", path, removal.what, strerror(why));
    }
    return 0;
}

/* False: some of it is left, and the log has the reason. */
static bool remove_tree(const char *root, bool keeps_lock, const char *what)
{
    enum { MAX_OPEN = 16 };
    removal.what = what;
    removal.keeps_lock = keeps_lock;
    removal.has_rest = false;
    if (nftw(root, remove_one, MAX_OPEN, FTW_DEPTH | FTW_PHYS) != 0) {
        log_warn("cannot remove '%s', %s: %s", root, what, strerror(errno));
        return false;
    }
    return !removal.has_rest;
}

/* The lock's file is removed last: while it exists, another server may try again. */
static bool remove_temporary(const char *path, const char *what)
{
    return remove_tree(path, true, what) && remove_tree(path, false, what);
}

/* Locks a folder; -1: there is none, or errno has the reason. */
static int lock_folder(const char *folder, int flags, int operation)
{
    char *name = mem_printf("%s/" LOCK_NAME, folder);
    struct stat info, now;
    int fd = open(name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | flags, 0600);
    /* Another server may have swept it first: then the name belongs to another file. */
    bool fine = fd >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode) &&
                flock(fd, operation) == 0 && stat(name, &now) == 0 && now.st_ino == info.st_ino &&
                now.st_dev == info.st_dev;
    if (fd >= 0 && !fine) {
        int why = errno;
        close(fd);
        errno = why;
        fd = -1;
    }
    mem_free(name);
    return fd;
}

static struct status *make_temporary_locked(void)
{
    enum { MAX_TRIES = 10 };
    for (int i = 0; i < MAX_TRIES; i++) {
        char *path = mem_printf("%s/" PREFIX "XXXXXX", temporary_parent());
        if (!mkdtemp(path)) {
            struct status *st = status_from_errno(errno, "failed to make folder '%s'", path);
            mem_free(path);
            return st;
        }
        temporary.lock_fd = lock_folder(path, O_CREAT | O_EXCL, LOCK_EX);
        if (temporary.lock_fd >= 0) {
            temporary.path = path;
            temporary.has_rest = false;
            return NULL;
        }
        if (errno != ENOENT) { /* not swept meanwhile */
            struct status *st = status_from_errno(errno, "failed to lock '%s/" LOCK_NAME "'", path);
            remove_temporary(path, "which could not be locked");
            mem_free(path);
            return st;
        }
        mem_free(path);
    }
    return status_new(STATUS_UNAVAILABLE, "folders in '%s' are removed as soon as they are made",
                      temporary_parent());
}

/* With the last folder the one of all is removed, too. */
static void remove_temporary_root(char *root)
{
    bool removed = remove_tree(root, false, "of a model's temporary folder");
    mutex_lock(&temporary.mu);
    temporary.has_rest |= !removed;
    if (--temporary.n_roots == 0) {
        /* If something is left, the next server may try, which the lock's file allows. */
        if (!temporary.has_rest)
            remove_temporary(temporary.path, "which had temporary folders of models");
        close(temporary.lock_fd);
        mem_free(TAKE(temporary.path));
    }
    mutex_unlock(&temporary.mu);
    mem_free(root);
}

static struct status *make_root(char **ret_root)
{
    mutex_lock(&temporary.mu);
    struct status *st = temporary.path ? NULL : make_temporary_locked();
    if (!st) {
        char *root = mem_printf("%s/%llu", temporary.path, temporary.next++);
        if (mkdir(root, 0700) != 0)
            st = status_from_errno(errno, "failed to make folder '%s'", root);
        if (st && temporary.n_roots == 0) {
            remove_temporary(temporary.path, "which was to have temporary folders of models");
            close(temporary.lock_fd);
            mem_free(TAKE(temporary.path));
        }
        if (st) {
            mem_free(root);
        } else {
            temporary.n_roots++;
            *ret_root = root;
        }
    }
    mutex_unlock(&temporary.mu);
    return st;
}

/* Removes a folder that is not locked, and belongs to our user. */
static void sweep_one(const char *path)
{
    struct stat info;
    if (lstat(path, &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != geteuid())
        return;
    int fd = lock_folder(path, 0, LOCK_EX | LOCK_NB);
    if (fd < 0) {
        if (errno != ENOENT && errno != EWOULDBLOCK) /* no lock: not ours; or in use */
            log_warn("cannot tell whether '%s' is left of a server that was killed: %s", path,
                     strerror(errno));
        return;
    }
    if (remove_temporary(path, "which a server that was killed has left"))
        log_info("removed '%s', which a server that was killed has left", path);
    close(fd);
}

void source_sweep(void)
{
    const char *parent = temporary_parent();
    struct file_list list;
    struct status *st = file_list(parent, &list);
    if (st) {
        log_status(LOG_WARN, "what a server that was killed has left is not removed", st);
        return;
    }
    for (size_t i = 0; i < list.count; i++) {
        if (strncmp(list.entries[i].name, PREFIX, strlen(PREFIX)) != 0)
            continue;
        char *path = mem_printf("%s/%s", parent, list.entries[i].name);
        sweep_one(path);
        mem_free(path);
    }
    file_list_done(&list);
}

struct status *source_temporary_new(const char *name, char **ret_root, char **ret_folder)
{
    char *root;
    struct status *st = make_root(&root);
    if (st)
        return st;
    char *folder = mem_printf("%s/%s", root, name);
    if (mkdir(folder, 0700) != 0) {
        st = status_from_errno(errno, "failed to make folder '%s'", folder);
        mem_free(folder);
        remove_temporary_root(root);
        return st;
    }
    *ret_root = root;
    *ret_folder = folder;
    return NULL;
}

void source_temporary_free(char *root)
{
    remove_temporary_root(root);
}

static struct status *make_folders(const char *root, char *path)
{
    for (char *at = path; (at = strchr(at, '/')); at++) {
        *at = '\0';
        char *folder = mem_printf("%s/%s", root, path);
        int failed = mkdir(folder, 0700) != 0 && errno != EEXIST ? errno : 0;
        struct status *st =
            failed ? status_from_errno(failed, "failed to make folder '%s'", folder) : NULL;
        mem_free(folder);
        *at = '/';
        if (st)
            return st;
    }
    return NULL;
}

static struct status *write_file_bytes(int fd, const char *path, const char *bytes, size_t size)
{
    while (size > 0) {
        ssize_t n = write(fd, bytes, size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return status_from_errno(errno, "failed to write '%s'", path);
        bytes += n;
        size -= (size_t)n;
    }
    return NULL;
}

static struct status *write_file(const char *root, const struct source_file *file)
{
    char *path = mem_strdup(file->path);
    struct status *st = make_folders(root, path);
    mem_free(path);
    if (st)
        return st;
    path = mem_printf("%s/%s", root, file->path);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) {
        st = status_from_errno(errno, "failed to make file '%s'", path);
    } else {
        st = write_file_bytes(fd, path, file->bytes, file->size_bytes);
        if (close(fd) != 0 && !st)
            st = status_from_errno(errno, "failed to write '%s'", path);
    }
    mem_free(path);
    return st;
}

struct status *source_of_files(const char *name, const struct source_file *files, size_t n_files,
                               struct source **ret_source)
{
    struct source *s = source_new();
    char *folder = NULL;
    struct status *st = source_temporary_new(name, &s->temporary_root, &folder);
    if (!st)
        st = storage_local_open(s->temporary_root, false, &s->storage);
    if (!st)
        s->folder = mem_strdup(name);
    for (size_t i = 0; i < n_files && !st; i++)
        st = write_file(folder, &files[i]);
    mem_free(folder);
    if (!st)
        *ret_source = TAKE(s);
    source_unref(s);
    return st;
}

/* ---- All kinds of source --------------------------------------------------------------------- */

void source_ref(struct source *s)
{
    atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
}

void source_unref(struct source *s)
{
    if (!s || atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) != 1)
        return;
    if (s->agents) /* first: they may look at the files once more */
        s->end_agents(s->agents);
    if (s->origin && !s->is_moved)
        mem_free(s->directory);
    else if (s->storage)
        storage_release(s->storage, s->directory);
    storage_unref(s->storage);
    mem_free(s->folder);
    if (s->temporary_root)
        remove_temporary_root(s->temporary_root);
    source_unref(s->origin);
    mem_free(s);
}
