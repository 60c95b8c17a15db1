/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the scan reads in a model's folder: which folders are versions, which of them the policy
 * serves, where the configuration is, and which files are in a wrong place. On a local file system.
 */
#include "core/repo/scan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/options/server_options.h"
#include "core/storage/storage.h"
#include "lib/repository.h"

#define CONFIG                                                                                     \
    "backend: 'identity' "                                                                         \
    "input { name: 'IN' data_type: TYPE_INT32 dims: -1 } "                                         \
    "output { name: 'OUT' data_type: TYPE_INT32 dims: -1 } "

static struct test_repository repo;
static struct storage *storage;
static struct server_options *options;

static const char *at(const char *name)
{
    static char path[256];
    snprintf(path, sizeof(path), "%s/%s", repo.path, name);
    return path;
}

static void put_folder(const char *name)
{
    assert_int_equal(mkdir(at(name), 0755), 0);
}

static void put_text(const char *name, const char *text)
{
    repository_add_file(&repo, name, text, strlen(text));
}

static void put_link(const char *name, const char *to)
{
    assert_int_equal(symlink(to, at(name)), 0);
}

static int make(void **state)
{
    (void)state;
    repository_make(&repo);
    repository_add(&repo, "m", CONFIG, 1);
    options = server_options_new();
    assert_null(storage_open(repo.path, false, &storage));
    return 0;
}

static int end(void **state)
{
    (void)state;
    storage_unref(storage);
    server_options_free(options);
    repository_remove(&repo);
    return 0;
}

static struct status *scan_folder_of(const char *name, const char *json, bool quiet,
                                     struct scanned_model *ret)
{
    const struct scan_place place = {.storage = storage, .folder = name};
    struct model_config *config;
    struct status *st = scan_config(storage, name, json, options, &config);
    return st ? st : scan_model(name, &place, config, options, quiet, ret);
}

static struct status *scan(const char *config, struct scanned_model *ret)
{
    return scan_folder_of("m", config, false, ret);
}

static void expect_versions(const char *config, const int64_t *versions, size_t n)
{
    struct scanned_model sm;
    put_text("m/config.pbtxt", config);
    assert_null(scan(NULL, &sm));
    assert_int_equal(sm.n_versions, n);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(sm.versions[i], versions[i]);
    scanned_model_done(&sm);
}

static void expect_refused(const char *config, enum status_code code, const char *text)
{
    struct scanned_model sm;
    struct status *st = scan(config, &sm);
    assert_non_null(st);
    if (!strstr(status_message(st), text))
        fail_msg("'%s' does not say '%s'", status_message(st), text);
    assert_int_equal(status_code(st), code);
    status_free(st);
}

static void a_folder_is_a_version_by_its_name(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        enum scan_folder kind;
        int64_t version;
    } cases[] = {
        {"1", SCAN_VERSION, 1},
        {"0", SCAN_VERSION, 0},
        {"9223372036854775807", SCAN_VERSION, INT64_MAX},
        {"9223372036854775808", SCAN_NO_NUMBER, 0},
        {"99999999999999999999999", SCAN_NO_NUMBER, 0},
        {"01", SCAN_LEADING_ZERO, 0},
        {"00", SCAN_LEADING_ZERO, 0},
        {"0x1", SCAN_NO_NUMBER, 0},
        {"1a", SCAN_NO_NUMBER, 0},
        {"+1", SCAN_NO_NUMBER, 0},
        {"-1", SCAN_NO_NUMBER, 0},
        {" 1", SCAN_NO_NUMBER, 0},
        {"", SCAN_NO_NUMBER, 0},
        {"configs", SCAN_RESERVED, 0},
        {"initial_state", SCAN_RESERVED, 0},
        {"warmup", SCAN_RESERVED, 0},
        {"..data", SCAN_RESERVED, 0},
        {"..2026_11_23", SCAN_RESERVED, 0},
        {"Configs", SCAN_NO_NUMBER, 0},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        int64_t version = 0;
        if (scan_folder(cases[i].name, &version) != cases[i].kind)
            fail_msg("'%s' is taken for something else", cases[i].name);
        assert_int_equal(version, cases[i].version);
    }
}

/* Versions are in ascending order of their numbers. The files are listed in the version whose
 * name is first. */
static void versions_are_in_order(void **state)
{
    (void)state;
    static const char *const others[] = {"m/9", "m/10",     "m/007",
                                         "m/x", "m/warmup", "m/9999999999999"};
    for (size_t i = 0; i < ARRAY_SIZE(others); i++)
        put_folder(others[i]);
    assert_int_equal(rmdir(at("m/1")), 0);
    put_text("m/3", "a file, no folder");
    put_text("m/10/model.onnx", "");
    put_text("m/10/sub/deep", "");
    put_link("m/stray", "nowhere"); /* the link is not followed */
    put_link("m/11", "9");
    struct scanned_model sm;
    assert_null(scan(NULL, &sm));
    static const int64_t versions[] = {9, 10, 11, 9999999999999};
    assert_int_equal(sm.n_versions, 1); /* the default policy: the latest one */
    assert_int_equal(sm.versions[0], versions[3]);
    assert_int_equal(sm.first_version, 10);
    assert_int_equal(sm.n_files, 2);
    assert_string_equal(sm.files[0], "model.onnx");
    assert_string_equal(sm.files[1], "sub/");
    scanned_model_done(&sm);
    expect_versions(CONFIG "version_policy { all { } }", versions, ARRAY_SIZE(versions));
}

static void the_policy_chooses_the_versions(void **state)
{
    (void)state;
    put_folder("m/2");
    put_folder("m/3");
    expect_versions(CONFIG "version_policy { latest { num_versions: 2 } }", (int64_t[]){2, 3}, 2);
    expect_versions(CONFIG "version_policy { latest { num_versions: 9 } }", (int64_t[]){1, 2, 3},
                    3);
    expect_versions(CONFIG "version_policy { specific { versions: [ 3, 1, 7 ] } }",
                    (int64_t[]){1, 3}, 2);
    expect_versions(CONFIG "version_policy { specific { versions: [ 7 ] } }", NULL, 0);
}

static void the_configuration_may_have_a_name(void **state)
{
    (void)state;
    bool exists = false;
    char *path = NULL;
    assert_null(scan_find_config(storage, "m", "", &exists, &path));
    assert_true(exists);
    assert_string_equal(path, "m/config.pbtxt");
    mem_free(path);
    assert_null(scan_find_config(storage, "m", "gpu", &exists, &path));
    assert_string_equal(path, "m/config.pbtxt"); /* the model has no configuration of that name */
    mem_free(path);
    put_text("m/configs/gpu.pbtxt", CONFIG);
    assert_null(scan_find_config(storage, "m", "gpu", &exists, &path));
    assert_true(exists);
    assert_string_equal(path, "m/configs/gpu.pbtxt");
    mem_free(path);
    assert_int_equal(unlink(at("m/config.pbtxt")), 0);
    assert_null(scan_find_config(storage, "m", "cpu", &exists, &path));
    assert_false(exists);
    mem_free(path);
}

static void a_missing_configuration_is_completed_or_refused(void **state)
{
    (void)state;
    struct scanned_model sm;
    assert_int_equal(unlink(at("m/config.pbtxt")), 0);
    put_text("m/1/model.onnx", "");
    assert_null(scan(NULL, &sm));
    assert_string_equal(sm.config->pb->backend, "onnxruntime"); /* from the file */
    scanned_model_done(&sm);
    options->strict_model_config = true;
    expect_refused(NULL, STATUS_INTERNAL, "m/config.pbtxt"); /* as in the reference */
}

static void a_configuration_may_come_with_the_request(void **state)
{
    (void)state;
    struct scanned_model sm;
    assert_null(scan("{\"backend\":\"square\",\"max_batch_size\":7}", &sm));
    assert_string_equal(sm.config->pb->backend, "square");
    assert_int_equal(sm.config->pb->max_batch_size, 7);
    scanned_model_done(&sm);
    expect_refused("{\"backend\":", STATUS_INVALID_ARG, "Invalid config override: ");
    expect_refused("{\"nonsense\":1}", STATUS_INVALID_ARG, "nonsense");
}

/* A backend opens these files by itself, so a link that leads out of the repository is refused
 * before the backend is asked. */
static void files_that_lead_out_are_refused(void **state)
{
    (void)state;
    struct scanned_model sm;
    put_link("m/1/model.onnx", "/etc/hostname");
    expect_refused(NULL, STATUS_INVALID_ARG, "m/1/model.onnx");
    assert_int_equal(unlink(at("m/1/model.onnx")), 0);
    put_link("m/1/model.onnx", "nothing");
    expect_refused(NULL, STATUS_NOT_FOUND, "m/1/model.onnx");
    assert_int_equal(unlink(at("m/1/model.onnx")), 0);
    /* The files that the configuration names may lie deeper than the entries of the folder. */
    put_text("m/config.pbtxt", CONFIG "default_model_filename: 'deep/model'");
    put_folder("m/1/deep");
    assert_null(scan(NULL, &sm));
    scanned_model_done(&sm);
    put_link("m/1/deep/model", "/etc/hostname");
    expect_refused(NULL, STATUS_INVALID_ARG, "m/1/deep/model");
    put_text("m/config.pbtxt", CONFIG "default_model_filename: '../../other'");
    expect_refused(NULL, STATUS_INVALID_ARG, "../../other");
}

/* … of each version that is served, and of no other version. */
static void files_of_all_served_versions_are_looked_at(void **state)
{
    (void)state;
    struct scanned_model sm;
    put_folder("m/2");
    put_folder("m/3");
    put_link("m/2/model.onnx", "/etc/hostname");
    assert_null(scan(NULL, &sm)); /* serves the third version alone */
    scanned_model_done(&sm);
    put_text("m/config.pbtxt", CONFIG "version_policy { all { } }");
    expect_refused(NULL, STATUS_INVALID_ARG, "m/2/model.onnx");
    assert_null(scan_folder_of("m", NULL, true, &sm)); /* it has scanned them */
    assert_int_equal(sm.n_versions, 3);
    scanned_model_done(&sm);
}

static void a_missing_folder_is_refused(void **state)
{
    (void)state;
    struct scanned_model sm;
    struct status *st = scan_folder_of("gone", "{}", false, &sm);
    assert_non_null(st);
    assert_int_equal(status_code(st), STATUS_NOT_FOUND);
    assert_non_null(strstr(status_message(st), "gone"));
    status_free(st);
}

int main(void)
{
#define EACH(test) cmocka_unit_test_setup_teardown(test, make, end)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_folder_is_a_version_by_its_name),
        EACH(versions_are_in_order),
        EACH(the_policy_chooses_the_versions),
        EACH(the_configuration_may_have_a_name),
        EACH(a_missing_configuration_is_completed_or_refused),
        EACH(a_configuration_may_come_with_the_request),
        EACH(files_that_lead_out_are_refused),
        EACH(files_of_all_served_versions_are_looked_at),
        EACH(a_missing_folder_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
