/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gRPC's methods for regions and settings, from the bytes of a request to those of the answer, with
 * each allocation failing. A call that fails for want of memory registers and unregisters nothing,
 * and one that succeeds has its effect.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/compiler.h"
#include "base/log.h"
#include "frontends/grpc/unary.h"
#include "frontends/shm/regions.h"
#include "frontends/tracing/tracer.h"
#include "lib/fault.h"
#include "lib/server_driver.h"
#include "proto/inference.pb-c.h"

enum { REGION_BYTES = 4096 };

static struct regions *regions;
static char key[64];

static int start(void **state)
{
    (void)state;
    start_prepared_server(prepare_server("/backends"));
    snprintf(key, sizeof(key), "/conch-fault-grpc-%d", getpid());
    int fd = shm_open(key, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, REGION_BYTES), 0);
    close(fd);
    regions = regions_new(
        &(struct regions_options){.allowed = true, .max_regions = 2, .max_bytes = 1 << 20}, NULL);
    return 0;
}

static int stop(void **state)
{
    regions_free(regions);
    shm_unlink(key);
    return stop_server(state);
}

/* The answer to a message of the method, to be freed by protobuf_c_message_free_unpacked(). */
static struct status *call(const char *name, const ProtobufCMessage *message,
                           ProtobufCMessage **ret_answer)
{
    char path[128];
    uint8_t bytes[1024];
    AUTO(buf) out = BUF_INIT(1 << 20);
    const ProtobufCMessage *request;
    struct arena arena;
    snprintf(path, sizeof(path), "/inference.GRPCInferenceService/%s", name);
    const struct unary_method *m = unary_find(path, strlen(path));
    assert_non_null(m);
    assert_true(protobuf_c_message_get_packed_size(message) <= sizeof(bytes));
    size_t n = protobuf_c_message_pack(message, bytes);
    arena_init(&arena, NULL, 0, 1 << 20, NULL, NULL);
    struct status *st = unary_read(m, bytes, n, &arena, &request);
    if (!st)
        st = unary_run(m, server, regions, request, &arena, &out);
    arena_reset(&arena);
    if (!st) {
        *ret_answer =
            protobuf_c_message_unpack(m->answer, NULL, out.size, (const uint8_t *)buf_text(&out));
        assert_non_null(*ret_answer);
    }
    return st;
}

static struct status *call_for_nothing(const char *name, const ProtobufCMessage *message)
{
    ProtobufCMessage *answer;
    struct status *st = call(name, message, &answer);
    if (!st)
        protobuf_c_message_free_unpacked(answer, NULL);
    return st;
}

/* ---- Regions --------------------------------------------------------------------------------- */

static bool is_registered(void)
{
    struct region *r;
    char *base;
    struct status *st = regions_use(regions, "both", 4, 0, 1, &r, &base);
    if (!st)
        region_unref(r);
    status_free(st);
    return !st;
}

static struct status *ask_status(void)
{
    Inference__SystemSharedMemoryStatusRequest asked;
    inference__system_shared_memory_status_request__init(&asked);
    ProtobufCMessage *answer;
    struct status *st = call("SystemSharedMemoryStatus", &asked.base, &answer);
    if (st)
        return st;
    const Inference__SystemSharedMemoryStatusResponse *known = (void *)answer;
    assert_int_equal(known->n_regions, 1);
    assert_string_equal(known->regions[0]->key, "both");
    assert_string_equal(known->regions[0]->value->key, key);
    assert_int_equal(known->regions[0]->value->byte_size, REGION_BYTES);
    protobuf_c_message_free_unpacked(answer, NULL);
    return NULL;
}

static struct status *use_region(void *arg)
{
    (void)arg;
    Inference__SystemSharedMemoryRegisterRequest wanted;
    inference__system_shared_memory_register_request__init(&wanted);
    Inference__SystemSharedMemoryUnregisterRequest given_up;
    inference__system_shared_memory_unregister_request__init(&given_up);
    wanted.name = given_up.name = (char[]){"both"};
    wanted.key = key;
    wanted.byte_size = REGION_BYTES;
    struct status *st = call_for_nothing("SystemSharedMemoryRegister", &wanted.base);
    assert_int_equal(is_registered(), !st);
    if (!st)
        st = ask_status();
    if (!st) {
        st = call_for_nothing("SystemSharedMemoryUnregister", &given_up.base);
        assert_int_equal(is_registered(), st != NULL);
    }
    assert_null(regions_unregister(regions, "", REGION_SYSTEM));
    return st;
}

static void regions_survive_lack_of_memory(void **state)
{
    (void)state;
    assert_true(fault_each_allocation(use_region, NULL) > 5);
}

/* ---- Settings -------------------------------------------------------------------------------- */

static int level;

/* Gives the log another level of verbose lines. */
static struct status *change_log(void *arg)
{
    (void)arg;
    Inference__LogSettingsRequest asked;
    inference__log_settings_request__init(&asked);
    Inference__LogSettingsRequest__SettingsEntry entry;
    inference__log_settings_request__settings_entry__init(&entry);
    Inference__LogSettingsRequest__SettingsEntry *entries[] = {&entry};
    Inference__LogSettingsRequest__SettingValue value;
    inference__log_settings_request__setting_value__init(&value);
    entry.key = (char[]){"log_verbose_level"};
    entry.value = &value;
    value.parameter_choice_case =
        INFERENCE__LOG_SETTINGS_REQUEST__SETTING_VALUE__PARAMETER_CHOICE_UINT32_PARAM;
    value.uint32_param = (uint32_t)++level;
    asked.n_settings = 1;
    asked.settings = entries;
    ProtobufCMessage *answer;
    struct status *st = call("LogSettings", &asked.base, &answer);
    assert_int_equal(log_is_on(LOG_VERBOSE, level), !st);
    if (st)
        return st;
    assert_true(((Inference__LogSettingsResponse *)answer)->n_settings >= 5);
    protobuf_c_message_free_unpacked(answer, NULL);
    return NULL;
}

static void settings_of_the_log_survive_lack_of_memory(void **state)
{
    (void)state;
    assert_true(fault_each_allocation(change_log, NULL) > 1);
}

static struct status *read_traces(void *arg)
{
    (void)arg;
    Inference__TraceSettingRequest asked;
    inference__trace_setting_request__init(&asked);
    return call_for_nothing("TraceSetting", &asked.base);
}

static struct tracer *tracer;
static int rate = 1000;

/* Gives the server another rate of traces. */
static struct status *change_traces(void *arg)
{
    (void)arg;
    char text[16];
    char *words[] = {text};
    Inference__TraceSettingRequest asked;
    inference__trace_setting_request__init(&asked);
    Inference__TraceSettingRequest__SettingsEntry entry;
    inference__trace_setting_request__settings_entry__init(&entry);
    Inference__TraceSettingRequest__SettingsEntry *entries[] = {&entry};
    Inference__TraceSettingRequest__SettingValue value;
    inference__trace_setting_request__setting_value__init(&value);
    snprintf(text, sizeof(text), "%d", ++rate);
    entry.key = (char[]){"trace_rate"};
    entry.value = &value;
    value.n_value = 1;
    value.value = words;
    asked.n_settings = 1;
    asked.settings = entries;
    struct status *st = call_for_nothing("TraceSetting", &asked.base);
    assert_int_equal(tracer_settings(tracer, "").values.of[TRACE_RATE] == rate, !st);
    return st;
}

static void settings_of_traces_survive_lack_of_memory(void **state)
{
    (void)state;
    tracer = tracer_get(server);
    assert_true(fault_each_allocation(read_traces, NULL) > 0);
    assert_true(fault_each_allocation(change_traces, NULL) > 1);
    tracer_put(tracer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(regions_survive_lack_of_memory),
        cmocka_unit_test(settings_of_the_log_survive_lack_of_memory),
        cmocka_unit_test(settings_of_traces_survive_lack_of_memory),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
