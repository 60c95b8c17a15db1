/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One walk over a model's folder mixes names, sizes and times into a hash for each version, one for
 * the configurations, and one for all the rest. The walk is bounded in files and depth. Beyond
 * that, and after any error, the fingerprint is unknown, and an unknown one equals none, so that
 * the model is loaded again.
 */
#include "core/repo/fingerprint.h"

#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/repo/scan.h"
#include "core/storage/storage.h"

/*
 * The clock of a file system has ticks of at most 10 ms: a file that is written twice in one tick
 * looks the same. So a file that was written just now is examined again after the tick.
 */
static const int64_t tick_ns = 20 * NS_PER_MS;

struct walk {
    const struct storage *storage;
    size_t n_files;
    int64_t newest_ns; /* wall time, of all files so far */
};

static uint64_t mix_word(uint64_t hash, uint64_t value)
{
    hash ^= value; /* the finaliser of SplitMix64 */
    hash = (hash ^ hash >> 30) * 0xbf58476d1ce4e5b9ULL;
    hash = (hash ^ hash >> 27) * 0x94d049bb133111ebULL;
    return hash ^ hash >> 31;
}

static uint64_t mix_text(uint64_t hash, const char *text)
{
    uint64_t word;
    for (size_t left = strlen(text); left > 0;) {
        size_t n = MIN(left, sizeof(word));
        word = 0;
        memcpy(&word, text, n);
        hash = mix_word(hash, word);
        text += n;
        left -= n;
    }
    return mix_word(hash, '/');
}

static struct status *mix_folder(struct walk *w, const char *folder, unsigned int depth,
                                 uint64_t *hash);

/* A folder's own time only shows that an entry was added or removed, and so do the names in it. */
static struct status *mix_entry(struct walk *w, const char *folder, const char *name,
                                unsigned int depth, uint64_t *hash)
{
    struct file_info info = {.kind = FILE_MISSING};
    if (++w->n_files > FINGERPRINT_MAX_FILES || depth > FINGERPRINT_MAX_DEPTH)
        return status_new(STATUS_UNSUPPORTED, "too many files, or too deep");
    char *path = mem_printf("%s/%s", folder, name);
    struct status *st = storage_stat(w->storage, path, &info);
    *hash = mix_word(mix_text(*hash, name), info.kind);
    if (!st && info.kind == FILE_FOLDER) {
        st = mix_folder(w, path, depth + 1, hash);
    } else if (!st) {
        *hash = mix_word(*hash, info.size_bytes);
        *hash = mix_word(*hash, (uint64_t)info.modified_ns);
        w->newest_ns = MAX(w->newest_ns, info.modified_ns);
    }
    mem_free(path);
    return st;
}

static struct status *mix_folder(struct walk *w, const char *folder, unsigned int depth,
                                 uint64_t *hash)
{
    struct file_list list;
    struct status *st = storage_list(w->storage, folder, &list);
    if (st)
        return st;
    for (size_t i = 0; i < list.count && !st; i++) {
        if (strcmp(list.entries[i].name, "__pycache__") != 0)
            st = mix_entry(w, folder, list.entries[i].name, depth, hash);
    }
    file_list_done(&list);
    return st;
}

/* The folder with configurations that --model-config-name selects counts as one of them. */
static bool is_config(const char *name)
{
    return strcmp(name, "config.pbtxt") == 0 || strcmp(name, "configs") == 0;
}

static struct status *mix_model_folder(struct walk *w, const char *folder,
                                       const struct file_list *list, struct fingerprint *f)
{
    struct status *st = NULL;
    for (size_t i = 0; i < list->count && !st; i++) {
        const char *name = list->entries[i].name;
        int64_t version;
        if (scan_folder(name, &version) == SCAN_VERSION) {
            uint64_t value = 0;
            st = mix_entry(w, folder, name, 0, &value);
            f->versions[f->n_versions].version = version;
            f->versions[f->n_versions++].value = value;
        } else if (strncmp(name, "..", 2) !=
                   0) { /* where a mounted volume keeps the targets of its links */
            st = mix_entry(w, folder, name, 0, is_config(name) ? &f->config : &f->common);
        }
    }
    return st;
}

static int64_t wall_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * NS_PER_S + now.tv_nsec;
}

/* Returns how long until a write gets another time than those seen. */
static int64_t tick_left_ns(const struct walk *w)
{
    int64_t age_ns = wall_ns() - w->newest_ns;
    return age_ns >= 0 && age_ns < tick_ns ? tick_ns - age_ns : 0;
}

static struct fingerprint take_fingerprint_once(const struct storage *storage, const char *folder,
                                                int64_t *ret_tick_left_ns)
{
    struct walk w = {.storage = storage};
    struct fingerprint f = {0};
    struct file_list list;
    struct status *st = storage_list(storage, folder, &list);
    if (!st) {
        f.versions = mem_try_zalloc(list.count + 1, sizeof(*f.versions));
        st = f.versions ? mix_model_folder(&w, folder, &list, &f) : status_no_memory();
        file_list_done(&list);
    }
    f.known = !st;
    status_free(st); /* the functions that read the files report it better */
    *ret_tick_left_ns = tick_left_ns(&w);
    return f;
}

struct fingerprint fingerprint_take(const struct storage *storage, const char *folder)
{
    int64_t left_ns;
    struct fingerprint f = take_fingerprint_once(storage, folder, &left_ns);
    if (!f.known || left_ns == 0)
        return f;
    const struct timespec pause = {.tv_nsec = left_ns};
    nanosleep(&pause, NULL);
    fingerprint_done(&f);
    f = take_fingerprint_once(storage, folder, &left_ns);
    f.known &= left_ns == 0; /* files are still being written */
    return f;
}

void fingerprint_done(struct fingerprint *f)
{
    mem_free(f->versions);
    *f = (struct fingerprint){0};
}

static const uint64_t *find_version_value(const struct fingerprint *f, int64_t version)
{
    for (size_t i = 0; i < f->n_versions; i++) {
        if (f->versions[i].version == version)
            return &f->versions[i].value;
    }
    return NULL;
}

bool fingerprint_same_files(const struct fingerprint *a, const struct fingerprint *b,
                            int64_t version)
{
    const uint64_t *x = find_version_value(a, version), *y = find_version_value(b, version);
    return a->known && b->known && a->common == b->common && x && y && *x == *y;
}

bool fingerprint_same_version(const struct fingerprint *a, const struct fingerprint *b,
                              int64_t version)
{
    return a->config == b->config && fingerprint_same_files(a, b, version);
}

bool fingerprint_same(const struct fingerprint *a, const struct fingerprint *b)
{
    bool same = a->known && b->known && a->common == b->common && a->config == b->config &&
                a->n_versions == b->n_versions;
    for (size_t i = 0; i < a->n_versions && same; i++)
        same = fingerprint_same_version(a, b, a->versions[i].version);
    return same;
}
