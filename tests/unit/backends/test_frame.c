/* SPDX-License-Identifier: Apache-2.0 */
/* A backend, a model and its instance, as far as the frame reads them. Those that backend.c calls
 * have their names before it is included. */
#define TRITONBACKEND_BackendArtifacts      fake_BackendArtifacts
#define TRITONBACKEND_BackendConfig         fake_BackendConfig
#define TRITONBACKEND_ModelInstanceKind     fake_InstanceKind
#define TRITONSERVER_MessageSerializeToJson fake_message_text

#include "lib/fake_backend_api.h"

#define TRITONBACKEND_BackendAttributeAddPreferredInstanceGroup       fake_prefer_group
#define TRITONBACKEND_BackendAttributeSetParallelModelInstanceLoading fake_load_parallel

#define TRITONBACKEND_ModelName             fake_ModelName
#define TRITONBACKEND_ModelState            fake_ModelState
#define TRITONBACKEND_ModelSetState         fake_ModelSetState
#define TRITONBACKEND_ModelInstanceName     fake_InstanceName
#define TRITONBACKEND_ModelInstanceModel    fake_InstanceModel
#define TRITONBACKEND_ModelInstanceState    fake_InstanceState
#define TRITONBACKEND_ModelInstanceSetState fake_InstanceSetState
#define backend_model_config                fake_model_config

static void *model_state, *instance_state;
static const char *config_text;
static TRITONSERVER_InstanceGroupKind instance_kind;
static unsigned int n_preferred, n_parallel;

static TRITONSERVER_Error *fake_prefer_group(TRITONBACKEND_BackendAttribute *attributes,
                                             const TRITONSERVER_InstanceGroupKind kind,
                                             const uint64_t count, const uint64_t *devices,
                                             const uint64_t n_devices)
{
    (void)attributes;
    assert_int_equal(kind, TRITONSERVER_INSTANCEGROUPKIND_CPU);
    assert_true(count == 0 && !devices && n_devices == 0);
    n_preferred++;
    return NULL;
}

static TRITONSERVER_Error *fake_load_parallel(TRITONBACKEND_BackendAttribute *attributes, bool on)
{
    (void)attributes;
    n_parallel += on;
    return NULL;
}

TRITONSERVER_Error *fake_BackendArtifacts(TRITONBACKEND_Backend *backend,
                                          TRITONBACKEND_ArtifactType *type, const char **location)
{
    (void)backend;
    *type = TRITONBACKEND_ARTIFACT_FILESYSTEM;
    *location = "/backends/b";
    return NULL;
}

TRITONSERVER_Error *fake_BackendConfig(TRITONBACKEND_Backend *backend,
                                       TRITONSERVER_Message **config)
{
    (void)backend;
    *config = NULL;
    return NULL;
}

TRITONSERVER_Error *fake_message_text(TRITONSERVER_Message *message, const char **base,
                                      size_t *byte_size)
{
    (void)message;
    *base = "{\"cmdline\": {\"library-path\": \"/lib/f.so\"}}";
    *byte_size = strlen(*base);
    return NULL;
}

TRITONSERVER_Error *fake_InstanceKind(TRITONBACKEND_ModelInstance *instance,
                                      TRITONSERVER_InstanceGroupKind *kind)
{
    (void)instance;
    *kind = instance_kind;
    return NULL;
}

static TRITONSERVER_Error *fake_ModelName(TRITONBACKEND_Model *model, const char **name)
{
    (void)model;
    *name = "m";
    return NULL;
}

static TRITONSERVER_Error *fake_ModelState(TRITONBACKEND_Model *model, void **state)
{
    (void)model;
    *state = model_state;
    return NULL;
}

static TRITONSERVER_Error *fake_ModelSetState(TRITONBACKEND_Model *model, void *state)
{
    (void)model;
    model_state = state;
    return NULL;
}

static TRITONSERVER_Error *fake_InstanceName(TRITONBACKEND_ModelInstance *instance,
                                             const char **name)
{
    (void)instance;
    *name = "m_0";
    return NULL;
}

static TRITONSERVER_Error *fake_InstanceModel(TRITONBACKEND_ModelInstance *instance,
                                              TRITONBACKEND_Model **model)
{
    (void)instance;
    *model = NULL;
    return NULL;
}

static TRITONSERVER_Error *fake_InstanceState(TRITONBACKEND_ModelInstance *instance, void **state)
{
    (void)instance;
    *state = instance_state;
    return NULL;
}

static TRITONSERVER_Error *fake_InstanceSetState(TRITONBACKEND_ModelInstance *instance, void *state)
{
    (void)instance;
    instance_state = state;
    return NULL;
}

static TRITONSERVER_Error *fake_model_config(TRITONBACKEND_Model *model, struct doc **ret_config)
{
    const char *why;

    (void)model;
    *ret_config = doc_parse(config_text, strlen(config_text), &why);
    return *ret_config ? NULL : backend_error(TRITONSERVER_ERROR_INTERNAL, "%s", why);
}

#include "common/batch.c"
#include "common/frame.c"

/* ---- A backend ------------------------------------------------------------------------------ */

static unsigned int n_open, n_executed;
static bool open_fails, batches_fail;
static int32_t refused; /* the model fails requests that begin with this number */

static TRITONSERVER_Error *count_open(void)
{
    n_open++;
    return open_fails ? backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "no") : NULL;
}

static TRITONSERVER_Error *on_model_open(struct frame_model *m)
{
    assert_string_equal(m->name, "m");
    return count_open();
}

static void on_model_close(struct frame_model *m)
{
    (void)m;
    n_open--;
}

static TRITONSERVER_Error *on_instance_open(struct frame_instance *in)
{
    assert_string_equal(in->name, "m_0");
    return count_open();
}

static void on_instance_close(struct frame_instance *in)
{
    (void)in;
    n_open--;
}

static TRITONSERVER_Error *on_execute(struct frame_instance *in, struct batch *b)
{
    assert_ptr_equal(in->model, model_state);
    n_executed++;
    if (batches_fail && b->n_parts > 1)
        return backend_error(TRITONSERVER_ERROR_INTERNAL, "too many");
    for (uint32_t i = 0; i < b->n_parts; i++)
        if (*(const int32_t *)b->parts[i].request->inputs[0].buffers[0] == refused)
            return backend_error(TRITONSERVER_ERROR_INVALID_ARG, "not this one");
    return NULL;
}

static struct frame frame = {
    .model_open = on_model_open,
    .model_close = on_model_close,
    .instance_open = on_instance_open,
    .instance_close = on_instance_close,
    .execute = on_execute,
};

static int setup(void **state)
{
    (void)state;
    n_open = n_executed = 0;
    open_fails = batches_fail = false;
    refused = -1;
    model_state = instance_state = NULL;
    frame.repeat_alone = false;
    frame.refuses_gpu = NULL;
    instance_kind = TRITONSERVER_INSTANCEGROUPKIND_CPU;
    return 0;
}

static void load(const char *config)
{
    config_text = config;
    fake_must(frame_model_open(&frame, NULL));
    fake_must(frame_instance_open(NULL));
    assert_int_equal(n_open, 2);
    fake_must(frame_instance_ready(NULL));
}

static void unload(void)
{
    fake_must(frame_instance_close(NULL));
    fake_must(frame_model_close(NULL));
    assert_int_equal(n_open, 0);
}

static const int32_t numbers[] = {1, 2, 3};

static void execute(TRITONBACKEND_Request *requests)
{
    TRITONBACKEND_Request *list[3];

    memset(requests, 0, 3 * sizeof(*requests));
    for (uint32_t i = 0; i < 3; i++) {
        fake_input(&requests[i], "IN", TRITONSERVER_TYPE_INT32, &numbers[i], 4, 2, 1, 1);
        list[i] = &requests[i];
    }
    fake_requests = requests;
    fake_n_requests = 3;
    fake_n_batches = 0;
    fake_batch_size = 0;
    fake_must(frame_execute(NULL, list, 3));
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(requests[i].n_sent, 1);
        assert_int_equal(requests[i].n_released, 1);
        assert_int_equal(requests[i].n_reported, 1);
    }
    assert_int_equal(fake_batch_size, 3);
    fake_forget(requests, 3);
}

/* ---- Tests ---------------------------------------------------------------------------------- */

static void a_batch_is_executed_at_once(void **state)
{
    TRITONBACKEND_Request r[3];

    (void)state;
    load("{\"max_batch_size\": 8}");
    execute(r);
    assert_int_equal(n_executed, 1);
    assert_int_equal(fake_n_batches, 1);
    assert_int_equal(r[0].n_succeeded + r[1].n_succeeded + r[2].n_succeeded, 3);
    unload();
}

static void without_batching_each_request_is_executed_alone(void **state)
{
    TRITONBACKEND_Request r[3];

    (void)state;
    load("{\"max_batch_size\": 0}");
    refused = 2;
    execute(r);
    assert_int_equal(n_executed, 3);
    assert_int_equal(fake_n_batches, 3);
    assert_string_equal(r[0].error, "");
    assert_string_equal(r[1].error, "not this one");
    assert_string_equal(r[2].error, "");
    unload();
}

static void an_error_of_the_batch_answers_all_its_requests(void **state)
{
    TRITONBACKEND_Request r[3];

    (void)state;
    load("{\"max_batch_size\": 8}");
    refused = 2;
    execute(r);
    assert_int_equal(n_executed, 1);
    for (int i = 0; i < 3; i++)
        assert_string_equal(r[i].error, "not this one");
    unload();
}

static void a_failed_request_does_not_fail_the_others(void **state)
{
    TRITONBACKEND_Request r[3];

    (void)state;
    frame.repeat_alone = true;
    load("{\"max_batch_size\": 8}");
    refused = 2;
    execute(r);
    assert_int_equal(n_executed, 4);
    assert_string_equal(r[0].error, "");
    assert_string_equal(r[1].error, "not this one");
    assert_string_equal(r[2].error, "");
    refused = -1;
    batches_fail = true;
    execute(r);
    assert_int_equal(n_executed, 8);
    assert_int_equal(r[0].n_succeeded + r[1].n_succeeded + r[2].n_succeeded, 3);
    unload();
}

static void a_model_that_fails_to_open_is_closed_once(void **state)
{
    (void)state;
    open_fails = true;
    config_text = "{}";
    fake_expect(frame_model_open(&frame, NULL), "no");
    assert_int_equal(n_open, 0);
    fake_must(frame_model_close(NULL)); /* only models that were opened are closed */
    assert_int_equal(n_open, 0);

    config_text = "{";
    open_fails = false;
    TRITONSERVER_Error *err = frame_model_open(&frame, NULL);
    assert_non_null(err);
    TRITONSERVER_ErrorDelete(err);

    config_text = "{}";
    fake_must(frame_model_open(&frame, NULL));
    open_fails = true;
    fake_expect(frame_instance_open(NULL), "no");
    assert_int_equal(n_open, 1);
    unload();
}

static void an_instance_on_a_gpu_is_refused_before_it_is_opened(void **state)
{
    (void)state;
    config_text = "{}";
    fake_must(frame_model_open(&frame, NULL));
    instance_kind = TRITONSERVER_INSTANCEGROUPKIND_GPU;
    frame.refuses_gpu = "GPU instances not supported";
    fake_expect(frame_instance_open(NULL), "GPU instances not supported");
    frame.refuses_gpu = "unable to load model '%s', no GPU";
    fake_expect(frame_instance_open(NULL), "unable to load model 'm', no GPU");
    assert_int_equal(n_open, 1);
    instance_kind = TRITONSERVER_INSTANCEGROUPKIND_CPU;
    fake_must(frame_instance_open(NULL));
    unload();
    load("{}"); /* a frame that refuses none */
    unload();
}

static void a_backend_without_gpus_prefers_cpus(void **state)
{
    struct frame f = {.parallel_instances = true};

    (void)state;
    n_preferred = n_parallel = 0;
    fake_must(frame_attributes(&f, NULL));
    assert_int_equal(n_preferred, 0);
    f.refuses_gpu = "none";
    fake_must(frame_attributes(&f, NULL));
    assert_int_equal(n_preferred, 1);
    assert_int_equal(n_parallel, 2);
    f.parallel_instances = false;
    fake_must(frame_attributes(&f, NULL));
    assert_int_equal(n_preferred, 2);
    assert_int_equal(n_parallel, 2);
}

static unsigned int n_configured, n_finalized;
static bool configuring_fails;
static int own;

static TRITONSERVER_Error *on_configure(const struct doc *settings, const char *folder)
{
    n_configured++;
    assert_string_equal(backend_setting(settings, "library-path"), "/lib/f.so");
    assert_string_equal(folder, "/backends/b");
    return configuring_fails ? backend_error(TRITONSERVER_ERROR_NOT_FOUND, "no library") : NULL;
}

static TRITONSERVER_Error *on_initialize(TRITONBACKEND_Backend *backend)
{
    (void)backend;
    assert_int_equal(n_configured, 1);
    return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "not now");
}

static void on_finalize(TRITONBACKEND_Backend *backend)
{
    (void)backend;
    n_finalized++;
}

static TRITONSERVER_Error *on_open_of_configured(struct frame_model *m)
{
    assert_ptr_equal(m->backend, &own);
    return NULL;
}

static void a_backend_is_configured_first_and_finalised_after_an_error(void **state)
{
    struct frame f = {.configure = on_configure,
                      .backend = &own,
                      .finalize = on_finalize,
                      .model_open = on_open_of_configured};

    (void)state;
    n_configured = n_finalized = 0;
    configuring_fails = true;
    fake_expect(frame_initialize(&f, NULL), "no library");
    assert_int_equal(n_finalized, 1);

    n_configured = 0;
    configuring_fails = false;
    f.initialize = on_initialize;
    fake_expect(frame_initialize(&f, NULL), "not now");
    f.initialize = NULL;
    fake_must(frame_initialize(&f, NULL));
    config_text = "{}";
    fake_must(frame_model_open(&f, NULL));
    fake_must(frame_model_close(NULL));
    fake_must(frame_finalize(&f, NULL));
    assert_int_equal(n_finalized, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_batch_is_executed_at_once, setup),
        cmocka_unit_test_setup(without_batching_each_request_is_executed_alone, setup),
        cmocka_unit_test_setup(an_error_of_the_batch_answers_all_its_requests, setup),
        cmocka_unit_test_setup(a_failed_request_does_not_fail_the_others, setup),
        cmocka_unit_test_setup(a_model_that_fails_to_open_is_closed_once, setup),
        cmocka_unit_test_setup(an_instance_on_a_gpu_is_refused_before_it_is_opened, setup),
        cmocka_unit_test_setup(a_backend_without_gpus_prefers_cpus, setup),
        cmocka_unit_test_setup(a_backend_is_configured_first_and_finalised_after_an_error, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
