/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How many connections each address has, and the most that it may have. An IPv6 address counts with
 * its network of 64 bits, since a client has all addresses of one; "::ffff:a.b.c.d" is the IPv4
 * address. Clients at a "unix:" socket have no address and are not limited.
 *
 * Thread: any.
 */
#ifndef CONCH_FRONTENDS_NET_ADDRESS_LIMIT_H
#define CONCH_FRONTENDS_NET_ADDRESS_LIMIT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/compiler.h"

struct address_count; /* the connections of an address */
struct address_limit;
struct sockaddr;

enum { ADDRESS_TEXT_BYTES = 64 };

/* address_limit_new - the caller ends it with address_limit_free(). */
struct address_limit *address_limit_new(unsigned int max_conns);
/* address_limit_free - frees it; no connection may be counted. NULL is fine. */
void address_limit_free(struct address_limit *l);

/*
 * address_limit_take - counts a connection. False: the address has max_conns already, or memory is
 * exhausted, and nothing is counted.
 *
 * @ret_count  for address_limit_give(); NULL for a client without an address
 */
NODISCARD bool address_limit_take(struct address_limit *l, const struct sockaddr *from,
                                  struct address_count **ret_count);

/* address_limit_give - uncounts a connection. A NULL count is fine. */
void address_limit_give(struct address_limit *l, struct address_count *count);

/* address_limit_print - what is counted of this address, for people: "10.0.0.7", "2001:db8::/64".
 */
void address_limit_print(const struct sockaddr *from, char ret_text[ADDRESS_TEXT_BYTES]);

#endif
