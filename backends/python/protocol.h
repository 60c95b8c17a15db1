/* SPDX-License-Identifier: Apache-2.0 */
/*
 * protocol - what the server's side of an instance and its child process say to each other.
 *
 * Each instance has one child process, and between the two are five things without a name in the
 * file system, which the child inherits as descriptors:
 *
 *     PROTOCOL_FD_SOCKET  a pair of sockets (SOCK_SEQPACKET) for notes: a struct note each
 *     PROTOCOL_FD_PAGE    one page of shared memory: the bells of commands and answers (struct
 * page) PROTOCOL_FD_DOWN    memory in which the server allocates and which the child reads
 *     PROTOCOL_FD_UP      memory in which the child allocates and which the server reads
 *     PROTOCOL_FD_EVENT   an eventfd: the answer bell has rung, for a thread that waits in epoll
 *
 * Commands and the answer of an execution go through the page, so that an execution costs one
 * futex call each way, or a futex call down and an eventfd up. Everything else is a note: the
 * thread that watches all children reads the notes of all instances, and a thread of the child
 * reads those that come down.
 *
 * A message is a block of the sender's memory (memory.h) with packed fields (pack.h), in the order
 * that the comments below give. Tensors lie in the message's own block or in blocks of their own.
 * Whoever receives a block gives it back when it needs it no more; that is one store.
 *
 * The child is not trusted: the server copies each number out of shared memory once, checks it, and
 * uses the copy. The end of the socket is the end of the life of the other side.
 */
#ifndef BACKENDS_PYTHON_PROTOCOL_H
#define BACKENDS_PYTHON_PROTOCOL_H

#include <stdatomic.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PROTOCOL_VERSION 4u

enum {
    PROTOCOL_FD_SOCKET = 3,
    PROTOCOL_FD_PAGE = 4,
    PROTOCOL_FD_DOWN = 5,
    PROTOCOL_FD_UP = 6,
    PROTOCOL_FD_EVENT = 7,
    PROTOCOL_FD_LAST = PROTOCOL_FD_EVENT,
};

/* No message has more. */
#define PROTOCOL_MAX_RANK     64u
#define PROTOCOL_MAX_TENSORS  65536u   /* of a request or a response */
#define PROTOCOL_MAX_REQUESTS 1048576u /* of a batch */
#define PROTOCOL_MAX_TEXT     (1u << 30)

/*
 * A bell: a message has come. Whoever rings writes at and size, then adds BELL_RINGS to the word.
 * The server flips BELL_ENDED in the word of the answer bell when the child has ended: the thread
 * that sleeps there wakes, and still sees whether the child has answered before.
 */
enum { BELL_ENDED = 1, BELL_RINGS = 2 };
struct bell {
    _Atomic uint32_t word;   /* a futex */
    _Atomic uint32_t sleeps; /* 1: the other side sleeps, or will; the ringer wakes it */
    uint64_t at;             /* of the message in the ringer's memory */
    uint64_t size_bytes;
    uint64_t more_bytes; /* of an answer: of tensors that lie in other blocks */
    uint64_t by_event;   /* of a command: 1: its answer adds to PROTOCOL_FD_EVENT, too */
    uint64_t unused[3];
};

/*
 * A place for the first message to a call whose caller sleeps until it comes. The child names it in
 * NOTE_CALL, and the server wakes the caller itself; by a note, the child's reader would.
 *
 *     SLOT_OPEN ──► SLOT_SLEEPS    the caller is about to sleep
 *         └────┬────────┘
 *              ▼
 *         SLOT_FILLED              the server has written at and size; it wakes one that sleeps
 */
enum { PROTOCOL_SLOTS = 32 };
enum slot_state { SLOT_OPEN, SLOT_SLEEPS, SLOT_FILLED };
struct slot {
    _Atomic uint32_t state; /* a futex: enum slot_state */
    uint32_t unused;
    uint64_t at, size_bytes; /* of the message in the server's memory */
    uint64_t more_unused[5];
};

/*
 * Each bell, and what one side alone writes, has a cache line. The server writes the sizes before
 * the child starts: its arena is arena_new(PROTOCOL_FD_UP, up_first_bytes, up_grow_bytes,
 * up_max_bytes).
 */
struct page {
    struct bell command; /* the server rings; the child's main thread waits */
    struct bell answer;  /* the child rings; the thread that executes the instance waits */
    /* Blocks of the child's memory that the server has given back, while the child waits for that
     * (returned_waits is 1): a futex. */
    _Atomic uint32_t returned, returned_waits;
    uint32_t unused_child[14];
    uint64_t up_first_bytes, up_grow_bytes, up_max_bytes;
    uint64_t down_max_bytes, unused_sizes[4];
    struct slot slots[PROTOCOL_SLOTS]; /* of the child, which chooses one for a call */
};

/* What the command bell says: the first field of the message, u32. */
enum command {
    /*
     * COMMAND_COMPLETE - import the model and call auto_complete_config(). COMMAND_INITIALIZE may
     * follow.
     *   str folder of the version, str file of the model, u32 n, n × (str key, str value): the
     *   arguments of initialize(); model_config is one of them. The file is a name in that folder,
     *   or a path with a slash, of a backend that is written in Python
     *   answer: NOTE_COMPLETED
     */
    COMMAND_COMPLETE = 1,
    /*
     * COMMAND_INITIALIZE - import the model, unless it is imported, and call initialize().
     *   as COMMAND_COMPLETE, then u8 decoupled, u8 force_cpu_only_input_tensors
     *   answer: NOTE_INITIALIZED
     */
    COMMAND_INITIALIZE,
    /*
     * COMMAND_EXECUTE - call execute() with requests.
     *   u32 n, n × (u64 key, request)
     *   answer: the answer bell, with
     *     u8 0, u32 n, n × response: in the order of the requests. RESPONSE_NONE: the model answers
     *       this request by its response sender, or has rescheduled it
     *     u8 1, str: execute() raised, or returned what it may not; the text for all its requests
     *   A decoupled model's execute() returns no responses: each is RESPONSE_NONE.
     *   Texts are complete ("Failed to process the request(s) for model 'm_0_0', message: …").
     */
    COMMAND_EXECUTE,
    /* COMMAND_FINALIZE - call finalize(), then end. No fields; the answer is the process's end. */
    COMMAND_FINALIZE,
};

/* A message by the socket. */
struct note {
    uint32_t kind;     /* enum note_kind */
    uint32_t n_blocks; /* 0 or 1: is there a message? */
    uint64_t id;       /* what the kind says */
    uint64_t at;       /* of the message in the sender's memory */
    uint64_t size_bytes;
};

enum note_kind {
    /* Up: answers of commands. */

    /* NOTE_HELLO - the child's extension runs. id: PROTOCOL_VERSION */
    NOTE_HELLO = 1,
    /* NOTE_COMPLETED - u8 0, str: the completed configuration, JSON; empty: the model has no
     * auto_complete_config(); u8: COMMAND_INITIALIZE may follow. u8 1, str: why not */
    NOTE_COMPLETED,
    /* NOTE_INITIALIZED - u8 0, u8: the model has is_ready(). u8 1, str: why not */
    NOTE_INITIALIZED,

    /* Up: what the model says. */

    /* NOTE_RESPONSE - by a response sender. id: the request's key. u32 flags
     * (TRITONSERVER_RESPONSE_COMPLETE_FINAL), response (RESPONSE_NONE: the flags alone) */
    NOTE_RESPONSE,
    /* NOTE_LOG - u8 level (TRITONSERVER_LogLevel), str file, u32 line, str text */
    NOTE_LOG,
    /* NOTE_DROP_REQUEST - no more comes for a request that execute() did not answer: it and its
     * sender are garbage, and no final response was sent. If it was not rescheduled, that is an
     * error. id: its key */
    NOTE_DROP_REQUEST,

    /* Up: questions. id: chosen by the child, unique among what is under way. Each gets one
     * NOTE_REPLY, but NOTE_CALL, see there. */

    /* NOTE_IS_CANCELLED - u64: the request's key. Reply: u8 */
    NOTE_IS_CANCELLED,
    /* NOTE_CALL - a request to a model. str model, i64 version, u64 parent (key, or 0), u8
     * decoupled, u32 slot (from 1; 0: none), request. Gets NOTE_CALL_RESPONSE each, the last with
     * CALL_LAST; the message of the first one goes into the slot, without a note */
    NOTE_CALL,
    /* NOTE_CALL_CANCEL - id: of the call. Gets nothing; the call ends as cancelled calls do */
    NOTE_CALL_CANCEL,
    /* NOTE_LOAD_MODEL - str name, u32 n, n × (str file or "config", bytes). Reply: nothing */
    NOTE_LOAD_MODEL,
    /* NOTE_UNLOAD_MODEL - str name, u8 unload_dependents. Reply: nothing */
    NOTE_UNLOAD_MODEL,
    /* NOTE_IS_MODEL_READY - str name, str version (empty: any). Reply: u8 */
    NOTE_IS_MODEL_READY,
    /* NOTE_FAMILY_NEW - str name, str description, u8 kind (TRITONSERVER_MetricKind). Reply: u64
     * family */
    NOTE_FAMILY_NEW,
    /* NOTE_FAMILY_DELETE - u64 family. Reply: nothing */
    NOTE_FAMILY_DELETE,
    /* NOTE_METRIC_NEW - u64 family, u32 n, n × (str label, str value), u32 n, n × f64 bucket.
     * Reply: u64 metric */
    NOTE_METRIC_NEW,
    /* NOTE_METRIC_DELETE - u64 metric. Reply: nothing */
    NOTE_METRIC_DELETE,
    /* NOTE_METRIC_INCREMENT, _SET, _OBSERVE - u64 metric, f64. Reply: nothing */
    NOTE_METRIC_INCREMENT,
    NOTE_METRIC_SET,
    NOTE_METRIC_OBSERVE,
    /* NOTE_METRIC_VALUE - u64 metric. Reply: f64 */
    NOTE_METRIC_VALUE,

    /* Down. */

    /* NOTE_REPLY - id: the question's. u8 0, the reply's fields. u8 1, u32 code, str: an error */
    NOTE_REPLY = 100,
    /* NOTE_CALL_RESPONSE - id: the call's. u32 flags (CALL_LAST), response; RESPONSE_NONE: the
     * flags alone */
    NOTE_CALL_RESPONSE,
    /* NOTE_IS_READY - call is_ready(), on a thread of its own. id: chosen by the server. Answer up:
     * NOTE_READINESS with this id */
    NOTE_IS_READY,

    /* Up. NOTE_READINESS - id: the question's. u8 0, u8 ready. u8 1, str: is_ready() raised */
    NOTE_READINESS = 200,
};

#define CALL_LAST 1u

/*
 * request, in COMMAND_EXECUTE and NOTE_CALL:
 *   str id
 *   u8 correlation: 0 none, 1 a number, 2 a text; u64 or str follows, nothing behind 0
 *   u32 flags, u64 timeout_us, u64 priority
 *   str parameters   JSON object of bools, whole numbers, floats and strings; may be empty
 *   str trace        context of the trace, JSON; may be empty
 *   u8 memory type and u64 memory type id that the caller prefers for outputs; of NOTE_CALL only
 *   u32 n, n × str   requested outputs
 *   u32 n, n × tensor
 *
 * response:
 *   u8 kind
 *     RESPONSE_NONE    u32 release flags (TRITONSERVER_REQUEST_RELEASE_RESCHEDULE: reschedule)
 *     RESPONSE_ERROR   u32 code (TRITONSERVER_Error_Code), str
 *     RESPONSE_TENSORS str parameters (as above), u32 n, n × tensor
 *
 * tensor:
 *   str name, u32 type (TRITONSERVER_DataType), u32 rank, rank × i64, u64 size_bytes, u64 at,
 *   u64 block. Its bytes lie at `at` of the sender's memory, which is a multiple of 64. block: the
 *   block of its own that the receiver gives back when it needs the tensor no more; 0: the tensor
 *   lies in the message's block, or (up) in one that the child keeps until the message is given
 *   back. BYTES: as in Triton, each element's length (u32) in front of its bytes.
 */
enum response_kind { RESPONSE_NONE = 0, RESPONSE_ERROR = 1, RESPONSE_TENSORS = 2 };

#ifdef __cplusplus
}
#endif
#endif
