/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libarchive reads the archive. Of the entries two kinds count, by their names, which are compared
 * and never used as paths:
 *
 *     <any>/data/aotinductor/model/<hash>.wrapper.so              the code
 *     <any>/data/aotinductor/model/<hash>.wrapper_metadata.json   what it was compiled for
 *
 * The code goes into a file in memory, whose bytes nothing can change any more once they are
 * checked. PyTorch stores entries without compression, so one that would become much larger than
 * the archive is no model's.
 */
#include "pytorch/package.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "common/libarchive.h"

/* More than any package has. */
#define MAX_ENTRIES  10000
#define MAX_METADATA (64 << 10)
#define MAX_GROWTH   16 /* of an entry beside the whole archive */

static TRITONSERVER_Error *lack_memory(void)
{
    return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
}

/* ---- The processor --------------------------------------------------------------------------- */

/* Reads the first line of a file that begins with one of two words, behind its colon. */
static TRITONSERVER_Error *read_line_of(const char *path, const char *word, const char *other,
                                        char **ret_text)
{
    FILE *from = fopen(path, "re");
    char *line = NULL, *colon;
    size_t room = 0;
    ssize_t n;

    *ret_text = NULL;
    if (!from)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "cannot read '%s': %s", path,
                             strerror(errno));
    while (!*ret_text && (n = getline(&line, &room, from)) > 0) {
        colon = strchr(line, ':');
        if (!colon ||
            (strncmp(line, word, strlen(word)) != 0 && strncmp(line, other, strlen(other)) != 0))
            continue;
        line[n - 1] = ' '; /* the line's end; each word is between blanks */
        *ret_text = strdup(colon + 1);
    }
    free(line);
    fclose(from);
    if (!*ret_text)
        *ret_text = strdup(" ");
    return *ret_text ? NULL : lack_memory();
}

TRITONSERVER_Error *processor_read(struct processor *ret_processor)
{
    struct utsname name;

    *ret_processor = (struct processor){0};
    if (uname(&name) != 0)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "uname: %s", strerror(errno));
    memcpy(ret_processor->machine, name.machine, sizeof(ret_processor->machine) - 1);
    return read_line_of("/proc/cpuinfo", "flags", "Features", &ret_processor->features);
}

void processor_done(struct processor *p)
{
    free(p->features);
    p->features = NULL;
}

/* What the words of a package's AOTI_CPU_ISA stand for in /proc/cpuinfo. */
static const struct {
    const char *word, *features[5];
} instruction_sets[] = {
    {"avx2", {"avx2", "fma", "f16c"}},
    {"avx512", {"avx512f", "avx512dq", "avx512vl", "avx512bw", "fma"}},
    {"avx512_vnni", {"avx512_vnni"}},
    {"avx512_bf16", {"avx512_bf16"}},
    {"amx_tile", {"amx_tile", "amx_bf16", "amx_int8"}},
    {"neon", {"asimd"}},
    {"asimd", {"asimd"}},
    {"sve", {"sve"}},
    {"sve256", {"sve"}},
    {"vsx", {NULL}},
    {"INVALID_VEC_ISA", {NULL}}, /* none */
};

static bool has_feature(const struct processor *p, const char *feature)
{
    size_t n = strlen(feature);

    for (const char *at = p->features; (at = strstr(at, feature)) != NULL; at += n)
        if (at > p->features && at[-1] == ' ' && at[n] == ' ')
            return true;
    return false;
}

/* One word of AOTI_CPU_ISA. */
static TRITONSERVER_Error *check_instruction_set(const struct processor *p, const char *word,
                                                 size_t n)
{
    for (size_t i = 0; i < sizeof(instruction_sets) / sizeof(*instruction_sets); i++) {
        if (strlen(instruction_sets[i].word) != n ||
            strncasecmp(instruction_sets[i].word, word, n) != 0)
            continue;
        for (size_t f = 0; f < 5 && instruction_sets[i].features[f]; f++)
            if (!has_feature(p, instruction_sets[i].features[f]))
                return backend_error(TRITONSERVER_ERROR_UNSUPPORTED,
                                     "it is compiled for processors with %.*s, and this one lacks "
                                     "%s; compile it on the machine that serves it",
                                     (int)n, word, instruction_sets[i].features[f]);
        return NULL;
    }
    return backend_error(TRITONSERVER_ERROR_UNSUPPORTED,
                         "it is compiled for processors with '%.*s', which is unknown here", (int)n,
                         word);
}

/* ---- What it was compiled for ---------------------------------------------------------------- */

static TRITONSERVER_Error *check_key(const struct doc_value *root, const char *key,
                                     const char *wanted)
{
    const char *given = doc_string(doc_get(root, key), "");

    if (!*given || strcmp(given, wanted) == 0)
        return NULL;
    return backend_error(TRITONSERVER_ERROR_UNSUPPORTED, "it is compiled for %s '%.64s', not '%s'",
                         key, given, wanted);
}

/* *ret_tells: it names instruction sets, or that there are none. */
static TRITONSERVER_Error *check_metadata_of(const struct doc_value *root,
                                             const struct processor *p, bool *ret_tells)
{
    const char *sets = doc_string(doc_get(root, "AOTI_CPU_ISA"), "");

    TRY(check_key(root, "AOTI_DEVICE_KEY", "cpu"));
    TRY(check_key(root, "AOTI_PLATFORM", "linux"));
    TRY(check_key(root, "AOTI_MACHINE", p->machine));
    for (const char *at = sets; *at;) {
        size_t n = strcspn(at, " ");

        if (n > 0) {
            TRY(check_instruction_set(p, at, n));
            *ret_tells = true;
        }
        at += n + (at[n] == ' ');
    }
    return NULL;
}

static TRITONSERVER_Error *check_metadata(const char *text, size_t n, const struct processor *p,
                                          bool *ret_tells)
{
    const char *why = "";
    struct doc *metadata = doc_parse(text, n, &why);
    TRITONSERVER_Error *err;

    if (!metadata)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG, "its metadata is no JSON: %s", why);
    err = check_metadata_of(doc_root(metadata), p, ret_tells);
    doc_free(metadata);
    return err;
}

/* ---- Entries --------------------------------------------------------------------------------- */

struct reading {
    const struct libarchive *lib;
    struct archive *archive;
    const struct processor *processor;
    uint64_t max_bytes;
    struct package package; /* code is -1 until it is found */
    bool tells_processors;  /* its metadata does */
};

static TRITONSERVER_Error *package_failure(const struct reading *r)
{
    const char *why = r->lib->error_string(r->archive);

    return backend_error(TRITONSERVER_ERROR_INVALID_ARG, "it is no whole package: %s",
                         why ? why : "no memory");
}

/* Is the entry a file of the model, and which? */
static const char *find_package_file(const char *name)
{
    static const char folder[] = "/data/aotinductor/model/";
    const char *at = strstr(name, folder);

    at = at ? at + sizeof(folder) - 1 : NULL;
    return at && !strchr(at, '/') ? at : NULL;
}

static bool has_ending(const char *text, const char *end)
{
    size_t n = strlen(text), n_end = strlen(end);

    return n >= n_end && strcmp(text + n - n_end, end) == 0;
}

static TRITONSERVER_Error *read_metadata(struct reading *r)
{
    static const size_t room = MAX_METADATA + 1;
    char *text = malloc(room);
    TRITONSERVER_Error *err;
    la_ssize_t n = 1;
    size_t have = 0;

    if (!text)
        return lack_memory();
    while (n > 0 && have < room) {
        n = r->lib->read_data(r->archive, text + have, room - have);
        have += n > 0 ? (size_t)n : 0;
    }
    if (n < 0)
        err = package_failure(r);
    else if (have == room)
        err = backend_error(TRITONSERVER_ERROR_INVALID_ARG, "its metadata has more than %d bytes",
                            MAX_METADATA);
    else
        err = check_metadata(text, have, r->processor, &r->tells_processors);
    free(text);
    return err;
}

static TRITONSERVER_Error *write_code(struct reading *r, char *block, size_t room)
{
    for (;;) {
        la_ssize_t n = r->lib->read_data(r->archive, block, room);

        if (n < 0)
            return package_failure(r);
        if (n == 0)
            return NULL;
        if ((uint64_t)n > r->max_bytes - r->package.size)
            return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                                 "its code has more than %llu bytes, %d times the whole file",
                                 (unsigned long long)r->max_bytes, MAX_GROWTH);
        if (write(r->package.code, block, (size_t)n) != n)
            return backend_error(TRITONSERVER_ERROR_UNAVAILABLE,
                                 "no memory for its code of more than %llu bytes",
                                 (unsigned long long)r->package.size);
        r->package.size += (uint64_t)n;
    }
}

static TRITONSERVER_Error *take_code_entry(struct reading *r)
{
    static const size_t room = 256 << 10;
    TRITONSERVER_Error *err;
    char *block;

    if (r->package.code >= 0)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG, "it has the code of two models");
    block = malloc(room);
    if (!block)
        return lack_memory();
    r->package.code = memfd_create("conch-pt2", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    err = r->package.code < 0 ? backend_error(TRITONSERVER_ERROR_UNAVAILABLE,
                                              "no file in memory: %s", strerror(errno))
                              : write_code(r, block, room);
    free(block);
    return err;
}

static TRITONSERVER_Error *read_package_entry(struct reading *r, struct archive_entry *entry)
{
    const char *name = r->lib->entry_pathname(entry), *file;

    if (!name || r->lib->entry_filetype(entry) != S_IFREG)
        return NULL;
    if (strstr(name, "/data/weights/") || strstr(name, "/data/constants/") ||
        has_ending(name, ".blob"))
        return backend_error(TRITONSERVER_ERROR_UNSUPPORTED,
                             "it has weights outside of its code ('%.200s'); export it without "
                             "aot_inductor.package_constants_on_disk",
                             name);
    file = find_package_file(name);
    if (file && has_ending(file, "_metadata.json"))
        return read_metadata(r);
    return file && has_ending(file, ".so") ? take_code_entry(r) : NULL;
}

static TRITONSERVER_Error *read_entries(struct reading *r)
{
    struct archive_entry *entry;
    int n = 0, rc;

    while ((rc = r->lib->read_next_header(r->archive, &entry)) != ARCHIVE_EOF) {
        if (rc != ARCHIVE_OK && rc != ARCHIVE_WARN)
            return package_failure(r);
        if (++n > MAX_ENTRIES)
            return backend_error(TRITONSERVER_ERROR_INVALID_ARG, "it has more than %d entries",
                                 MAX_ENTRIES);
        TRY(read_package_entry(r, entry));
    }
    if (r->package.code < 0 || r->package.size == 0)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "it has no compiled model of the name 'model' for Linux");
    return NULL;
}

static TRITONSERVER_Error *read_archive(struct reading *r, const char *path)
{
    TRITONSERVER_Error *err;

    r->archive = r->lib->read_new();
    if (!r->archive)
        return lack_memory();
    r->lib->read_support_format_zip_seekable(r->archive);
    err = r->lib->read_open_filename(r->archive, path, 256 << 10) == ARCHIVE_OK
              ? read_entries(r)
              : package_failure(r);
    r->lib->read_free(r->archive);
    return err;
}

/* Checks the code where it lies, and closes it to changes. */
static TRITONSERVER_Error *seal_code(struct package *p, const struct processor *processor)
{
    void *bytes = mmap(NULL, p->size, PROT_READ | PROT_WRITE, MAP_SHARED, p->code, 0);
    TRITONSERVER_Error *err;

    if (bytes == MAP_FAILED)
        return lack_memory();
    err = code_check(bytes, p->size, processor->machine);
    munmap(bytes, p->size);
    if (!err &&
        fcntl(p->code, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) != 0)
        err =
            backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "sealing its code: %s", strerror(errno));
    return err;
}

TRITONSERVER_Error *package_open(const char *path, const struct processor *p,
                                 struct package *ret_package)
{
    struct reading r = {.processor = p, .package = {.code = -1}};
    TRITONSERVER_Error *err;
    const char *missing;
    struct stat st;

    r.lib = libarchive_load(&missing);
    if (!r.lib)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE,
                             "packages need libarchive (Debian: libarchive13): %s", missing);
    if (stat(path, &st) != 0)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG, "%s", strerror(errno));
    r.max_bytes = (uint64_t)st.st_size * MAX_GROWTH;
    err = read_archive(&r, path);
    if (!err)
        err = seal_code(&r.package, p);
    if (!err && !r.tells_processors)
        BACKEND_LOG(WARN, "'%s' does not tell for which processors it is compiled", path);
    if (err)
        package_close(&r.package);
    else
        *ret_package = r.package;
    return err;
}

void package_close(struct package *p)
{
    if (p->code >= 0)
        close(p->code);
    p->code = -1;
}
