/* SPDX-License-Identifier: Apache-2.0 */
/* The tensors of a configuration as arguments of a TorchScript model: names, indices in names, data
 * types, shapes, states, batch inputs. The first byte chooses the model's arguments. Accepted
 * tensors are arguments that the model has, each once. */
#include "common/backend.c"
#include "common/doc.c"
#include "common/gather.c"
#include "common/ragged.c"
#include "pytorch/ports.c"

#include <assert.h>

static const struct shim_argument arguments[] = {
    {.name = "x", .type = "Tensor", .kind = SHIM_TENSOR},
    {.name = "words", .type = "List[str]", .kind = SHIM_STRINGS},
    {.name = "y", .type = "Optional[Tensor]", .kind = SHIM_TENSOR, .may_lack = true},
    {.name = "n", .type = "int", .kind = SHIM_OTHER, .may_lack = true},
};
static const struct shim_argument dictionary[] = {
    {.name = "d", .type = "Dict[str, Tensor]", .kind = SHIM_DICT},
};

static void check_ports(const struct torch_model *t)
{
    assert(t->inputs.n > 0 && t->outputs.n > 0 && t->inputs.n_plain <= t->inputs.n);
    for (size_t i = 0; i < t->inputs.n && !t->takes_dict; i++) {
        assert(t->inputs.list[i].index < t->module->n_arguments);
        for (size_t j = 0; j < i; j++)
            assert(t->inputs.list[i].index != t->inputs.list[j].index);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct shim_model module;
    struct torch_model t = {.name = "m", .module = &module};
    TRITONSERVER_Error *err;
    const char *why;
    struct doc *config;

    if (size == 0)
        return 0;
    module.arguments = data[0] & 8 ? dictionary : arguments;
    module.n_arguments = data[0] & 8 ? 1 : data[0] & 3;
    config = doc_parse((const char *)data + 1, size - 1, &why);
    if (!config)
        return 0;
    doc_int(doc_get(doc_root(config), "max_batch_size"), &t.max_batch_size);
    err = ports_read(&t, config);
    if (!err)
        check_ports(&t);
    TRITONSERVER_ErrorDelete(err);
    ports_done(&t);
    doc_free(config);
    return 0;
}
