/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The configuration of a model: these functions read it (config.pbtxt or JSON), complete it,
 * validate it and print it. The life of a configuration while its model loads:
 *
 *     read_file | parse_text | parse_json
 *       → prepare   name, backend, defaults; general rules; refuses features that do not exist yet
 *       → [the backend library is loaded]
 *       → groups    instance groups get kinds, counts and names
 *       → [the backend may complete it: merge_from_backend]
 *       → finish    defaults again; rules of inputs and outputs
 *       → constant from here on, but for instance groups and version policy (model_change.c)
 *
 * The protobuf message is `pb`; readers use it directly. No two pointers in it lead to the same
 * message, and messages do not move, so that an error can name line and column of its field.
 *
 * Threads: one until finish; then any number of readers.
 * The only I/O here is reading one configuration file: the caller passes what else the model's
 * folder has (struct config_facts).
 */
#ifndef CONCH_CORE_CONFIG_CONFIG_H
#define CONCH_CORE_CONFIG_CONFIG_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/compiler.h"
#include "base/pbmsg.h"
#include "proto/model_config.pb-c.h"

struct buf;
struct status;

/* A part of the text that cannot be parsed, or a rule that is broken. */
struct config_fault {
    enum config_fault_kind { CONFIG_FAULT_TEXT, CONFIG_FAULT_RULE, CONFIG_FAULT_UNSUPPORTED } kind;
    uint32_t line, column; /* 0: the fault has no position */
    const char *text;      /* without the position */
    const char *advice;    /* what would have been right, or NULL */
};

/* A listener gets all faults, not only the first one (conch check). */
struct config_listener {
    void (*on_fault)(void *arg, const struct config_fault *fault);
    void *arg;
    size_t n_faults; /* so far; those after CONFIG_MAX_FAULTS come without a position */
};

enum { CONFIG_MAX_FAULTS = 1000 };

struct model_config {
    /* Never NULL. Everything below it lives in arena, but for what model_config_borrow_groups() has
     * put there. */
    Inference__ModelConfig *pb;

    /* Below: for this folder's files. */
    struct arena arena;
    struct pb_positions positions;    /* where fields stand in the text; empty without a text */
    char *file;                       /* how errors name the text; NULL without */
    bool provided;                    /* a file, a request or the backend gave a configuration */
    bool from_backend;                /* the backend has completed it … */
    bool batch_from_backend;          /* … and has chosen max_batch_size, … */
    bool batch_written;               /* … which the configuration itself has as 0 */
    struct config_listener *listener; /* NULL: each step returns the first fault; borrowed */
    atomic_uint refs;
};

/* An instance group that a backend asks for when the configuration leaves it open. */
struct config_group {
    Inference__ModelInstanceGroup__Kind kind;
    int count;
};

/* Facts about the model for completing its configuration. Borrowed during the call. */
struct config_facts {
    const char *model_name; /* the model's folder, or its name in a load request */
    bool is_renamed; /* model_name is registered for the folder, and replaces the file's name */

    /* The entries of the first version folder in string order ("10" before "9"); the name of a
     * folder ends in '/'. */
    const char *const *version_files;
    size_t n_version_files;
    /* The entries of the model's folder in string order, in the same form. */
    const char *const *folder_files;
    size_t n_folder_files;

    bool auto_complete; /* false under --disable-auto-complete-config */

    /* For model_config_complete_groups(). */
    const struct config_group *preferred_groups; /* the backend's attribute */
    size_t n_preferred_groups;
    int (*count_gpus)(void); /* asked only when a group may be on GPUs; NULL: there are none */
};

/*
 * model_config_new - an empty configuration, for a model that has none: every field at its default.
 * The caller ends this and those of the functions below with model_config_free().
 */
struct model_config *model_config_new(void);
void model_config_free(struct model_config *c);

/* model_config_ref - one more user, who ends that with model_config_free(), too: the last one frees
 * it. Thread: any. */
struct model_config *model_config_ref(struct model_config *c);

/* model_config_give - moves all its memory to that owner's account. */
void model_config_give(struct model_config *c, struct mem_owner *owner);

/* Limits of a text. A larger file is refused before it is read. */
enum {
    CONFIG_MAX_BYTES = 16 << 20,
    CONFIG_MAX_ELEMENTS = 1 << 18, /* of all lists together */
    CONFIG_MAX_INSTANCES = 4096,   /* of a model, so that it has no more groups either */
};

/*
 * model_config_read_file - reads a config.pbtxt: a regular file of up to CONFIG_MAX_BYTES.
 *
 * Errors:  STATUS_INTERNAL     the file does not exist, cannot be read, or is wrong (the
 *                              reference's code for all three)
 *          STATUS_UNAVAILABLE  no memory, no descriptors
 */
NODISCARD struct status *model_config_read_file(const char *path, struct model_config **ret_config);

/*
 * model_config_parse_file - the same for a file that the caller has read, or has failed to read.
 *
 * @failed  the error of reading it, taken; NULL: it has been read into text
 * @path    names the file in errors
 */
NODISCARD struct status *model_config_parse_file(struct status *failed, const struct buf *text,
                                                 const char *path,
                                                 struct model_config **ret_config);

/*
 * model_config_parse_text - the same from memory.
 *
 * @file  names the text in errors
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
 *          STATUS_UNSUPPORTED    a field is set that this server does not act upon yet
 */
NODISCARD struct status *model_config_prepare(struct model_config *c,
                                              const struct config_facts *facts);

/*
 * model_config_advise_files - what is wrong with the place or the name of the model's file, and
 * what to do about it, when the backend or the version of a model cannot be found. Of use to a
 * reader who does not know the rules of a repository yet.
 *
 * @file_is_missing  the error is about a file, so an empty version folder is its cause
 * Returns a text that the caller frees with mem_free(); NULL: the files do not say.
 */
char *model_config_advise_files(const struct config_facts *facts, bool file_is_missing);

/*
 * config_advise_loose_file - where a file belongs that lies in the repository itself, outside any
 * model's folder. To be freed with mem_free(); NULL: it is no model's file.
 */
char *config_advise_loose_file(const char *name);

/*
 * model_config_complete_groups - gives every instance group its kind, count, name and GPUs. Not for
 * ensembles.
 */
NODISCARD struct status *model_config_complete_groups(struct model_config *c,
                                                      const struct config_facts *facts);

/*
 * model_config_set_python - notes in the configuration that the model's backend is written in
 * Python.
 *
 * @runtime      becomes the value of `runtime`
 * @environment  becomes the parameter EXECUTION_ENV_PATH, unless there is one; NULL: none
 */
NODISCARD struct status *model_config_set_python(struct model_config *c, const char *runtime,
                                                 const char *environment);

/*
 * model_config_merge_from_backend - merges the JSON of TRITONBACKEND_ModelSetConfig(). It takes
 * max_batch_size, input, output, the decoupled flag, and the scheduling choice if there is none
 * yet; other fields are ignored.
 *
 * @c  unchanged on error
 */
NODISCARD struct status *model_config_merge_from_backend(struct model_config *c, const char *json,
                                                         size_t length);

/*
 * model_config_finish - sets the defaults that depend on what the backend completed, then validates
 * inputs, outputs, batch tensors and sequence controls (reference/behaviours §14.11 to §14.13).
 * Frees the positions.
 */
NODISCARD struct status *model_config_finish(struct model_config *c,
                                             const struct config_facts *facts);

/*
 * model_config_parse_all - as model_config_parse_text(), but the listener gets all faults of the
 * text. After a fault *ret_config is NULL: the rules do not apply to half a text.
 *
 * @listener  borrowed for the life of the configuration
 * Errors:    STATUS_UNAVAILABLE  no memory
 *            STATUS_INTERNAL     the text is too large
 *            STATUS_INVALID_ARG  it has too many elements; a fault is no error
 */
NODISCARD struct status *model_config_parse_all(const char *text, size_t length, const char *file,
                                                struct config_listener *listener,
                                                struct model_config **ret_config);

/*
 * model_config_validate_all - does what prepare, complete_groups and finish do, as far as that is
 * possible without the backend. With a listener it does not stop at the first fault.
 */
NODISCARD struct status *model_config_validate_all(struct model_config *c,
                                                   const struct config_facts *facts);

/* model_config_where - the position in the text of a `field` of a message below c->pb (of its
 * element `index` if the field is repeated), or else of the message. False: it is not known. */
bool model_config_where(const struct model_config *c, const void *message, const char *field,
                        size_t index, uint32_t *ret_line, uint32_t *ret_column);

/*
 * model_config_add_position - returns the status, taken, with the position of a field added to its
 * text: for errors about a field that are not found by validation. Only before finish.
 */
NODISCARD struct status *model_config_add_position(const struct model_config *c,
                                                   const void *message, const char *field,
                                                   struct status *st);

/* model_config_is_given - does the text itself set this field? */
bool model_config_is_given(const struct model_config *c, const void *message, const char *field);

/*
 * model_config_validate_honoured - refuses, by its name, a field that is set but that the server
 * does not act upon yet (honoured.c). model_config_prepare() does this, too.
 */
NODISCARD struct status *model_config_validate_honoured(const struct model_config *c);

/*
 * model_config_print_json - prints what GET /v2/models/M/config answers: proto names, with
 * defaults, most 64-bit integers as numbers (reference/behaviours §15). On a full buffer see
 * buf_status().
 */
void model_config_print_json(const struct model_config *c, struct buf *out);

/* model_config_print_text - prints a config.pbtxt, without fields at their defaults. */
void model_config_print_text(const struct model_config *c, struct buf *out);

/* A hash of a configuration without its instance groups and its version policy: what a loaded model
 * cannot change. */
struct config_core {
    uint64_t low, high;
};

/*
 * model_config_core - hashes a prepared configuration, or a finished one.
 *
 * Errors: STATUS_UNAVAILABLE  no memory
 */
NODISCARD struct status *model_config_core(const struct model_config *c,
                                           struct config_core *ret_core);
bool config_core_same(struct config_core a, struct config_core b);

/*
 * model_config_borrow_groups - the configuration has the instance groups and the version policy of
 * another one from now on, which must live as long as they are used.
 */
void model_config_borrow_groups(struct model_config *c, const struct model_config *from);

/* model_config_parameter - the text of `parameters { key … }`, or NULL. */
const char *model_config_parameter(const struct model_config *c, const char *key);

/* The name in an ensemble's input map that is no input of the model: the step runs only if this
 * tensor, BOOL with one element, is true. An addition of ours. */
#define ENSEMBLE_CONDITION "CONCH_IF"

/* model_config_is_ensemble - is the model made of steps by other models, without a backend? */
bool model_config_is_ensemble(const struct model_config *c);

/* model_config_sequences - its sequence_batching; NULL: it has another scheduler. Borrowed. */
const Inference__ModelSequenceBatching *model_config_sequences(const struct model_config *c);

/* model_config_joins_requests - has it a scheduler that makes batches of several requests? */
bool model_config_joins_requests(const struct model_config *c);

/* model_config_decoupled - may the model send any number of responses per request? */
bool model_config_decoupled(const struct model_config *c);

/*
 * model_config_set_decoupled - says so in the configuration, whatever it says itself: that of an
 * ensemble follows from the models of its steps. Only while the model is loaded.
 * Errors: STATUS_UNAVAILABLE  no memory
 */
NODISCARD struct status *model_config_set_decoupled(struct model_config *c, bool decoupled);

#endif
