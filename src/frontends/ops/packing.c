/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packers and the jobs that wait for one. A packer is given to a job on the loop and comes back
 * with the message that ends the job, so that no lock is needed. work_packer() alone runs on a
 * helper: it uses the packer's tables and the job, which nobody else touches meanwhile.
 */
#include "frontends/ops/packing.h"

#include "base/cpu_count.h"
#include "base/loop.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/server/server.h"
#include "frontends/ops/control_call.h"

struct packer {
    struct packing *packing;
    struct compress *compress;
    struct packing_job *job; /* NULL: it is free */
    struct control_call call;
};

struct packing {
    struct server *server;
    struct loop *loop;
    struct compress *here; /* for jobs on the loop itself */
    struct list waiting;   /* jobs */
    bool keeps_threads;    /* the helpers were told to */
    struct packer packers[PACKING_THREADS];
};

static void do_job(struct packing_job *j, struct compress *c, size_t max_bytes)
{
    struct compress_target target = {
        .pool = j->pool, .lead_bytes = j->lead_bytes, .max_bytes = max_bytes};
    if (j->unpacks)
        j->error = compress_unpack(c, j->format, j->pieces->iov_base, j->pieces->iov_len, &target,
                                   &j->block, &j->n_bytes);
    else
        j->error = compress_pack(c, j->format, j->pieces, j->n_pieces, j->pool, NULL, &j->block,
                                 &j->n_bytes);
}

static void work_packer(struct control_call *call)
{
    struct packer *k = CONTAINER_OF(call, struct packer, call);
    do_job(k->job, k->compress, k->job->max_bytes);
}

static void give_jobs(struct packing *p);

static void on_packer_done(struct control_call *call)
{
    struct packer *k = CONTAINER_OF(call, struct packer, call);
    struct packing *p = k->packing;
    struct packing_job *j = TAKE(k->job);
    give_jobs(p); /* first: the last job's owner may end everything */
    j->on_done(j);
}

struct packing *packing_new(struct server *server, struct loop *loop)
{
    struct packing *p = mem_zalloc(sizeof(*p));
    p->server = server;
    p->loop = loop;
    p->here = compress_new();
    list_init(&p->waiting);
    for (int i = 0; i < PACKING_THREADS; i++) {
        struct packer *k = &p->packers[i];
        k->packing = p;
        k->compress = compress_new();
        k->call.work = work_packer;
        k->call.on_done = on_packer_done;
    }
    return p;
}

void packing_free(struct packing *p)
{
    if (!p)
        return;
    for (int i = 0; i < PACKING_THREADS; i++)
        compress_free(p->packers[i].compress);
    compress_free(p->here);
    mem_free(p);
}

static struct packer *find_free_packer(struct packing *p)
{
    for (int i = 0; i < PACKING_THREADS; i++) {
        if (!p->packers[i].job)
            return &p->packers[i];
    }
    return NULL;
}

/*
 * The helpers, of which twice as many stay as can run, and two more, from the first large job on:
 * messages come again and again, and a loop that has heard of a job's end posts the next one before
 * that thread is idle. NULL: the system has no room for a thread.
 */
static struct control *find_helpers(struct packing *p)
{
    struct control *helpers = server_helpers(p->server);
    if (UNLIKELY(!p->keeps_threads) && helpers) {
        control_keep(helpers, 2 + MAX(4U, 2 * (unsigned int)cpu_count_usable()));
        p->keeps_threads = true;
    }
    return helpers;
}

/* Gives the jobs that wait to free packers. */
static void give_jobs(struct packing *p)
{
    struct packer *k;
    while (!list_empty(&p->waiting) && (k = find_free_packer(p))) {
        struct packing_job *j = LIST_ENTRY(list_pop(&p->waiting), struct packing_job, link);
        if (*j->is_over) {
            j->error = status_new(STATUS_CANCELLED, "the request is over");
            j->on_done(j);
            continue;
        }
        k->job = j;
        control_call_begin(&k->call, find_helpers(p), p->loop, NULL, false);
    }
}

/* Does a small job on the loop. False: its result would be large. */
static bool do_here(struct packing *p, struct packing_job *j)
{
    size_t most = MIN(j->max_bytes, (size_t)PACKING_HERE_BYTES);
    do_job(j, p->here, j->unpacks ? most : 0);
    if (!j->error || status_code(j->error) != STATUS_UNSUPPORTED || most == j->max_bytes)
        return true;
    status_free(TAKE(j->error));
    return false;
}

static size_t count_job_bytes(const struct packing_job *j)
{
    size_t total = 0;
    for (uint32_t i = 0; i < j->n_pieces; i++)
        total += j->pieces[i].iov_len;
    return total;
}

static void clear_result(struct packing_job *j)
{
    j->error = NULL;
    j->block = NULL;
    j->n_bytes = 0;
}

void packing_begin(struct packing *p, struct packing_job *job)
{
    clear_result(job);
    list_push(&p->waiting, &job->link);
    give_jobs(p);
}

void packing_run(struct packing *p, struct packing_job *job)
{
    clear_result(job);
    if (count_job_bytes(job) <= PACKING_HERE_BYTES && do_here(p, job))
        job->on_done(job);
    else
        packing_begin(p, job);
}
