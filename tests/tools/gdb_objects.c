/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gdb_objects: has one object of each kind that tools/gdb/conch.py prints, and stops in stop_here()
 * for the debugger, which finds the objects by their names.
 */
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/compiler.h"
#include "base/list.h"
#include "base/pool.h"
#include "base/status.h"
#include "core/model/model.h"
#include "core/request/request.h"

struct thing {
    int number;
    struct list link;
};

struct status *wrong, *no_memory_left;
struct list things = LIST_INIT(things), nothing = LIST_INIT(nothing), broken = LIST_INIT(broken);
struct list not_initialised;
struct buf text = BUF_INIT(1 << 20), empty = BUF_INIT(16), too_small = BUF_INIT(16);
struct request request;
void stop_here(void);

__attribute__((noinline)) void stop_here(void)
{
    __asm__ volatile("" ::: "memory"); /* so that the call is not optimised away */
}

static void destroy(struct request *r)
{
    (void)r;
}

static void make_lists(void)
{
    static struct thing all[3], stray;
    for (int i = 0; i < 3; i++) {
        all[i].number = 10 * i;
        list_push(&things, &all[i].link);
    }
    list_push(&broken, &stray.link);
    stray.link.prev = NULL;
}

static void make_texts(void)
{
    buf_adds(&text, "a \"text\"\n");
    buf_adds(&too_small, "it fits");
    buf_adds(&too_small, ", and this does not");
    wrong = status_prefix(status_new(STATUS_INVALID_ARG, "shape [%d] does not fit", 2),
                          "input '%s': ", "x");
    wrong = status_ref(wrong);
    no_memory_left = status_no_memory();
}

static struct status *make_request(struct model *m)
{
    static const struct request_ops ops = {.destroy = destroy};
    static const int64_t shape[] = {2, -1};
    static const float data[6];
    const struct tensor_buffer buffer = {.base = data, .size_bytes = sizeof(data)};
    struct input *in;
    request_init(&request, &ops, m, NULL, 0, NULL);
    struct status *st = request_set_id(&request, "seven", 5);
    if (!st)
        st = request_set_correlation_string(&request, "talk", 4);
    if (!st)
        st = request_add_input(&request, "INPUT0", 6, DTYPE_FP32, shape, ARRAY_SIZE(shape), &in);
    if (!st)
        st = request_add_data(&request, in, &buffer);
    if (!st)
        st = request_add_output(&request, "OUTPUT0", 7);
    return st;
}

int main(void)
{
    static char name[] = "digits";
    static struct model model = {.name = name, .version = 3};
    make_lists();
    make_texts();
    struct status *st = make_request(&model);
    if (st)
        return 1;
    stop_here();
    return 0;
}
