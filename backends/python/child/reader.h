/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reader - the thread that reads the server's notes, and what waits for them: questions, calls of
 * other models, and the server's question whether the model is ready.
 *
 * The reader never takes the GIL, so the process ends with its server even while the model hangs.
 * What has to run Python runs on one of two further threads, which start when they are needed: one
 * for calls that nobody waits for (an event loop is told), one for is_ready().
 *
 * Functions are called with the GIL, and release it while they wait.
 */
#ifndef BACKENDS_PYTHON_CHILD_READER_H
#define BACKENDS_PYTHON_CHILD_READER_H

#include "python/child/child.h"
#include "python/child/parcel.h"

/* reader_start - starts the thread. is_ready(id) answers NOTE_IS_READY, on a thread with the GIL.
 */
int reader_start(void (*is_ready)(uint64_t id));

/* What a reply has behind its first byte. */
enum reply { REPLY_NOTHING, REPLY_U8, REPLY_U64 /* or the bits of an f64 */ };

/* reader_ask - sends a question, packed by fill(), and waits for the reply. An error of the
 * server's is raised as TritonModelException, with the prefix in front. */
int reader_ask(uint32_t kind, int (*fill)(struct parcel *p, void *what), void *what,
               const char *prefix, enum reply reply, uint64_t *ret_value);

/* A call of another model, under way. */
struct call;

/*
 * call_open - before the call is sent.
 * @waits    call_next() is called as soon as it has been sent, and waits for the first response
 * @arrived  called once, with the GIL, when there is a first response; NULL: call_next() waits
 * @owner    for `arrived`, which gets the caller's reference
 */
struct call *call_open(bool waits, void (*arrived)(PyObject *owner), PyObject *owner);
uint64_t call_id(const struct call *c);
/* call_slot - what NOTE_CALL says of it. */
uint32_t call_slot(const struct call *c);
/* call_next - waits for the next response, which the caller then has: a message of the server's.
 * False: the last one was returned already. */
bool call_next(struct call *c, uint64_t *ret_at, uint64_t *ret_size_bytes);
/* call_cancel - what is left of the call ends soon, as cancelled requests do. */
void call_cancel(const struct call *c);
/* call_close - nobody asks for responses any more: cancels what has not ended, frees the call. */
void call_close(struct call *c);
/* call_forget - of a call that was not sent; the owner's reference stays the caller's. */
void call_forget(struct call *c);

#endif
