/* SPDX-License-Identifier: Apache-2.0 */
/*
 * families - see families.h. A child names a family or a metric by a number, an index into a table
 * of this file; all numbers that it sends are looked up there.
 */
#include "python/families.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "python/child.h"
#include "python/reply.h"
#include "python/tensor.h"

#define IF_THERE(function) extern __typeof__(function) function __attribute__((weak))
IF_THERE(TRITONSERVER_MetricArgsNew);
IF_THERE(TRITONSERVER_MetricArgsSetHistogram);
IF_THERE(TRITONSERVER_MetricArgsDelete);
IF_THERE(TRITONSERVER_MetricNewWithArgs);
IF_THERE(TRITONSERVER_MetricObserve);

enum { MOST_LABELS = 1024, MOST_BUCKETS = 65536, MOST_ENTRIES = 1 << 20, LONGEST_TEXT = 4096 };

/* A family or a metric; NULL: deleted. */
struct entry {
    TRITONSERVER_MetricFamily *family;
    TRITONSERVER_Metric *metric;
};

struct families {
    struct entry *entries;
    uint32_t n, room;
};

struct families *families_new(void)
{
    return calloc(1, sizeof(struct families));
}

void families_free(struct families *f)
{
    if (!f)
        return;
    for (uint32_t i = 0; i < f->n; i++) {
        if (f->entries[i].metric)
            backend_ignore(TRITONSERVER_MetricDelete(f->entries[i].metric), "deleting a metric");
    }
    for (uint32_t i = 0; i < f->n; i++) {
        if (f->entries[i].family)
            backend_ignore(TRITONSERVER_MetricFamilyDelete(f->entries[i].family),
                           "deleting a metric family");
    }
    free(f->entries);
    free(f);
}

static TRITONSERVER_Error *add_entry(struct families *f, struct entry e, uint64_t *ret_number)
{
    if (f->n == f->room) {
        const uint32_t room = f->room ? f->room * 2 : 16;
        struct entry *grown =
            room > MOST_ENTRIES ? NULL : realloc(f->entries, room * sizeof *grown);

        if (!grown)
            return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "no memory for a metric");
        f->entries = grown;
        f->room = room;
    }
    f->entries[f->n++] = e;
    *ret_number = f->n;
    return NULL;
}

static struct entry *look_entry_up(struct families *f, uint64_t number, bool is_metric)
{
    struct entry *e = number && number <= f->n ? &f->entries[number - 1] : NULL;

    return e && (is_metric ? e->metric != NULL : e->family != NULL) ? e : NULL;
}

static TRITONSERVER_Error *lack_entry(const char *what)
{
    return backend_error(TRITONSERVER_ERROR_INVALID_ARG, "this %s has been deleted", what);
}

/* ---- Families ------------------------------------------------------------------------------- */

static TRITONSERVER_Error *make_family(struct families *f, struct unpacker *u, uint64_t *ret_number)
{
    char name[LONGEST_TEXT], description[LONGEST_TEXT];
    TRITONSERVER_MetricFamily *family;

    tensor_text(u, name, sizeof name);
    tensor_text(u, description, sizeof description);
    const uint8_t kind = unpack_u8(u);
    if (u->failed)
        return NULL;
    TRY(TRITONSERVER_MetricFamilyNew(&family, (TRITONSERVER_MetricKind)kind, name, description));
    TRITONSERVER_Error *err = add_entry(f, (struct entry){.family = family}, ret_number);
    if (err)
        TRITONSERVER_ErrorDelete(TRITONSERVER_MetricFamilyDelete(family));
    return err;
}

static TRITONSERVER_Error *delete_family(struct families *f, uint64_t number)
{
    struct entry *e = look_entry_up(f, number, false);

    if (!e)
        return lack_entry("metric family");
    TRY(TRITONSERVER_MetricFamilyDelete(e->family));
    e->family = NULL;
    return NULL;
}

/* ---- Metrics -------------------------------------------------------------------------------- */

struct labels {
    const TRITONSERVER_Parameter **list;
    uint32_t n;
};

static void free_labels(struct labels *l)
{
    for (uint32_t i = 0; i < l->n; i++)
        TRITONSERVER_ParameterDelete((TRITONSERVER_Parameter *)(uintptr_t)l->list[i]);
    free(l->list);
}

/* read_labels - false without memory, or when the message is impossible. */
static bool read_labels(struct labels *l, struct unpacker *u)
{
    const uint32_t n = unpack_count(u, MOST_LABELS, 8);

    l->n = 0;
    l->list = calloc(n ? n : 1, sizeof(*l->list));
    for (; l->list && l->n < n; l->n++) {
        char key[LONGEST_TEXT], value[LONGEST_TEXT];

        tensor_text(u, key, sizeof key);
        tensor_text(u, value, sizeof value);
        l->list[l->n] = TRITONSERVER_ParameterNew(key, TRITONSERVER_PARAMETER_STRING, value);
        if (!l->list[l->n])
            return false;
    }
    return l->list && !u->failed;
}

static TRITONSERVER_Error *make_python_histogram(TRITONSERVER_Metric **metric,
                                                 TRITONSERVER_MetricFamily *family,
                                                 const struct labels *l, const double *buckets,
                                                 uint32_t n)
{
    TRITONSERVER_MetricArgs *args;

    if (!TRITONSERVER_MetricNewWithArgs || !TRITONSERVER_MetricArgsNew)
        return backend_error(TRITONSERVER_ERROR_UNSUPPORTED, "the server has no histograms");
    TRY(TRITONSERVER_MetricArgsNew(&args));
    TRITONSERVER_Error *err = TRITONSERVER_MetricArgsSetHistogram(args, buckets, n);
    if (!err)
        err = TRITONSERVER_MetricNewWithArgs(metric, family, l->list, l->n, args);
    TRITONSERVER_ErrorDelete(TRITONSERVER_MetricArgsDelete(args));
    return err;
}

static TRITONSERVER_Error *make_metric_by_kind(TRITONSERVER_Metric **metric,
                                               TRITONSERVER_MetricFamily *family,
                                               const struct labels *l, struct unpacker *u)
{
    const uint32_t n = unpack_count(u, MOST_BUCKETS, sizeof(double));

    if (!n)
        return TRITONSERVER_MetricNew(metric, family, l->list, l->n);
    double *buckets = malloc(n * sizeof *buckets);
    if (!buckets)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    for (uint32_t i = 0; i < n; i++)
        buckets[i] = unpack_f64(u);
    TRITONSERVER_Error *err = make_python_histogram(metric, family, l, buckets, n);
    free(buckets);
    return err;
}

static TRITONSERVER_Error *make_family_metric(struct families *f, struct unpacker *u,
                                              uint64_t *ret_number)
{
    const uint64_t number = unpack_u64(u);
    struct entry *family = look_entry_up(f, number, false);
    struct labels labels;
    TRITONSERVER_Metric *metric = NULL;
    TRITONSERVER_Error *err = NULL;

    if (!read_labels(&labels, u))
        err = backend_error(TRITONSERVER_ERROR_INVALID_ARG, "the labels of a metric are not valid");
    else if (!family)
        err = lack_entry("metric family");
    else
        err = make_metric_by_kind(&metric, family->family, &labels, u);
    free_labels(&labels);
    if (err)
        return err;
    err = add_entry(f, (struct entry){.metric = metric}, ret_number);
    if (err)
        TRITONSERVER_ErrorDelete(TRITONSERVER_MetricDelete(metric));
    return err;
}

static TRITONSERVER_Error *remove_metric(struct families *f, uint64_t number)
{
    struct entry *e = look_entry_up(f, number, true);

    if (!e)
        return lack_entry("metric");
    TRY(TRITONSERVER_MetricDelete(e->metric));
    e->metric = NULL;
    return NULL;
}

static TRITONSERVER_Error *update_metric(struct families *f, uint32_t kind, struct unpacker *u)
{
    const uint64_t number = unpack_u64(u);
    const double value = unpack_f64(u);
    const struct entry *e = look_entry_up(f, number, true);

    if (u->failed)
        return NULL;
    if (!e)
        return lack_entry("metric");
    if (kind == NOTE_METRIC_INCREMENT)
        return TRITONSERVER_MetricIncrement(e->metric, value);
    if (kind == NOTE_METRIC_SET)
        return TRITONSERVER_MetricSet(e->metric, value);
    return TRITONSERVER_MetricObserve
               ? TRITONSERVER_MetricObserve(e->metric, value)
               : backend_error(TRITONSERVER_ERROR_UNSUPPORTED, "the server has no histograms");
}

static TRITONSERVER_Error *read_metric(struct families *f, struct unpacker *u, double *ret_value)
{
    const struct entry *e = look_entry_up(f, unpack_u64(u), true);

    return e ? TRITONSERVER_MetricValue(e->metric, ret_value) : lack_entry("metric");
}

bool families_ask(struct child *c, uint32_t kind, uint64_t id, struct unpacker *u)
{
    struct families *f = c->families;
    TRITONSERVER_Error *err;
    uint64_t number = 0;
    double value = 0;

    switch (kind) {
    case NOTE_FAMILY_NEW:
        err = make_family(f, u, &number);
        break;
    case NOTE_FAMILY_DELETE:
        err = delete_family(f, unpack_u64(u));
        break;
    case NOTE_METRIC_NEW:
        err = make_family_metric(f, u, &number);
        break;
    case NOTE_METRIC_DELETE:
        err = remove_metric(f, unpack_u64(u));
        break;
    case NOTE_METRIC_VALUE:
        err = read_metric(f, u, &value);
        break;
    default:
        err = update_metric(f, kind, u);
    }
    if (u->failed) {
        TRITONSERVER_ErrorDelete(err);
        return false;
    }
    if (err)
        reply_error(c, id, err);
    else if (kind == NOTE_METRIC_VALUE)
        reply_f64(c, id, value);
    else if (kind == NOTE_FAMILY_NEW || kind == NOTE_METRIC_NEW)
        reply_u64(c, id, number);
    else
        reply_nothing(c, id);
    return true;
}

/* ---- Restarts ------------------------------------------------------------------------------- */

/* One metric for each model that has restarted; few have. */
struct restarted {
    struct restarted *next;
    TRITONSERVER_Metric *metric;
    char *model, *version;
};

static struct {
    pthread_mutex_t mu;
    TRITONSERVER_MetricFamily *family; /* NULL: none yet */
    struct restarted *first;
} restarts = {.mu = PTHREAD_MUTEX_INITIALIZER};

static TRITONSERVER_Error *open_restarts_locked(void)
{
    return restarts.family
               ? NULL
               : TRITONSERVER_MetricFamilyNew(&restarts.family, TRITONSERVER_METRIC_KIND_COUNTER,
                                              "conch_python_restarts_total",
                                              "Number of processes of Python models started anew");
}

static TRITONSERVER_Error *open_restarted_locked(const char *model, const char *version,
                                                 struct restarted **ret_restarted)
{
    struct labels l = {.n = 2};
    const TRITONSERVER_Parameter *both[2];

    TRY(open_restarts_locked());
    struct restarted *r = calloc(1, sizeof *r);
    if (!r)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    both[0] = TRITONSERVER_ParameterNew("model", TRITONSERVER_PARAMETER_STRING, model);
    both[1] = TRITONSERVER_ParameterNew("version", TRITONSERVER_PARAMETER_STRING, version);
    l.list = both;
    r->model = strdup(model);
    r->version = strdup(version);
    TRITONSERVER_Error *err = r->model && r->version
                                  ? TRITONSERVER_MetricNew(&r->metric, restarts.family, l.list, l.n)
                                  : backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    for (int i = 0; i < 2; i++)
        TRITONSERVER_ParameterDelete((TRITONSERVER_Parameter *)(uintptr_t)both[i]);
    if (err) {
        free(r->model);
        free(r->version);
        free(r);
        return err;
    }
    r->next = restarts.first;
    restarts.first = r;
    *ret_restarted = r;
    return NULL;
}

void families_count_restart(const char *model, const char *version)
{
    TRITONSERVER_Error *err = NULL;

    pthread_mutex_lock(&restarts.mu);
    struct restarted *r = restarts.first;
    while (r && (strcmp(r->model, model) != 0 || strcmp(r->version, version) != 0))
        r = r->next;
    if (!r)
        err = open_restarted_locked(model, version, &r);
    if (!err)
        err = TRITONSERVER_MetricIncrement(r->metric, 1);
    pthread_mutex_unlock(&restarts.mu);
    TRITONSERVER_ErrorDelete(err); /* a server without metrics */
}

void families_forget_restarts(void)
{
    pthread_mutex_lock(&restarts.mu);
    while (restarts.first) {
        struct restarted *r = restarts.first;

        restarts.first = r->next;
        TRITONSERVER_ErrorDelete(TRITONSERVER_MetricDelete(r->metric));
        free(r->model);
        free(r->version);
        free(r);
    }
    if (restarts.family)
        TRITONSERVER_ErrorDelete(TRITONSERVER_MetricFamilyDelete(restarts.family));
    restarts.family = NULL;
    pthread_mutex_unlock(&restarts.mu);
}
