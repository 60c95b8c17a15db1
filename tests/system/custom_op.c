/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A library of one custom operator, conch.test.Twice: OUT = 2 IN, FP32 of two elements. Built by
 * test_onnx_settings.py from our own table of ONNX Runtime's functions.
 */
#include "onnxruntime/ort_api.h"

struct op {
    uint32_t version;
    void *(*create_kernel)(const struct op *, const void *const *api, const void *info);
    const char *(*name)(const struct op *);
    const char *(*provider)(const struct op *);
    enum ort_element (*input_type)(const struct op *, size_t);
    size_t (*n_inputs)(const struct op *);
    enum ort_element (*output_type)(const struct op *, size_t);
    size_t (*n_outputs)(const struct op *);
    void (*compute)(void *kernel, void *context);
    void (*destroy)(void *kernel);
    int (*input_kind)(const struct op *, size_t);
    int (*output_kind)(const struct op *, size_t);
    void *others[32]; /* for newer kinds of operators */
};

/* X(slot, name, parameters), as in ort_api.h; all return a status */
#define FUNCTIONS(X)                                                                               \
    X(26, new_domain, (const char *, void **))                                                     \
    X(27, domain_add, (void *, const struct op *))                                                 \
    X(28, add_domain, (struct ort_options *, void *))                                              \
    X(51, data_of, (struct ort_value *, void **))                                                  \
    X(90, input_of, (void *context, size_t, struct ort_value **))                                  \
    X(91, output_of, (void *context, size_t, const int64_t *, size_t, struct ort_value **))

#define DECLARE(place, name, parameters) static struct ort_status *(*name)parameters;
FUNCTIONS(DECLARE)

enum { RELEASE_DOMAIN = 101 };
static void (*release_domain)(void *);
static void *domain; /* kept as long as the library is loaded: sessions refer to it */

static char kernel;

static void *create_kernel(const struct op *op, const void *const *api, const void *info)
{
    (void)op, (void)api, (void)info;
    return &kernel;
}

static const char *name(const struct op *op)
{
    (void)op;
    return "Twice";
}

static const char *provider(const struct op *op)
{
    (void)op;
    return NULL; /* CPU */
}

static enum ort_element type(const struct op *op, size_t i)
{
    (void)op, (void)i;
    return ORT_FLOAT;
}

static size_t one(const struct op *op)
{
    (void)op;
    return 1;
}

static int required(const struct op *op, size_t i)
{
    (void)op, (void)i;
    return 0;
}

static void destroy(void *k)
{
    (void)k;
}

static void compute(void *k, void *context)
{
    static const int64_t shape[] = {2};
    struct ort_value *in, *out;
    void *from, *to;

    (void)k;
    if (input_of(context, 0, &in) || output_of(context, 0, shape, 1, &out) || data_of(in, &from) ||
        data_of(out, &to))
        return;
    for (int i = 0; i < 2; i++)
        ((float *)to)[i] = 2 * ((const float *)from)[i];
}

static const struct op twice = {.version = 8,
                                .create_kernel = create_kernel,
                                .name = name,
                                .provider = provider,
                                .input_type = type,
                                .n_inputs = one,
                                .output_type = type,
                                .n_outputs = one,
                                .compute = compute,
                                .destroy = destroy,
                                .input_kind = required,
                                .output_kind = required};

/* ONNX Runtime searches for this function. */
struct ort_status *RegisterCustomOps(struct ort_options *options, const struct ort_api_base *base);

struct ort_status *RegisterCustomOps(struct ort_options *options, const struct ort_api_base *base)
{
    const void *const *table = base->GetApi(ORT_TABLE_VERSION);
    struct ort_status *status;

#define FILL(place, name, parameters) name = (__typeof__(name))(uintptr_t)table[place];
    FUNCTIONS(FILL)
    release_domain = (__typeof__(release_domain))(uintptr_t)table[RELEASE_DOMAIN];
    if (!domain) {
        status = new_domain("conch.test", &domain);
        if (!status)
            status = domain_add(domain, &twice);
        if (status)
            return status;
    }
    return add_domain(options, domain);
}

__attribute__((destructor)) static void release(void)
{
    if (domain)
        release_domain(domain);
}
