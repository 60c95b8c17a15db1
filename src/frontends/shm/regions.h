/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of regions of a server: the names that clients have registered. HTTP and gRPC of a
 * server share it (serve/server_loops.h).
 *
 *     st = regions_register(t, "input0", "/client_1", 0, 4096);      a control thread
 *     st = regions_use(t, "input0", 6, 0, 64, &region, &base);       any thread, for a request
 *     …
 *     region_unref(region);
 *     regions_unregister(t, "input0", REGION_SYSTEM);                a control thread
 *
 * Looking up takes no lock. A name that is unregistered is hidden at once; its memory is unmapped
 * after the last request that uses it.
 */
#ifndef CONCH_FRONTENDS_SHM_REGIONS_H
#define CONCH_FRONTENDS_SHM_REGIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "frontends/shm/region.h"

struct server;

struct regions_options {
    bool allowed; /* --allow-client-shm */
    unsigned int max_regions;
    uint64_t max_bytes; /* of all regions together */
};

/*
 * regions_new - an empty table.
 *
 * @server  whose helper threads unmap regions; borrowed until regions_free(). NULL: the thread that
 *          gives up the last reference to a region unmaps it
 */
struct regions *regions_new(const struct regions_options *options, struct server *server);

/*
 * regions_free - unregisters all names. Regions that requests use live on, and then are unmapped by
 * the thread that gives up the last reference. NULL is fine. Thread: any; may block.
 */
void regions_free(struct regions *t);

/* regions_are_allowed - whether clients may register regions. Thread: any. */
bool regions_are_allowed(const struct regions *t);

/*
 * regions_allow - Errors: STATUS_UNSUPPORTED  clients may not register or unregister regions.
 */
NODISCARD struct status *regions_allow(const struct regions *t);

/*
 * regions_register - maps a client's object and gives it a name.
 *
 * Thread: control: may block.
 * Errors: STATUS_UNSUPPORTED     as regions_allow()
 *         STATUS_ALREADY_EXISTS  the name is registered
 *         STATUS_INVALID_ARG     the key is none, or one that the server reserves
 *         STATUS_EXHAUSTED       a limit is reached
 *         those of region_open()
 */
NODISCARD struct status *regions_register(struct regions *t, const char *name, const char *key,
                                          uint64_t offset, uint64_t size_bytes);

/*
 * regions_allow_cuda - whether there are GPUs whose memory may be registered. Thread: control: the
 * first call starts the driver.
 *
 * Errors: STATUS_UNSUPPORTED  as regions_allow()
 *         STATUS_INVALID_ARG  there is no driver, or no GPU
 */
NODISCARD struct status *regions_allow_cuda(const struct regions *t, const char *name);

/*
 * regions_register_cuda - opens a client's memory of a GPU and gives it a name.
 *
 * Thread: control: may block.
 * @handle  of CUDA, for other processes
 * Errors: those of regions_allow_cuda() and of region_open_cuda()
 *         STATUS_ALREADY_EXISTS  the name is registered
 *         STATUS_INVALID_ARG     the handle has another size; the name is too long
 */
NODISCARD struct status *regions_register_cuda(struct regions *t, const char *name,
                                               const void *handle, size_t handle_bytes,
                                               int64_t device_id, uint64_t size_bytes);

/*
 * regions_count - the regions of a kind, and their bytes: those with a name, and those without that
 * requests still use. Thread: any.
 */
struct region_total regions_count(const struct regions *t, enum region_kind kind);

/*
 * regions_unregister - hides a name, or with "" all names, of that kind. An unknown name is no
 * error.
 *
 * Thread: control: may block.
 * Errors: STATUS_UNSUPPORTED  as regions_allow()
 */
NODISCARD struct status *regions_unregister(struct regions *t, const char *name,
                                            enum region_kind kind);

/*
 * regions_use - the region of that name, for a request, and the address of a part of it. The caller
 * ends the reference with region_unref().
 *
 * Thread: any.
 * @t      NULL: an empty table
 * Errors: STATUS_NOT_FOUND  Unable to find shared memory region: …
 *         those of region_view()
 */
NODISCARD struct status *regions_use(struct regions *t, const char *name, size_t name_length,
                                     uint64_t offset, uint64_t size_bytes,
                                     struct region **ret_region, char **ret_base);

/*
 * regions_list - the region of that name, or with "" all regions of that kind, by name. The caller
 * ends the list with regions_list_free().
 *
 * Thread: any.
 * @t      NULL: an empty table
 * Errors: STATUS_NOT_FOUND  reference/behaviours §9.4
 */
NODISCARD struct status *regions_list(struct regions *t, const char *name, enum region_kind kind,
                                      struct region ***ret_list, size_t *ret_n);
void regions_list_free(struct region **list, size_t n);

#endif
