/* SPDX-License-Identifier: Apache-2.0 */
/* Access rules: their text, and which requests of which clients they allow. */
#include "frontends/ops/access_rules.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/status.h"

/* ---- A client: one header and one name in a certificate -------------------------------------- */

struct head {
    const char *name, *value;
};

static const char *find_header(const void *arg, const char *name, size_t name_length,
                               size_t *ret_length)
{
    const struct head *h = arg;
    if (!h->name || strlen(h->name) != name_length || memcmp(h->name, name, name_length) != 0)
        return NULL;
    *ret_length = strlen(h->value);
    return h->value;
}

static bool has_name(const void *peer, const char *name, size_t length)
{
    return strlen(peer) == length && memcmp(peer, name, length) == 0;
}

static struct access_rules *parse(const char *text)
{
    struct access_rules *r = NULL;
    struct status *st = access_rules_parse(text, strlen(text), &r);
    if (st)
        print_error("%s\n", status_message(st));
    assert_null(st);
    return r;
}

struct question {
    enum ops_api api;
    const char *header, *value, *peer, *model;
    bool allowed;
};

/* Asks as HTTP does, and as gRPC does. */
static void expect(struct access_rules *r, const struct question *q)
{
    struct head head = {q->header, q->value};
    struct access_client client = {&head, find_header, q->peer, has_name};
    size_t length = q->model ? strlen(q->model) : 0;
    struct access_rights *rights;
    assert_int_equal(access_allows(r, q->api, &client, q->model, length), q->allowed);
    struct status *st = access_find(r, q->api, &client, &rights);
    if (!st)
        st = access_rights_cover(rights, q->model, length);
    assert_int_equal(st == NULL, q->allowed);
    if (st) {
        assert_int_equal(status_code(st), STATUS_UNAVAILABLE);
        assert_string_equal(status_message(st),
                            "This protocol is restricted, and no access rule allows the request");
    }
    status_free(st);
    access_rights_free(rights);
}

static void expect_all(const char *text, const struct question *questions, size_t n)
{
    struct access_rules *r = parse(text);
    for (size_t i = 0; i < n; i++)
        expect(r, &questions[i]);
    access_rules_unref(r);
}

#define EXPECT_ALL(text, ...)                                                                      \
    do {                                                                                           \
        const struct question questions[] = {__VA_ARGS__};                                         \
        expect_all(text, questions, ARRAY_SIZE(questions));                                        \
    } while (0)

#define INFER  OPS_API_INFERENCE
#define HEALTH OPS_API_HEALTH

/* ---- Tests ----------------------------------------------------------------------------------- */

static void what_no_rule_allows_is_refused(void **state)
{
    (void)state;
    EXPECT_ALL("", {INFER, NULL, NULL, NULL, "m", false}, {HEALTH, NULL, NULL, NULL, NULL, false},
               {OPS_API_OPEN, NULL, NULL, NULL, NULL, true});
    EXPECT_ALL("# nothing\n\n  \t# to see\r\n allow\tanyone to health # all may ask\r\n",
               {HEALTH, NULL, NULL, NULL, NULL, true}, {HEALTH, "x", "y", "z", "m", true},
               {INFER, NULL, NULL, NULL, "m", false});
}

static void clients_are_known_by_a_header(void **state)
{
    (void)state;
    EXPECT_ALL("allow header X-Team=s=c,r#t to inference,metadata",
               {INFER, "x-team", "s=c,r#t", NULL, "m", true},
               {INFER, "x-team", "s=c,r#T", NULL, "m", false},
               {INFER, "x-team", "s=c,r#", NULL, "m", false},
               {INFER, "x-team", "s=c,r#tt", NULL, "m", false},
               {INFER, "x-team", "", NULL, "m", false}, {INFER, NULL, NULL, NULL, "m", false},
               {INFER, "x-teams", "s=c,r#t", NULL, "m", false},
               {OPS_API_METADATA, "x-team", "s=c,r#t", NULL, NULL, true},
               {HEALTH, "x-team", "s=c,r#t", NULL, NULL, false});
    EXPECT_ALL("allow header authorization=\"Bearer a b\" to all",
               {INFER, "authorization", "Bearer a b", NULL, "m", true},
               {INFER, "authorization", "Bearer", NULL, "m", false});
}

static void clients_are_known_by_a_certificate(void **state)
{
    (void)state;
    EXPECT_ALL("allow certificate alice to all\nallow certificate \"Bob B.\" to health",
               {INFER, NULL, NULL, "alice", "m", true}, {INFER, NULL, NULL, "alicE", "m", false},
               {INFER, NULL, NULL, NULL, "m", false}, {INFER, "alice", "alice", NULL, "m", false},
               {INFER, NULL, NULL, "Bob B.", "m", false},
               {HEALTH, NULL, NULL, "Bob B.", NULL, true});
}

static void rules_name_models(void **state)
{
    (void)state;
    EXPECT_ALL("allow anyone to inference of digits,resnet-*,*-b-*-d,the\n",
               {INFER, NULL, NULL, NULL, "digits", true}, {INFER, NULL, NULL, NULL, "digit", false},
               {INFER, NULL, NULL, NULL, "digitss", false},
               {INFER, NULL, NULL, NULL, "resnet-", true},
               {INFER, NULL, NULL, NULL, "resnet-50", true},
               {INFER, NULL, NULL, NULL, "a-b-b-b-c-d", true},
               {INFER, NULL, NULL, NULL, "a-b-c-d-e", false},
               {INFER, NULL, NULL, NULL, "the", true}, {INFER, NULL, NULL, NULL, "*", false},
               {INFER, NULL, NULL, NULL, "", false}, {INFER, NULL, NULL, NULL, NULL, false});
    EXPECT_ALL("allow anyone to inference of *\nallow anyone to health of the server\n",
               {INFER, NULL, NULL, NULL, "m", true}, {INFER, NULL, NULL, NULL, NULL, false},
               {HEALTH, NULL, NULL, NULL, NULL, true}, {HEALTH, NULL, NULL, NULL, "m", false});
    EXPECT_ALL("allow anyone to inference of the", {INFER, NULL, NULL, NULL, "the", true},
               {INFER, NULL, NULL, NULL, NULL, false});
    /* Each of several rules adds something. */
    EXPECT_ALL("allow header a=1 to inference of x\nallow anyone to inference of y",
               {INFER, "a", "1", NULL, "x", true}, {INFER, "a", "1", NULL, "y", true},
               {INFER, "a", "2", NULL, "x", false}, {INFER, "a", "2", NULL, "y", true});
}

static void wrong_rules_are_refused_with_their_line(void **state)
{
    (void)state;
    static const struct {
        const char *text, *error;
    } cases[] = {
        {"\n\nalow anyone to health", "line 3: a rule begins with 'allow'"},
        {"allow", "line 1: 'allow' is followed by 'anyone', 'header' or 'certificate'"},
        {"allow all to health",
         "line 1: 'allow' is followed by 'anyone', 'header' or 'certificate'"},
        {"allow header", "line 1: a header is written as NAME=VALUE"},
        {"allow header secret to health", "line 1: a header is written as NAME=VALUE"},
        {"allow header key= to health", "line 1: a header is written as NAME=VALUE"},
        {"allow header =secret to health", "line 1: a header is written as NAME=VALUE"},
        {"allow header \"a key=secret\" to health", "line 1: a header is written as NAME=VALUE"},
        {"allow header key=one two to health", "line 1: 'to' is missing behind the client"},
        {"allow header key=\"one to health", "line 1: a quotation mark is not closed"},
        {"allow certificate", "line 1: 'certificate' is followed by a name"},
        {"allow certificate \"\" to health", "line 1: an empty word"},
        {"allow anyone", "line 1: 'to' is missing behind the client"},
        {"allow anyone to", "line 1: there is no category ''"},
        {"allow anyone to Health", "line 1: there is no category 'Health'"},
        {"allow anyone to health,", "line 1: there is no category ''"},
        {"allow anyone to health,all", "line 1: there is no category 'all'"},
        {"allow anyone to health metadata",
         "line 1: the categories are followed by 'of', or by nothing"},
        {"allow anyone to health of", "line 1: an empty name of a model"},
        {"allow anyone to health of a,,b", "line 1: an empty name of a model"},
        {"allow anyone to health of a b",
         "line 1: more words than a rule has; lists have commas without blanks"},
        {"allow anyone to health of the world", "line 1: 'the' is followed by 'server'"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct access_rules *r;
        struct status *st = access_rules_parse(cases[i].text, strlen(cases[i].text), &r);
        assert_non_null(st);
        assert_int_equal(status_code(st), STATUS_INVALID_ARG);
        assert_string_equal(status_message(st), cases[i].error);
        assert_null(strstr(status_message(st), "secret"));
        status_free(st);
    }
    static const char with_nul[] = "allow anyone to health\nallow\0";
    struct access_rules *r;
    struct status *st = access_rules_parse(with_nul, sizeof(with_nul), &r);
    assert_string_equal(status_message(st), "line 2: a NUL byte");
    status_free(st);
}

static void a_file_has_limits(void **state)
{
    (void)state;
    static const char line[] = "allow anyone to health\n";
    size_t length = (sizeof(line) - 1) * (ACCESS_MAX_RULES + 1);
    char *text = test_malloc(length);
    struct access_rules *r;
    for (size_t i = 0; i <= ACCESS_MAX_RULES; i++)
        memcpy(text + i * (sizeof(line) - 1), line, sizeof(line) - 1);
    struct status *st = access_rules_parse(text, length, &r);
    assert_string_equal(status_message(st), "line 4097: too many rules");
    status_free(st);
    assert_null(access_rules_parse(text, length - sizeof(line) + 1, &r));
    assert_int_equal(access_rules_count(r), ACCESS_MAX_RULES);
    access_rules_unref(r);
    st = access_rules_parse(text, ACCESS_MAX_BYTES + 1, &r);
    assert_string_equal(status_message(st), "1048577 bytes, the limit is 1048576");
    status_free(st);
    test_free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_no_rule_allows_is_refused),
        cmocka_unit_test(clients_are_known_by_a_header),
        cmocka_unit_test(clients_are_known_by_a_certificate),
        cmocka_unit_test(rules_name_models),
        cmocka_unit_test(wrong_rules_are_refused_with_their_line),
        cmocka_unit_test(a_file_has_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
