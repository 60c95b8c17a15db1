/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inline budgets for threads of a program that embeds the server, so that models may execute on
 * them, by the rules of execution.h: for embedders who have asked for it, since their callbacks run
 * there, too.
 *
 * Such a thread has a budget for as long as it is in the call that brings a request. There are
 * some budgets; a thread that finds none free goes without, and so does one that is in such a call
 * already: a callback that brings the next request would else nest as deep as there are requests.
 */
#ifndef CONCH_CORE_SCHED_EMBEDDER_H
#define CONCH_CORE_SCHED_EMBEDDER_H

struct embedder_turns;
struct inline_budget;
struct watchdog;

/* embedder_budgets_new - NULL: there is no memory, and everybody goes without. */
struct embedder_turns *embedder_budgets_new(struct watchdog *d);
/* embedder_budgets_free - no thread has one. NULL is fine. */
void embedder_budgets_free(struct embedder_turns *set);

/* embedder_budget_begin - a budget for this thread, or NULL. @set NULL: nobody has asked for that
 */
struct inline_budget *embedder_budget_begin(struct embedder_turns *set);
/* embedder_budget_end - the call is over. NULL is fine. */
void embedder_budget_end(struct inline_budget *budget);

#endif
