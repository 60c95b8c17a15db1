/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crew - threads for ONNX Runtime's pools, started before it asks for them. Where the system has no
 * room for one, that is an error of ours beforehand; a pool of its own that gets only some of its
 * threads waits for ever for the others.
 *
 * What cannot be mended here: a C++ exception in work that a pool does, such as std::bad_alloc. On
 * the thread that called Run it comes back as an error. On another thread it unwinds the thread's
 * loop, and all that is between the throw and us is ONNX Runtime's: it catches the exception at the
 * thread's end, says nothing, and the thread returns to us. The piece of work is then neither done
 * nor counted, and its caller waits inside Run, at full speed, until the count is complete, which
 * it never is. Nobody else can complete it (the count is on the caller's stack), or make the caller
 * give up (it looks at nothing else; and pieces that still run write there). So we see to it that
 * there is no such thread where memory is limited (room_is_limited()) and nobody has asked for one,
 * and say it when one has been lost.
 *
 *     crew_new  →  ONNX Runtime: crew_start_thread …  →  crew_serve … crew_retire  →
 *     ONNX Runtime: … crew_join_thread  →  crew_free
 */
#ifndef BACKENDS_ONNXRUNTIME_CREW_H
#define BACKENDS_ONNXRUNTIME_CREW_H

#include "common/backend.h"

struct crew;
struct ort_thread;

/*
 * crew_new - that many threads wait for work; they run where the caller's thread may run.
 * Errors: UNAVAILABLE  the system has no room for so many threads, or for what they need to begin
 */
TRITONSERVER_Error *crew_new(size_t n, struct crew **ret_crew);

/*
 * crew_serve - the pools stand: a thread that ends from now on is lost, and that is told.
 * crew_retire - … until here: they are about to go. NULL is fine.
 */
void crew_serve(struct crew *c);
void crew_retire(struct crew *c);

/*
 * crew_free - ends them. When ONNX Runtime has not given back all, since somebody else in this
 * process uses its environment, too, they stay, and so does this library. NULL is fine.
 */
void crew_free(struct crew *c);

/*
 * crew_start_thread, crew_join_thread - as ONNX Runtime wants them: one of the crew runs run(arg);
 * waits until that has returned. More threads than crew_new() was told of are started as they are
 * wanted; NULL: there is no room for one.
 */
struct ort_thread *crew_start_thread(void *crew, void (*run)(void *arg), void *arg);
void crew_join_thread(struct ort_thread *thread);

#endif
