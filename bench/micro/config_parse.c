/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_config_parse FILE MODEL - the cost of a configuration: parsing its text, and all steps up
 * to the validated configuration that a model serves with. Prints the best of ten rounds each.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/status.h"
#include "core/config/config.h"

enum { ROUNDS = 10, TIMES = 5000 };

static void must(struct status *st)
{
    if (!st)
        return;
    fprintf(stderr, "%s\n", status_message(st));
    exit(1);
}

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static double round_us(const struct buf *text, const char *model, bool whole_life)
{
    struct config_facts facts = {.model_name = model, .auto_complete = true};
    double start = now_us();
    for (int i = 0; i < TIMES; i++) {
        struct model_config *c = NULL;
        must(model_config_parse_text(text->data, text->size, "config.pbtxt", &c));
        if (whole_life) {
            must(model_config_prepare(c, &facts));
            must(model_config_complete_groups(c, &facts));
            must(model_config_finish(c, &facts));
        }
        model_config_free(c);
    }
    return (now_us() - start) / TIMES;
}

int main(int argc, char **argv)
{
    AUTO(buf) text = BUF_INIT(1 << 20);
    if (argc != 3) {
        fprintf(stderr, "usage: %s FILE MODEL\n", argv[0]);
        return 2;
    }
    must(file_read(argv[1], &text));
    for (int whole_life = 0; whole_life < 2; whole_life++) {
        double best = round_us(&text, argv[2], whole_life);
        for (int i = 1; i < ROUNDS; i++)
            best = MIN(best, round_us(&text, argv[2], whole_life));
        printf("%s: %.2f us for %zu bytes\n", whole_life ? "whole life" : "parse", best, text.size);
    }
    return 0;
}
