/* SPDX-License-Identifier: Apache-2.0 */
/*
 * filefault - an LD_PRELOAD library that makes named files fail, or change between two system
 * calls, the same way each time.
 *
 * FILE_FAULTS  <call>:<end of path>:<what>, separated by ';'
 *                call  open, stat, read (of an open file or folder), remove
 *                what  an errno's name below, for every such call; or, once and before the call,
 *                      VANISH (the file is removed), SHRINK (to half), GROW (by a copy of itself),
 *                      LINK (it becomes a link to /etc/hostname)
 * Each fault is a line "<call>:<path>" on stderr, after "filefault: ".
 */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_RULES = 8 };

static struct rule {
    char call[8], suffix[128], what[16];
    bool used;
} rules[MAX_RULES];
static size_t n_rules;

static const struct {
    const char *name;
    int value;
} errors[] = {
    {"EACCES", EACCES}, {"EIO", EIO},       {"EMFILE", EMFILE}, {"ENOMEM", ENOMEM},
    {"EINTR", EINTR},   {"ESTALE", ESTALE}, {"ELOOP", ELOOP},
};

static struct {
    int (*open)(const char *, int, ...);
    int (*stat)(const char *, struct stat *);
    int (*fstat)(int, struct stat *);
    ssize_t (*read)(int, void *, size_t);
    struct dirent *(*readdir)(DIR *);
    int (*remove)(const char *);
} next;

__attribute__((constructor)) static void start(void)
{
    *(void **)&next.open = dlsym(RTLD_NEXT, "open");
    *(void **)&next.stat = dlsym(RTLD_NEXT, "stat");
    *(void **)&next.fstat = dlsym(RTLD_NEXT, "fstat");
    *(void **)&next.read = dlsym(RTLD_NEXT, "read");
    *(void **)&next.readdir = dlsym(RTLD_NEXT, "readdir");
    *(void **)&next.remove = dlsym(RTLD_NEXT, "remove");

    const char *text = getenv("FILE_FAULTS");
    while (text && *text && n_rules < MAX_RULES) {
        struct rule *r = &rules[n_rules++];
        if (sscanf(text, "%7[^:]:%127[^:]:%15[^;]", r->call, r->suffix, r->what) != 3)
            abort();
        text = strchr(text, ';');
        text += text != NULL;
    }
}

static bool ends_with(const char *path, const char *suffix)
{
    size_t n = strlen(path), m = strlen(suffix);
    return n >= m && strcmp(path + n - m, suffix) == 0;
}

/* Changes the file as the rule says. */
static void change(const char *path, const char *what)
{
    struct stat s;
    if (strcmp(what, "VANISH") == 0) {
        next.remove(path);
    } else if (strcmp(what, "LINK") == 0) {
        if (next.remove(path) < 0 || symlink("/etc/hostname", path) < 0)
            abort();
    } else if (strcmp(what, "SHRINK") == 0) {
        if (next.stat(path, &s) < 0 || truncate(path, s.st_size / 2) < 0)
            abort();
    } else if (strcmp(what, "GROW") == 0) {
        char copy[4096];
        int fd = next.open(path, O_RDWR | O_APPEND | O_CLOEXEC);
        ssize_t n = next.read(fd, copy, sizeof(copy));
        if (n <= 0 || write(fd, copy, (size_t)n) != n || close(fd) < 0)
            abort();
    } else {
        abort();
    }
}

/* Does the call fail now? Then errno is set. */
static bool fails(const char *call, const char *path)
{
    for (size_t i = 0; i < n_rules; i++) {
        struct rule *r = &rules[i];
        if (strcmp(r->call, call) != 0 || !ends_with(path, r->suffix))
            continue;
        int error = 0;
        for (size_t e = 0; e < sizeof(errors) / sizeof(errors[0]); e++) {
            if (strcmp(errors[e].name, r->what) == 0)
                error = errors[e].value;
        }
        if (r->used && (!error || error == EINTR)) /* such a rule is used once */
            continue;
        r->used = true;
        dprintf(2, "filefault: %s:%s\n", call, path);
        if (!error)
            change(path, r->what);
        errno = error;
        return error != 0;
    }
    return false;
}

static bool fails_fd(const char *call, int fd)
{
    char name[32], path[PATH_MAX];
    if (!n_rules)
        return false;
    snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
    ssize_t n = readlink(name, path, sizeof(path) - 1);
    if (n < 0)
        return false;
    path[n] = '\0';
    return fails(call, path);
}

int open(const char *path, int flags, ...)
{
    va_list ap;
    va_start(ap, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(ap, mode_t) : 0;
    va_end(ap);
    return fails("open", path) ? -1 : next.open(path, flags, mode);
}

int open64(const char *path, int flags, ...) __attribute__((alias("open")));

int stat(const char *path, struct stat *s)
{
    return fails("stat", path) ? -1 : next.stat(path, s);
}

int fstat(int fd, struct stat *s)
{
    return fails_fd("stat", fd) ? -1 : next.fstat(fd, s);
}

ssize_t read(int fd, void *buffer, size_t size)
{
    return fails_fd("read", fd) ? -1 : next.read(fd, buffer, size);
}

struct dirent *readdir(DIR *dir)
{
    return fails_fd("read", dirfd(dir)) ? NULL : next.readdir(dir);
}

struct dirent64 *readdir64(DIR *dir) __attribute__((alias("readdir")));

int remove(const char *path)
{
    return fails("remove", path) ? -1 : next.remove(path);
}
