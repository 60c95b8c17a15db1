/* SPDX-License-Identifier: Apache-2.0 */
/*
 * block - see block.h.
 */
#include "python/child/block.h"

#include "python/child/link.h"

struct block_object {
    PyObject_HEAD uint64_t at;
    bool up;
};

static PyTypeObject *block_type;

static void block_dealloc(PyObject *self)
{
    const struct block_object *b = (struct block_object *)(void *)self;

    if (b->up)
        link_drop(b->at);
    else
        link_give_back(b->at);
    child_free(self);
}

static PyObject *make_block(uint64_t at, bool up)
{
    struct block_object *b = child_new(block_type);

    if (!b)
        return NULL;
    b->at = at;
    b->up = up;
    return (PyObject *)b;
}

PyObject *block_down(uint64_t at)
{
    PyObject *b = make_block(at, false);

    if (!b)
        link_give_back(at);
    return b;
}

PyObject *block_up(uint64_t size_bytes, char **ret_data)
{
    uint64_t at;
    char *data = link_take(size_bytes, &at);
    PyObject *b = data ? make_block(at, true) : NULL;

    if (data && !b)
        link_drop(at);
    *ret_data = data;
    return b;
}

uint64_t block_at(PyObject *block)
{
    return ((struct block_object *)(void *)block)->at;
}

int block_init(PyObject *module)
{
    static PyType_Slot slots[] = {{Py_tp_dealloc, block_dealloc}, {0, NULL}};
    static PyType_Spec spec = {.name = "c_python_backend_utils.Block",
                               .basicsize = sizeof(struct block_object),
                               .flags = Py_TPFLAGS_DEFAULT,
                               .slots = slots};

    block_type = child_type(module, &spec);
    return block_type ? 0 : -1;
}
