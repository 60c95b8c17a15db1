/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/fake_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/status.h"
#include "core/options/server_options.h"
#include "core/repo/repository.h"
#include "core/request/response.h"
#include "core/sched/limiter.h"

static void must(struct status *st, const char *what)
{
    if (!st)
        return;
    fprintf(stderr, "%s: %s\n", what, status_message(st));
    abort();
}

void fake_model_make(struct fake_model *f, const char *text, uint32_t n_instances,
                     fake_execute_fn execute)
{
    fake_model_make_with(f, server_options_new(), text, n_instances, execute);
}

void fake_model_make_timed(struct fake_model *f, struct clock_fake *clock, const char *text,
                           uint32_t n_instances, fake_execute_fn execute)
{
    struct server_options *options = server_options_new();
    options->clock = &clock->clock;
    fake_model_make_with(f, options, text, n_instances, execute);
}

static void make_fake(struct fake_model *f, struct server_options *options, const char *text,
                      uint32_t n_instances, fake_execute_fn execute,
                      struct status *(*initialize)(struct instance *in))
{
    struct model_config *config;
    struct config_facts facts = {.model_name = "m"};
    char *whole = mem_printf("name: \"m\" backend: \"fake\"\n%s", text);

    memset(f, 0, sizeof(*f));
    must(model_config_parse_text(whole, strlen(whole), "config.pbtxt", &config), "parse");
    mem_free(whole);
    must(model_config_prepare(config, &facts), "prepare");
    must(model_config_complete_groups(config, &facts), "place");
    must(model_config_finish(config, &facts), "finish");

    f->server.options = options;
    f->server.clock = options->clock ? options->clock : clock_real();
    mutex_init(&f->server.drain_mu, 300, "drain");
    cond_init(&f->server.drained);
    deadline_timers_init(&f->server.deadline_timers, f->server.clock);
    helpers_init(&f->server.helpers);
    changes_init(&f->server.changes);
    watchdog_init(&f->server.watchdog, f->server.clock, pull_on_long_execution);
    f->backend.name = mem_strdup("fake");
    f->backend.fns.instance_execute = execute;
    f->backend.fns.instance_initialize = initialize;
    f->server.limiter = limiter_new(options);
    server_services_init(&f->server);
    f->server.repository = repository_new(&f->server.services, NULL, NULL, f->server.options, NULL);
    f->model = model_new(&f->server.services, "m", 1, "/nowhere", config);
    f->model->backend = &f->backend;
    must(model_make_specs(f->model), "specs");
    f->model->instances = mem_zalloc(n_instances * sizeof(struct instance *));
    for (uint32_t i = 0; i < n_instances; i++) {
        must(instance_new(f->model, config, config->pb->instance_group[0], (int)i, 0,
                          &f->model->instances[i]),
             "instance");
        f->model->n_instances++;
    }
    must(scheduler_new(f->model, &f->model->scheduler), "scheduler");
    scheduler_use_instances(f->model->scheduler);
}

void fake_model_make_with(struct fake_model *f, struct server_options *options, const char *text,
                          uint32_t n_instances, fake_execute_fn execute)
{
    make_fake(f, options, text, n_instances, execute, NULL);
}

void fake_model_make_initialized(struct fake_model *f, const char *text, uint32_t n_instances,
                                 fake_execute_fn execute,
                                 struct status *(*initialize)(struct instance *in))
{
    make_fake(f, server_options_new(), text, n_instances, execute, initialize);
}

void fake_model_end(struct fake_model *f)
{
    struct model *m = f->model;
    model_stop(m);
    mutex_lock(&f->server.drain_mu);
    while (model_inflight(m))
        cond_wait(&f->server.drained, &f->server.drain_mu);
    mutex_unlock(&f->server.drain_mu);

    model_close_refs(m);
    scheduler_free(m->scheduler); /* a worker that has just started still reads the pointer */
    m->scheduler = NULL;
    for (uint32_t i = 0; i < m->n_instances; i++)
        instance_free(m->instances[i]);
    mem_free(TAKE(m->instances));
    instances_free_spare(m);
    m->n_instances = 0;
    m->backend = NULL;
    model_expect_returned(m->owner, MEM_INSTANCES);
    model_expect_returned(m->owner, MEM_BACKEND);
    model_unref(m);
    mem_free(f->backend.name);
    repository_free(f->server.repository);
    deadline_timers_done(&f->server.deadline_timers);
    helpers_done(&f->server.helpers);
    changes_done(&f->server.changes);
    watchdog_done(&f->server.watchdog);
    limiter_free(f->server.limiter);
    server_options_free(f->server.options);
    cond_done(&f->server.drained);
    mutex_done(&f->server.drain_mu);
}

/* ------------------------------------------------------------------------------------------ */

static struct fake_request *of(struct request *r)
{
    return CONTAINER_OF(r, struct fake_request, request);
}

static void respond(struct request *r, struct response *resp, uint32_t flags)
{
    struct fake_request *fr = of(r);
    pthread_mutex_lock(&fr->mu);
    if (resp) {
        fr->n_responses++;
        fr->failed = resp->error != NULL;
        if (resp->error) {
            fr->last_code = status_code(resp->error);
            snprintf(fr->last_error, sizeof(fr->last_error), "%s", status_message(resp->error));
        }
    }
    pthread_mutex_unlock(&fr->mu);
    response_free(resp);
    pthread_mutex_lock(&fr->mu);
    fr->n_final += (flags & RESPONSE_FINAL) != 0;
    pthread_cond_broadcast(&fr->cv);
    pthread_mutex_unlock(&fr->mu);
}

static void release(struct request *r, uint32_t flags)
{
    struct fake_request *fr = of(r);
    (void)flags;
    pthread_mutex_lock(&fr->mu);
    fr->n_released++;
    pthread_cond_broadcast(&fr->cv);
    pthread_mutex_unlock(&fr->mu);
}

static void destroy(struct request *r)
{
    struct fake_request *fr = of(r);
    pthread_mutex_lock(&fr->mu);
    fr->n_destroyed++;
    pthread_cond_broadcast(&fr->cv);
    pthread_mutex_unlock(&fr->mu);
}

static const struct request_ops ops = {
    .alloc_output = response_alloc_pooled,
    .free_output = response_free_pooled,
    .respond = respond,
    .release = release,
    .destroy = destroy,
};

void fake_request_make(struct fake_request *fr, struct fake_model *f)
{
    memset(fr, 0, sizeof(*fr));
    pthread_mutex_init(&fr->mu, NULL);
    pthread_cond_init(&fr->cv, NULL);
    fr->pool = pool_new("test", 1 << 20, 0);
    model_ref(f->model);
    request_init(&fr->request, &ops, f->model, fr->memory, sizeof(fr->memory), fr->pool);
}

void fake_request_wait(struct fake_request *fr)
{
    pthread_mutex_lock(&fr->mu);
    while (fr->n_final == 0 || fr->n_released == 0)
        pthread_cond_wait(&fr->cv, &fr->mu);
    pthread_mutex_unlock(&fr->mu);
}

void fake_request_end(struct fake_request *fr)
{
    request_unref(&fr->request);
    pthread_mutex_lock(&fr->mu);
    while (fr->n_destroyed == 0)
        pthread_cond_wait(&fr->cv, &fr->mu);
    pthread_mutex_unlock(&fr->mu);
    pool_free(fr->pool);
    pthread_cond_destroy(&fr->cv);
    pthread_mutex_destroy(&fr->mu);
}

void fake_answer(struct request *r)
{
    struct response *resp;
    must(response_new(r, &resp), "response_new");
    must(response_send(resp, RESPONSE_FINAL, NULL), "response_send");
    must(request_release(r), "request_release");
}

void fake_answer_or_fail(struct request *r)
{
    struct response *resp;
    struct status *st = response_new(r, &resp);
    if (st)
        request_fail(r, st);
    else
        must(response_send(resp, RESPONSE_FINAL, NULL), "response_send");
    must(request_release(r), "request_release");
}
