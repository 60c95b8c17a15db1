/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model with a backend made of functions of the test, and requests for it, without a server
 * around them.
 */
#ifndef CONCH_TESTS_LIB_FAKE_MODEL_H
#define CONCH_TESTS_LIB_FAKE_MODEL_H

#include <pthread.h>

#include "base/status.h"
#include "core/backend/backend.h"
#include "core/backend/instance.h"
#include "core/load/model_load.h"
#include "core/model/model_priv.h"
#include "core/options/server_options.h"
#include "core/request/life.h"
#include "core/sched/pull.h"
#include "core/server/server_priv.h"
#include "lib/fake_clock.h"

typedef struct status *(*fake_execute_fn)(struct instance *, struct request **, uint32_t n);

struct fake_model {
    struct server server;
    struct backend backend;
    struct model *model;
};

/*
 * fake_model_make - makes a READY model. The configuration needs only inputs and outputs; the
 * model's name is "m", its backend "fake". All instances belong to the first group, which the
 * configuration may contain.
 */
void fake_model_make(struct fake_model *f, const char *config, uint32_t n_instances,
                     fake_execute_fn execute);
/* fake_model_make_with - the same, in a server with these options, which are taken. */
void fake_model_make_with(struct fake_model *f, struct server_options *options, const char *config,
                          uint32_t n_instances, fake_execute_fn execute);
/*
 * fake_model_make_timed - the same as fake_model_make(), by a fake clock, which several models may
 * share. No time that the models' threads wait for is over until the test advances the clock.
 */
void fake_model_make_timed(struct fake_model *f, struct clock_fake *clock, const char *config,
                           uint32_t n_instances, fake_execute_fn execute);
/* fake_model_make_initialized - the same as fake_model_make(), with a function that initialises
 * each instance. */
void fake_model_make_initialized(struct fake_model *f, const char *config, uint32_t n_instances,
                                 fake_execute_fn execute,
                                 struct status *(*initialize)(struct instance *in));
/* fake_model_end - waits until the model has no request, then frees it. */
void fake_model_end(struct fake_model *f);

/* A request that notes its responses. Its fields may be read after fake_request_wait(). */
struct fake_request {
    struct request request;
    struct pool *pool;
    pthread_mutex_t mu;
    pthread_cond_t cv;
    int n_responses, n_final, n_released, n_destroyed;
    enum status_code last_code; /* of the last response, if it is an error */
    bool failed;
    char last_error[512];
    char memory[2048];
};

/* fake_request_make - makes a request; the caller ends it with fake_request_end(). */
void fake_request_make(struct fake_request *fr, struct fake_model *f);
/* fake_request_wait - waits until the request has its final response and is released. */
void fake_request_wait(struct fake_request *fr);
/* fake_request_end - drops the maker's reference and waits until no other is left. */
void fake_request_end(struct fake_request *fr);

/* fake_answer - answers as a good backend does: one final response without outputs, and the
 * release. */
void fake_answer(struct request *r);
/* fake_answer_or_fail - the same, where memory may lack: a request that gets no response fails. */
void fake_answer_or_fail(struct request *r);

#endif
