/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs the program of a regular expression: all threads of the program go through the text side by
 * side, and no two are at the same instruction, so that each byte costs at most one step for each
 * instruction (Thompson's method).
 *
 * No state; any thread.
 */
#include "base/regex_priv.h"

#include <string.h>

#include "base/mem.h"
#include "base/status.h"

struct status *regex_new(const char *pattern, struct regex **ret)
{
    struct regex *r = mem_zalloc(sizeof(*r));
    struct status *st = regex_parse(pattern, r);
    if (st) {
        mem_free(r);
        return st;
    }
    r->program[r->n++].op = REGEX_MATCH;
    *ret = r;
    return NULL;
}

void regex_free(struct regex *r)
{
    mem_free(r);
}

/* The instructions, all of them SET, at which threads wait for the next byte. */
struct waiting {
    int n;
    short at[REGEX_MAX_PROGRAM];
};

struct run {
    const struct regex *regex;
    const char *text;
    size_t length, at; /* the next byte is text[at] */
    struct waiting now, next;
    bool seen[REGEX_MAX_PROGRAM]; /* a thread is, or was, at the instruction before this byte */
};

static bool is_at_word_edge(const struct run *run)
{
    bool before = run->at > 0 && regex_is_word((unsigned char)run->text[run->at - 1]);
    bool after = run->at < run->length && regex_is_word((unsigned char)run->text[run->at]);
    return before != after;
}

/* Whether a thread at that instruction may go on to the next one without a byte. */
static bool passes(const struct run *run, enum regex_op op)
{
    switch (op) {
    case REGEX_TEXT_BEGIN:
        return run->at == 0;
    case REGEX_TEXT_END:
        return run->at == run->length;
    case REGEX_LINE_BEGIN:
        return run->at == 0 || run->text[run->at - 1] == '\n';
    case REGEX_LINE_END:
        return run->at == run->length || run->text[run->at] == '\n';
    case REGEX_WORD_EDGE:
        return is_at_word_edge(run);
    case REGEX_NO_WORD_EDGE:
        return !is_at_word_edge(run);
    case REGEX_SET:
    case REGEX_SPLIT:
    case REGEX_JUMP:
    case REGEX_MATCH:
        break;
    }
    return false;
}

/* Follows a thread until each of those that it becomes waits for a byte. True: one has matched. */
static bool follow_thread(struct run *run, int begin, struct waiting *list)
{
    short
        todo[REGEX_MAX_PROGRAM + 1]; /* an instruction is in it once, since `seen` is set before */
    int n = 0;
    if (!run->seen[begin]) {
        run->seen[begin] = true;
        todo[n++] = (short)begin;
    }
    while (n > 0) {
        int at = todo[--n];
        const struct regex_instruction *i = &run->regex->program[at];
        int next[2] = {-1, -1};
        if (i->op == REGEX_MATCH)
            return true;
        if (i->op == REGEX_SET) {
            list->at[list->n++] = (short)at;
        } else if (i->op == REGEX_SPLIT || i->op == REGEX_JUMP) {
            next[0] = at + i->first;
            next[1] = i->op == REGEX_SPLIT ? at + i->second : -1;
        } else if (passes(run, i->op)) {
            next[0] = at + 1;
        }
        for (int k = 0; k < 2; k++) {
            if (next[k] < 0 || run->seen[next[k]])
                continue;
            run->seen[next[k]] = true;
            todo[n++] = (short)next[k];
        }
    }
    return false;
}

/* Takes the next byte: the threads whose set has it go on. True: one has matched. */
static bool step_threads(struct run *run)
{
    unsigned char c = (unsigned char)run->text[run->at++];
    memset(run->seen, 0, (size_t)run->regex->n * sizeof(run->seen[0]));
    run->next.n = 0;
    for (int k = 0; k < run->now.n; k++) {
        int at = run->now.at[k];
        const struct regex_instruction *i = &run->regex->program[at];
        if (i->set[c / 8] >> (c % 8) & 1 && follow_thread(run, at + 1, &run->next))
            return true;
    }
    run->now.n = run->next.n;
    memcpy(run->now.at, run->next.at, (size_t)run->next.n * sizeof(run->next.at[0]));
    return false;
}

bool regex_matches(const struct regex *r, const char *text, size_t length)
{
    struct run run;
    run.regex = r;
    run.text = text;
    run.length = length;
    run.at = 0;
    run.now.n = run.next.n = 0;
    memset(run.seen, 0, (size_t)r->n * sizeof(run.seen[0]));
    /* A match may begin before each byte, and at the end. */
    while (!follow_thread(&run, 0, &run.now)) {
        if (run.at == length)
            return false;
        if (step_threads(&run))
            return true;
    }
    return true;
}
