/* SPDX-License-Identifier: Apache-2.0 */
/* scale with the helper library: OUT = IN times the request's parameter `factor` (2 if it has
 * none).
 */
#include <stdlib.h>
#include <string.h>

#include "common/frame.h"
#include "common/gather.h"
#include "common/scatter.h"

struct instance {
    struct gathered in;
    struct scattered out;
};

static TRITONSERVER_Error *instance_open(struct frame_instance *fi)
{
    fi->state = calloc(1, sizeof(struct instance));
    return fi->state ? NULL : backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
}

static void instance_close(struct frame_instance *fi)
{
    struct instance *in = fi->state;

    if (in) {
        gathered_done(&in->in);
        scattered_done(&in->out);
    }
    free(in);
}

static TRITONSERVER_Error *read_factor(TRITONBACKEND_Request *request, double *factor)
{
    uint32_t n;

    *factor = 2;
    TRY(TRITONBACKEND_RequestParameterCount(request, &n));
    for (uint32_t i = 0; i < n; i++) {
        TRITONSERVER_ParameterType type;
        const void *value;
        const char *key;

        TRY(TRITONBACKEND_RequestParameter(request, i, &key, &type, &value));
        if (strcmp(key, "factor") != 0)
            continue;
        if (type != TRITONSERVER_PARAMETER_DOUBLE)
            return backend_error(TRITONSERVER_ERROR_INVALID_ARG, "factor must be a DOUBLE");
        *factor = *(const double *)value;
    }
    return NULL;
}

/* The model does not batch, so there is one request. Its input is read where it arrived, and its
 * output written where it is sent from. */
static TRITONSERVER_Error *execute(struct frame_instance *fi, struct batch *b)
{
    struct instance *in = fi->state;
    double factor;

    TRY(read_factor(b->parts[0].request, &factor));
    TRY(gather(&in->in, b, "IN", TRITONSERVER_TYPE_FP32, 0));
    TRY(scatter_begin(&in->out, b, "OUT", 0, TRITONSERVER_TYPE_FP32, in->in.shape, in->in.rank));
    batch_computes(b);
    for (uint64_t i = 0; i < in->out.size / sizeof(float); i++)
        ((float *)in->out.data)[i] = ((const float *)in->in.data)[i] * (float)factor;
    batch_computed(b);
    return scatter_end(&in->out, b);
}

static const struct frame frame = {
    .instance_open = instance_open,
    .instance_close = instance_close,
    .execute = execute,
};
BACKEND_FRAME(frame)
