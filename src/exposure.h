/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether clients of other machines, or pages of strangers, may change what the server serves.
 * Thread: main.
 */
#ifndef CONCH_EXPOSURE_H
#define CONCH_EXPOSURE_H

#include <stddef.h>

struct options;

/*
 * exposure_warning - writes a warning into ret_text, if a client beyond this machine may load and
 * unload models without a key: a model may have code in it. Otherwise ret_text is "".
 */
void exposure_warning(const struct options *o, char *ret_text, size_t room);

/* exposure_warning_of_pages - the same, if pages of all origins may ask over HTTP: a browser then
 * carries strangers' pages past firewalls and the address of this machine. */
void exposure_warning_of_pages(const struct options *o, char *ret_text, size_t room);

#endif
