/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inline budgets for the threads of an embedder, so that models may execute on them by the rules of
 * execution.h. Only for embedders that have asked for it, since their callbacks then run on these
 * threads, too.
 *
 * A thread has a budget during the call that submits a request. The number of budgets is limited; a
 * thread that finds none free executes nothing inline. Neither does a thread that is in such a call
 * already: else callbacks that submit the next request would nest without limit.
 */
#ifndef CONCH_CORE_SCHED_EMBEDDER_H
#define CONCH_CORE_SCHED_EMBEDDER_H

struct embedder_budgets;
struct inline_budget;
struct watchdog;

/* embedder_budgets_new - the caller ends it with embedder_budgets_free(). NULL: there is no memory,
 * and nothing is executed inline. */
struct embedder_budgets *embedder_budgets_new(struct watchdog *d);
/* embedder_budgets_free - no thread has a budget. NULL is fine. */
void embedder_budgets_free(struct embedder_budgets *set);

/* embedder_budget_begin - a budget for this thread, or NULL. @set  NULL: the embedder has not asked
 * for inline execution */
struct inline_budget *embedder_budget_begin(struct embedder_budgets *set);
/* embedder_budget_end - gives the budget back at the end of the call. NULL is fine. */
void embedder_budget_end(struct inline_budget *budget);

#endif
