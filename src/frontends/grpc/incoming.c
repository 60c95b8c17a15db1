/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A message on its way into a block:
 *
 *      prefix ──► 64 KiB ──► 1 MiB ──(turn)──► its whole length
 *
 * Half of the bytes of each step have come before the next step gets memory, so that an announced
 * length costs nothing. Mostly that half comes in one read: then the message begins with the second
 * step, and no byte is copied twice. The last step moves no byte: blocks from 1 MiB on are mappings
 * that grow (base/pool.h). Bytes that came before the turn count as taken only with the turn. So a
 * client whose message waits sends no more than its window. Thread: the loop's.
 */
#include "frontends/grpc/incoming.h"

#include <string.h>

#include "base/mem.h"
#include "base/pbwire.h"
#include "base/pool.h"
#include "base/status.h"
#include "frontends/net/http2.h"

void incoming_init(struct incoming *in, struct http2_stream *stream, struct pool *pool,
                   size_t max_bytes, bool has_tensors)
{
    /* The window has room for the prefix, too. */
    size_t window = MAX(http2_stream_window(stream), (size_t)2 * INCOMING_PREFIX_BYTES);
    *in = (struct incoming){
        .stream = stream, .pool = pool, .max_bytes = max_bytes, .has_tensors = has_tensors};
    in->unasked_bytes = MIN((size_t)INCOMING_UNASKED_BYTES, window - INCOMING_PREFIX_BYTES);
    in->first_bytes = (uint32_t)MIN((size_t)INCOMING_FIRST_BYTES, in->unasked_bytes / 2);
}

static struct net_counts *message_counts(const struct incoming *in)
{
    return &http2_stream_env(in->stream)->net.counts;
}

/* Tells the stream what the client has begun and must complete. Most messages come at once. */
static void tell_stream(struct incoming *in)
{
    bool is_incomplete = incoming_is_within(in);
    size_t n_bytes = in->block ? in->room : 0;
    if (UNLIKELY(is_incomplete != in->told_incomplete)) {
        in->told_incomplete = is_incomplete;
        http2_stream_set_incomplete(in->stream, is_incomplete);
    }
    if (UNLIKELY(n_bytes != in->told_bytes)) {
        in->told_bytes = n_bytes;
        http2_stream_weigh(in->stream, n_bytes);
    }
}

void incoming_done(struct incoming *in)
{
    pool_release(TAKE(in->block));
    in->n_prefix = 0;
    tell_stream(in);
}

/* ---- Memory --------------------------------------------------------------------------------- */

/*
 * Finds where the first raw tensor begins in a ModelInferRequest; 0: not within these first bytes.
 * The fields before that tensor are names, shapes and parameters.
 */
static size_t find_first_tensor(const char *bytes, size_t n_bytes)
{
    enum { RAW_INPUT_CONTENTS = 7 };
    const char *at = bytes, *end = bytes + n_bytes;
    while (at < end) {
        struct pbwire in = pbwire_of(at, (size_t)(end - at));
        uint64_t tag, length;
        if (!pbwire_varint(&in, &tag) || (tag & 7) != PBWIRE_BYTES || !pbwire_varint(&in, &length))
            return 0;
        if (tag >> 3 == RAW_INPUT_CONTENTS)
            return (size_t)(in.at - bytes);
        if (length > (uint64_t)(end - in.at))
            return 0;
        at = in.at + length;
    }
    return 0;
}

/* Chooses the free bytes in front of the message that align its first tensor. */
static uint8_t choose_shift(const struct incoming *in, const char *bytes, size_t n_bytes)
{
    if (!in->has_tensors || in->compressed)
        return 0;
    size_t offset = find_first_tensor(bytes, n_bytes);
    return (uint8_t)((MEM_ALIGNMENT - offset % MEM_ALIGNMENT) % MEM_ALIGNMENT);
}

static bool enlarge_block(struct incoming *in, size_t wanted)
{
    char *grown = NULL;
    if (in->block && wanted <= in->room)
        return false;
    if (in->block)
        grown = pool_grow(in->block, wanted);
    if (!grown) {
        grown = pool_alloc(in->pool, wanted, NULL);
        if (!grown)
            return false;
        if (in->n_come)
            memcpy(grown + in->shift, in->block + in->shift, in->n_come);
        pool_release(in->block);
    }
    in->block = grown;
    in->room = wanted;
    return true;
}

/* Whether much has come of a long message, with these n_bytes and those that HTTP/2 has at hand. */
static bool has_much(const struct incoming *in, size_t n_bytes)
{
    return in->n_bytes > INCOMING_FIRST_BYTES &&
           in->n_come + n_bytes + http2_stream_at_hand(in->stream) >= INCOMING_MUCH_BYTES;
}

/*
 * Makes room for more of the message, up to the bytes that may come unasked. What lies in the first
 * block is copied into the next. False: no memory.
 */
static bool make_message_room(struct incoming *in, const char *bytes, size_t n_bytes)
{
    size_t step = has_much(in, n_bytes) ? INCOMING_UNASKED_BYTES : INCOMING_FIRST_BYTES;
    if (!in->block)
        in->shift = choose_shift(in, bytes, n_bytes);
    return enlarge_block(in, in->shift + MIN(in->n_bytes, step));
}

/* Whether the message needs more room for these bytes, or had better have it now. */
static bool lacks_room(const struct incoming *in, size_t n_bytes)
{
    size_t room = in->room > in->shift ? in->room - in->shift : 0;
    return in->n_come == room || UNLIKELY(room == INCOMING_FIRST_BYTES && has_much(in, n_bytes));
}

bool incoming_on_turn(struct incoming *in)
{
    if (in->room < in->shift + in->n_bytes && !enlarge_block(in, in->shift + in->n_bytes))
        return false;
    in->waits = false;
    in->has_turn = true;
    http2_stream_take(in->stream, in->n_held);
    in->n_held = 0;
    in->n_expected = in->n_bytes - in->n_come;
    http2_stream_expect(in->stream, in->n_expected);
    tell_stream(in);
    return true;
}

/* ---- Bytes ---------------------------------------------------------------------------------- */

/* Begins a message whose prefix is complete. */
static struct status *begin_message(struct incoming *in)
{
    const unsigned char *p = in->prefix;
    in->n_bytes = (size_t)p[1] << 24 | (size_t)p[2] << 16 | (size_t)p[3] << 8 | p[4];
    in->n_come = in->room = in->n_held = in->n_expected = 0;
    in->compressed = p[0] == 1;
    in->waits = in->has_turn = false;
    if (p[0] > 1)
        return status_new(STATUS_INTERNAL, "invalid gRPC frame type %u", (unsigned int)p[0]);
    if (in->n_bytes > in->max_bytes) {
        net_count(message_counts(in), NET_REFUSED_BODY, 1);
        return status_new(STATUS_EXHAUSTED, "Received message larger than max (%zu vs. %zu)",
                          in->n_bytes, in->max_bytes);
    }
    return NULL;
}

static struct status *add_to_prefix(struct incoming *in, const char **at, const char *end)
{
    size_t n = MIN((size_t)(end - *at), (size_t)(INCOMING_PREFIX_BYTES - in->n_prefix));
    memcpy(in->prefix + in->n_prefix, *at, n);
    in->n_prefix = (uint8_t)(in->n_prefix + n);
    *at += n;
    http2_stream_take(in->stream, n);
    return in->n_prefix == INCOMING_PREFIX_BYTES ? begin_message(in) : NULL;
}

/*
 * Counts bytes as taken. Bytes that the turn has granted were taken when they came. Earlier bytes
 * of a long message count only with its turn, when there is memory for the whole message.
 */
static void count_taken(struct incoming *in, size_t n)
{
    size_t expected = MIN(n, in->n_expected), unexpected = n - expected;
    in->n_expected -= expected;
    if (in->n_bytes <= in->unasked_bytes)
        http2_stream_take(in->stream, unexpected);
    else
        in->n_held += unexpected;
}

static struct status *add_to_message(struct incoming *in, const char **at, const char *end)
{
    while (*at < end && in->n_come < in->n_bytes) {
        if (lacks_room(in, (size_t)(end - *at)) &&
            !make_message_room(in, *at, (size_t)(end - *at))) {
            net_count(message_counts(in), NET_REFUSED_MEMORY, 1);
            return status_new(STATUS_EXHAUSTED, "no memory for a message of %zu bytes",
                              in->n_bytes);
        }
        size_t n = MIN((size_t)(end - *at), in->room - in->shift - in->n_come);
        n = MIN(n, in->n_bytes - in->n_come);
        memcpy(in->block + in->shift + in->n_come, *at, n);
        in->n_come += n;
        *at += n;
    }
    return NULL;
}

/* Asks for the turn of a long message once its first 64 KiB have come. */
static void ask_for_turn(struct incoming *in)
{
    if (in->waits || in->n_bytes <= in->unasked_bytes || in->n_come < in->first_bytes ||
        in->has_turn)
        return;
    in->waits = true;
    http2_stream_await_turn(in->stream);
}

struct status *incoming_add(struct incoming *in, const char *bytes, size_t n_bytes,
                            size_t *ret_used, bool *ret_complete,
                            struct incoming_message *ret_message)
{
    const char *at = bytes, *end = bytes + n_bytes;
    struct status *st = NULL;
    *ret_complete = false;
    if (in->n_prefix < INCOMING_PREFIX_BYTES)
        st = add_to_prefix(in, &at, end);
    if (!st && in->n_prefix == INCOMING_PREFIX_BYTES) {
        const char *from = at;
        st = add_to_message(in, &at, end);
        count_taken(in, (size_t)(at - from));
        if (!st && in->n_come == in->n_bytes) {
            *ret_message = (struct incoming_message){
                .block = in->block,
                .bytes = in->block ? in->block + in->shift : "",
                .n_bytes = in->n_bytes,
                .compressed = in->compressed,
            };
            in->block = NULL;
            in->n_prefix = 0;
            *ret_complete = true;
        } else if (!st) {
            ask_for_turn(in);
        }
    }
    tell_stream(in);
    *ret_used = (size_t)(at - bytes);
    return st;
}
