/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The models of a multi-model endpoint: those that SageMaker has loaded and not deleted, each by
 * the name that SageMaker gave it, which may differ from the name that the model has in the server.
 */
#ifndef CONCH_FRONTENDS_SAGEMAKER_LOADED_H
#define CONCH_FRONTENDS_SAGEMAKER_LOADED_H

#include <stdbool.h>
#include <stddef.h>

#include "base/map.h"
#include "base/mutex.h"

struct arena;
struct buf;
struct server;

struct loaded_models {
    struct mutex mu;    /* level 65 in core/README.md */
    struct map by_name; /* under mu: struct loaded_model */
};

void loaded_init(struct loaded_models *l);
void loaded_done(struct loaded_models *l);

/*
 * loaded_claim - adds a name whose model is about to be loaded; until loaded_confirm() no other
 * function but loaded_remove() finds it. False: the name is taken. Thread: any, as below.
 *
 * @target      the model's name in the server
 * @repository  that has been registered for it
 */
bool loaded_claim(struct loaded_models *l, const char *name, const char *target,
                  const char *repository);
void loaded_confirm(struct loaded_models *l, const char *name);
void loaded_remove(struct loaded_models *l, const char *name);

/*
 * loaded_find - whether the model is loaded.
 *
 * @arena           for the copies of the next two; NULL: none are wanted
 * @ret_target      NULL: there is no memory for it
 * @ret_repository  likewise
 */
bool loaded_find(struct loaded_models *l, const char *name, size_t length, struct arena *arena,
                 const char **ret_target, const char **ret_repository);

/* loaded_print_one - prints {"modelName","modelUrl"}; false: the model is not loaded. */
bool loaded_print_one(struct loaded_models *l, const char *name, size_t length, struct buf *out);

/* loaded_print_all - prints {"models":[…]}; a model that is not ready is {}, as in the reference.
 */
void loaded_print_all(struct loaded_models *l, struct server *server, struct buf *out);

#endif
