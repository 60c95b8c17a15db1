/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Needs only the one CPU and the one node that every machine has.
 */
#include "base/cpu_binding.h"

#include <linux/mempolicy.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/status.h"

static cpu_set_t all_cpus;

static void cpus_now(cpu_set_t *ret_cpus)
{
    CPU_ZERO(ret_cpus);
    assert_int_equal(sched_getaffinity(0, sizeof(*ret_cpus), ret_cpus), 0);
}

static int memory_mode_now(unsigned long *ret_first_word)
{
    unsigned long nodes[CPU_BINDING_NODE_WORDS + 1] = {0};
    int mode = -1;
    assert_int_equal(
        syscall(SYS_get_mempolicy, &mode, nodes, CPU_BINDING_MAX_NODES + 1UL, NULL, 0UL), 0);
    *ret_first_word = nodes[0];
    return mode;
}

static unsigned int first_cpu(void)
{
    unsigned int cpu = 0;
    while (!CPU_ISSET(cpu, &all_cpus))
        cpu++;
    return cpu;
}

static void assert_outside(void)
{
    cpu_set_t now;
    unsigned long nodes;
    cpus_now(&now);
    assert_true(CPU_EQUAL(&now, &all_cpus));
    assert_int_equal(memory_mode_now(&nodes), MPOL_DEFAULT);
}

static void *look_inside(void *arg)
{
    cpus_now(arg);
    return NULL;
}

static void a_thread_enters_a_binding_and_restores_the_old_one(void **state)
{
    struct cpu_binding p = {.has_cpus = false}, before;
    cpu_set_t now, of_child;
    unsigned long nodes;
    pthread_t child;

    assert_null(cpu_binding_outside());
    cpu_binding_add_cpus(&p, first_cpu(), first_cpu());
    cpu_binding_set_node(&p, 0);
    assert_null(cpu_binding_enter(&p, &before));
    cpus_now(&now);
    assert_int_equal(CPU_COUNT(&now), 1);
    assert_true(CPU_ISSET(first_cpu(), &now));
    assert_int_equal(memory_mode_now(&nodes), MPOL_BIND);
    assert_int_equal(nodes, 1);

    pthread_create(&child, NULL, look_inside, &of_child);
    pthread_join(child, NULL);
    assert_true(CPU_EQUAL(&of_child, &now));

    /* The binding outside was noted before the first one was entered; it can be entered like
     * others. */
    assert_non_null(cpu_binding_outside());
    assert_null(cpu_binding_enter(cpu_binding_outside(), NULL));
    assert_outside();
    assert_null(cpu_binding_enter(&p, NULL));

    cpu_binding_restore(&before);
    assert_outside();
}

static void a_binding_may_have_only_cpus_or_only_memory(void **state)
{
    struct cpu_binding p = {.has_cpus = false}, before;
    cpu_set_t now;
    unsigned long nodes;

    cpu_binding_set_node(&p, 0);
    assert_null(cpu_binding_enter(&p, &before));
    cpus_now(&now);
    assert_true(CPU_EQUAL(&now, &all_cpus));
    cpu_binding_restore(&before);
    assert_outside();

    p = (struct cpu_binding){.has_cpus = false};
    cpu_binding_add_cpus(&p, first_cpu(), first_cpu());
    assert_null(cpu_binding_enter(&p, &before));
    assert_int_equal(memory_mode_now(&nodes), MPOL_DEFAULT);
    cpu_binding_restore(&before);
    assert_outside();
}

static void refused(const struct cpu_binding *p, const char *message)
{
    struct cpu_binding before;
    struct status *st = cpu_binding_enter(p, &before);
    assert_non_null(st);
    assert_int_equal(status_code(st), STATUS_INTERNAL);
    assert_string_equal(status_message(st), message);
    status_free(st);
    assert_outside();
}

static void missing_cpus_and_nodes_are_refused(void **state)
{
    struct cpu_binding p = {.has_cpus = false};
    /* No machine of ours has 1024 CPUs or nodes. */
    cpu_binding_add_cpus(&p, CPU_BINDING_MAX_CPUS - 1, CPU_BINDING_MAX_CPUS - 1);
    refused(&p, "Unable to set NUMA thread affinity: CPU 1023 does not exist, or this process may "
                "not use it");
    cpu_binding_add_cpus(&p, first_cpu(), first_cpu()); /* only one of these CPUs exists */
    refused(&p, "Unable to set NUMA thread affinity: CPU 1023 does not exist, or this process may "
                "not use it");
    cpu_binding_add_cpus(&p, 1000, 1010);
    refused(&p, "Unable to set NUMA thread affinity: CPUs 1000-1010,1023 do not exist, or this "
                "process may not use them");

    /* The CPU binding is restored when the memory binding fails. */
    p = (struct cpu_binding){.has_cpus = false};
    cpu_binding_add_cpus(&p, first_cpu(), first_cpu());
    cpu_binding_set_node(&p, CPU_BINDING_MAX_NODES - 1);
    refused(&p, "Unable to set NUMA memory policy: Invalid argument");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            a_thread_enters_a_binding_and_restores_the_old_one), /* first: no binding has been
                                                                    entered yet */
        cmocka_unit_test(a_binding_may_have_only_cpus_or_only_memory),
        cmocka_unit_test(missing_cpus_and_nodes_are_refused),
    };
    cpus_now(&all_cpus);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
