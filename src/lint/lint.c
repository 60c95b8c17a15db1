/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conch_check() at the end is the whole run, step by step. check_models() distributes the models
 * over threads by a counter; each thread writes only into the models that it takes. All other steps
 * run on the caller's thread.
 */
#include "lint/lint.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/cpu_count.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/parallel_for.h"
#include "base/status.h"
#include "core/repo/listing.h"
#include "core/storage/storage.h"
#include "lint/print.h"

enum { MAX_THREADS = 16, PROGRESS_MS = 100 };

/* ---- Listing the models ---------------------------------------------------------------------- */

static void add_root_fault(struct lint_run *run, const char *root, struct status *st)
{
    run->unreadable = true;
    lint_add(&run->own, LINT_REPOSITORY, (struct lint_position){.file = root}, NULL, "%s",
             status_message(st));
    status_free(st);
}

static struct storage *open_root(struct lint_run *run, const char *root)
{
    struct storage *s = NULL;
    struct status *st = storage_open(root, run->options->follow_symlinks, &s);
    if (st)
        add_root_fault(run, root, st);
    return s;
}

static void add_model_of_entry(struct lint_run *run, size_t root, const struct file_entry *entry)
{
    const struct storage *s = run->storages[root];
    struct status *why_not;
    bool is_model = listing_is_model(s, entry, &why_not);
    struct lint_findings *found = &run->own;
    if (is_model) {
        struct lint_model *m = &run->models[run->n_models++];
        *m = (struct lint_model){.name = mem_strdup(entry->name), .storage = s, .root = root};
        m->found = (struct lint_findings){.model = m->name, .storage = s, .ignored = run->ignored};
        m->is_closed = why_not != NULL;
        m->is_quiet = !lint_place_wants(&run->places.items[root], m->name);
        found = &m->found;
    }
    if (why_not)
        lint_add_status(found,
                        !is_model && entry->kind == FILE_REGULAR ? LINT_LOOSE_FILE
                        : !is_model                              ? LINT_DANGLING_LINK
                        : entry->kind == FILE_LINK               ? LINT_LINK
                                                                 : LINT_READ,
                        s, entry->name, why_not);
}

static void list_repository_models(struct lint_run *run, size_t root)
{
    const struct storage *s = run->storages[root];
    struct file_list list;
    struct status *st = storage_list(s, "", &list);
    if (st) {
        add_root_fault(run, s->root, st);
        return;
    }
    run->models = mem_realloc(run->models, (run->n_models + list.count + 1) * sizeof(*run->models));
    size_t before = run->n_models;
    const char *fault = NULL;
    for (size_t i = 0; i < list.count; i++) {
        if (strcmp(list.entries[i].name, "config.pbtxt") == 0)
            fault = "this is the folder of a model, not of models: it has a config.pbtxt";
        add_model_of_entry(run, root, &list.entries[i]);
    }
    if (!fault && run->n_models == before)
        fault = "there are no models in this repository";
    if (fault)
        lint_add(&run->own, LINT_NO_MODELS, (struct lint_position){.file = s->root}, NULL, "%s",
                 fault);
    file_list_done(&list);
}

static int compare_models(const void *a, const void *b)
{
    const struct lint_model *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    return order ? order : (x->root > y->root) - (x->root < y->root);
}

static void open_roots(struct lint_run *run)
{
    const struct conch_check_options *o = run->options;
    for (size_t i = 0; i < o->n_repositories; i++)
        lint_find_places(&run->places, o->repositories[i]);
    run->storages = mem_zalloc(run->places.n * sizeof(struct storage *));
    for (size_t i = 0; i < run->places.n; i++) {
        run->storages[i] = open_root(run, run->places.items[i].root);
        if (run->storages[i])
            list_repository_models(run, i);
    }
    if (run->n_models)
        qsort(run->models, run->n_models, sizeof(*run->models), compare_models);
    for (size_t i = 0; i < run->n_models; i++) /* the models were moved */
        run->models[i].found.model = run->models[i].name;
}

/* Without a folder of backends it is unknown which of them exist. */
static void find_backends(struct lint_run *run)
{
    struct file_info info = {.kind = FILE_MISSING};
    const char *directory = run->options->backend_directory;
    if (directory)
        status_free(file_stat(directory, &info));
    run->has_backends = info.kind == FILE_FOLDER;
}

/* ---- Checking them --------------------------------------------------------------------------- */

struct pass {
    struct lint_run *run;
    pthread_t printer;   /* the thread that prints the progress */
    uint64_t printed_ns; /* used by that thread: the time of its last line, or of its begin … */
    bool has_printed;    /* … and whether it has printed any */
};

static void say_progress(struct lint_run *run, size_t done, uint64_t *last_ns)
{
    uint64_t now_ns = monotonic_ns();
    if (now_ns - *last_ns < PROGRESS_MS * NS_PER_MS)
        return;
    *last_ns = now_ns;
    fprintf(run->options->progress, "\r%zu of %zu models", done, run->n_models);
    fflush(run->options->progress);
}

static void check_one_model(void *arg, size_t i)
{
    struct pass *p = arg;
    if (!p->run->models[i].is_closed)
        lint_check_model(p->run, &p->run->models[i]);
    if (!p->run->options->progress || !pthread_equal(pthread_self(), p->printer))
        return;
    uint64_t before_ns = p->printed_ns;
    say_progress(p->run, i, &p->printed_ns);
    p->has_printed |= p->printed_ns != before_ns;
}

static void check_models(struct lint_run *run)
{
    struct pass pass = {.run = run, .printer = pthread_self(), .printed_ns = monotonic_ns()};
    int n_threads = MIN(run->n_cpus, MAX_THREADS);
    const struct parallel_options options = {"check", MIN((size_t)n_threads, run->n_models / 8 + 1),
                                             NULL};
    parallel_for(&options, run->n_models, check_one_model, &pass);
    if (pass.has_printed)
        fprintf(run->options->progress, "\r\x1b[K");
}

static void print_report(struct lint_run *run, uint64_t started_ns, struct lint_totals *t)
{
    struct lint_printer p = {.out = run->options->out ? run->options->out : stdout,
                             .format = run->options->format,
                             .colour = run->options->colour};
    *t = (struct lint_totals){.notes = (const char *const *)run->places.notes,
                              .n_notes = run->places.n_notes,
                              .n_errors = run->own.n_errors,
                              .n_warnings = run->own.n_warnings,
                              .unreadable = run->unreadable};
    lint_print_start(&p, t);
    lint_print_findings(&p, &run->own);
    for (size_t i = 0; i < run->n_models; i++) {
        struct lint_findings *f = &run->models[i].found;
        if (run->models[i].is_quiet)
            continue;
        t->n_models++;
        lint_sort(f);
        lint_print_findings(&p, f);
        t->n_errors += f->n_errors;
        t->n_warnings += f->n_warnings;
        t->n_hidden += f->n_errors + f->n_warnings - f->n;
    }
    t->seconds = (double)(monotonic_ns() - started_ns) / 1e9;
    lint_print_end(&p, t);
    lint_sources_done(&p.sources);
}

static void run_done(struct lint_run *run)
{
    for (size_t i = 0; i < run->n_models; i++) {
        lint_findings_done(&run->models[i].found);
        mem_free(run->models[i].name);
        mem_free(run->models[i].versions);
        model_config_free(run->models[i].config);
        mem_free(run->models[i].config_path);
    }
    mem_free(run->models);
    lint_findings_done(&run->own);
    for (size_t i = 0; i < run->places.n; i++)
        storage_unref(run->storages[i]);
    mem_free(run->storages);
    lint_places_done(&run->places);
}

/* Only codes that can be ignored may be given. */
static bool set_ignored(struct lint_run *run)
{
    const struct conch_check_options *o = run->options;
    for (size_t i = 0; i < o->n_ignored; i++) {
        enum lint_code code = lint_code_named(o->ignored[i], strlen(o->ignored[i]));
        if (code == N_LINT_CODES || !lint_codes[code].can_ignore)
            return false;
        run->ignored[code] = true;
    }
    return true;
}

enum conch_check_result conch_check(const struct conch_check_options *options)
{
    uint64_t started_ns = monotonic_ns();
    struct lint_run run = {.options = options, .n_cpus = cpu_count_usable()};
    run.own.ignored = run.ignored;
    struct lint_totals totals;
    if (options->size != sizeof(*options) || !options->n_repositories || !set_ignored(&run))
        return CONCH_CHECK_UNUSABLE;

    open_roots(&run);
    find_backends(&run);
    check_models(&run);
    lint_check_between(&run);
    print_report(&run, started_ns, &totals);

    enum conch_check_result result = CONCH_CHECK_FINE;
    if (run.unreadable)
        result = CONCH_CHECK_UNUSABLE;
    else if (totals.n_errors || (options->strict && totals.n_warnings))
        result = CONCH_CHECK_FAULTS;
    run_done(&run);
    return result;
}

const struct conch_check_code *conch_check_codes(size_t *ret_n)
{
    *ret_n = N_LINT_CODES;
    return lint_codes;
}
