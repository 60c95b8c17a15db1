/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The configuration of a model: read (config.pbtxt or JSON), complete, validate, print. The life of
 * a configuration while its model loads:
 *
 *     read_file | parse_text | parse_json
 *       → prepare   name, backend, defaults; general rules; refuses what the server cannot do yet
 *       → [the backend library is loaded]
 *       → groups    instance groups get kinds, counts and names
 *       → [the backend may complete it: merge_from_backend]
 *       → finish    defaults again; rules of inputs and outputs
 *       → constant from here on
 *
 * The message itself is `pb`: readers use it directly. Each message is reached once, and its
 * pointers stay, so that an error can name line and column of the field it is about.
 *
 * Threads: one until finish; then any number of readers.
 * The only I/O here is reading one configuration file: what lies in the model's folder is told by
 * the caller.
 */
#ifndef CONCH_CORE_CONFIG_CONFIG_H
#define CONCH_CORE_CONFIG_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/compiler.h"
#include "base/pbmsg.h"
#include "proto/model_config.pb-c.h"

struct buf;
struct status;

/* A part of the text that cannot be read, or a rule that is broken. */
struct config_fault {
    enum config_fault_kind { CONFIG_FAULT_TEXT, CONFIG_FAULT_RULE, CONFIG_FAULT_UNSUPPORTED } kind;
    uint32_t line, column; /* 0: nowhere in particular */
    const char *text;      /* without the position */
    const char *advice;    /* what would have been right, or NULL */
};

/* Who wants all faults, not only of the first (conch check). */
struct config_listener {
    void (*on_fault)(void *arg, const struct config_fault *fault);
    void *arg;
    size_t n_faults; /* so far; those after CONFIG_MAX_FAULTS come without a position */
};

enum { CONFIG_MAX_FAULTS = 1000 };

struct model_config {
    Inference__ModelConfig *pb; /* never NULL; everything below it lives in arena */

    /* Below: for this folder's files. */
    struct arena arena;
    struct pb_positions positions;    /* where fields stand in the text; empty without a text */
    char *file;                       /* how errors name the text; NULL without */
    bool provided;                    /* someone said something: a file, a request, the backend */
    bool from_backend;                /* the backend has completed it */
    struct config_listener *listener; /* NULL: each step returns the first fault; borrowed */
};

/* An instance group that a backend asks for when the configuration leaves it open. */
struct config_group {
    Inference__ModelInstanceGroup__Kind kind;
    int count;
};

/* What completion may know about the model. All borrowed during the call. */
struct config_facts {
    const char *model_name; /* the model's folder, or its name in a load request */
    bool is_renamed; /* … or what its folder is registered to be called, whatever it says */

    /* The entries of the first version folder in string order ("10" before "9"); the name of a
     * folder ends in '/'. */
    const char *const *version_files;
    size_t n_version_files;

    bool auto_complete; /* false under --disable-auto-complete-config */

    /* For model_config_complete_groups(). */
    const struct config_group *preferred_groups; /* the backend's attribute */
    size_t n_preferred_groups;
    bool has_gpus;
};

/*
 * model_config_new - an empty configuration, for a model that has none: every field at its default.
 */
struct model_config *model_config_new(void);
void model_config_free(struct model_config *c);

/* model_config_give - all of it is that owner's memory from now on. */
void model_config_give(struct model_config *c, struct mem_owner *owner);

/* Larger texts are refused, before they are read where they are files. */
enum {
    CONFIG_MAX_BYTES = 16 << 20,
    CONFIG_MAX_ELEMENTS = 1 << 18, /* of all lists together */
    CONFIG_MAX_INSTANCES = 4096,   /* of a model, so that it has no more groups either */
};

/*
 * model_config_read_file - reads a config.pbtxt. Regular files up to CONFIG_MAX_BYTES only.
 *
 * Errors:  STATUS_INTERNAL     no such file, cannot be read, or is wrong (the reference's code for
 * all) STATUS_UNAVAILABLE  no memory, no descriptors
 */
NODISCARD struct status *model_config_read_file(const char *path, struct model_config **ret_config);

/*
 * model_config_parse_file - the same for a file that the caller has read, or tried to.
 *
 * @failed  why it could not be read, taken; NULL when it could
 * @path    how errors name it
 */
NODISCARD struct status *model_config_parse_file(struct status *failed, const struct buf *text,
                                                 const char *path,
                                                 struct model_config **ret_config);

/*
 * model_config_parse_text - the same from memory.
 *
 * @file  how errors name the text
 */
NODISCARD struct status *model_config_parse_text(const char *text, size_t length, const char *file,
                                                 struct model_config **ret_config);

/*
 * model_config_parse_json - from JSON, such as a load request's override.
 *
 * Errors:  STATUS_INVALID_ARG  not JSON, or not a model configuration
 */
NODISCARD struct status *model_config_parse_json(const char *json, size_t length,
                                                 struct model_config **ret_config);

/*
 * model_config_prepare - the server's completion (reference/features §8.3), the general, scheduler
 * and ensemble rules (reference/behaviours §14.10 on), then model_config_validate_honoured().
 *
 * Errors:  STATUS_INVALID_ARG    a rule is broken; the text ends in "(file:line:column)"
 *          STATUS_UNSUPPORTED    a field that this server does not honour yet
 */
NODISCARD struct status *model_config_prepare(struct model_config *c,
                                              const struct config_facts *facts);

/*
 * model_config_complete_groups - gives every instance group its kind, count, name and GPUs. Not for
 * ensembles.
 */
NODISCARD struct status *model_config_complete_groups(struct model_config *c,
                                                      const struct config_facts *facts);

/*
 * model_config_set_python - the model's backend is written in Python.
 *
 * @runtime      what `runtime` says of that
 * @environment  becomes the parameter EXECUTION_ENV_PATH, unless there is one; NULL: none
 */
NODISCARD struct status *model_config_set_python(struct model_config *c, const char *runtime,
                                                 const char *environment);

/*
 * model_config_merge_from_backend - what TRITONBACKEND_ModelSetConfig() hands over: takes
 * max_batch_size, input, output, the decoupled flag, and the scheduling choice if there is none
 * yet; all else in it is ignored.
 *
 * @c  unchanged on error
 */
NODISCARD struct status *model_config_merge_from_backend(struct model_config *c, const char *json,
                                                         size_t length);

/*
 * model_config_finish - defaults that depend on what the backend completed, then the rules of
 * inputs, outputs, batch tensors and sequence controls (reference/behaviours §14.11 to §14.13).
 * Forgets positions.
 */
NODISCARD struct status *model_config_finish(struct model_config *c,
                                             const struct config_facts *facts);

/*
 * model_config_parse_all - as model_config_parse_text(), for who wants everything that
 * is wrong with the text. After a fault *ret_config is NULL: rules are not asked of half a text.
 *
 * @listener  becomes the configuration's
 * Errors:    STATUS_UNAVAILABLE  no memory; STATUS_INTERNAL  the text is too large; faults are none
 */
NODISCARD struct status *model_config_parse_all(const char *text, size_t length, const char *file,
                                                struct config_listener *listener,
                                                struct model_config **ret_config);

/*
 * model_config_validate_all - what prepare, complete_groups and finish do, as far as it can be told
 * without the backend. With a listener it goes through all rules.
 */
NODISCARD struct status *model_config_validate_all(struct model_config *c,
                                                   const struct config_facts *facts);

/* model_config_where - where `field` of a message below c->pb stands, or else the message (whose
 * element `index`, if the field is repeated); false when that is not known. */
bool model_config_where(const struct model_config *c, const void *message, const char *field,
                        size_t index, uint32_t *ret_line, uint32_t *ret_column);

/*
 * model_config_add_position - the status, taken, with the position of a field behind its text: for
 * what is found out about a field beyond its configuration. Until finish.
 */
NODISCARD struct status *model_config_add_position(const struct model_config *c,
                                                   const void *message, const char *field,
                                                   struct status *st);

/* model_config_is_given - does the text say something of this field itself? */
bool model_config_is_given(const struct model_config *c, const void *message, const char *field);

/*
 * model_config_validate_honoured - refuses by name each field that is set and that the server does
 * not act upon yet (honoured.c). model_config_prepare() does this too.
 */
NODISCARD struct status *model_config_validate_honoured(const struct model_config *c);

/*
 * model_config_print_json - as GET /v2/models/M/config answers: proto names, defaults printed, most
 * 64-bit integers as numbers (reference/behaviours §15). On a full buffer see buf_status().
 */
void model_config_print_json(const struct model_config *c, struct buf *out);

/* model_config_print_text - as a config.pbtxt, without fields at their defaults. */
void model_config_print_text(const struct model_config *c, struct buf *out);

/* model_config_parameter - the text of `parameters { key … }`, or NULL. */
const char *model_config_parameter(const struct model_config *c, const char *key);

/* model_config_sequences - what it says of sequences; NULL: another scheduler. */
const Inference__ModelSequenceBatching *model_config_sequences(const struct model_config *c);

/* model_config_decoupled - any number of responses per request? */
bool model_config_decoupled(const struct model_config *c);

#endif
