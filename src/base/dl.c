/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Three layers, from below: open_with_beside() loads a library together with what lies beside it;
 * open_file() chooses a name under which a changed file is loaded anew, because the linker answers
 * with a library that it has already; then the functions of dl.h. `all` lists for the process what
 * was opened, and from which file. all.mu guards it, and is held while the linker is asked what it
 * has. Any thread.
 */
#include "base/dl.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/dl_pages.h"
#include "base/file.h"
#include "base/list.h"
#include "base/mem.h"
#include "base/status.h"

/* struct dl is never defined: it stands for what dlopen() returns. */

static const char *last_error(void)
{
    const char *text = dlerror(); /* of the calling thread */
    return text ? text : "unknown error";
}

/* ---- Libraries beside a library -------------------------------------------------------------- */

enum { MAX_BESIDE = 64 }; /* libraries from its folder that one may need, and theirs */

/* A library beside another one, opened by us until the library that needs it keeps it open. */
struct beside {
    void *handles[MAX_BESIDE];
    size_t n;
};

/*
 * Returns the file beside the library that the linker has just missed; NULL if the error was
 * another one. The linker's error begins with the name, so ELF files need not be read.
 */
static char *missed_beside(const char *path, const char *error, const struct beside *beside)
{
    const char *name_end = strstr(error, ": cannot open shared object file");
    const char *folder_end = strrchr(path, '/');
    if (!name_end || memchr(error, '/', (size_t)(name_end - error)) || beside->n == MAX_BESIDE)
        return NULL;
    char *missed =
        mem_printf("%.*s%.*s", (int)(folder_end + 1 - path), path, (int)(name_end - error), error);
    if (access(missed, F_OK) == 0)
        return missed;
    mem_free(missed);
    return NULL;
}

/* The linker finds an opened library by its name (DT_SONAME). So a missing one is opened first,
 * and then the library is tried again. */
static struct status *open_with_beside(const char *name, const char *path, struct beside *beside,
                                       void **ret_handle)
{
    while (!(*ret_handle = dlopen(name, RTLD_NOW | RTLD_LOCAL))) {
        const char *error = last_error();
        char *missed = missed_beside(path, error, beside);
        if (!missed)
            return status_new(STATUS_NOT_FOUND, "unable to load shared library: %s", error);
        struct status *st = open_with_beside(missed, missed, beside, &beside->handles[beside->n++]);
        mem_free(missed);
        if (st)
            return st;
    }
    return NULL;
}

/* ---- Changed files --------------------------------------------------------------------------- */

/* The identity of a file as it is now; another file, or other content, has another one. */
struct file_id {
    dev_t device;
    ino_t inode;
    off_t size_bytes;
    struct timespec modified, changed;
};

/* A library that the linker was told to load, and that may still be loaded. */
struct opened {
    struct list link;
    char *path; /* the requested path */
    char *name; /* the name under which it was loaded: the path, or another name of the same file */
    struct file_id id;
    void *handle;
    bool is_copy; /* of a file that was overwritten; the name leads to no file any more */
    bool stays;
};

/* One for the process, as the linker's own list is. */
static struct {
    pthread_mutex_t mu; /* a leaf, except for the linker's own lock */
    struct list list;
    unsigned int n_names; /* how many names were made up */
} all = {.mu = PTHREAD_MUTEX_INITIALIZER, .list = LIST_INIT(all.list)};

static bool identify_file(const char *path, struct file_id *ret_id)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return false;
    memset(ret_id, 0, sizeof(*ret_id)); /* identities are compared by their bytes */
    ret_id->device = st.st_dev;
    ret_id->inode = st.st_ino;
    ret_id->size_bytes = st.st_size;
    ret_id->modified = st.st_mtim;
    ret_id->changed = st.st_ctim;
    return true;
}

static bool is_in_memory(const char *name)
{
    void *handle = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
    if (handle)
        dlclose(handle);
    return handle;
}

static void forget_library_locked(struct opened *o)
{
    list_remove(&o->link);
    mem_free(o->path);
    mem_free(o->name);
    mem_free(o);
}

/*
 * Makes a name that differs for the linker and not for the system, so that paths relative to the
 * library's own folder still work: "folder/.//./library", by the bits of a number.
 */
static char *other_name_locked(const char *path)
{
    const char *base = strrchr(path, '/') + 1;
    char bits[2 * 32 + 1], *at = bits;
    for (unsigned int n = ++all.n_names; n > 0; n >>= 1) {
        if (n & 1)
            *at++ = '.';
        *at++ = '/';
    }
    *at = '\0';
    return mem_printf("%.*s%s%s", (int)(base - path), path, bits, base);
}

/* If the file was overwritten, the linker recognises its inode under any name, so a copy is
 * opened. */
struct choice {
    char *name;
    bool is_copy;
    int copy_fd; /* -1: none */
};

/* Chooses the name under which the path is to be opened. If the library is in memory already, it
 * is the name of that. */
static void choose_locked(const char *path, const struct file_id *id, struct choice *ret)
{
    bool taken = false, same_inode = false;
    LIST_FOR_EACH (link, &all.list) {
        const struct opened *o = LIST_ENTRY(link, struct opened, link);
        if (strcmp(o->path, path) != 0 || !is_in_memory(o->name))
            continue;
        if (memcmp(&o->id, id, sizeof(*id)) == 0) {
            ret->name = mem_strdup(o->name);
            ret->is_copy = o->is_copy;
            return;
        }
        taken = true;
        same_inode |= !o->is_copy && o->id.device == id->device && o->id.inode == id->inode;
    }
    ret->name = taken ? other_name_locked(path) : mem_strdup(path);
    ret->is_copy = same_inode;
    if (!same_inode)
        return;
    ret->copy_fd = memfd_create(strrchr(path, '/') + 1, MFD_CLOEXEC);
    char *number = mem_printf("/proc/self/fd/%d", ret->copy_fd);
    mem_free(ret->name);
    ret->name = other_name_locked(number); /* the number will be another file's */
    mem_free(number);
}

NODISCARD static struct status *copy_file(const char *path, int to_fd)
{
    int fd;
    struct status *st = to_fd < 0 ? status_from_errno(errno, "no memory for a copy of '%s'", path)
                                  : file_open(path, O_RDONLY, &fd);
    if (st)
        return st;
    ssize_t n;
    while ((n = sendfile(to_fd, fd, NULL, 1 << 30)) > 0)
        ;
    if (n < 0)
        st = status_from_errno(errno, "failed to copy '%s'", path);
    close(fd);
    return st;
}

static void note_library(const char *path, const struct choice *choice, const struct file_id *id,
                         void *handle)
{
    MEM_CHARGE(NULL, 0); /* it outlives the model that asks for it */
    pthread_mutex_lock(&all.mu);
    LIST_FOR_EACH (link, &all.list) {
        struct opened *o = LIST_ENTRY(link, struct opened, link);
        if (o->handle == handle && strcmp(o->path, path) == 0) {
            pthread_mutex_unlock(&all.mu);
            return;
        }
    }
    struct opened *o = mem_zalloc(sizeof(*o));
    o->path = mem_strdup(path);
    o->name = mem_strdup(choice->name);
    o->id = *id;
    o->handle = handle;
    o->is_copy = choice->is_copy;
    list_push(&all.list, &o->link);
    pthread_mutex_unlock(&all.mu);
}

NODISCARD static struct status *open_file(const char *path, struct beside *beside,
                                          void **ret_handle)
{
    struct file_id id;
    if (!identify_file(path, &id)) /* the linker's error has the reason */
        return open_with_beside(path, path, beside, ret_handle);
    struct choice choice = {.copy_fd = -1};
    pthread_mutex_lock(&all.mu);
    choose_locked(path, &id, &choice);
    pthread_mutex_unlock(&all.mu);
    bool fresh_copy = choice.is_copy && choice.copy_fd >= 0;
    struct status *st = fresh_copy ? copy_file(path, choice.copy_fd) : NULL;
    if (!st)
        st = open_with_beside(choice.name, path, beside, ret_handle);
    if (!st)
        note_library(path, &choice, &id, *ret_handle);
    if (choice.copy_fd >= 0)
        close(choice.copy_fd);
    mem_free(choice.name);
    return st;
}

struct status *dl_open(const char *path, struct dl **ret_dl)
{
    /* Without a slash the dynamic linker would search its own folders. */
    char *by_path = strchr(path, '/') ? mem_strdup(path) : mem_printf("./%s", path);
    struct beside beside = {.n = 0};
    void *handle;

    struct status *st = open_file(by_path, &beside, &handle);
    for (size_t i = 0; i < beside.n; i++) {
        if (beside.handles[i])
            dlclose(beside.handles[i]);
    }
    mem_free(by_path);
    if (!st)
        *ret_dl = handle;
    return st;
}

void dl_offer_self(void)
{
    Dl_info self;
    if (!dladdr((void *)(uintptr_t)dl_offer_self, &self))
        return;
    /* Keeps the library's symbols available after this handle is closed. In a static program no
     * library is opened, and none needs to be. */
    void *handle = dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL);
    if (handle)
        dlclose(handle);
}

bool dl_stay(struct dl *dl)
{
    bool is_new = false;
    pthread_mutex_lock(&all.mu);
    LIST_FOR_EACH (link, &all.list) {
        struct opened *o = LIST_ENTRY(link, struct opened, link);
        if (o->handle != dl)
            continue;
        is_new |= !o->stays;
        o->stays = true;
    }
    pthread_mutex_unlock(&all.mu);
    if (is_new)
        dl_own_pages(dl);
    return is_new;
}

void dl_close(struct dl *dl)
{
    if (!dl)
        return;
    dlclose(dl);
    /* A library that the linker keeps loaded all the same stays in the list, with the file that
     * it was. */
    struct list *next;
    pthread_mutex_lock(&all.mu);
    for (struct list *link = all.list.next; link != &all.list; link = next) {
        struct opened *o = LIST_ENTRY(link, struct opened, link);
        next = link->next;
        if (o->handle == dl && !is_in_memory(o->name))
            forget_library_locked(o);
    }
    pthread_mutex_unlock(&all.mu);
}

struct status *dl_symbol(struct dl *dl, const char *name, void **ret_address)
{
    (void)dlerror(); /* a symbol may be NULL: only the error tells */
    void *address = dlsym(dl, name);
    const char *error = dlerror();
    if (error || !address)
        return status_new(STATUS_NOT_FOUND,
                          "unable to find required entrypoint '%s' in shared library: %s", name,
                          error ? error : "its address is NULL");
    *ret_address = address;
    return NULL;
}

void *dl_optional_symbol(struct dl *dl, const char *name)
{
    return dlsym(dl, name);
}
