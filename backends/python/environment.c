/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In this order: the names in an archive, unpacking, the cache's folder and its locks, the
 * interpreter, and the environment.
 *
 * Whatever an archive has in it, nothing is written outside its folder: names are relative and have
 * no "..", nothing is written through a link (libarchive's SECURE_SYMLINKS), and a link's target
 * goes up by leading ".." only, no further than the folder itself. By that rule the target of each
 * link is inside even when other links lie on its way, for those are inside by the same rule.
 */
#include "python/environment.h"

#include "common/backend.h"
#include "common/libarchive.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* The largest environments (PyTorch with CUDA) have 15 GB in 200 000 files. */
#define MAX_ENTRIES 2000000
#define MAX_BYTES   (64ll << 30)
#define READ_BYTES  ((size_t)1 << 20)

#define MODEL_DIRECTORY "$$TRITON_MODEL_DIRECTORY"

/* ---- Names in an archive --------------------------------------------------------------------- */

/* The number of folders above a relative name: "a/b/c" has 2. Empty and "." parts count nothing. */
static size_t count_folders(const char *name)
{
    size_t n = 0;

    for (const char *at = name; *at;) {
        size_t len = strcspn(at, "/");
        n += len > 0 && !(len == 1 && at[0] == '.');
        at += len + (at[len] == '/');
    }
    return n > 0 ? n - 1 : 0;
}

/* Does a link of this name lead to something within the folder? The comment above has the rule. */
static bool link_stays_inside(const char *name, const char *target)
{
    size_t up = 0, most = count_folders(name);
    bool below = false;

    if (target[0] == '/' || !target[0])
        return false;
    for (const char *at = target; *at;) {
        size_t len = strcspn(at, "/");
        bool is_up = len == 2 && at[0] == '.' && at[1] == '.';

        if (is_up && (below || ++up > most))
            return false;
        below = below || (!is_up && len > 0 && !(len == 1 && at[0] == '.'));
        at += len + (at[len] == '/');
    }
    return true;
}

/* ---- Unpacking ------------------------------------------------------------------------------- */

struct unpacking {
    const struct libarchive *lib;
    const char *file;   /* the archive's name, for errors */
    const char *folder; /* where to: an absolute path without links */
    struct archive *from, *to;
    struct archive_entry *entry;
    int64_t n_entries, n_bytes;
    int64_t max_entries, max_bytes;
};

static TRITONSERVER_Error *refuse_entry(const struct unpacking *u, const char *name,
                                        const char *why)
{
    return backend_error(TRITONSERVER_ERROR_INVALID_ARG, "environment '%s': entry '%s' %s", u->file,
                         name, why);
}

static TRITONSERVER_Error *archive_failure(const struct unpacking *u, struct archive *who,
                                           const char *name)
{
    const char *why = u->lib->error_string(who);

    return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                         "environment '%s' cannot be unpacked%s%s: %s", u->file,
                         name ? ", at entry " : "", name ? name : "", why ? why : "no memory");
}

/* Is the entry of a kind, and of a name, that an environment may have? */
static TRITONSERVER_Error *check_entry(const struct unpacking *u, const char *name)
{
    const char *symlink = u->lib->entry_symlink(u->entry);
    const char *hardlink = u->lib->entry_hardlink(u->entry);
    mode_t type = u->lib->entry_filetype(u->entry);

    if (backend_escapes_folder(name))
        return refuse_entry(u, name, "would lie outside of it");
    if (hardlink)
        return backend_escapes_folder(hardlink) ? refuse_entry(u, name, "is a link that leads out")
                                                : NULL;
    if (symlink || type == S_IFLNK)
        return symlink && link_stays_inside(name, symlink)
                   ? NULL
                   : refuse_entry(u, name,
                                  "is a link that leads out (pack files, not links: "
                                  "`python3 -m venv --copies`, `conda-pack`)");
    if (type != S_IFREG && type != S_IFDIR)
        return refuse_entry(u, name, "is neither a file, a folder nor a link");
    return NULL;
}

/* Gives the entry the names and rights that it is to have in the folder. */
static TRITONSERVER_Error *place_entry(const struct unpacking *u, const char *name)
{
    const char *hardlink = u->lib->entry_hardlink(u->entry);
    mode_t least = u->lib->entry_filetype(u->entry) == S_IFDIR ? 0700 : 0600;
    char *path = NULL, *target = NULL;
    bool ok = asprintf(&path, "%s/%s", u->folder, name) >= 0;

    if (ok && hardlink)
        ok = asprintf(&target, "%s/%s", u->folder, hardlink) >= 0;
    if (ok) {
        u->lib->entry_set_pathname(u->entry, path);
        if (hardlink)
            u->lib->entry_set_hardlink(u->entry, target);
        u->lib->entry_set_perm(u->entry, (u->lib->entry_perm(u->entry) & 0777) | least);
    }
    free(path);
    free(target);
    return ok ? NULL : backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
}

static TRITONSERVER_Error *copy_data(struct unpacking *u, const char *name)
{
    int64_t end = 0;

    for (;;) {
        const void *block;
        size_t size;
        int64_t offset;
        int rc = u->lib->read_data_block(u->from, &block, &size, &offset);

        if (rc == ARCHIVE_EOF)
            break;
        if (rc != ARCHIVE_OK && rc != ARCHIVE_WARN)
            return archive_failure(u, u->from, name);
        /* A file with holes is as large as its end says. */
        if (offset < 0 || offset > u->max_bytes || (int64_t)size > u->max_bytes)
            end = u->max_bytes + 1;
        else if (offset + (int64_t)size > end)
            end = offset + (int64_t)size;
        if (end > u->max_bytes - u->n_bytes)
            return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                                 "environment '%s' has more than %lld bytes", u->file,
                                 (long long)u->max_bytes);
        if (size > 0 && u->lib->write_data_block(u->to, block, size, offset) != ARCHIVE_OK)
            return archive_failure(u, u->to, name);
    }
    u->n_bytes += end;
    return NULL;
}

/* Writes the entry that has been read. */
static TRITONSERVER_Error *unpack_entry(struct unpacking *u)
{
    const char *stored = u->lib->entry_pathname(u->entry);
    TRITONSERVER_Error *err;
    char *name;

    if (++u->n_entries > u->max_entries)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "environment '%s' has more than %lld entries", u->file,
                             (long long)u->max_entries);
    if (!stored) /* not in the character set of this process */
        return refuse_entry(u, "?", "has a name that is no text");
    name = strdup(stored);
    if (!name)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    err = check_entry(u, name);
    if (!err)
        err = place_entry(u, name);
    if (!err && u->lib->write_header(u->to, u->entry) != ARCHIVE_OK)
        err = archive_failure(u, u->to, name);
    if (!err)
        err = copy_data(u, name);
    if (!err && u->lib->write_finish_entry(u->to) != ARCHIVE_OK)
        err = archive_failure(u, u->to, name);
    free(name);
    return err;
}

static TRITONSERVER_Error *unpack_all(struct unpacking *u, int fd)
{
    bool any = false;

    if (!u->from || !u->to || !u->entry)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    u->lib->read_support_filter_all(u->from);
    u->lib->read_support_format_tar(u->from);
    u->lib->read_support_format_zip(u->from);
    /* Times: Python compares those of sources with what its compiled files say. */
    u->lib->write_disk_set_options(u->to, ARCHIVE_EXTRACT_TIME | ARCHIVE_EXTRACT_PERM |
                                              ARCHIVE_EXTRACT_SECURE_SYMLINKS |
                                              ARCHIVE_EXTRACT_SECURE_NODOTDOT);
    if (u->lib->read_open_fd(u->from, fd, READ_BYTES) != ARCHIVE_OK)
        return archive_failure(u, u->from, NULL);
    for (;; any = true) {
        int rc = u->lib->read_next_header2(u->from, u->entry);

        if (rc == ARCHIVE_EOF)
            break;
        if (rc != ARCHIVE_OK && rc != ARCHIVE_WARN)
            return archive_failure(u, u->from, NULL);
        TRY(unpack_entry(u));
    }
    if (!any)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG, "environment '%s' is empty", u->file);
    if (u->lib->write_close(u->to) != ARCHIVE_OK) /* times and rights of folders */
        return archive_failure(u, u->to, NULL);
    return NULL;
}

static TRITONSERVER_Error *unpack_archive(struct unpacking *u, int fd)
{
    TRITONSERVER_Error *err;

    u->from = u->lib->read_new();
    u->to = u->lib->write_disk_new();
    u->entry = u->lib->entry_new();
    err = unpack_all(u, fd);
    if (u->entry)
        u->lib->entry_free(u->entry);
    if (u->from)
        u->lib->read_free(u->from);
    if (u->to)
        u->lib->write_free(u->to);
    return err;
}

/* ---- The cache ------------------------------------------------------------------------------- */

static TRITONSERVER_Error *cache_error(const char *path, const char *what)
{
    return backend_error(TRITONSERVER_ERROR_INTERNAL,
                         "cannot %s '%s' of the cache of Python environments (CONCH_PYTHON_CACHE "
                         "names another folder): %s",
                         what, path, strerror(errno));
}

static int remove_path(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st;
    (void)at;
    return type == FTW_DP || type == FTW_DNR ? rmdir(path) : unlink(path);
}

static void remove_folder(const char *path)
{
    if (nftw(path, remove_path, 32, FTW_DEPTH | FTW_PHYS) != 0 && errno != ENOENT)
        BACKEND_LOG(WARN, "cannot remove '%s': %s", path, strerror(errno));
}

static void remove_entry(const char *cache, const char *key)
{
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "%s/%s", cache, key);
    remove_folder(path);
    snprintf(path, sizeof(path), "%s/%s.part", cache, key);
    remove_folder(path);
    snprintf(path, sizeof(path), "%s/%s.lock", cache, key);
    unlink(path);
}

/* The cache's folder, ours alone: another user's would decide what our models run. */
static TRITONSERVER_Error *open_cache(char ret_path[static PATH_MAX])
{
    const char *named = getenv("CONCH_PYTHON_CACHE"), *tmp = getenv("TMPDIR");
    struct stat st;
    char path[PATH_MAX];
    int len;

    if (named && named[0])
        len = snprintf(path, sizeof(path), "%s", named);
    else
        len = snprintf(path, sizeof(path), "%s/conch-python-%u", tmp && tmp[0] ? tmp : "/tmp",
                       (unsigned int)geteuid());
    if (len < 0 || (size_t)len >= sizeof(path) - 80) {
        errno = ENAMETOOLONG;
        return cache_error(path, "use");
    }
    if (mkdir(path, 0700) != 0 && errno != EEXIST)
        return cache_error(path, "make");
    if (lstat(path, &st) != 0 || !realpath(path, ret_path))
        return cache_error(path, "open");
    if (!named && (!S_ISDIR(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 022))) {
        errno = EPERM;
        return cache_error(path, "use another user's folder");
    }
    return strlen(ret_path) < PATH_MAX - 80 ? NULL : cache_error(path, "use");
}

/* Is this descriptor still the file of that name? Its last user may have removed it meanwhile. */
static bool is_file_of_name(int fd, const char *path)
{
    struct stat a, b;

    return fstat(fd, &a) == 0 && stat(path, &b) == 0 && a.st_ino == b.st_ino &&
           a.st_dev == b.st_dev;
}

/* Removes what servers that were killed have left: nobody holds its lock. */
static void sweep_cache(const char *cache)
{
    DIR *dir = opendir(cache);
    struct dirent *d;

    while (dir && (d = readdir(dir))) {
        char key[NAME_MAX + 1], path[PATH_MAX];
        const char *dot = strrchr(d->d_name, '.');
        int fd;

        if (!dot || dot == d->d_name || strcmp(dot, ".lock") != 0)
            continue;
        snprintf(key, sizeof(key), "%.*s", (int)(dot - d->d_name), d->d_name);
        snprintf(path, sizeof(path), "%s/%s", cache, d->d_name);
        fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
        if (fd < 0)
            continue;
        if (flock(fd, LOCK_EX | LOCK_NB) == 0 && is_file_of_name(fd, path))
            remove_entry(cache, key);
        close(fd);
    }
    if (dir)
        closedir(dir);
}

/* SHA-256 of a file, in hexadecimal digits. */
static TRITONSERVER_Error *hash_file(int fd, const char *file, char ret_key[static 65])
{
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    unsigned char *buffer = malloc(READ_BYTES), sum[EVP_MAX_MD_SIZE];
    TRITONSERVER_Error *err = NULL;
    unsigned int len = 0;
    ssize_t n = 1;

    bool ok = context && buffer && EVP_DigestInit_ex(context, EVP_sha256(), NULL) == 1;
    while (ok && n > 0) {
        n = read(fd, buffer, READ_BYTES);
        if (n < 0 && errno == EINTR)
            n = 1;
        else if (n < 0)
            err = backend_error(TRITONSERVER_ERROR_INTERNAL, "cannot read environment '%s': %s",
                                file, strerror(errno));
        else
            ok = EVP_DigestUpdate(context, buffer, (size_t)n) == 1;
    }
    if (ok && !err)
        ok = EVP_DigestFinal_ex(context, sum, &len) == 1 && len == 32;
    if (!ok && !err)
        err = backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "no memory for environment '%s'", file);
    for (unsigned int i = 0; !err && i < len; i++)
        snprintf(ret_key + (size_t)2 * i, 3, "%02x", sum[i]);
    EVP_MD_CTX_free(context);
    free(buffer);
    return err;
}

static TRITONSERVER_Error *need_libarchive(const char *archive, const struct libarchive **ret_lib)
{
    const char *missing;

    *ret_lib = libarchive_load(&missing);
    if (*ret_lib)
        return NULL;
    return backend_error(TRITONSERVER_ERROR_UNAVAILABLE,
                         "the environment '%s' is an archive, which needs libarchive (Debian: "
                         "libarchive13): %s",
                         archive, missing);
}

static TRITONSERVER_Error *fill_folder(const char *file, int fd, const char *folder,
                                       const struct libarchive *lib)
{
    struct unpacking u = {
        .lib = lib, .file = file, .max_entries = MAX_ENTRIES, .max_bytes = MAX_BYTES};
    TRITONSERVER_Error *err;
    char part[PATH_MAX];

    if (snprintf(part, sizeof(part), "%s.part", folder) >= (int)sizeof(part))
        return backend_error(TRITONSERVER_ERROR_INTERNAL, "path too long: %s", folder);
    remove_folder(part);
    if (mkdir(part, 0700) != 0)
        return cache_error(part, "make");
    u.folder = part;
    err = lseek(fd, 0, SEEK_SET) == 0 ? unpack_archive(&u, fd) : cache_error(file, "read");
    if (!err && rename(part, folder) != 0)
        err = cache_error(folder, "make");
    if (err)
        remove_folder(part);
    else
        BACKEND_LOG(INFO, "unpacked environment '%s': %lld entries, %lld bytes", file,
                    (long long)u.n_entries, (long long)u.n_bytes);
    return err;
}

static int open_lock(const char *path)
{
    int fd;

    do
        fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    while (fd < 0 && errno == EINTR);
    return fd;
}

static bool lock_file(int fd, int how)
{
    int rc;

    do
        rc = flock(fd, how);
    while (rc != 0 && errno == EINTR);
    return rc == 0;
}

/*
 * The folder with the archive's content, unpacked unless it is there. The shared lock, which the
 * caller gets, keeps others from removing it. The exclusive one is only tried for: threads that
 * wait for it would wait for users of the folder, too.
 */
static TRITONSERVER_Error *use_folder(const char *file, int archive, const char *folder,
                                      const struct libarchive *lib, int *ret_lock)
{
    char lock[PATH_MAX];
    struct stat st;

    if (snprintf(lock, sizeof(lock), "%s.lock", folder) >= (int)sizeof(lock))
        return backend_error(TRITONSERVER_ERROR_INTERNAL, "path too long: %s", folder);
    for (;;) {
        TRITONSERVER_Error *err = NULL;
        int fd = open_lock(lock);

        if (fd < 0)
            return cache_error(lock, "open");
        if (!lock_file(fd, LOCK_SH)) {
            err = cache_error(lock, "lock");
        } else if (is_file_of_name(fd, lock)) {
            if (stat(folder, &st) == 0) {
                *ret_lock = fd;
                return NULL;
            }
            if (lock_file(fd, LOCK_EX | LOCK_NB) && is_file_of_name(fd, lock) &&
                stat(folder, &st) != 0) {
                err = fill_folder(file, archive, folder, lib);
                if (err)
                    unlink(lock);
            }
        }
        close(fd);
        if (err)
            return err;
    }
}

/* ---- The interpreter ------------------------------------------------------------------------- */

static bool is_program(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

/* The first python3 of a PATH, else /usr/bin/python3. Relative parts of the PATH are left out: the
 * server's folder is no place to look for programs. NULL: no memory. */
static char *find_on_path(const char *path)
{
    for (const char *at = path ? path : ""; *at;) {
        int len = (int)strcspn(at, ":");
        char *file = NULL;

        if (at[0] == '/') {
            if (asprintf(&file, "%.*s/python3", len, at) < 0)
                return NULL;
            if (is_program(file))
                return file;
            free(file);
        }
        at += len + (at[len] == ':');
    }
    return strdup("/usr/bin/python3");
}

/* The interpreter in this folder; *ret_python is NULL if there is none. False: no memory. */
static bool find_inside(const char *root, char **ret_python)
{
    static const char *const names[] = {"bin/python3", "bin/python"};

    for (size_t i = 0; i < 2; i++) {
        char *file = NULL;

        if (asprintf(&file, "%s/%s", root, names[i]) < 0)
            return false;
        if (is_program(file)) {
            *ret_python = file;
            return true;
        }
        free(file);
    }
    *ret_python = NULL;
    return true;
}

/* ---- The environment ------------------------------------------------------------------------- */

struct environment {
    char *root; /* its folder; NULL: none was named */
    char *python;
    char *variables[6];
    size_t n_variables;
    int lock;    /* of what was unpacked, or -1 */
    char *cache; /* the cache's folder, if it was */
};

static bool has_in_root(const struct environment *e, const char *name)
{
    char path[PATH_MAX];

    return snprintf(path, sizeof(path), "%s/%s", e->root, name) < (int)sizeof(path) &&
           access(path, F_OK) == 0;
}

/* Adds NAME=value, or NAME=value:others. */
static bool add_variable(struct environment *e, const char *name, const char *value,
                         const char *tail, const char *others)
{
    bool more = others && others[0];
    char **at = &e->variables[e->n_variables];

    if (asprintf(at, "%s=%s%s%s%s", name, value, tail, more ? ":" : "", more ? others : "") < 0) {
        *at = NULL;
        return false;
    }
    e->n_variables++;
    return true;
}

/* What `source bin/activate` of conda or venv sets, and what Triton adds for libraries. */
static bool set_variables(struct environment *e)
{
    bool ok = add_variable(e, "PATH", e->root, "/bin", getenv("PATH")) &&
              add_variable(e, "LD_LIBRARY_PATH", e->root, "/lib", getenv("LD_LIBRARY_PATH"));

    if (ok && has_in_root(e, "conda-meta"))
        ok = add_variable(e, "CONDA_PREFIX", e->root, "", NULL);
    else if (ok)
        ok = add_variable(e, "VIRTUAL_ENV", e->root, "", NULL);
    if (ok) {
        e->variables[e->n_variables] = strdup("PYTHONHOME");
        ok = e->variables[e->n_variables++] != NULL;
    }
    return ok;
}

static TRITONSERVER_Error *complete_environment(struct environment *e)
{
    bool ok = true;

    if (e->root)
        ok = set_variables(e) && find_inside(e->root, &e->python);
    if (ok && !e->python)
        e->python = find_on_path(getenv("PATH"));
    return ok && e->python ? NULL : backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
}

static TRITONSERVER_Error *open_archive(struct environment *e, const char *file, int fd)
{
    char cache[PATH_MAX], folder[PATH_MAX], key[65];
    const struct libarchive *lib;

    TRY(need_libarchive(file, &lib));
    TRY(open_cache(cache));
    sweep_cache(cache);
    TRY(hash_file(fd, file, key));
    snprintf(folder, sizeof(folder), "%.*s/%s", (int)sizeof(folder) - 80, cache, key);
    e->cache = strdup(cache);
    e->root = strdup(folder);
    if (!e->cache || !e->root)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    return use_folder(file, fd, folder, lib, &e->lock);
}

static TRITONSERVER_Error *open_named(struct environment *e, const char *path)
{
    TRITONSERVER_Error *err = NULL;
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0 || fstat(fd, &st) != 0) {
        err = backend_error(errno == ENOENT ? TRITONSERVER_ERROR_NOT_FOUND
                                            : TRITONSERVER_ERROR_INVALID_ARG,
                            "EXECUTION_ENV_PATH '%s': %s", path, strerror(errno));
    } else if (S_ISDIR(st.st_mode)) {
        e->root = realpath(path, NULL);
        if (!e->root)
            err = backend_error(TRITONSERVER_ERROR_INVALID_ARG, "EXECUTION_ENV_PATH '%s': %s", path,
                                strerror(errno));
    } else if (S_ISREG(st.st_mode)) {
        err = open_archive(e, path, fd);
    } else {
        err = backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                            "EXECUTION_ENV_PATH '%s' is neither a folder nor an archive", path);
    }
    if (fd >= 0)
        close(fd);
    return err;
}

/* The path that a setting names; the caller frees it. NULL: no memory. */
static char *expand_setting(const char *model_dir, const char *setting)
{
    char *path = NULL;
    const char *at = strstr(setting, MODEL_DIRECTORY);
    int rc;

    if (at)
        rc = asprintf(&path, "%.*s%s%s", (int)(at - setting), setting, model_dir,
                      at + strlen(MODEL_DIRECTORY));
    else
        rc = asprintf(&path, "%s", setting);
    return rc < 0 ? NULL : path;
}

TRITONSERVER_Error *environment_open(const char *model_dir, const char *setting,
                                     struct environment **ret_environment)
{
    struct environment *e = calloc(1, sizeof(*e));
    TRITONSERVER_Error *err = NULL;

    if (!e)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    e->lock = -1;
    if (setting && setting[0]) {
        char *path = expand_setting(model_dir, setting);

        err = path ? open_named(e, path)
                   : backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
        free(path);
    }
    if (!err)
        err = complete_environment(e);
    if (err)
        environment_close(e);
    else
        *ret_environment = e;
    return err;
}

void environment_close(struct environment *e)
{
    if (!e)
        return;
    if (e->lock >= 0) {
        if (lock_file(e->lock, LOCK_EX | LOCK_NB)) /* nobody else uses it */
            remove_entry(e->cache, strrchr(e->root, '/') + 1);
        close(e->lock);
    }
    for (size_t i = 0; i < e->n_variables; i++)
        free(e->variables[i]);
    free(e->root);
    free(e->python);
    free(e->cache);
    free(e);
}

const char *environment_python(const struct environment *e)
{
    return e->python;
}

const char *const *environment_variables(const struct environment *e)
{
    return (const char *const *)e->variables;
}
