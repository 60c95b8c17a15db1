/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A server inside a bench program, and one model in it that is loaded without the repository's
 * catalog. A failure ends the program with its reason.
 *
 * Thread: one at a time.
 */
#ifndef CONCH_BENCH_ONE_MODEL_H
#define CONCH_BENCH_ONE_MODEL_H

struct model;
struct server;
struct status;

/* must - ends the program unless st is NULL; st is taken. */
void must(struct status *st, const char *what);

/* quiet_server_new - makes a server that logs no informational lines; its backends lie in that
 * folder. */
struct server *quiet_server_new(const char *repository, const char *backends);
/* quiet_server_new_with - the same with one setting of a backend; @backend NULL: none. */
struct server *quiet_server_new_with(const char *repository, const char *backends,
                                     const char *backend, const char *key, const char *value);
/* quiet_server_end - stops and frees the server, which has no model. */
void quiet_server_end(struct server *s);

/* one_model_load - loads the model's highest version that its configuration allows. Borrowed. */
struct model *one_model_load(struct server *s, const char *repository, const char *name);
/* one_model_unload - the model has no request in flight. */
void one_model_unload(struct server *s, struct model *m);

#endif
