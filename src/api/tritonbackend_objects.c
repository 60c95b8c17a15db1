/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tritonbackend.h: backends, models and instances, and the backends' reports about them; backend.h.
 */
#include "conch/backend.h"

#include "api/handles.h"
#include "base/buf.h"
#include "base/cpu_count.h"
#include "base/mem.h"
#include "base/status.h"
#include "conch/backend.h"
#include "core/backend/backend.h"
#include "core/backend/instance.h"
#include "core/backend/readiness.h"
#include "core/model/model.h"
#include "core/model/model_services.h"
#include "core/backend/leave.h"
#include "documents/documents.h"

enum { MAX_CONFIG_BYTES = 1 << 28 };

_Static_assert((int)INSTANCE_MODEL == (int)TRITONSERVER_INSTANCEGROUPKIND_MODEL, "kinds");
_Static_assert((int)EXECUTION_DEVICE_BLOCKING == (int)TRITONBACKEND_EXECUTION_DEVICE_BLOCKING,
               "execution policies");

/* ---- Backends -------------------------------------------------------------------------------- */

TRITONSERVER_Error *TRITONBACKEND_BackendName(TRITONBACKEND_Backend *backend, const char **name)
{
    NEED(backend);
    *name = to_backend(backend)->name;
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_BackendConfig(TRITONBACKEND_Backend *backend,
                                                TRITONSERVER_Message **backend_config)
{
    NEED(backend);
    *backend_config = as_message(&to_backend(backend)->config);
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_BackendExecutionPolicy(TRITONBACKEND_Backend *backend,
                                                         TRITONBACKEND_ExecutionPolicy *policy)
{
    NEED(backend);
    *policy = (TRITONBACKEND_ExecutionPolicy)to_backend(backend)->policy;
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_BackendSetExecutionPolicy(TRITONBACKEND_Backend *backend,
                                                            TRITONBACKEND_ExecutionPolicy policy)
{
    NEED(backend);
    to_backend(backend)->policy = (enum execution_policy)policy;
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_BackendArtifacts(TRITONBACKEND_Backend *backend,
                                                   TRITONBACKEND_ArtifactType *artifact_type,
                                                   const char **location)
{
    NEED(backend);
    *artifact_type = TRITONBACKEND_ARTIFACT_FILESYSTEM;
    *location = to_backend(backend)->directory;
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_BackendMemoryManager(TRITONBACKEND_Backend *backend,
                                                       TRITONBACKEND_MemoryManager **manager)
{
    NEED(backend);
    *manager = as_memory_manager(to_backend(backend)->server);
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_BackendState(TRITONBACKEND_Backend *backend, void **state)
{
    NEED(backend);
    *state = to_backend(backend)->state;
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_BackendSetState(TRITONBACKEND_Backend *backend, void *state)
{
    NEED(backend);
    to_backend(backend)->state = state;
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_BackendAttributeAddPreferredInstanceGroup(
    TRITONBACKEND_BackendAttribute *backend_attributes, const TRITONSERVER_InstanceGroupKind kind,
    const uint64_t count, const uint64_t *device_ids, const uint64_t id_count)
{
    static const Inference__ModelInstanceGroup__Kind kinds[] = {
        [TRITONSERVER_INSTANCEGROUPKIND_AUTO] = INFERENCE__MODEL_INSTANCE_GROUP__KIND__KIND_AUTO,
        [TRITONSERVER_INSTANCEGROUPKIND_CPU] = INFERENCE__MODEL_INSTANCE_GROUP__KIND__KIND_CPU,
        [TRITONSERVER_INSTANCEGROUPKIND_GPU] = INFERENCE__MODEL_INSTANCE_GROUP__KIND__KIND_GPU,
        [TRITONSERVER_INSTANCEGROUPKIND_MODEL] = INFERENCE__MODEL_INSTANCE_GROUP__KIND__KIND_MODEL,
    };
    NEED(backend_attributes);
    (void)device_ids; /* of GPUs, of which there are none */
    (void)id_count;
    if (kind >= ARRAY_SIZE(kinds))
        return as_status(status_new(STATUS_INVALID_ARG, "unknown instance group kind %d", kind));
    struct backend_attribute *a = to_backend_attribute(backend_attributes);
    a->groups = mem_realloc(a->groups, (a->n_groups + 1) * sizeof(*a->groups));
    a->groups[a->n_groups++] =
        (struct config_group){.kind = kinds[kind], .count = (int)MIN(count, (uint64_t)INT32_MAX)};
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_BackendAttributeSetParallelModelInstanceLoading(
    TRITONBACKEND_BackendAttribute *backend_attributes, bool enabled)
{
    NEED(backend_attributes);
    to_backend_attribute(backend_attributes)->parallel_instance_loading = enabled;
    return NULL;
}

TRITONSERVER_Error *
conch_backend_attribute_set_instance_threads(TRITONBACKEND_BackendAttribute *backend_attributes,
                                             bool enabled)
{
    NEED(backend_attributes);
    to_backend_attribute(backend_attributes)->instance_threads = enabled;
    return NULL;
}

/* ---- Models ---------------------------------------------------------------------------------- */

TRITONSERVER_Error *TRITONBACKEND_ModelName(TRITONBACKEND_Model *model, const char **name)
{
    NEED(model);
    *name = to_model(model)->name;
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelVersion(TRITONBACKEND_Model *model, uint64_t *version)
{
    NEED(model);
    *version = (uint64_t)to_model(model)->version;
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelRepository(TRITONBACKEND_Model *model,
                                                  TRITONBACKEND_ArtifactType *artifact_type,
                                                  const char **location)
{
    NEED(model);
    *artifact_type = TRITONBACKEND_ARTIFACT_FILESYSTEM;
    *location = to_model(model)->directory;
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelConfig(TRITONBACKEND_Model *model,
                                              const uint32_t config_version,
                                              TRITONSERVER_Message **model_config)
{
    AUTO(buf) text = BUF_INIT(MAX_CONFIG_BYTES);
    NEED(model);
    NEED(model_config);
    struct status *st = document_check_config_version(config_version);
    if (st)
        return as_status(st);
    model_print_config(to_model(model), &text);
    st = buf_status(&text);
    if (st)
        return as_status(st);
    size_t size = text.size;
    *model_config = as_message(json_message_new(buf_take(&text), size));
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelAutoCompleteConfig(TRITONBACKEND_Model *model,
                                                          bool *auto_complete_config)
{
    NEED(model);
    *auto_complete_config = to_model(model)->auto_complete;
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelSetConfig(TRITONBACKEND_Model *model,
                                                 const uint32_t config_version,
                                                 TRITONSERVER_Message *model_config)
{
    NEED(model);
    NEED(model_config);
    struct model *m = to_model(model);
    struct status *st = document_check_config_version(config_version);
    if (!st && m->initialized_in_backend)
        st = status_new(STATUS_INVALID_ARG,
                        "the configuration of model '%s' can be set while it is initialized only",
                        m->name);
    if (!st)
        st = model_config_merge_from_backend(m->config, to_message(model_config)->json,
                                             to_message(model_config)->size_bytes);
    return as_status(st);
}

int conch_cpu_count(void)
{
    return cpu_count_usable();
}

TRITONSERVER_Error *conch_model_declare_bounded(TRITONBACKEND_Model *model)
{
    NEED(model);
    return as_status(model_declare_bounded(to_model(model)));
}

TRITONSERVER_Error *conch_model_instance_readiness_changed(TRITONBACKEND_ModelInstance *instance)
{
    NEED(instance);
    readiness_changed(to_instance(instance)->model);
    return NULL;
}

_Static_assert((int)CONCH_FINISH_OVER == (int)FINISH_OVER &&
                   (int)CONCH_FINISH_LATER == (int)FINISH_LATER &&
                   (int)CONCH_FINISH_ON_THREAD == (int)FINISH_ON_THREAD,
               "what a finish function says");

TRITONSERVER_Error *conch_model_instance_set_finish(TRITONBACKEND_ModelInstance *instance,
                                                    int descriptor, conch_finish_fn_t finish)
{
    NEED(instance);
    NEED(finish);
    if (descriptor < 0)
        return as_status(status_new(STATUS_INVALID_ARG, "descriptor %d is none", descriptor));
    struct instance *in = to_instance(instance);
    in->leave.finish = (finish_fn *)finish;
    leave_set_descriptor(in, descriptor);
    return NULL;
}

bool conch_model_instance_leave(TRITONBACKEND_ModelInstance *instance)
{
    return instance && leave_now(to_instance(instance));
}

TRITONSERVER_Error *TRITONBACKEND_ModelServer(TRITONBACKEND_Model *model,
                                              TRITONSERVER_Server **server)
{
    NEED(model);
    *server = as_server(to_model(model)->services->server);
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelBackend(TRITONBACKEND_Model *model,
                                               TRITONBACKEND_Backend **backend)
{
    NEED(model);
    *backend = as_backend(to_model(model)->backend);
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelState(TRITONBACKEND_Model *model, void **state)
{
    NEED(model);
    *state = to_model(model)->backend_state;
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelSetState(TRITONBACKEND_Model *model, void *state)
{
    NEED(model);
    to_model(model)->backend_state = state;
    return NULL;
}

static struct status *find_memory_place(const struct buffer_attributes *a,
                                        enum memory_place *ret_place)
{
    uint64_t last = a->type == MEMORY_GPU ? N_MEMORY_PLACES - PLACE_GPU - 1 : UINT64_MAX;
    if ((uint64_t)a->type > MEMORY_GPU || (uint64_t)a->type_id > last)
        return status_new(STATUS_INVALID_ARG, "memory usage of memory type %d, id %lld",
                          (int)a->type, (long long)a->type_id);
    *ret_place = (enum memory_place)a->type;
    if (a->type == MEMORY_GPU)
        *ret_place += (enum memory_place)a->type_id;
    return NULL;
}

/* Adds up the memory that a backend reports, by its places. */
static TRITONSERVER_Error *add_up(TRITONSERVER_BufferAttributes **usage, uint32_t usage_size,
                                  size_t ret_sums[N_MEMORY_PLACES])
{
    size_t sums[N_MEMORY_PLACES] = {0};
    if (usage_size)
        NEED(usage);
    for (uint32_t i = 0; i < usage_size; i++) {
        if (!usage[i])
            return as_status(
                status_new(STATUS_INVALID_ARG, "memory usage %u of %u was nullptr", i, usage_size));
        enum memory_place at = PLACE_CPU;
        struct status *st = find_memory_place(to_attributes(usage[i]), &at);
        if (st)
            return as_status(st);
        sums[at] += to_attributes(usage[i])->size_bytes;
    }
    memcpy(ret_sums, sums, sizeof(sums));
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelReportMemoryUsage(TRITONBACKEND_Model *model,
                                                         TRITONSERVER_BufferAttributes **usage,
                                                         uint32_t usage_size)
{
    size_t sums[N_MEMORY_PLACES];
    NEED(model);
    TRITONSERVER_Error *error = add_up(usage, usage_size, sums);
    for (enum memory_place at = 0; !error && at < N_MEMORY_PLACES; at++)
        atomic_store_explicit(&to_model(model)->reported_bytes[at], sums[at], memory_order_relaxed);
    return error;
}

/* ---- Instances ------------------------------------------------------------------------------- */

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceName(TRITONBACKEND_ModelInstance *instance,
                                                    const char **name)
{
    NEED(instance);
    *name = to_instance(instance)->name;
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceKind(TRITONBACKEND_ModelInstance *instance,
                                                    TRITONSERVER_InstanceGroupKind *kind)
{
    NEED(instance);
    *kind = (TRITONSERVER_InstanceGroupKind)to_instance(instance)->kind;
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceDeviceId(TRITONBACKEND_ModelInstance *instance,
                                                        int32_t *device_id)
{
    NEED(instance);
    *device_id = to_instance(instance)->device_id;
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceHostPolicy(TRITONBACKEND_ModelInstance *instance,
                                                          TRITONSERVER_Message **host_policy)
{
    NEED(instance);
    *host_policy = as_message(&to_instance(instance)->host_policy_document);
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceIsPassive(TRITONBACKEND_ModelInstance *instance,
                                                         bool *is_passive)
{
    NEED(instance);
    *is_passive = to_instance(instance)->group->passive;
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceProfileCount(TRITONBACKEND_ModelInstance *instance,
                                                            uint32_t *count)
{
    NEED(instance);
    *count = (uint32_t)to_instance(instance)->group->n_profile;
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceProfileName(TRITONBACKEND_ModelInstance *instance,
                                                           const uint32_t index,
                                                           const char **profile_name)
{
    NEED(instance);
    const Inference__ModelInstanceGroup *group = to_instance(instance)->group;
    *profile_name = NULL;
    if (index >= group->n_profile)
        return out_of_bounds("profiles", index, (uint32_t)group->n_profile);
    *profile_name = group->profile[index];
    return NULL;
}

TRITONSERVER_Error *
TRITONBACKEND_ModelInstanceSecondaryDeviceCount(TRITONBACKEND_ModelInstance *instance,
                                                uint32_t *count)
{
    NEED(instance);
    *count = (uint32_t)to_instance(instance)->group->n_secondary_devices;
    return NULL;
}

TRITONSERVER_Error *
TRITONBACKEND_ModelInstanceSecondaryDeviceProperties(TRITONBACKEND_ModelInstance *instance,
                                                     uint32_t index, const char **kind, int64_t *id)
{
    NEED(instance);
    const Inference__ModelInstanceGroup *group = to_instance(instance)->group;
    if (index >= group->n_secondary_devices)
        return out_of_bounds("secondary devices", index, (uint32_t)group->n_secondary_devices);
    const Inference__ModelInstanceGroup__SecondaryDevice *device = group->secondary_devices[index];
    const ProtobufCEnumDescriptor *kinds =
        &inference__model_instance_group__secondary_device__secondary_device_kind__descriptor;
    const ProtobufCEnumValue *value =
        protobuf_c_enum_descriptor_get_value(kinds, (int)device->kind);
    *kind = value ? value->name : ""; /* a configuration may have any number there */
    *id = device->device_id;
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceModel(TRITONBACKEND_ModelInstance *instance,
                                                     TRITONBACKEND_Model **model)
{
    NEED(instance);
    *model = as_model(to_instance(instance)->model);
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceState(TRITONBACKEND_ModelInstance *instance,
                                                     void **state)
{
    NEED(instance);
    *state = to_instance(instance)->state;
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceSetState(TRITONBACKEND_ModelInstance *instance,
                                                        void *state)
{
    NEED(instance);
    to_instance(instance)->state = state;
    return NULL;
}

TRITONSERVER_Error *
TRITONBACKEND_ModelInstanceReportMemoryUsage(TRITONBACKEND_ModelInstance *instance,
                                             TRITONSERVER_BufferAttributes **usage,
                                             uint32_t usage_size)
{
    size_t sums[N_MEMORY_PLACES];
    NEED(instance);
    TRITONSERVER_Error *error = add_up(usage, usage_size, sums);
    if (!error)
        instance_report_memory(to_instance(instance), sums);
    return error;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceReportStatistics(
    TRITONBACKEND_ModelInstance *instance, TRITONBACKEND_Request *request, const bool success,
    const uint64_t exec_start_ns, const uint64_t compute_start_ns, const uint64_t compute_end_ns,
    const uint64_t exec_end_ns)
{
    NEED(instance);
    NEED(request);
    struct execution_times times = {exec_start_ns, compute_start_ns, compute_end_ns, exec_end_ns};
    instance_report_statistics(to_instance(instance), to_request(request), success, &times);
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceReportBatchStatistics(
    TRITONBACKEND_ModelInstance *instance, const uint64_t batch_size, const uint64_t exec_start_ns,
    const uint64_t compute_start_ns, const uint64_t compute_end_ns, const uint64_t exec_end_ns)
{
    NEED(instance);
    struct execution_times times = {exec_start_ns, compute_start_ns, compute_end_ns, exec_end_ns};
    instance_report_batch(to_instance(instance), batch_size, &times);
    return NULL;
}
