/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The replies about the state of the server and of single models: one handler per route.
 */
#ifndef CONCH_FRONTENDS_HTTP_META_H
#define CONCH_FRONTENDS_HTTP_META_H

struct exchange;

void meta_server(struct exchange *x);
void meta_live(struct exchange *x);
void meta_ready(struct exchange *x);
void meta_model(struct exchange *x);
void meta_model_ready(struct exchange *x);
void meta_statistics(struct exchange *x);
void meta_model_config(struct exchange *x);

#endif
