/* SPDX-License-Identifier: Apache-2.0 */
/*
 * process - the child process of an instance: its start, its end, and the cause of its end.
 *
 * A child has a process group of its own, with all processes that it starts; when it ends, what is
 * left of the group is killed. It has descriptors 0 to 2 and those of protocol.h, an empty signal
 * mask and default signal handlers, and the processors of the thread that made its instance.
 *
 * Threads: one at a time for each process; process_kill() any, until process_reap().
 */
#ifndef BACKENDS_PYTHON_PROCESS_H
#define BACKENDS_PYTHON_PROCESS_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "common/backend.h"

struct process {
    pid_t pid;             /* 0: none */
    int pidfd;             /* readable when the process has ended; -1: none */
    uint64_t memory_kills; /* how often memory had run out when it started */
    char cause[160];       /* after process_reap(): "was killed by signal 9 (Killed)" … */
};

/* How to start one. All borrowed. */
struct process_start {
    const char *python;                /* the interpreter */
    const char *const *arguments;      /* after it, ended by NULL */
    const char *const *changes;        /* of the environment: environment_variables() */
    const char *more;                  /* one more change of it; NULL: none */
    const cpu_set_t *processors;       /* NULL: the calling thread's */
    int socket, page, down, up, event; /* what becomes PROTOCOL_FD_… */
};

/*
 * process_spawn - starts a child.
 * @p  process_done() ends it, also after an error
 * Errors: INTERNAL     it cannot be started
 *         UNAVAILABLE  no memory, no descriptors, no processes
 */
TRITONSERVER_Error *process_spawn(struct process *p, const struct process_start *start);

/* process_kill - kills the child and what it has started. */
void process_kill(const struct process *p);

/* process_reap - to be called once, when pidfd is readable: kills what is left of its group, and
 * fills in the cause. */
void process_reap(struct process *p);

/* process_has_ended - without waiting. */
bool process_has_ended(const struct process *p);

/* process_done - kills and reaps a child that still runs; frees all. */
void process_done(struct process *p);

#endif
