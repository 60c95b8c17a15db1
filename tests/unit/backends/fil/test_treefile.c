/* SPDX-License-Identifier: Apache-2.0 */
/* The check of a forest's file: whole files pass, and each number that treelite would believe is
 * tested. tests/system/test_forests.py gives whole and damaged files to a server. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fil/checkpoint.c"
#include "fil/json.c"
#include "fil/legacy.c"
#include "fil/lightgbm.c"
#include "fil/treefile.c"
#include "fil/ubjson.c"
#include "fil/xgboost.c"

/* The seeds of the fuzz target are whole files behind a byte for their format. */
#define SEEDS CONCH_SOURCE_DIR "/tests/fuzz/corpus/tree_file/"

struct file {
    char *bytes; /* with a zero byte behind them */
    size_t size;
};

static struct file read_seed(const char *name)
{
    struct file f = {calloc(1, 1 << 16), 0};
    char path[400];

    snprintf(path, sizeof(path), SEEDS "%s", name);
    FILE *from = fopen(path, "rb");
    assert_non_null(from);
    assert_int_not_equal(fgetc(from), EOF);
    f.size = fread(f.bytes, 1, (1 << 16) - 1, from);
    fclose(from);
    return f;
}

/* Checks a text; returns the reason, "" if it is accepted. */
static const char *reason(enum tree_format format, const char *bytes, size_t size)
{
    static struct treefile_why why;
    size_t used;

    why.text[0] = '\0';
    bool accepted = treefile_check(format, bytes, size, &used, &why);
    assert_int_equal(accepted, *why.text == '\0');
    return why.text;
}

/* Checks the file with its first `old` replaced. */
static void refuses(enum tree_format format, const char *seed, const char *old, const char *new,
                    const char *expected)
{
    struct file f = read_seed(seed);
    char *at = memmem(f.bytes, f.size, old, strlen(old));
    char *changed = calloc(1, f.size + strlen(new) + 1);

    assert_non_null(at);
    size_t before = (size_t)(at - f.bytes), after = f.size - before - strlen(old);
    memcpy(changed, f.bytes, before);
    memcpy(changed + before, new, strlen(new));
    memcpy(changed + before + strlen(new), at + strlen(old), after);
    const char *said = reason(format, changed, before + strlen(new) + after);
    if (!strstr(said, expected))
        fail_msg("%s for %s: said '%s', not '%s'", new, old, said, expected);
    free(changed);
    free(f.bytes);
}

static const struct {
    enum tree_format format;
    const char *seed;
} seeds[] = {{TREE_XGBOOST_LEGACY, "legacy"},         {TREE_XGBOOST_JSON, "json"},
             {TREE_XGBOOST_UBJSON, "ubjson"},         {TREE_LIGHTGBM, "lightgbm"},
             {TREE_CHECKPOINT, "checkpoint"},         {TREE_XGBOOST_JSON, "json_categories"},
             {TREE_XGBOOST_UBJSON, "ubjson_vectors"}, {TREE_LIGHTGBM, "lightgbm_categories"}};

static void whole_files_pass(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(seeds) / sizeof(seeds[0]); i++) {
        struct file f = read_seed(seeds[i].seed);

        assert_string_equal(reason(seeds[i].format, f.bytes, f.size), "");
        free(f.bytes);
    }
}

/* Of a text the blanks at its end may be missing; an old file's list of trees is all that is there
 * to say how many. */
static void files_that_are_cut_off_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(seeds) / sizeof(seeds[0]); i++) {
        struct file f = read_seed(seeds[i].seed);
        size_t most = f.size;

        if (seeds[i].format == TREE_LIGHTGBM) /* the head, and the trees but the last list */
            most = (size_t)((char *)memmem(f.bytes, f.size, "leaf_value", 10) - f.bytes);
        for (size_t n = 0; n < most; n += 1 + most / 300) {
            char *cut = calloc(1, n + 1);

            memcpy(cut, f.bytes, n);
            if (!*reason(seeds[i].format, cut, n))
                fail_msg("%s of %zu bytes passes with %zu", seeds[i].seed, f.size, n);
            free(cut);
        }
        free(f.bytes);
    }
}

static void numbers_of_xgboost_are_tested(void **state)
{
    (void)state;
    const enum tree_format json = TREE_XGBOOST_JSON;

    refuses(json, "json", "\"num_nodes\":\"", "\"num_nodes\":\"9", "for");
    refuses(json, "json", "\"num_nodes\":\"", "\"num_nodes\":\"x", "num_nodes is no whole number");
    refuses(json, "json", "\"left_children\":[", "\"left_children\":[1,", "left and");
    refuses(json, "json", "\"left_children\":[", "\"left_children\":[[],",
            "left_children has an element");
    refuses(json, "json", "\"left_children\":[", "\"left_children\":[true,", "that is no number");
    refuses(json, "json", "\"left_children\":[", "\"left_children\":[1.5,",
            "left_children has the number");
    refuses(json, "json", "\"loss_changes\":[", "\"loss_changes\":[],\"x\":[", "");
    refuses(json, "json", "\"tree_info\":[", "\"tree_info\":[],\"x\":[", "tree_info has 0 values");
    refuses(json, "json", "\"num_class\":\"", "\"num_class\":\"99999", "outputs");
    refuses(json, "json", "\"num_class\"", "\"num_class\":\"0\",\"num_class\"", "num_class twice");
    refuses(json, "json", "\"split_indices\"", "\"tre\\u0065s\"", "a name with \\u00");
    refuses(json, "json", "\"size_leaf_vector\":\"", "\"size_leaf_vector\":\"1000", "has leaf");
    refuses(json, "json_categories", "\"categories_sizes\":[", "\"categories_sizes\":[9999,",
            "categories");
    refuses(json, "json_categories", "\"categories_segments\":[0", "\"categories_segments\":[-5",
            "from -5 on");
}

static void json_is_strict(void **state)
{
    (void)state;
    static const struct {
        const char *text, *expected;
    } cases[] = {{"", "the file is empty"},
                 {"{", "a name is missing"},
                 {"{\"a\"}", "a colon is missing"},
                 {"{\"a\":}", "a value is missing"},
                 {"{\"a\":1,}", "a name is missing"},
                 {"[1 2]", "a comma or an end is missing"},
                 {"[1]x", "there is more behind the model"},
                 {"\"\n\"", "a control character"},
                 {"\"a", "a string without its end"},
                 {"[nul]", "a value is missing"},
                 {"[NaN,-Infinity,1e5,{\"a\":[]},{}]", ""}};

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *said = reason(TREE_XGBOOST_JSON, cases[i].text, strlen(cases[i].text));

        if (*cases[i].expected ? !strstr(said, cases[i].expected) : *said)
            fail_msg("'%s': '%s'", cases[i].text, said);
    }
    char deep[200];
    memset(deep, '[', sizeof(deep));
    assert_non_null(strstr(reason(TREE_XGBOOST_JSON, deep, sizeof(deep)), "more than 64 objects"));
    assert_non_null(
        strstr(reason(TREE_XGBOOST_UBJSON, deep, sizeof(deep)), "more than 64 objects"));
}

static void ubjson_is_bounded_by_the_file(void **state)
{
    (void)state;
#define SAYS(text, expected)                                                                       \
    assert_non_null(strstr(reason(TREE_XGBOOST_UBJSON, text, sizeof(text) - 1), expected))
    SAYS("[$T#L\0\0\1\0\0\0\0\0", "values that take no bytes");
    SAYS("[$U#L\0\0\1\0\0\0\0\0", "a length is larger than the file");
    SAYS("[#L\377\377\377\377\377\377\377\377", "a length is larger than the file");
    SAYS("[$U", "a type without a number of values");
    SAYS("{L\0\0\0\0\0\0\0\011a", "a length is larger than the file");
    SAYS("[Hi\1", "an unknown marker");
    SAYS("[l\0\0", "the file ends within a value");
    SAYS("[i\1]]", "there is more behind the model");
    assert_string_equal(reason(TREE_XGBOOST_UBJSON, "N[Ni\1N{i\1aSi\1b}[$U#i\2\1\2ZTFCa]N", 29),
                        "");
}

static void lists_of_lightgbm_are_tested(void **state)
{
    (void)state;
    const enum tree_format text = TREE_LIGHTGBM;

    refuses(text, "lightgbm", "num_leaves=", "num_leaves=9", "values, not");
    refuses(text, "lightgbm", "num_leaves=", "num_leaves=x",
            "num_leaves is missing or out of range");
    refuses(text, "lightgbm", "left_child=2 ", "left_child=0 ", "is no child of node 0 alone");
    refuses(text, "lightgbm", "left_child=2 ", "left_child=99 ", "left_child is out of range");
    refuses(text, "lightgbm", "right_child=", "right_child=1 ", "right_child has");
    refuses(text, "lightgbm", "leaf_value=", "leaf_value=0 ", "leaf_value has");
    refuses(text, "lightgbm", "num_class=1", "num_class=99999", "num_class is missing");
    refuses(text, "lightgbm", "objective=", "objective=\nx=", "the objective is empty");
    refuses(text, "lightgbm", "Tree=1", "Sapling=1", "comes twice");
    refuses(text, "lightgbm", "Tree=1", "end of trees", "trees of");
    refuses(text, "lightgbm_categories", "num_cat=", "num_cat=9", "cat_boundaries has");
    refuses(text, "lightgbm_categories", "cat_boundaries=0 ", "cat_boundaries=9 ",
            "cat_boundaries fall");
    refuses(text, "lightgbm_categories",
            "cat_threshold=", "cat_threshold=\nx=", "cat_boundaries end at");
    refuses(text, "lightgbm_categories", "threshold=", "threshold=7", "");
}

/* Lines behind the trees are not for treelite: one of them may be named like a list. */
static void a_feature_may_have_the_name_of_a_list(void **state)
{
    (void)state;
    struct file f = read_seed("lightgbm");
    struct treefile_why why;
    char *end = memmem(f.bytes, f.size, "end of trees", 12);
    size_t used;

    assert_non_null(end);
    assert_true(treefile_check(TREE_LIGHTGBM, f.bytes, f.size, &used, &why));
    assert_int_equal(used, end - f.bytes);
    free(f.bytes);
}

static void set_bytes(const char *seed, enum tree_format format, size_t at, uint64_t number,
                      size_t n, const char *expected)
{
    struct file f = read_seed(seed);

    memcpy(f.bytes + at, &number, n);
    const char *said = reason(format, f.bytes, f.size);
    if (!strstr(said, expected))
        fail_msg("%s, byte %zu: '%s', not '%s'", seed, at, said, expected);
    free(f.bytes);
}

static void numbers_of_binary_files_are_tested(void **state)
{
    (void)state;
    const uint64_t much = 1ull << 40;

    set_bytes("checkpoint", TREE_CHECKPOINT, 0, 9, 4, "it is of release 9.");
    set_bytes("checkpoint", TREE_CHECKPOINT, 12, 7, 1, "thresholds of type 7");
    set_bytes("checkpoint", TREE_CHECKPOINT, 14, much, 8, "trees in");
    set_bytes("checkpoint", TREE_CHECKPOINT, 32, much, 8, "the file ends within");
    set_bytes("legacy", TREE_XGBOOST_LEGACY, 8, 99999, 4, "outputs");
    set_bytes("legacy", TREE_XGBOOST_LEGACY, 136, much, 8, "the file ends within");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_files_pass),
        cmocka_unit_test(files_that_are_cut_off_are_refused),
        cmocka_unit_test(numbers_of_xgboost_are_tested),
        cmocka_unit_test(json_is_strict),
        cmocka_unit_test(ubjson_is_bounded_by_the_file),
        cmocka_unit_test(lists_of_lightgbm_are_tested),
        cmocka_unit_test(a_feature_may_have_the_name_of_a_list),
        cmocka_unit_test(numbers_of_binary_files_are_tested),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
