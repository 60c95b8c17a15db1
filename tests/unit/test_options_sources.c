/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Options from the environment and from a file: their precedence, their forms, and the errors,
 * which say where the fault is.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include "lib/command_line.h"

static char path[] = "/tmp/conch-options-XXXXXX", config_flag[64];

static int make_file(void **state)
{
    (void)state;
    int fd = mkstemp(path);
    close(fd);
    snprintf(config_flag, sizeof(config_flag), "--config=%s", path);
    return fd < 0;
}

static int remove_file(void **state)
{
    (void)state;
    return unlink(path);
}

static void write_file(const char *text, size_t size)
{
    FILE *to = fopen(path, "we");
    assert_non_null(to);
    assert_int_equal(fwrite(text, 1, size, to), size);
    assert_int_equal(fclose(to), 0);
}

static void write_text(const char *text)
{
    write_file(text, strlen(text));
}

static void expect_number(const struct options *o, enum option_id id, enum option_source source,
                          int64_t number)
{
    assert_int_equal(o->values[id].source, source);
    assert_int_equal(option_int(o, id), number);
}

static void an_earlier_source_counts(void **state)
{
    (void)state;
    struct options o;
    char line[128];
    write_text("http-port = 1\ngrpc-port 2\nmetrics-port=3\n");
    setenv("CONCH_HTTP_PORT", "11", 1);
    setenv("CONCH_GRPC_PORT", "12", 1);
    snprintf(line, sizeof(line), "%s --http-port=21", config_flag);
    assert_null(parse_line(&o, line));
    expect_number(&o, OPT_HTTP_PORT, SOURCE_COMMAND_LINE, 21);
    expect_number(&o, OPT_GRPC_PORT, SOURCE_ENVIRONMENT, 12);
    expect_number(&o, OPT_METRICS_PORT, SOURCE_FILE, 3);
    expect_number(&o, OPT_SAGEMAKER_PORT, SOURCE_DEFAULT, 8080);
    options_done(&o);
    unsetenv("CONCH_HTTP_PORT");
    unsetenv("CONCH_GRPC_PORT");
}

static void expect_repositories(const char *line, const char *first, const char *second)
{
    struct options o;
    assert_null(parse_line(&o, line));
    const struct option_value *v = &o.values[OPT_MODEL_REPOSITORY];
    assert_int_equal(v->n_list, second ? 2 : 1);
    assert_string_equal(v->list[0], first);
    if (second)
        assert_string_equal(v->list[1], second);
    options_done(&o);
}

static void a_list_is_that_of_one_source(void **state)
{
    (void)state;
    char line[128];
    write_text("# two of them\n\n  model-repository = /a b\t\r\nmodel-store=/c\n");
    expect_repositories(config_flag, "/a b", "/c");
    setenv("CONCH_MODEL_REPOSITORY", "/d\n/e\n", 1);
    expect_repositories(config_flag, "/d", "/e");
    snprintf(line, sizeof(line), "%s --model-store=/f", config_flag);
    expect_repositories(line, "/f", NULL);
    unsetenv("CONCH_MODEL_REPOSITORY");
}

static void the_file_may_be_named_by_the_environment(void **state)
{
    (void)state;
    struct options o;
    write_text("http-port=7\ndisable-auto-complete-config\n");
    setenv("CONCH_CONFIG", path, 1);
    assert_true(options_are_in_environment());
    assert_null(parse_line(&o, ""));
    expect_number(&o, OPT_HTTP_PORT, SOURCE_FILE, 7);
    assert_true(o.values[OPT_DISABLE_AUTO_COMPLETE_CONFIG].given);
    options_done(&o);
    unsetenv("CONCH_CONFIG");
    assert_false(options_are_in_environment());
}

static void a_flag_without_a_value_may_be_taken_back(void **state)
{
    (void)state;
    struct options o;
    write_text("disable-auto-complete-config = false\n");
    assert_null(parse_line(&o, config_flag));
    assert_false(o.values[OPT_DISABLE_AUTO_COMPLETE_CONFIG].given);
    options_done(&o);
    setenv("CONCH_DISABLE_AUTO_COMPLETE_CONFIG", "1", 1);
    assert_null(parse_line(&o, config_flag));
    assert_true(o.values[OPT_DISABLE_AUTO_COMPLETE_CONFIG].given);
    options_done(&o);
    unsetenv("CONCH_DISABLE_AUTO_COMPLETE_CONFIG");
}

/* @before, @behind  what stands in front of the path, and behind it; before "CONCH_…" there is none
 */
static void expect_fault(const char *line, const char *before, const char *behind)
{
    struct options o;
    char want[256];
    char *wrong = parse_line(&o, line);
    assert_non_null(wrong);
    snprintf(want, sizeof(want), "%s%s%s", before, *before == 'C' ? "" : path, behind);
    if (!is_error(wrong, want))
        fail_msg("%s: not %s", wrong, want);
    free(wrong);
    options_done(&o);
}

static void a_fault_says_where_it_is(void **state)
{
    (void)state;
    write_text("\n# fine\nhtp-port=3\n");
    expect_fault(config_flag, "",
                 ":3: unrecognized option '--htp-port'; did you mean '--http-port'?");
    write_text("http-port=x");
    expect_fault(config_flag, "", ":1: Bad option: \"--http-port\".\nInvalid option value. Got x");
    write_text("http-port\n");
    expect_fault(config_flag, "", ":1: option '--http-port' requires an argument");
    write_text("disable-auto-complete-config = maybe\n");
    expect_fault(config_flag, "",
                 ":1: invalid value for bool option: maybe; valid are true, on, 1, false, off, 0");
    write_text("config=/other\n");
    expect_fault(config_flag, "", ":1: --config is for the command line");
    write_file("id=a\0b\n", 7);
    expect_fault(config_flag, "", ":1: the line is no text");
    setenv("CONCH_HTTP_PORT", "y", 1);
    expect_fault("--id=x", "CONCH_HTTP_PORT",
                 ": Bad option: \"--http-port\".\nInvalid option value. Got y");
    unsetenv("CONCH_HTTP_PORT");
}

static void a_file_that_cannot_be_read_is_an_error(void **state)
{
    (void)state;
    struct options o;
    static const struct {
        const char *line, *wrong;
    } cases[] = {
        {"--config=/nowhere/x", "--config: /nowhere/x: No such file or directory"},
        {"--config=/tmp", "--config: /tmp: it is no regular file"},
        {"--config=/dev/zero", "--config: /dev/zero: it is no regular file"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char *wrong = parse_line(&o, cases[i].line);
        assert_string_equal(wrong, cases[i].wrong);
        free(wrong);
        options_done(&o);
    }
    assert_int_equal(truncate(path, MAX_FILE_BYTES + 1), 0);
    expect_fault(config_flag, "--config: ", ": it has 1048577 bytes, at most 1048576 are read");
}

/* What is printed is a file of options with the same values. */
static void the_printed_options_are_a_file_of_options(void **state)
{
    (void)state;
    struct options o;
    char *text[2];
    size_t size;
    setenv("CONCH_GRPC_PORT", "12", 1);
    const char *line = "--http-port=21 --model-repository=/a --model-repository=/b "
                       "--disable-auto-complete-config --log-verbose=2";
    for (int i = 0; i < 2; i++) {
        assert_null(parse_line(&o, i == 0 ? line : config_flag));
        FILE *to = open_memstream(&text[i], &size);
        options_print_config(to, &o, "/backends", "/caches");
        fclose(to);
        options_done(&o);
        write_text(text[i]);
        unsetenv("CONCH_GRPC_PORT");
    }
    assert_ptr_equal(strstr(text[0], "# from the command line\n"), text[0]);
    assert_non_null(strstr(text[0], "# from the environment\ngrpc-port = 12\n"));
    static const char *const lines[] = {
        "http-port = 21\n", "model-repository = /a\n",          "model-repository = /b\n",
        "grpc-port = 12\n", "\ndisable-auto-complete-config\n", "log-verbose = 2\n"};
    for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
        assert_non_null(strstr(text[0], lines[i]));
        assert_non_null(strstr(text[1], lines[i]));
    }
    free(text[0]);
    free(text[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_earlier_source_counts),
        cmocka_unit_test(a_list_is_that_of_one_source),
        cmocka_unit_test(the_file_may_be_named_by_the_environment),
        cmocka_unit_test(a_flag_without_a_value_may_be_taken_back),
        cmocka_unit_test(a_fault_says_where_it_is),
        cmocka_unit_test(a_file_that_cannot_be_read_is_an_error),
        cmocka_unit_test(the_printed_options_are_a_file_of_options),
    };
    return cmocka_run_group_tests(tests, make_file, remove_file);
}
