/* SPDX-License-Identifier: Apache-2.0 */
#include "base/list.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

struct item {
    int value;
    struct list link;
};

static struct item items[6];
static struct list head = LIST_INIT(head), other = LIST_INIT(other);

static int start(void **state)
{
    (void)state;
    list_init(&head);
    list_init(&other);
    for (int i = 0; i < 6; i++) {
        items[i].value = i;
        list_init(&items[i].link);
    }
    return 0;
}

static const char *text_of(const struct list *list)
{
    static char text[32];
    size_t n = 0;
    text[0] = '\0';
    LIST_FOR_EACH (link, list) {
        assert_ptr_equal(link->next->prev, link);
        n += (size_t)snprintf(text + n, sizeof(text) - n, "%d",
                              LIST_ENTRY(link, struct item, link)->value);
    }
    return text;
}

static void a_list_keeps_its_order(void **state)
{
    (void)state;
    assert_true(list_empty(&head));
    assert_null(list_pop(&head));
    list_push(&head, &items[1].link);
    list_push(&head, &items[2].link);
    list_push_front(&head, &items[0].link);
    assert_string_equal(text_of(&head), "012");
    list_remove(&items[1].link);
    list_remove(&items[1].link); /* without effect */
    assert_string_equal(text_of(&head), "02");
    assert_ptr_equal(list_pop(&head), &items[0].link);
    assert_true(list_empty(&items[0].link));
    assert_ptr_equal(list_pop(&head), &items[2].link);
    assert_true(list_empty(&head));
}

static void all_items_move_to_another_list(void **state)
{
    (void)state;
    list_move_all(&head, &other); /* moves nothing */
    assert_true(list_empty(&head));
    for (int i = 0; i < 6; i++)
        list_push(i < 3 ? &head : &other, &items[i].link);
    list_move_all(&head, &other);
    assert_string_equal(text_of(&head), "012345");
    assert_true(list_empty(&other));
    list_move_all(&other, &head);
    assert_string_equal(text_of(&other), "012345");
    assert_true(list_empty(&head));
}

static void a_loop_may_remove_its_current_item(void **state)
{
    (void)state;
    for (int i = 0; i < 6; i++)
        list_push(&head, &items[i].link);
    LIST_FOR_EACH_SAFE (link, &head) {
        if (LIST_ENTRY(link, struct item, link)->value % 2 == 0)
            list_remove(link);
    }
    assert_string_equal(text_of(&head), "135");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_list_keeps_its_order, start),
        cmocka_unit_test_setup(all_items_move_to_another_list, start),
        cmocka_unit_test_setup(a_loop_may_remove_its_current_item, start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
