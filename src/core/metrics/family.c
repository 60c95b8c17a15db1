/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two levels. What callers hold (`metric_family`, `metric`) are handles, each with one owner.
 * Behind them are shared objects (`family`, `series`), found by name and by labels, and freed with
 * their last handle.
 *
 * metrics_mu guards both maps and the counts of handles. Values are atomic, so that counting takes
 * no lock. Printing holds metrics_mu throughout and sorts by name.
 */
#include "core/metrics/family.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/mutex.h"
#include "base/status.h"
#include "base/str.h"
#include "core/metrics/histogram.h"

enum { METRICS_LEVEL = 850, MAX_LABEL_BYTES = 1 << 20 };

/* The object that all handles of one name share. */
struct family {
    /* Constant. */
    enum metric_kind kind;
    char *name, *description;

    /* Under metrics_mu. */
    struct map series; /* by labels */
    size_t n_handles;
};

/* The object that all handles of one family with the same labels share. */
struct series {
    /* Constant. */
    struct family *family;
    char *labels; /* `a="1",b="2"`: sorted, escaped, as they are printed */

    size_t n_handles; /* under metrics_mu */

    /* Any thread: the value of a counter or gauge; or the histogram. */
    _Atomic double value;
    struct histogram histogram;
};

struct metric_family {
    struct family *shared; /* constant */
    atomic_size_t n_metrics;
};

struct metric {
    struct metric_family *family; /* constant, as is: */
    struct series *series;
};

static struct mutex metrics_mu; /* level 850 in core/README.md */
/* Under metrics_mu. */
static struct map families = MAP_INIT; /* by name */
static size_t n_sort_steps;

static bool (*is_name_reserved)(const char *name); /* constant once the library is loaded */

__attribute__((constructor)) static void init_metrics_mutex(void)
{
    mutex_init(&metrics_mu, METRICS_LEVEL, "metrics_mu");
}

void metric_families_reserve(bool (*is_reserved)(const char *name))
{
    is_name_reserved = is_reserved;
}

static const char *const kind_names[] = {"COUNTER", "GAUGE", "HISTOGRAM"};

static struct status *refuse_operation(const struct metric *m, const char *what)
{
    return status_new(STATUS_UNSUPPORTED, "TRITONSERVER_METRIC_KIND_%s does not support %s",
                      kind_names[m->series->family->kind], what);
}

/* ---- Families -------------------------------------------------------------------------------- */

/* The maps are charged to no model: they outlive the model that happens to make them grow. */
static void put_without_payer(struct map *map, const char *key, void *value)
{
    MEM_CHARGE(NULL, 0);
    map_puts(map, key, value);
}

struct status *metric_family_new(enum metric_kind kind, const char *name, const char *description,
                                 struct metric_family **ret_family)
{
    struct status *st = NULL;
    if ((unsigned)kind >= ARRAY_SIZE(kind_names))
        return status_new(STATUS_INVALID_ARG,
                          "Unsupported kind passed to MetricFamily constructor.");
    if (!str_is_identifier(name, ':'))
        return status_new(STATUS_INVALID_ARG, "Invalid metric name '%s'", name);
    if (is_name_reserved && is_name_reserved(name))
        return status_new(STATUS_INVALID_ARG,
                          "Family name already exists: '%s' is one of the server's own", name);

    mutex_lock(&metrics_mu);
    struct family *f = map_gets(&families, name);
    if (!f) {
        f = mem_zalloc(sizeof(*f));
        f->kind = kind;
        f->name = mem_strdup(name);
        f->description = mem_strdup(description);
        map_init(&f->series);
        put_without_payer(&families, f->name, f);
    } else if (f->kind != kind) {
        st = status_new(STATUS_INVALID_ARG,
                        "Family name already exists with different type: '%s' is a %s", name,
                        kind_names[f->kind]);
    }
    f->n_handles += !st;
    mutex_unlock(&metrics_mu);
    if (st)
        return st;

    struct metric_family *family = mem_zalloc(sizeof(*family));
    family->shared = f;
    *ret_family = family;
    return NULL;
}

struct status *metric_family_free(struct metric_family *family)
{
    struct family *f = family->shared;
    if (atomic_load(&family->n_metrics))
        return status_new(STATUS_INTERNAL, "Must call MetricDelete on all dependent metrics before "
                                           "calling MetricFamilyDelete.");
    mutex_lock(&metrics_mu);
    bool last = --f->n_handles == 0; /* then it has no metrics, either */
    if (last)
        map_remove(&families, f->name, strlen(f->name));
    mutex_unlock(&metrics_mu);
    if (last) {
        map_done(&f->series);
        mem_free(f->description);
        mem_free(f->name);
        mem_free(f);
    }
    mem_free(family);
    return NULL;
}

enum metric_kind metric_family_kind(const struct metric_family *family)
{
    return family->shared->kind;
}

/* ---- Metrics --------------------------------------------------------------------------------- */

static int compare_labels(const void *a, const void *b)
{
    const struct metric_label *x = a, *y = b;
    return strcmp(x->name, y->name);
}

/* Writes `a="1",b="2"`. */
static struct status *labels_print(const struct metric_label *labels, size_t n_labels,
                                   struct buf *out)
{
    struct status *st = NULL;
    struct metric_label *sorted = mem_try_alloc((n_labels + 1) * sizeof(*sorted));
    if (!sorted)
        return status_no_memory();
    if (n_labels)
        memcpy(sorted, labels, n_labels * sizeof(*sorted));
    qsort(sorted, n_labels, sizeof(*sorted), compare_labels);
    for (size_t i = 0; i < n_labels && !st; i++) {
        const char *name = sorted[i].name;
        if (!str_is_identifier(name, '_') || strncmp(name, "__", 2) == 0)
            st = status_new(STATUS_INVALID_ARG, "Invalid label name '%s'", name);
        else if (i && strcmp(name, sorted[i - 1].name) == 0)
            st = status_new(STATUS_INVALID_ARG, "Duplicate label name '%s'", name);
        exposition_label(out, i == 0, name, sorted[i].value);
    }
    mem_free(sorted);
    return st ? st : buf_status(out);
}

static struct status *check_args(enum metric_kind kind, const struct metric_args *args)
{
    static const char *const names[] = {"counter", "gauge"};
    if (kind != METRIC_HISTOGRAM)
        return args ? status_new(STATUS_INVALID_ARG,
                                 "Unexpected args found in %s Metric constructor.", names[kind])
                    : NULL;
    if (!args)
        return status_new(STATUS_INVALID_ARG, "Bucket boundaries not found in Metric args.");
    if (!args->is_histogram)
        return status_new(STATUS_INVALID_ARG, "Metric args not set to histogram kind.");
    return NULL;
}

static void series_free(struct series *s)
{
    if (!s)
        return;
    histogram_done(&s->histogram);
    mem_free(s->labels);
    mem_free(s);
}

static struct status *series_new(struct family *f, const char *labels,
                                 const struct metric_args *args, struct series **ret_series)
{
    struct series *s = mem_zalloc(sizeof(*s));
    struct status *st = NULL;
    s->family = f;
    s->labels = mem_strdup(labels);
    if (args)
        st = histogram_init(&s->histogram, args->buckets, args->n_buckets);
    if (st)
        series_free(s);
    else
        *ret_series = s;
    return st;
}

/* Returns the existing one, or the new one, which is then taken from *series. */
static struct series *get_series_locked(struct family *f, const char *labels,
                                        struct series **series)
{
    mutex_assert_held(&metrics_mu);
    struct series *s = map_gets(&f->series, labels);
    if (!s) {
        s = TAKE(*series);
        put_without_payer(&f->series, s->labels, s);
    }
    return s;
}

struct status *metric_new(struct metric_family *family, const struct metric_label *labels,
                          size_t n_labels, const struct metric_args *args,
                          struct metric **ret_metric)
{
    AUTO(buf) text = BUF_INIT(MAX_LABEL_BYTES);
    struct family *f = family->shared;
    struct series *series = NULL;
    struct status *st = check_args(f->kind, args);
    if (!st)
        st = labels_print(labels, n_labels, &text);
    if (!st)
        st = series_new(f, buf_text(&text), args, &series);
    if (st)
        return st;

    struct metric *m = mem_zalloc(sizeof(*m));
    m->family = family;
    mutex_lock(&metrics_mu);
    m->series = get_series_locked(f, buf_text(&text), &series);
    m->series->n_handles++;
    mutex_unlock(&metrics_mu);
    series_free(series);
    atomic_fetch_add(&family->n_metrics, 1);
    *ret_metric = m;
    return NULL;
}

void metric_free(struct metric *m)
{
    if (!m)
        return;
    struct series *s = m->series;
    mutex_lock(&metrics_mu);
    bool last = --s->n_handles == 0;
    if (last)
        map_remove(&s->family->series, s->labels, strlen(s->labels));
    mutex_unlock(&metrics_mu);
    if (last)
        series_free(s);
    atomic_fetch_sub(&m->family->n_metrics, 1);
    mem_free(m);
}

enum metric_kind metric_kind(const struct metric *m)
{
    return m->series->family->kind;
}

/* ---- Values ---------------------------------------------------------------------------------- */

struct status *metric_value(const struct metric *m, double *ret_value)
{
    if (metric_kind(m) == METRIC_HISTOGRAM)
        return refuse_operation(m, "Value");
    *ret_value = atomic_load_explicit(&m->series->value, memory_order_relaxed);
    return NULL;
}

struct status *metric_increment(struct metric *m, double value)
{
    if (metric_kind(m) == METRIC_HISTOGRAM)
        return refuse_operation(m, "Increment");
    if (metric_kind(m) == METRIC_COUNTER && value < 0)
        return status_new(STATUS_INVALID_ARG, "TRITONSERVER_METRIC_KIND_COUNTER can only be "
                                              "incremented monotonically by non-negative values.");
    double before = atomic_load_explicit(&m->series->value, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&m->series->value, &before, before + value,
                                                  memory_order_relaxed, memory_order_relaxed))
        ;
    return NULL;
}

struct status *metric_set(struct metric *m, double value)
{
    if (metric_kind(m) != METRIC_GAUGE)
        return refuse_operation(m, "Set");
    atomic_store_explicit(&m->series->value, value, memory_order_relaxed);
    return NULL;
}

struct status *metric_observe(struct metric *m, double value)
{
    if (metric_kind(m) != METRIC_HISTOGRAM)
        return refuse_operation(m, "Observe");
    histogram_observe(&m->series->histogram, value);
    return NULL;
}

/* ---- Printing -------------------------------------------------------------------------------- */

static int compare_entries(const void *a, const void *b)
{
    const struct map_entry *const *x = a, *const *y = b;
    n_sort_steps++;
    return strcmp((*x)->key, (*y)->key);
}

/* Returns its entries sorted by key, for mem_free(); they are valid while metrics_mu is held. */
static struct map_entry **sort_locked(const struct map *map)
{
    mutex_assert_held(&metrics_mu);
    struct map_entry **sorted = mem_alloc((map->count + 1) * sizeof(*sorted)), *entry;
    size_t pos = 0, n = 0;
    while ((entry = map_next(map, &pos)))
        sorted[n++] = entry;
    qsort(sorted, n, sizeof(struct map_entry *), compare_entries);
    return sorted;
}

static void print_family_locked(const struct family *f, struct buf *out)
{
    struct map_entry **sorted = sort_locked(&f->series);
    exposition_family(out, f->name, f->description, f->kind);
    for (size_t i = 0; i < f->series.count; i++) {
        const struct series *s = sorted[i]->value;
        if (f->kind == METRIC_HISTOGRAM)
            histogram_print(&s->histogram, f->name, s->labels, out);
        else
            exposition_line(out, f->name, "", s->labels, NULL,
                            atomic_load_explicit(&s->value, memory_order_relaxed));
    }
    mem_free(sorted);
}

void metric_families_print(struct buf *out)
{
    mutex_lock(&metrics_mu);
    struct map_entry **sorted = sort_locked(&families);
    for (size_t i = 0; i < families.count; i++) {
        const struct family *f = sorted[i]->value;
        if (f->series.count)
            print_family_locked(f, out);
    }
    mem_free(sorted);
    mutex_unlock(&metrics_mu);
}

void metric_family_visit(const char *name,
                         void (*visit)(void *arg, const char *labels, double value), void *arg)
{
    struct map_entry *entry;
    size_t pos = 0;
    mutex_lock(&metrics_mu);
    const struct family *f = map_gets(&families, name);
    while (f && f->kind != METRIC_HISTOGRAM && (entry = map_next(&f->series, &pos))) {
        const struct series *s = entry->value;
        visit(arg, s->labels, atomic_load_explicit(&s->value, memory_order_relaxed));
    }
    mutex_unlock(&metrics_mu);
}

size_t metric_families_sort_steps(void)
{
    mutex_lock(&metrics_mu);
    size_t n = n_sort_steps;
    mutex_unlock(&metrics_mu);
    return n;
}
