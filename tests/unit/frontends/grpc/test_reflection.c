/* SPDX-License-Identifier: Apache-2.0 */
/* Reflection: each kind of request, answered from the descriptors of our own files. */
#include "frontends/grpc/reflection.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/status.h"
#include "proto/reflection.pb-c.h"

typedef Grpc__Reflection__V1__ServerReflectionRequest request;
typedef Grpc__Reflection__V1__ServerReflectionResponse response;

enum { FILES = 4, NUMBERS = 5, SERVICES = 6, ERROR = 7 }; /* of the oneof message_response */

/* ---- Questions ------------------------------------------------------------------------------ */

/* Asks; the caller frees the response. The request comes back whole. */
static response *ask(request *r)
{
    uint8_t bytes[1024];
    AUTO(buf) out = BUF_INIT(1 << 20);
    static char host[] = "here";
    r->host = host;
    size_t n = grpc__reflection__v1__server_reflection_request__pack(r, bytes);
    assert_true(n <= sizeof(bytes));
    assert_null(reflection_answer((const char *)bytes, n, &out));
    response *answer = grpc__reflection__v1__server_reflection_response__unpack(
        NULL, out.size, (const uint8_t *)buf_text(&out));
    assert_non_null(answer);
    assert_string_equal(answer->valid_host, "here");
    assert_int_equal(answer->original_request->message_request_case, r->message_request_case);
    return answer;
}

/* Asks a question that is a text: its field has that number. */
static response *ask_text(int number, const char *text)
{
    char copy[256];
    request r;
    grpc__reflection__v1__server_reflection_request__init(&r);
    strcpy(copy, text);
    r.message_request_case =
        (Grpc__Reflection__V1__ServerReflectionRequest__MessageRequestCase)number;
    r.file_by_filename = copy; /* all texts are members of one union */
    return ask(&r);
}

static void free_response(response *r)
{
    grpc__reflection__v1__server_reflection_response__free_unpacked(r, NULL);
}

enum { BY_FILE = 3, BY_SYMBOL = 4, NUMBERS_OF_TYPE = 6, LIST = 7 };

static bool has_text(const ProtobufCBinaryData *bytes, const char *text)
{
    return memmem(bytes->data, bytes->len, text, strlen(text)) != NULL;
}

/* Checks that the answer has that many files, and the text in the first. */
static void expect_files(int number, const char *question, size_t n_files, const char *text)
{
    response *r = ask_text(number, question);
    assert_int_equal(r->message_response_case, FILES);
    const Grpc__Reflection__V1__FileDescriptorResponse *files = r->file_descriptor_response;
    assert_int_equal(files->n_file_descriptor_proto, n_files);
    assert_true(has_text(&files->file_descriptor_proto[0], text));
    free_response(r);
}

static void expect_error(int number, const char *question, int code, const char *text)
{
    response *r = ask_text(number, question);
    assert_int_equal(r->message_response_case, ERROR);
    assert_int_equal(r->error_response->error_code, code);
    assert_string_equal(r->error_response->error_message, text);
    free_response(r);
}

/* ---- The tests ------------------------------------------------------------------------------ */

static void services_are_listed(void **state)
{
    (void)state;
    static const char *const wanted[] = {"inference.GRPCInferenceService", "grpc.health.v1.Health",
                                         "grpc.reflection.v1.ServerReflection",
                                         "grpc.reflection.v1alpha.ServerReflection"};
    response *r = ask_text(LIST, "*");
    assert_int_equal(r->message_response_case, SERVICES);
    assert_int_equal(r->list_services_response->n_service, 4);
    for (size_t i = 0; i < 4; i++) {
        size_t n = 0;
        for (size_t k = 0; k < 4; k++)
            n += strcmp(r->list_services_response->service[k]->name, wanted[i]) == 0;
        assert_int_equal(n, 1);
    }
    free_response(r);
}

static void a_file_comes_with_those_that_it_imports(void **state)
{
    (void)state;
    expect_files(BY_FILE, "proto/inference.proto", 2, "GRPCInferenceService");
    expect_files(BY_FILE, "proto/model_config.proto", 1, "ModelWarmup");
    expect_error(BY_FILE, "none.proto", 5, "File not found: none.proto");
    expect_error(BY_FILE, "", 5, "File not found: ");
}

static void each_declaration_is_a_symbol(void **state)
{
    (void)state;
    static const char *const names[] = {
        "inference.GRPCInferenceService",
        "inference.GRPCInferenceService.ModelInfer",
        "inference.ModelInferRequest",
        "inference.ModelInferRequest.InferInputTensor",
        "inference.ModelInferRequest.InferInputTensor.contents",
        "inference.InferParameter.parameter_choice",
        ".inference.ModelInferRequest",
    };
    static const char *const config[] = {
        "inference.ModelConfig",
        "inference.DataType",
        "inference.TYPE_FP32", /* the value of an enum is named beside it */
        "inference.ModelInstanceGroup.Kind",
        "inference.ModelInstanceGroup.KIND_CPU",
    };
    static const char *const none[] = {
        "",
        "inference",
        "inference.",
        "inference.ModelInferReques",
        "inference.ModelInferRequestX",
        "inference.ModelInferRequest.",
        "inference.ModelInferRequest.none",
        "inference.DataType.TYPE_FP32",
        "ModelInferRequest",
        "grpc.health.v1",
    };
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        expect_files(BY_SYMBOL, names[i], 2, "GRPCInferenceService");
    for (size_t i = 0; i < ARRAY_SIZE(config); i++)
        expect_files(BY_SYMBOL, config[i], 1, "ModelWarmup");
    for (size_t i = 0; i < ARRAY_SIZE(none); i++) {
        char text[128];
        snprintf(text, sizeof(text), "Symbol not found: %s", none[i]);
        expect_error(BY_SYMBOL, none[i], 5, text);
    }
    expect_files(BY_SYMBOL, "grpc.health.v1.HealthCheckResponse.ServingStatus", 1, "Health");
    expect_files(BY_SYMBOL, "grpc.health.v1.HealthCheckResponse.SERVING", 1, "Health");
}

static void types_have_no_extensions(void **state)
{
    (void)state;
    static char type[] = "inference.ModelConfig";
    response *r = ask_text(NUMBERS_OF_TYPE, type);
    assert_int_equal(r->message_response_case, NUMBERS);
    assert_string_equal(r->all_extension_numbers_response->base_type_name, type);
    assert_int_equal(r->all_extension_numbers_response->n_extension_number, 0);
    free_response(r);
    expect_error(NUMBERS_OF_TYPE, "inference.GRPCInferenceService", 5,
                 "Type not found: inference.GRPCInferenceService");

    request asked;
    Grpc__Reflection__V1__ExtensionRequest extension;
    grpc__reflection__v1__server_reflection_request__init(&asked);
    grpc__reflection__v1__extension_request__init(&extension);
    extension.containing_type = type;
    extension.extension_number = 1;
    asked.file_containing_extension = &extension;
    asked.message_request_case = 5;
    r = ask(&asked);
    assert_int_equal(r->message_response_case, ERROR);
    assert_int_equal(r->error_response->error_code, 5);
    free_response(r);
}

static void an_empty_or_broken_request_is_refused(void **state)
{
    (void)state;
    AUTO(buf) out = BUF_INIT(1 << 20);
    request r;
    grpc__reflection__v1__server_reflection_request__init(&r);
    response *answer = ask(&r);
    assert_int_equal(answer->message_response_case, ERROR);
    assert_int_equal(answer->error_response->error_code, 3);
    free_response(answer);

    struct status *st = reflection_answer("\x22\x7fx", 3, &out);
    assert_int_equal(status_code(st), STATUS_INTERNAL);
    status_free(st);
}

static void long_names_come_back_cut_in_errors(void **state)
{
    (void)state;
    static char bytes[3 + 4000] = "\x22\xa0\x1f";
    AUTO(buf) out = BUF_INIT(1 << 20);
    memset(bytes + 3, 'x', sizeof(bytes) - 3);
    assert_null(reflection_answer(bytes, sizeof(bytes), &out));
    response *r = grpc__reflection__v1__server_reflection_response__unpack(
        NULL, out.size, (const uint8_t *)buf_text(&out));
    assert_non_null(r);
    assert_int_equal(r->message_response_case, ERROR);
    assert_int_equal(strlen(r->original_request->file_containing_symbol), 4000);
    assert_true(strlen(r->error_response->error_message) < 600);
    free_response(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(services_are_listed),
        cmocka_unit_test(a_file_comes_with_those_that_it_imports),
        cmocka_unit_test(each_declaration_is_a_symbol),
        cmocka_unit_test(types_have_no_extensions),
        cmocka_unit_test(an_empty_or_broken_request_is_refused),
        cmocka_unit_test(long_names_come_back_cut_in_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
