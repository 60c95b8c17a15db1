/* SPDX-License-Identifier: Apache-2.0 */
/*
 * control - a model loads, unloads and asks about other models. Each question has a thread that
 * ends with it, since the server's functions wait.
 */
#ifndef BACKENDS_PYTHON_CONTROL_H
#define BACKENDS_PYTHON_CONTROL_H

#include "python/child.h"

/* control_ask - NOTE_LOAD_MODEL, NOTE_UNLOAD_MODEL, NOTE_IS_MODEL_READY. The reader's thread.
 * False: the message is impossible. */
bool control_ask(struct child *c, uint32_t kind, uint64_t id, struct unpacker *u);

#endif
