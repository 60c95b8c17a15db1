/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The steps of one load, for group.c and start.c, which load several related models:
 *
 *     load_new
 *       load_look         reads folder and configuration: what is to be done?
 *       load_bring_up     brings up the versions that do not serve yet, beside those that serve
 *       load_settle_locked, load_settled
 *                         the new versions replace the old ones; or, if one has failed, the old
 *                         ones serve on, or the model follows no longer (keeps_old)
 *     load_end
 *
 * Thread: control, which has locked the model, from load_new() to load_end().
 */
#ifndef CONCH_CORE_REPO_LOAD_STEPS_H
#define CONCH_CORE_REPO_LOAD_STEPS_H

#include "core/repo/repository_priv.h"

struct load;
struct model_config;

/*
 * load_new - the load of a model that the caller has locked. The arguments are borrowed until
 * load_end().
 *
 * @source   where its files lie
 * @config   the configuration as JSON; NULL: the one in its folder. With LOAD_FOR_MEMBER both are
 *           NULL, since the ensemble's composition has them
 */
struct load *load_new(struct repository *repo, struct repo_model *rm, struct source *source,
                      const char *config, enum load_reason reason);

/*
 * load_set_place - an earlier load of the same change has had its agents act already, and they have
 * left the files here. To be called before load_look(). NULL: none has.
 *
 * load_ref_place - the place for the next load: a reference, or NULL.
 */
void load_set_place(struct load *l, struct source *place);
struct source *load_ref_place(const struct load *l);

/*
 * load_look - reads the model's folder; repository agents act. An ensemble is in the books of
 * relations afterwards.
 *
 * @quiet  as scan_model() has it
 * Returns whether there is something to bring up. If not, the model is up to date, or cannot be
 * read: load_end() says which.
 */
bool load_look(struct load *l, bool quiet);

/*
 * load_follow - the models of the ensemble's steps change: looks again, but at the configuration
 * that the ensemble has now. To be called instead of load_look(), or after it has returned false.
 * The same result.
 */
bool load_follow(struct load *l);

/* load_is_due - is there something to bring up? */
bool load_is_due(const struct load *l);

/* load_unfit - why an ensemble does not fit its members, if it does not; or NULL. Borrowed. */
const char *load_unfit(const struct load *l);

/* load_ensemble - the configuration of an ensemble that is to be brought up; NULL: it is none.
 * Borrowed. */
const struct model_config *load_ensemble(const struct load *l);

/* load_bring_up - for a model that is no ensemble. */
void load_bring_up(struct load *l);

/*
 * load_bring_up_ensemble - the same for an ensemble whose members have been found.
 *
 * @members   by step; borrowed
 * @unfit     why the members do not fit, taken; NULL: they do
 * @keeps_old the models that serve now have the members that will serve then: they may go on if the
 *            load fails
 */
void load_bring_up_ensemble(struct load *l, struct model *const *members, struct status *unfit,
                            bool keeps_old);

/* load_version_after - the model that will serve that version when the load has settled; for
 * CONCH_VERSION_LATEST the highest version. NULL: none. Borrowed. */
struct model *load_version_after(const struct load *l, int64_t version);

/* load_add_failures - adds why versions have failed, as clients are told
 * (reference/behaviours §13.4). */
void load_add_failures(const struct load *l, struct buf *out);

/*
 * load_settle_locked - publishes the result; nothing is done for a load that has nothing to bring
 * up. load_settled() follows when repository.mu is unlocked, once for each.
 */
void load_settle_locked(struct load *l);
void load_settled(struct load *l);

/* load_end - frees the load; returns the error for the client. */
NODISCARD struct status *load_end(struct load *l);

#endif
