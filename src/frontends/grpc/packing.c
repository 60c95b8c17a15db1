/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packers and the jobs that wait for one. A packer is given to a job on the loop and comes back
 * with the message that ends the job, so that no lock is needed. work_packer() alone runs on a
 * helper: it uses the packer's tables and the job, which nobody else touches meanwhile.
 */
#include "frontends/grpc/packing.h"

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
    struct list waiting; /* jobs */
    struct packer packers[PACKING_THREADS];
};

static void work_packer(struct control_call *call)
{
    struct packer *k = CONTAINER_OF(call, struct packer, call);
    struct packing_job *j = k->job;
    if (j->unpacks)
        j->error = compress_unpack(k->compress, j->format, j->pieces->iov_base, j->pieces->iov_len,
                                   j->max_bytes, j->pool, NULL, &j->block, &j->n_bytes);
    else
        j->error = compress_pack(k->compress, j->format, j->pieces, j->n_pieces, j->pool, NULL,
                                 &j->block, &j->n_bytes);
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

/* Gives the jobs that wait to free packers. */
static void give_jobs(struct packing *p)
{
    struct packer *k;
    while (!list_empty(&p->waiting) && (k = find_free_packer(p))) {
        struct packing_job *j = LIST_ENTRY(list_pop(&p->waiting), struct packing_job, link);
        if (*j->is_over) {
            j->error = status_new(STATUS_CANCELLED, "the call is over");
            j->on_done(j);
            continue;
        }
        k->job = j;
        control_call_begin(&k->call, server_helpers(p->server), p->loop, NULL, false);
    }
}

void packing_begin(struct packing *p, struct packing_job *job)
{
    job->error = NULL;
    job->block = NULL;
    job->n_bytes = 0;
    list_push(&p->waiting, &job->link);
    give_jobs(p);
}
