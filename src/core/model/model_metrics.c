/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Made once, by the thread that loads the model, and constant while it serves; only the
 * histogram's counters change afterwards. page.c prints it.
 */
#include "core/model/model_metrics.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/metrics/exposition.h"

typedef Inference__ModelConfig__MetricTagsEntry tag_entry;

enum { MAX_LABEL_BYTES = 16 << 20 };

/* ---- Labels --------------------------------------------------------------------------------- */

static int compare_tags(const void *a, const void *b)
{
    return strcmp((*(tag_entry *const *)a)->key, (*(tag_entry *const *)b)->key);
}

/* Sorted by name, as all labels are: '_' sorts before the first letters of the server's own
 * labels. */
static void print_tags(const Inference__ModelConfig *pb, struct buf *out)
{
    tag_entry **tags = mem_alloc((pb->n_metric_tags + 1) * sizeof(tag_entry *));
    for (size_t i = 0; i < pb->n_metric_tags; i++)
        tags[i] = pb->metric_tags[i];
    qsort(tags, pb->n_metric_tags, sizeof(tag_entry *), compare_tags);
    for (size_t i = 0; i < pb->n_metric_tags; i++) {
        char *name = mem_printf("_%s", tags[i]->key); /* config_validate_general() has checked it */
        exposition_label(out, i == 0, name, tags[i]->value);
        mem_free(name);
    }
    mem_free(tags);
}

NODISCARD static struct status *print_labels(struct model_metrics *metrics,
                                             const struct model_metrics_facts *f)
{
    AUTO(buf) text = BUF_INIT(MAX_LABEL_BYTES);
    print_tags(f->config, &text);
    exposition_label(&text, text.size == 0, "model", f->name);
    if (f->repository)
        exposition_label(&text, false, "namespace", f->repository);
    metrics->head_length = text.size;
    exposition_label(&text, false, "version", f->version_text);
    struct status *st = buf_status(&text);
    if (st)
        return status_prefix(st, "labels of the metrics of model '%s': ", f->name);
    metrics->length = text.size;
    metrics->labels = mem_strdup(buf_text(&text));
    return NULL;
}

/* ---- Histograms ----------------------------------------------------------------------------- */

/* Finds the control of the family. The last one counts, as in the reference; a control of
 * another family is logged and ignored. */
static const Inference__ModelMetrics__MetricControl *
find_control(const struct model_metrics_facts *f)
{
    const Inference__ModelMetrics *metrics = f->config->model_metrics;
    const Inference__ModelMetrics__MetricControl *found = NULL;
    for (size_t i = 0; metrics && i < metrics->n_metric_control; i++) {
        const char *family = metrics->metric_control[i]->metric_identifier->family;
        if (strcmp(family, FIRST_RESPONSE_FAMILY) == 0)
            found = metrics->metric_control[i];
        else
            log_warn("model '%s': Metric family '%s' in 'metric_identifier' is not a customizable "
                     "metric in Triton core.",
                     f->name, family);
    }
    return found;
}

NODISCARD static struct status *make_histogram(struct model_metrics *metrics,
                                               const struct model_metrics_facts *f)
{
    static const double usual_ms[] = {100, 500, 2000, 5000};
    const Inference__ModelMetrics__MetricControl *control = find_control(f);
    const double *bounds_ms = control ? control->histogram_options->buckets : usual_ms;
    size_t n = control ? control->histogram_options->n_buckets : ARRAY_SIZE(usual_ms);
    if (!f->histogram)
        return NULL;
    metrics->first_response = mem_zalloc(sizeof(*metrics->first_response));
    struct status *st = histogram_init(metrics->first_response, bounds_ms, n);
    return st ? status_prefix(st, "model '%s', buckets of '%s': ", f->name, FIRST_RESPONSE_FAMILY)
              : NULL;
}

struct status *model_metrics_init(struct model_metrics *metrics,
                                  const struct model_metrics_facts *facts)
{
    metrics->has_histograms = facts->times;
    struct status *st = print_labels(metrics, facts);
    return st ? st : make_histogram(metrics, facts);
}

void model_metrics_done(struct model_metrics *metrics)
{
    if (metrics->first_response)
        histogram_done(metrics->first_response);
    mem_free(TAKE(metrics->first_response));
    mem_free(TAKE(metrics->labels));
}
