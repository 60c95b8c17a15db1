/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agents of one load, with tests/agents/teller, which does what the configuration says and
 * tells what it was answered. What agents see of a running server is in
 * system/test_repository_agents.
 */
#include "core/agents/agent_chain.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/agents/repo_agent.h"
#include "core/config/config.h"
#include "lib/fault.h"
#include "lib/repository.h"

#define DIRECTORY CONCH_BUILD_DIR "/tests/repoagents"

static struct test_repository repo;
static struct agent_registry registry;

static int make(void **state)
{
    (void)state;
    repository_make(&repo);
    repository_add(&repo, "m", "backend: 'identity'", 1);
    agent_registry_init(&registry, DIRECTORY);
    return 0;
}

static int unmake(void **state)
{
    (void)state;
    agent_registry_done(&registry);
    repository_remove(&repo);
    return 0;
}

/* Returns a configuration with these agents; `%s` in it stands for the log's file. */
static struct model_config *config_of(const char *agents)
{
    struct model_config *config;
    char *log = mem_printf("parameters { key: 'log' value: '%s/log' }", repo.path);
    AUTO(buf) text = BUF_INIT(100000);
    buf_adds(&text, "backend: 'identity' model_repository_agents {");
    for (const char *at = agents, *next; at; at = next) {
        next = strstr(at, "%s");
        buf_add(&text, at, next ? (size_t)(next - at) : strlen(at));
        if (next) {
            buf_adds(&text, log);
            next += 2;
        }
    }
    buf_adds(&text, "}");
    mem_free(log);
    struct status *st = model_config_parse_text(buf_text(&text), text.size, "c", &config);
    if (st)
        fail_msg("%s", status_message(st));
    return config;
}

static struct status *load(const char *agents, struct agent_chain **ret_chain)
{
    struct model_config *config = config_of(agents);
    char *location = mem_printf("%s/m", repo.path);
    struct status *st = agent_chain_load(&registry, config, "m", location, ret_chain);
    mem_free(location);
    model_config_free(config);
    return st;
}

/* The log holds exactly these lines, and is empty again afterwards. */
static void tells(const char *expected)
{
    AUTO(buf) text = BUF_INIT(100000);
    char *path = mem_printf("%s/log", repo.path);
    status_free(file_read(path, &text));
    unlink(path);
    mem_free(path);
    assert_string_equal(buf_text(&text), expected);
}

static void fails_with(struct status *st, const char *text)
{
    assert_non_null(st);
    assert_string_equal(status_message(st), text);
    status_free(st);
}

#define TELLER(who, more)                                                                          \
    "agents { name: 'teller' %s parameters { key: 'who' value: '" who "' } " more "}"
#define ON(action, commands) "parameters { key: '" action "' value: '" commands "' }"

static void agents_act_in_the_order_of_the_reference(void **state)
{
    struct agent_chain *chain;
    (void)state;
    assert_null(load(TELLER("a", "") TELLER("b", ""), &chain));
    tells("a: INITIALIZE\na: LOAD\nb: INITIALIZE\nb: LOAD\n");
    agent_chain_loaded(chain);
    agent_chain_loaded(chain);
    tells("b: LOAD_COMPLETE\na: LOAD_COMPLETE\n");
    agent_chain_unloading(chain);
    agent_chain_unloading(chain);
    tells("a: UNLOAD\nb: UNLOAD\n");
    agent_chain_free(chain);
    tells("b: UNLOAD_COMPLETE\na: UNLOAD_COMPLETE\na: FINALIZE\nb: FINALIZE\n");
}

static void a_load_that_fails_tells_all_agents(void **state)
{
    struct agent_chain *chain;
    (void)state;
    assert_null(load(TELLER("a", "") TELLER("b", ""), &chain));
    tells("a: INITIALIZE\na: LOAD\nb: INITIALIZE\nb: LOAD\n");
    agent_chain_free(chain);
    tells("b: LOAD_FAIL\na: LOAD_FAIL\na: FINALIZE\nb: FINALIZE\n");
}

static void a_model_that_nothing_unloaded_is_unloaded_in_order(void **state)
{
    struct agent_chain *chain;
    (void)state;
    assert_null(load(TELLER("a", ""), &chain));
    agent_chain_loaded(chain);
    agent_chain_free(chain);
    tells("a: INITIALIZE\na: LOAD\na: LOAD_COMPLETE\na: UNLOAD\na: UNLOAD_COMPLETE\na: FINALIZE\n");
}

static void an_agent_that_refuses_ends_the_chain(void **state)
{
    struct agent_chain *chain;
    (void)state;
    fails_with(
        load(TELLER("a", "") TELLER("b", ON("LOAD", "error I refuse")) TELLER("c", ""), &chain),
        "I refuse (repository agent 'teller')");
    tells("a: INITIALIZE\na: LOAD\nb: INITIALIZE\nb: LOAD\nb: LOAD_FAIL\nb: FINALIZE\n"
          "a: LOAD_FAIL\na: FINALIZE\n");
    fails_with(load(TELLER("a", ON("INITIALIZE", "error not begun")), &chain),
               "not begun (repository agent 'teller')");
    tells("a: INITIALIZE\na: FINALIZE\n");
}

static void later_errors_change_nothing(void **state)
{
    struct agent_chain *chain;
    (void)state;
    assert_null(load(TELLER("a", ON("LOAD_COMPLETE", "error x") ON("UNLOAD", "error y")
                                     ON("UNLOAD_COMPLETE", "error z") ON("FINALIZE", "error f"))
                         TELLER("b", ON("LOAD_COMPLETE", "error x")),
                     &chain));
    agent_chain_loaded(chain);
    agent_chain_unloading(chain);
    agent_chain_free(chain);
    tells(
        "a: INITIALIZE\na: LOAD\nb: INITIALIZE\nb: LOAD\nb: LOAD_COMPLETE\na: LOAD_COMPLETE\n"
        "a: UNLOAD\nb: UNLOAD\nb: UNLOAD_COMPLETE\na: UNLOAD_COMPLETE\na: FINALIZE\nb: FINALIZE\n");
}

static void libraries_that_are_not_there_are_named(void **state)
{
    static const char *const names[] = {"nobody", "", "..", ".", "../repoagents/teller", "/etc"};
    struct agent_chain *chain;
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        char *agents = mem_printf("agents { name: '%s' }", names[i]);
        char *text = mem_printf("unable to find 'libtritonrepoagent_%s.so' for repo agent '%s', "
                                "searched: " DIRECTORY,
                                names[i], names[i]);
        fails_with(load(agents, &chain), text);
        mem_free(agents);
        mem_free(text);
    }
    struct status *st = load(TELLER("a", "") "agents { name: 'mute' }", &chain);
    assert_non_null(st);
    assert_non_null(strstr(status_message(st),
                           "unable to find required entrypoint 'TRITONREPOAGENT_ModelAction'"));
    status_free(st);
    tells("a: INITIALIZE\na: LOAD\na: LOAD_FAIL\na: FINALIZE\n");
    fails_with(load("agents { name: 'newer' }", &chain), "the server's agent API is too old");
}

static const char *location_of(const struct agent_chain *chain)
{
    const char *location = "?";
    assert_null(agent_chain_location(chain, &location));
    return location;
}

static void files_move_through_the_chain(void **state)
{
    struct agent_chain *chain;
    struct stat info;
    (void)state;
    assert_null(load(TELLER("a", ON("LOAD", "acquire;copy;update .")) TELLER("b", ""), &chain));
    const char *location = location_of(chain);
    char *config = mem_printf("%s/config.pbtxt", location), *folder = mem_strdup(location);
    assert_int_equal(stat(config, &info), 0);
    assert_int_equal(stat(location, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0700); /* for the server's user alone */
    agent_chain_free(chain);
    assert_int_equal(access(folder, F_OK), -1);
    mem_free(config);
    mem_free(folder);
    tells("a: INITIALIZE\na: LOAD\n  acquire: a folder\nb: INITIALIZE\nb: LOAD\nb: LOAD_FAIL\n"
          "a: LOAD_FAIL\na: FINALIZE\nb: FINALIZE\n");

    assert_null(load(TELLER("a", ""), &chain));
    assert_null(location_of(chain));
    agent_chain_free(chain);
    assert_null(load(TELLER("a", ON("LOAD", "remote s3://x/y")), &chain));
    fails_with(agent_chain_location(chain, &location),
               "location 's3://x/y' is in an object store, which is not supported (repository "
               "agent 'teller')");
    agent_chain_free(chain);
}

static struct status *load_and_end(void *arg)
{
    struct agent_chain *chain;
    struct status *st = agent_chain_load(&registry, arg, "m", repo.path, &chain);
    if (!st) {
        agent_chain_loaded(chain);
        agent_chain_free(chain);
    }
    return st;
}

static void a_lack_of_memory_fails_the_load(void **state)
{
    (void)state;
    struct model_config *config = config_of("agents { name: 'teller' " ON(
        "LOAD", "config;acquire;copy;update .") "}"
                                                "agents { name: 'teller' " ON("LOAD",
                                                                              "config") "}");
    fault_each_allocation(load_and_end, config);
    model_config_free(config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agents_act_in_the_order_of_the_reference),
        cmocka_unit_test(a_load_that_fails_tells_all_agents),
        cmocka_unit_test(a_model_that_nothing_unloaded_is_unloaded_in_order),
        cmocka_unit_test(an_agent_that_refuses_ends_the_chain),
        cmocka_unit_test(later_errors_change_nothing),
        cmocka_unit_test(libraries_that_are_not_there_are_named),
        cmocka_unit_test(files_move_through_the_chain),
        cmocka_unit_test(a_lack_of_memory_fails_the_load),
    };
    return cmocka_run_group_tests(tests, make, unmake);
}
