/* SPDX-License-Identifier: Apache-2.0 */
/* A stand-in for treelite has two trees. Each field is an array of its own, with known bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static bool no_memory;
static size_t memory_size; /* of the last allocation */

static int try_posix_memalign(void **ret_memory, size_t alignment, size_t size)
{
    memory_size = size;
    return no_memory ? 12 : posix_memalign(ret_memory, alignment, size);
}

#define posix_memalign try_posix_memalign
#include "common/backend.c"
#include "common/doc.c"
#include "common/message.c"
#include "fil/pack.c"

enum { N_TREES = 2, MOST_FIELDS = 64, FIELD_BYTES = 512 };

static struct known {
    int64_t tree;
    char name[32];
    struct treelite_field field;
    bool is_set;
    _Alignas(64) char bytes[FIELD_BYTES];
} fields[MOST_FIELDS];
static size_t n_fields;
static int the_model;
static const char *broken_get, *broken_set;

/* Fields have 1 to 9 elements of 1, 2, 4 or 8 bytes, unless their name says otherwise. */
static struct known *add_field(int64_t tree, const char *name)
{
    struct known *k = &fields[n_fields++];

    assert_true(n_fields <= MOST_FIELDS);
    memset(k, 0, sizeof(*k));
    k->tree = tree;
    snprintf(k->name, sizeof(k->name), "%s", name);
    k->field = (struct treelite_field){k->bytes, NULL, (size_t)1 << n_fields % 4, 1 + n_fields % 9};
    if (strcmp(name, "category_list") == 0)
        k->field = (struct treelite_field){NULL, NULL, 4, 0};
    if (strcmp(name, "leaf_vector") == 0)
        k->field = (struct treelite_field){k->bytes, NULL, 4, SMALL / 4};
    if (strcmp(name, "threshold") == 0)
        k->field = (struct treelite_field){k->bytes, NULL, 4, SMALL / 4 + 1};
    for (size_t i = 0; i < FIELD_BYTES; i++)
        k->bytes[i] = (char)(n_fields * 31 + i);
    return k;
}

static struct known *find_field(int64_t tree, const char *name)
{
    for (size_t i = 0; i < n_fields; i++)
        if (fields[i].tree == tree && strcmp(fields[i].name, name) == 0)
            return &fields[i];
    return add_field(tree, name);
}

static int get_tree(treelite_model model, uint64_t tree, const char *name,
                    struct treelite_field *ret_field)
{
    assert_ptr_equal(model, &the_model);
    if (broken_get && strcmp(name, broken_get) == 0)
        return -1;
    *ret_field = find_field((int64_t)tree, name)->field;
    return 0;
}

static int set_tree(treelite_model model, uint64_t tree, const char *name,
                    struct treelite_field field)
{
    struct known *k = find_field((int64_t)tree, name);

    assert_ptr_equal(model, &the_model);
    if (broken_set && strcmp(name, broken_set) == 0)
        return -1;
    assert_int_equal(field.n, k->field.n);
    assert_int_equal(field.item_size, k->field.item_size);
    assert_false(k->is_set);
    k->field = field;
    k->is_set = true;
    return 0;
}

static int get_header(treelite_model model, const char *name, struct treelite_field *ret_field)
{
    return get_tree(model, (uint64_t)HEADER, name, ret_field);
}

static int set_header(treelite_model model, const char *name, struct treelite_field field)
{
    return set_tree(model, (uint64_t)HEADER, name, field);
}

static const struct treelite stand_in = {.GetHeaderField = get_header,
                                         .SetHeaderField = set_header,
                                         .GetTreeField = get_tree,
                                         .SetTreeField = set_tree};

TRITONSERVER_Error *treelite_error(const struct treelite *t, TRITONSERVER_Error_Code code,
                                   const char *what)
{
    assert_ptr_equal(t, &stand_in);
    return backend_error(code, "%s: refused", what);
}

static int start_model(void **state)
{
    (void)state;
    n_fields = 0;
    no_memory = false;
    broken_get = broken_set = NULL;
    return 0;
}

static size_t bytes_of(const struct known *k)
{
    return k->field.n * k->field.item_size;
}

static void small_arrays_are_in_memory_of_their_own(void **state)
{
    char used[8192] = {0};
    size_t n_set = 0;
    void *memory;

    (void)state;
    assert_null(forest_pack(&stand_in, &the_model, N_TREES, &memory));
    assert_int_equal((uintptr_t)memory % 128, 0);
    assert_int_equal(memory_size % 128, 0);
    assert_true(memory_size <= sizeof(used));
    for (size_t i = 0; i < n_fields; i++) {
        const struct known *k = &fields[i];
        size_t at = (size_t)((char *)k->field.data - (char *)memory), size = bytes_of(k);

        if (!k->is_set)
            continue;
        n_set++;
        assert_true(at + size <= memory_size);
        assert_int_equal(at % k->field.item_size, 0);
        assert_memory_equal(k->field.data, k->bytes, size);
        for (size_t b = 0; b < size; b++)
            assert_int_equal(used[at + b]++, 0);
    }
    /* Of a tree's 15 fields one is empty and one is large. */
    assert_int_equal(n_set, 5 + N_TREES * 13);
    assert_true(find_field(1, "leaf_vector")->is_set);
    assert_false(find_field(1, "threshold")->is_set);
    assert_false(find_field(1, "category_list")->is_set);
    free(memory);
}

static void expect_error(TRITONSERVER_Error *err, TRITONSERVER_Error_Code code, const char *text)
{
    assert_non_null(err);
    assert_int_equal(TRITONSERVER_ErrorCode(err), code);
    assert_string_equal(TRITONSERVER_ErrorMessage(err), text);
    TRITONSERVER_ErrorDelete(err);
}

static void without_memory_nothing_is_moved(void **state)
{
    char text[80];
    void *memory = &memory;

    (void)state;
    no_memory = true;
    TRITONSERVER_Error *err = forest_pack(&stand_in, &the_model, N_TREES, &memory);
    snprintf(text, sizeof(text), "no memory for %zu bytes of a forest", memory_size);
    expect_error(err, TRITONSERVER_ERROR_UNAVAILABLE, text);
    assert_null(memory);
    for (size_t i = 0; i < n_fields; i++)
        assert_false(fields[i].is_set);
}

static void a_field_that_is_not_shown_is_an_error(void **state)
{
    void *memory = &memory;

    (void)state;
    broken_get = "leaf_value";
    expect_error(forest_pack(&stand_in, &the_model, N_TREES, &memory), TRITONSERVER_ERROR_INTERNAL,
                 "leaf_value: refused");
    assert_null(memory);
}

static void memory_in_use_is_returned_with_an_error(void **state)
{
    void *memory = NULL;

    (void)state;
    broken_set = "leaf_value";
    expect_error(forest_pack(&stand_in, &the_model, N_TREES, &memory), TRITONSERVER_ERROR_INTERNAL,
                 "leaf_value: refused");
    assert_non_null(memory);
    assert_true(find_field(0, "cleft")->is_set);
    free(memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(small_arrays_are_in_memory_of_their_own, start_model),
        cmocka_unit_test_setup(without_memory_nothing_is_moved, start_model),
        cmocka_unit_test_setup(a_field_that_is_not_shown_is_an_error, start_model),
        cmocka_unit_test_setup(memory_in_use_is_returned_with_an_error, start_model),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
