/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A map from addresses to counts. An address is in the map as long as it has a connection.
 *
 * Thread: any; mu guards the map and the counts.
 */
#include "frontends/net/address_limit.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/map.h"
#include "base/mem.h"
#include "base/mutex.h"

enum {
    LEVEL = 894, /* a leaf in the table of core/README.md */
    KEY_BYTES = 9,
    NETWORK_BYTES = 8, /* of an IPv6 address */
};

/* The family, then the address or the network, then zeros. */
struct address_key {
    char bytes[KEY_BYTES];
};

struct address_count {
    struct address_key key;
    unsigned int n_conns; /* under mu */
};

struct address_limit {
    unsigned int max_conns; /* constant */

    struct mutex mu;
    /* Under mu. */
    struct map counts; /* of struct address_count */
};

struct address_limit *address_limit_new(unsigned int max_conns)
{
    struct address_limit *l = mem_zalloc(sizeof(*l));
    l->max_conns = max_conns;
    mutex_init(&l->mu, LEVEL, "address_limit.mu");
    map_init(&l->counts);
    return l;
}

void address_limit_free(struct address_limit *l)
{
    if (!l)
        return;
    BUG_ON(l->counts.count > 0);
    map_done(&l->counts);
    mutex_done(&l->mu);
    mem_free(l);
}

static void set_key(struct address_key *key, char family, const void *address, size_t n_bytes)
{
    *key = (struct address_key){{family}};
    memcpy(key->bytes + 1, address, n_bytes);
}

/* False: the client has no address. */
static bool find_key(const struct sockaddr *from, struct address_key *ret_key)
{
    if (from->sa_family == AF_INET) {
        struct sockaddr_in in;
        memcpy(&in, from, sizeof(in));
        set_key(ret_key, 4, &in.sin_addr, sizeof(in.sin_addr));
        return true;
    }
    if (from->sa_family != AF_INET6)
        return false;
    struct sockaddr_in6 in6;
    memcpy(&in6, from, sizeof(in6));
    if (IN6_IS_ADDR_V4MAPPED(&in6.sin6_addr))
        set_key(ret_key, 4, in6.sin6_addr.s6_addr + 12, sizeof(struct in_addr));
    else
        set_key(ret_key, 6, in6.sin6_addr.s6_addr, NETWORK_BYTES);
    return true;
}

/* The count of the address; a new one is in the map. NULL: memory is exhausted. */
static struct address_count *get_count_locked(struct address_limit *l,
                                              const struct address_key *key)
{
    mutex_assert_held(&l->mu);
    struct address_count *count = map_get(&l->counts, key->bytes, KEY_BYTES);
    if (count)
        return count;
    count = mem_try_zalloc(1, sizeof(*count));
    if (!count)
        return NULL;
    count->key = *key;
    map_put(&l->counts, count->key.bytes, KEY_BYTES, count);
    return count;
}

bool address_limit_take(struct address_limit *l, const struct sockaddr *from,
                        struct address_count **ret_count)
{
    struct address_key key;
    if (!find_key(from, &key)) {
        *ret_count = NULL;
        return true;
    }
    mutex_lock(&l->mu);
    struct address_count *count = get_count_locked(l, &key);
    bool has_room = count && count->n_conns < l->max_conns;
    if (has_room) {
        count->n_conns++;
        *ret_count = count;
    }
    mutex_unlock(&l->mu);
    return has_room;
}

void address_limit_give(struct address_limit *l, struct address_count *count)
{
    if (!count)
        return;
    mutex_lock(&l->mu);
    bool is_last = --count->n_conns == 0;
    if (is_last)
        map_remove(&l->counts, count->key.bytes, KEY_BYTES);
    mutex_unlock(&l->mu);
    if (is_last)
        mem_free(count);
}

void address_limit_print(const struct sockaddr *from, char ret_text[ADDRESS_TEXT_BYTES])
{
    struct address_key key;
    char text[INET6_ADDRSTRLEN];
    unsigned char address[sizeof(struct in6_addr)] = {0};
    if (!find_key(from, &key)) {
        snprintf(ret_text, ADDRESS_TEXT_BYTES, "a unix socket");
        return;
    }
    memcpy(address, key.bytes + 1, NETWORK_BYTES);
    bool is_v4 = key.bytes[0] == 4;
    inet_ntop(is_v4 ? AF_INET : AF_INET6, address, text, sizeof(text));
    snprintf(ret_text, ADDRESS_TEXT_BYTES, "%s%s", text, is_v4 ? "" : "/64");
}
