/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The options that both load clients have. Each client adds its own to the table, and prints the
 * usage of all.
 */
#ifndef BENCH_LOAD_OPTIONS_H
#define BENCH_LOAD_OPTIONS_H

#include <getopt.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct load_options {
    const char *host;
    unsigned int port;
    unsigned int connections;
    double warmup_s;
    double seconds;
    size_t verify_len; /* leading bytes of each answer that are compared with the first one's */
    const char *first_path;    /* where the first answer is written, for the caller to check */
    const char *counters_path; /* an array of 64-bit counts that another process keeps */
    pid_t server;
    uint64_t cpus;
};

/* Lines of a table for getopt_long(). */
/* clang-format off */
#define LOAD_OPTIONS                                \
    {"host", required_argument, NULL, 'h'},         \
    {"port", required_argument, NULL, 'p'},         \
    {"connections", required_argument, NULL, 'c'},  \
    {"warmup", required_argument, NULL, 'w'},       \
    {"seconds", required_argument, NULL, 's'},      \
    {"verify", required_argument, NULL, 'v'},       \
    {"first", required_argument, NULL, 'f'},        \
    {"counters", required_argument, NULL, 'n'},     \
    {"pid", required_argument, NULL, 'P'},          \
    {"cpus", required_argument, NULL, 'C'}
/* clang-format on */

/* load_options_init - sets the defaults. */
void load_options_init(struct load_options *o);

/* load_options_set - takes optarg for an option of LOAD_OPTIONS; false: it is none of them. */
bool load_options_set(struct load_options *o, int option);

/* load_options_are_valid - whether there are a port and connections. */
bool load_options_are_valid(const struct load_options *o);

/* load_options_number - a number of an option. */
unsigned int load_options_number(const char *text);

#endif
