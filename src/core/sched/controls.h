/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control tensors of a sequence batcher: inputs that the scheduler adds for the backend, such
 * as whether the request begins its sequence. Clients do not send them. Each has one element.
 *
 * Source: model configuration, control_input; reference/behaviours §11.11
 */
#ifndef CONCH_CORE_SCHED_CONTROLS_H
#define CONCH_CORE_SCHED_CONTROLS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/request/request.h"
#include "proto/model_config.pb-c.h"

enum { MAX_CONTROLS = 4, MAX_ID_BYTES = 128 };

struct control_spec {
    const char *name;
    Inference__ModelSequenceBatching__Control__Kind kind;
    enum dtype dtype;
    unsigned char value[2][sizeof(int32_t)]; /* of false and of true; of START, END, READY */
};

/* Of a model; constant. */
struct controls {
    uint32_t n;
    uint32_t n_dims; /* [1], or [1,1] for models that batch */
    struct control_spec items[MAX_CONTROLS];
};

/* Of one request at a time. */
struct control_inputs {
    struct input inputs[MAX_CONTROLS];
    union {
        uint64_t number;
        struct {
            uint32_t length;
            char bytes[MAX_ID_BYTES];
        } text;
    } id;
};

/* controls_init - reads a validated configuration; the names are borrowed from it. */
void controls_init(struct controls *c, const Inference__ModelSequenceBatching *config,
                   bool batching);

/* controls_make - sets once what is the same for all requests. The object must not move then. */
void controls_make(const struct controls *c, struct control_inputs *ret_inputs);

/*
 * controls_show - sets the values of the control tensors for a request.
 *
 * @ready  false: the request stands for an empty slot, and all its controls are false
 */
void controls_show(const struct controls *c, struct request *r, bool ready,
                   struct control_inputs *inputs);

#endif
