/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crew - threads for ONNX Runtime's pools, started before it asks for them. If the system has no
 * room for a thread, crew_new() returns an error. Without a crew, a pool of ONNX Runtime that gets
 * only some of its threads waits for ever for the others.
 *
 * One fault cannot be mended here: a C++ exception in work of a pool, such as std::bad_alloc. On
 * the thread that called Run it becomes an error. On a thread of the pool it ends the thread's
 * loop: ONNX Runtime catches it at the thread's end, does not report it, and the thread returns to
 * us. The piece of work is then neither done nor counted, and the caller of Run spins for ever
 * until the count is complete. We cannot complete the count, which is on the caller's stack. Nor
 * can we make the caller give up: it reads nothing else, and other pieces still write to its stack.
 * So where memory is limited (room_is_limited()) there are no such threads unless the configuration
 * asks for them, and the log says when one has been lost.
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
 * crew_new - start n threads, which wait for work, on the CPUs of the calling thread. The caller
 * ends them with crew_free().
 * Errors: UNAVAILABLE  the system has no room for so many threads, or for what they need to begin
 */
TRITONSERVER_Error *crew_new(size_t n, struct crew **ret_crew);

/*
 * crew_serve - the pools have been made: from now on a thread that ends is lost, and is logged.
 * crew_retire - the pools are about to end: threads may end from now on. NULL is fine.
 */
void crew_serve(struct crew *c);
void crew_retire(struct crew *c);

/*
 * crew_free - ends the threads. If ONNX Runtime has not given back all of them, since other code in
 * this process uses its environment, too, threads and this library stay. NULL is fine.
 */
void crew_free(struct crew *c);

/*
 * crew_start_thread, crew_join_thread - the callbacks for ONNX Runtime: a thread of the crew calls
 * run(arg); the second waits until that has returned. If all n threads are in use, another one is
 * started. NULL: the system has no room for it.
 */
struct ort_thread *crew_start_thread(void *crew, void (*run)(void *arg), void *arg);
void crew_join_thread(struct ort_thread *thread);

#endif
