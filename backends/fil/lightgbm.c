/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lightgbm - the check of a model of LightGBM: lines of `name=values`, the first ones about the
 * whole model, then those of each tree after a line `Tree=n`. Of a name that comes twice treelite
 * takes the last, so such a file is refused. What is behind the line `end of trees` is not given to
 * treelite, which would take the importance of a feature called `threshold` for one of the last
 * tree's lists.
 *
 * An inner node n has the children left_child[n] and right_child[n]: another inner node, or ~k for
 * leaf k. treelite follows them without a test, so they must be a tree.
 */
#include <stdlib.h>
#include <string.h>

#include "fil/treefile.h"

/* The lists of a tree, and names of the model. */
enum lightgbm_key {
    LGB_NUM_LEAVES,
    LGB_NUM_CAT,
    LGB_LEAF_VALUE,
    LGB_DECISION_TYPE,
    LGB_CAT_BOUNDARIES,
    LGB_CAT_THRESHOLD,
    LGB_SPLIT_FEATURE,
    LGB_THRESHOLD,
    LGB_SPLIT_GAIN,
    LGB_INTERNAL_COUNT,
    LGB_LEAF_COUNT,
    LGB_LEFT,
    LGB_RIGHT,
    LGB_NUM_CLASS,
    LGB_MAX_FEATURE,
    LGB_OBJECTIVE,
    LGB_TREE_SIZES,
    LGB_N_KEYS
};

static const char *const lightgbm_names[LGB_N_KEYS] = {
    "num_leaves",    "num_cat",       "leaf_value",  "decision_type", "cat_boundaries",
    "cat_threshold", "split_feature", "threshold",   "split_gain",    "internal_count",
    "leaf_count",    "left_child",    "right_child", "num_class",     "max_feature_idx",
    "objective",     "tree_sizes"};

/* The text behind a name; NULL: the name is missing. */
struct lightgbm_value {
    const char *text;
    size_t len;
};

struct lightgbm_text {
    const char *at, *end;
    struct treefile_why *why;
    struct lightgbm_value values[LGB_N_KEYS];
    size_t n_trees, n_expected; /* expected: as the head says; 0: it does not */
};

/* ---- Values ---------------------------------------------------------------------------------- */

static size_t count_list_words(const struct lightgbm_value *v)
{
    size_t n = v->text && v->len > 0;

    for (size_t i = 0; v->text && i < v->len; i++)
        n += v->text[i] == ' ';
    return n;
}

/* Takes the next word of a list as a number. */
static bool next_list_number(struct lightgbm_value *v, double *ret_number)
{
    char copy[64], *end;
    const char *blank = memchr(v->text, ' ', v->len);
    size_t len = blank ? (size_t)(blank - v->text) : v->len;

    if (len == 0 || len >= sizeof(copy))
        return false;
    memcpy(copy, v->text, len);
    copy[len] = '\0';
    *ret_number = strtod(copy, &end);
    v->text += len + (blank != NULL);
    v->len -= len + (blank != NULL);
    return *end == '\0';
}

/* Reads a list of whole numbers, as long as it is; the caller frees it. */
static bool read_numbers(const struct lightgbm_text *t, enum lightgbm_key key, double min,
                         double max, int64_t **ret_numbers)
{
    struct lightgbm_value v = t->values[key];
    size_t n = count_list_words(&v);
    int64_t *numbers = malloc((n + 1) * sizeof(*numbers));

    if (!numbers)
        return treefile_refuse(t->why, "no memory to check it");
    for (size_t i = 0; i < n; i++) {
        double number;

        if (!next_list_number(&v, &number) || !(number >= min && number <= max)) {
            free(numbers);
            return treefile_refuse(t->why, "tree %zu: element %zu of %s is out of range",
                                   t->n_trees, i, lightgbm_names[key]);
        }
        numbers[i] = (int64_t)number;
    }
    *ret_numbers = numbers;
    return true;
}

static bool read_single(const struct lightgbm_text *t, enum lightgbm_key key, int64_t max,
                        int64_t *ret_number)
{
    struct lightgbm_value v = t->values[key];
    double number;

    if (!v.text || count_list_words(&v) != 1 || !next_list_number(&v, &number) ||
        !(number >= 0 && number <= (double)max))
        return treefile_refuse(t->why, "%s is missing or out of range", lightgbm_names[key]);
    *ret_number = (int64_t)number;
    return true;
}

/* ---- One tree -------------------------------------------------------------------------------- */

static bool check_list(const struct lightgbm_text *t, enum lightgbm_key key, size_t n, bool needed)
{
    size_t have = count_list_words(&t->values[key]);

    if (have == n || (have == 0 && !needed))
        return true;
    return treefile_refuse(t->why, "tree %zu: %s has %zu values, not %zu", t->n_trees,
                           lightgbm_names[key], have, n);
}

/* Marks the children of one side; no node may be the child of two. */
static bool mark_children(const struct lightgbm_text *t, const int64_t *children, size_t n,
                          unsigned char *has_parent)
{
    for (size_t i = 0; i < n; i++) {
        if (children[i] < 0)
            continue;
        if (children[i] == 0 || (size_t)children[i] >= n || has_parent[children[i]])
            return treefile_refuse(t->why, "tree %zu: node %lld is no child of node %zu alone",
                                   t->n_trees, (long long)children[i], i);
        has_parent[children[i]] = 1;
    }
    return true;
}

static bool check_children(const struct lightgbm_text *t, size_t n_leaves)
{
    size_t n = n_leaves - 1;
    unsigned char *has_parent = calloc(n + 1, 1);
    bool ok = has_parent || treefile_refuse(t->why, "no memory to check it");

    for (enum lightgbm_key key = LGB_LEFT; ok && key <= LGB_RIGHT; key++) {
        int64_t *children = NULL;

        ok = read_numbers(t, key, -(double)n_leaves, (double)n, &children) &&
             mark_children(t, children, n, has_parent);
        free(children);
    }
    free(has_parent);
    return ok;
}

/* Checks where the categories of each entry begin. */
static bool check_boundaries(const struct lightgbm_text *t, size_t n_cat)
{
    size_t n_words = count_list_words(&t->values[LGB_CAT_THRESHOLD]);
    int64_t *begins = NULL;
    bool ok = check_list(t, LGB_CAT_BOUNDARIES, n_cat + 1, true) &&
              read_numbers(t, LGB_CAT_BOUNDARIES, 0, INT32_MAX, &begins);

    for (size_t i = 0; ok && i < n_cat; i++)
        ok = begins[i] <= begins[i + 1] ||
             treefile_refuse(t->why, "tree %zu: cat_boundaries fall at %zu", t->n_trees, i);
    if (ok && (size_t)begins[n_cat] > n_words)
        ok = treefile_refuse(t->why, "tree %zu: cat_boundaries end at %lld of %zu", t->n_trees,
                             (long long)begins[n_cat], n_words);
    free(begins);
    return ok;
}

/* A threshold is any number; of a split by category it is the number of its entry. Each such split
 * has its own entry: entries that splits share would multiply in memory. */
static bool check_entries(const struct lightgbm_text *t, const int64_t *types, size_t n_nodes,
                          size_t n_cat)
{
    struct lightgbm_value v = t->values[LGB_THRESHOLD];
    unsigned char *used = calloc(n_cat + 1, 1);
    bool ok = used || treefile_refuse(t->why, "no memory to check it");

    for (size_t i = 0; ok && i < n_nodes; i++) {
        double number;

        if (!next_list_number(&v, &number)) {
            ok = treefile_refuse(t->why, "tree %zu: threshold %zu is no number", t->n_trees, i);
        } else if (types[i] & 1) {
            ok = (number >= 0 && number < (double)n_cat && !used[(size_t)number]) ||
                 treefile_refuse(t->why, "tree %zu: node %zu has entry %g of %zu categories",
                                 t->n_trees, i, number, n_cat);
            if (ok)
                used[(size_t)number] = 1;
        }
    }
    free(used);
    return ok;
}

static bool check_splits(const struct lightgbm_text *t, size_t n_nodes, size_t n_cat)
{
    int64_t *types = NULL;
    bool ok;

    if (count_list_words(&t->values[LGB_DECISION_TYPE]) == 0) /* all splits are numerical */
        return true;
    ok = read_numbers(t, LGB_DECISION_TYPE, -128, 127, &types) &&
         check_entries(t, types, n_nodes, n_cat);
    free(types);
    return ok;
}

static bool check_lightgbm_tree(const struct lightgbm_text *t)
{
    int64_t n_leaves, n_cat;
    size_t n;

    if (!read_single(t, LGB_NUM_LEAVES, INT32_MAX, &n_leaves) ||
        !read_single(t, LGB_NUM_CAT, INT32_MAX - 1, &n_cat))
        return false;
    if (n_leaves < 1)
        return treefile_refuse(t->why, "tree %zu has no leaves", t->n_trees);
    n = (size_t)n_leaves - 1;
    if (!check_list(t, LGB_LEAF_VALUE, n + 1, true) || !check_list(t, LGB_LEAF_COUNT, n + 1, false))
        return false;
    if (n_cat > 0 && !check_boundaries(t, (size_t)n_cat))
        return false;
    if (n == 0)
        return true;
    return check_list(t, LGB_DECISION_TYPE, n, false) &&
           check_list(t, LGB_SPLIT_FEATURE, n, true) && check_list(t, LGB_THRESHOLD, n, true) &&
           check_list(t, LGB_SPLIT_GAIN, n, false) && check_list(t, LGB_INTERNAL_COUNT, n, false) &&
           check_list(t, LGB_LEFT, n, true) && check_list(t, LGB_RIGHT, n, true) &&
           check_children(t, n + 1) && check_splits(t, n, (size_t)n_cat);
}

/* ---- The lines ------------------------------------------------------------------------------- */

/* Takes the next line, without blanks at its end. */
static bool next_model_line(struct lightgbm_text *t, struct lightgbm_value *ret_line)
{
    const char *end;

    if (t->at == t->end)
        return false;
    end = memchr(t->at, '\n', (size_t)(t->end - t->at));
    ret_line->text = t->at;
    ret_line->len = (size_t)((end ? end : t->end) - t->at);
    t->at = end ? end + 1 : t->end;
    while (ret_line->len > 0 && strchr(" \t\r\v\f", ret_line->text[ret_line->len - 1]) &&
           ret_line->text[ret_line->len - 1])
        ret_line->len--;
    return true;
}

static bool note_line(struct lightgbm_text *t, const struct lightgbm_value *line)
{
    const char *equals = memchr(line->text, '=', line->len);
    size_t len = equals ? (size_t)(equals - line->text) : line->len;

    for (size_t i = 0; i < LGB_N_KEYS; i++) {
        struct lightgbm_value *v = &t->values[i];

        if (strlen(lightgbm_names[i]) != len || memcmp(lightgbm_names[i], line->text, len) != 0)
            continue;
        if (v->text)
            return treefile_refuse(t->why, "%s comes twice", lightgbm_names[i]);
        v->text = equals ? equals + 1 : line->text + line->len;
        v->len = (size_t)(line->text + line->len - v->text);
    }
    return true;
}

static bool is_tree_line(const struct lightgbm_value *line)
{
    return line->len >= 4 && memcmp(line->text, "Tree", 4) == 0 &&
           (line->len == 4 || line->text[4] == '=');
}

static bool check_lightgbm_head(struct lightgbm_text *t)
{
    const struct lightgbm_value *objective = &t->values[LGB_OBJECTIVE];
    int64_t n;

    if (!read_single(t, LGB_NUM_CLASS, TREE_MAX_OUTPUTS, &n) ||
        !read_single(t, LGB_MAX_FEATURE, INT32_MAX - 1, &n))
        return false;
    if (objective->text && objective->len == 0)
        return treefile_refuse(t->why, "the objective is empty");
    t->n_expected = count_list_words(&t->values[LGB_TREE_SIZES]);
    return true;
}

/* Ends what has been read so far: the head, or a tree. */
static bool end_section(struct lightgbm_text *t, bool in_tree)
{
    if (!(in_tree ? check_lightgbm_tree(t) : check_lightgbm_head(t)))
        return false;
    t->n_trees += in_tree;
    memset(t->values, 0, sizeof(t->values));
    return true;
}

bool treefile_check_lightgbm(const char *data, size_t size, size_t *ret_size,
                             struct treefile_why *why)
{
    struct lightgbm_text t = {.at = data, .end = data + size, .why = why};
    struct lightgbm_value line;
    bool in_tree = false;

    if (memchr(data, '\0', size))
        return treefile_refuse(why, "the file is no text");
    while (next_model_line(&t, &line)) {
        if (line.len == 12 && memcmp(line.text, "end of trees", 12) == 0) {
            *ret_size = (size_t)(line.text - data);
            break;
        }
        if (is_tree_line(&line)) {
            if (!end_section(&t, in_tree))
                return false;
            in_tree = true;
        } else if (!note_line(&t, &line)) {
            return false;
        }
    }
    if (!end_section(&t, in_tree))
        return false;
    if (t.n_trees == 0)
        return treefile_refuse(why, "the file has no trees");
    if (t.n_expected > 0 && t.n_trees != t.n_expected)
        return treefile_refuse(why, "the file has %zu trees of %zu", t.n_trees, t.n_expected);
    return true;
}
