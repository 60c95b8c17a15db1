/* SPDX-License-Identifier: Apache-2.0 */
#include "grpc_conn.h"

#include <errno.h>
#include <string.h>

#include "tally.h"

enum frame_type {
    DATA,
    HEADERS,
    PRIORITY,
    RST_STREAM,
    SETTINGS,
    PUSH,
    PING,
    GOAWAY,
    WINDOW_UPDATE
};

enum {
    FLAG_END_STREAM = 1,
    FLAG_ACK = 1,
    FLAG_END_HEADERS = 4,
    FLAG_PADDED = 8,
    FLAG_PRIORITY = 0x20,
    SETTING_WINDOW = 4,
    SETTING_FRAME = 5,
    FIRST_WINDOW = 65535, /* RFC 9113, 6.9.2 */
    FIRST_FRAME = 16384,
    OUR_WINDOW = 1 << 30,
    COPIED_BYTES = 1024, /* pieces up to this size are copied together */
};

static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

static uint32_t get_u32(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static void put_u32(char *at, uint32_t n)
{
    for (int i = 0; i < 4; i++)
        at[i] = (char)(n >> (24 - 8 * i));
}

static void put_frame_head(char *at, size_t length, uint8_t type, uint8_t flags, uint32_t id)
{
    at[0] = (char)(length >> 16);
    at[1] = (char)(length >> 8);
    at[2] = (char)length;
    at[3] = (char)type;
    at[4] = (char)flags;
    put_u32(at + 5, id);
}

/* ---- Sending -------------------------------------------------------------------------------- */

static void add_control(struct grpc_conn *c, uint8_t type, uint8_t flags, uint32_t id,
                        const void *payload, size_t n_payload)
{
    if (c->n_control + GRPC_FRAME_HEAD + n_payload > sizeof(c->control))
        tally_die("the server floods with frames to acknowledge");
    put_frame_head(c->control + c->n_control, n_payload, type, flags, id);
    c->n_control += GRPC_FRAME_HEAD;
    if (n_payload)
        memcpy(c->control + c->n_control, payload, n_payload);
    c->n_control += n_payload;
    c->needs_flush = true;
}

static void add_window(struct grpc_conn *c, uint32_t id, uint32_t more)
{
    char payload[4];

    put_u32(payload, more);
    add_control(c, WINDOW_UPDATE, 0, id, payload, sizeof(payload));
}

static void stage_piece(struct grpc_conn *c, const void *bytes, size_t n_bytes)
{
    struct iovec *last = &c->staged[c->n_staged - 1];

    if (c->n_staged > 0 && (char *)last->iov_base + last->iov_len == (const char *)bytes)
        last->iov_len += n_bytes;
    else
        c->staged[c->n_staged++] = (struct iovec){(void *)(uintptr_t)bytes, n_bytes};
}

static char *stage_text(struct grpc_conn *c, size_t n_bytes)
{
    char *at = c->text + c->n_text;

    c->n_text += n_bytes;
    stage_piece(c, at, n_bytes);
    return at;
}

static bool has_stage_room(const struct grpc_conn *c)
{
    return c->n_staged + 4 <= GRPC_STAGED &&
           c->n_text + 2 * GRPC_FRAME_HEAD + GRPC_HEAD_BYTES + COPIED_BYTES <= GRPC_STAGED_TEXT;
}

static void stage_head(struct grpc_conn *c, struct grpc_call *call)
{
    char first[GRPC_HEAD_BYTES];
    const char *head = c->again;
    size_t n = c->n_again;

    if (!c->has_begun) {
        n = grpc_head_first(c->plan->path, first);
        head = first;
        c->has_begun = true;
    }
    call->id = c->next_id;
    c->next_id += 2;
    call->window = c->first_window;
    c->slot_of[call->id / 2 % 1024] = (uint16_t)(call - c->calls);
    char *at = stage_text(c, GRPC_FRAME_HEAD + n);
    put_frame_head(at, n, HEADERS, FLAG_END_HEADERS, call->id);
    memcpy(at + GRPC_FRAME_HEAD, head, n);
}

/* Stages the next frame of the call's requests. False: a window is closed. */
static bool stage_data(struct grpc_conn *c, struct grpc_call *call)
{
    const struct grpc_plan *plan = c->plan;
    size_t n = plan->wire_bytes - call->sent;
    int64_t window = call->window < c->window ? call->window : c->window;

    if (window <= 0)
        return false;
    n = n < c->max_frame ? n : c->max_frame;
    n = n < (size_t)window ? n : (size_t)window;
    bool is_last = call->sent + n == plan->wire_bytes;
    put_frame_head(stage_text(c, GRPC_FRAME_HEAD), n, DATA,
                   is_last && !plan->streams ? FLAG_END_STREAM : 0, call->id);
    if (n <= COPIED_BYTES)
        memcpy(stage_text(c, n), plan->wire + call->sent, n);
    else
        stage_piece(c, plan->wire + call->sent, n);
    call->window -= (int64_t)n;
    c->window -= (int64_t)n;
    call->sent += n;
    if (is_last) {
        call->sent = 0;
        call->n_unsent--;
    }
    return true;
}

static void queue_call(struct grpc_conn *c, struct grpc_call *call)
{
    c->needs_flush = true;
    if (call->queued)
        return;
    call->queued = true;
    c->to_send[(c->to_send_first + c->n_to_send++) % GRPC_MAX_CALLS] = (uint16_t)(call - c->calls);
}

static void stage(struct grpc_conn *c)
{
    unsigned int n_blocked = 0;

    c->n_staged = c->first_staged = 0;
    c->n_text = 0;
    if (c->n_control > 0) {
        memcpy(stage_text(c, c->n_control), c->control, c->n_control);
        c->n_control = 0;
    }
    while (c->n_to_send > n_blocked && has_stage_room(c)) {
        struct grpc_call *call = &c->calls[c->to_send[c->to_send_first]];
        bool open = true;

        if (call->id == 0)
            stage_head(c, call);
        while (open && call->n_unsent > 0 && has_stage_room(c))
            open = stage_data(c, call);
        if (open && call->n_unsent > 0)
            return; /* the stage is full */
        c->to_send_first = (c->to_send_first + 1) % GRPC_MAX_CALLS;
        c->n_to_send--;
        call->queued = false;
        if (!open) {
            queue_call(c, call);
            n_blocked++;
        }
    }
}

/* Removes n_bytes from the front of what is staged. */
static void drop_staged(struct grpc_conn *c, size_t n_bytes)
{
    while (c->first_staged < c->n_staged) {
        struct iovec *v = &c->staged[c->first_staged];

        if (n_bytes < v->iov_len) {
            v->iov_base = (char *)v->iov_base + n_bytes;
            v->iov_len -= n_bytes;
            return;
        }
        n_bytes -= v->iov_len;
        c->first_staged++;
    }
}

void grpc_conn_flush(struct grpc_conn *c)
{
    for (;;) {
        if (c->first_staged == c->n_staged)
            stage(c);
        if (c->n_staged == 0)
            break;
        ssize_t n =
            channel_send(&c->channel, c->staged + c->first_staged, c->n_staged - c->first_staged);
        if (n < 0 && errno == EAGAIN)
            return; /* readiness to write calls again */
        if (n < 0)
            tally_die("writev: %s", strerror(errno));
        drop_staged(c, (size_t)n);
    }
    c->needs_flush = false;
}

void grpc_conn_open(struct grpc_conn *c, const struct grpc_plan *plan, void *owner,
                    const struct sockaddr_in *to, bool tls)
{
    char settings[12] = {0, SETTING_WINDOW, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0}; /* no push */

    memset(c, 0, sizeof(*c));
    c->plan = plan;
    c->owner = owner;
    c->next_id = 1;
    c->window = c->first_window = FIRST_WINDOW;
    c->max_frame = FIRST_FRAME;
    c->n_again = grpc_head_again(c->again);
    grpc_head_reader_init(&c->heads);
    channel_open(&c->channel, to, tls ? "h2" : NULL);
    memcpy(c->control, preface, sizeof(preface) - 1);
    c->n_control = sizeof(preface) - 1;
    put_u32(settings + 2, OUR_WINDOW);
    add_control(c, SETTINGS, 0, 0, settings, sizeof(settings));
    add_window(c, 0, OUR_WINDOW - FIRST_WINDOW);
}

bool grpc_conn_is_free(const struct grpc_conn *c, unsigned int call, unsigned int max)
{
    return c->calls[call].n_begun - c->calls[call].n_done < max;
}

void grpc_conn_ask(struct grpc_conn *c, unsigned int number, uint64_t now_ns)
{
    struct grpc_call *call = &c->calls[number];

    call->begun_ns[call->n_begun++ % GRPC_MAX_REQUESTS] = now_ns;
    call->n_unsent++;
    queue_call(c, call);
}

/* ---- Receiving ------------------------------------------------------------------------------ */

static struct grpc_call *find_call(struct grpc_conn *c, uint32_t id)
{
    struct grpc_call *call = &c->calls[c->slot_of[id / 2 % 1024]];

    if (call->id == id)
        return call;
    for (unsigned int i = 0; i < c->plan->n_calls; i++) {
        if (c->calls[i].id == id)
            return &c->calls[i];
    }
    return NULL; /* a call that has ended */
}

static void end_request(struct grpc_conn *c, struct grpc_call *call, bool fine)
{
    uint64_t begun_ns = call->begun_ns[call->n_done++ % GRPC_MAX_REQUESTS];

    call->n_messages = 0;
    c->plan->answered(c, begun_ns, fine);
}

static void end_message(struct grpc_conn *c, struct grpc_call *call)
{
    call->n_prefix = 0;
    call->n_messages++;
    c->plan->got_message(c, call->length);
    if (c->plan->streams && call->n_messages == c->plan->n_answers) {
        if (call->n_done == call->n_begun)
            tally_die("an answer to no request");
        end_request(c, call, true);
    }
}

static void take_data(struct grpc_conn *c, struct grpc_call *call, const uint8_t *bytes,
                      size_t n_bytes)
{
    while (n_bytes > 0) {
        size_t n;

        if (call->n_prefix < GRPC_PREFIX_BYTES) {
            call->prefix[call->n_prefix++] = *bytes++;
            n_bytes--;
            if (call->n_prefix < GRPC_PREFIX_BYTES)
                continue;
            call->length = get_u32(call->prefix + 1);
            call->at = 0;
        }
        n = call->length - call->at < n_bytes ? call->length - call->at : n_bytes;
        if (n > 0)
            c->plan->got(c, call->at, (const char *)bytes, n);
        call->at += n;
        bytes += n;
        n_bytes -= n;
        if (call->at == call->length)
            end_message(c, call);
    }
}

static void end_call(struct grpc_conn *c, struct grpc_call *call, const struct grpc_head *trailers)
{
    bool fine = trailers && trailers->grpc_status == 0 && call->n_messages == 1;

    if (c->plan->streams)
        tally_die("the server ended a stream with status %d: %s",
                  trailers ? trailers->grpc_status : -1, c->heads.message);
    if (!fine)
        tally_die("a call ended with status %d and %u messages: %s",
                  trailers ? trailers->grpc_status : -1, call->n_messages, c->heads.message);
    call->id = 0;
    call->n_prefix = 0;
    if (call->n_unsent > 0)
        tally_die("a call was answered before it was sent");
    end_request(c, call, fine);
}

static void take_headers(struct grpc_conn *c, uint32_t id, uint8_t flags, const uint8_t *bytes,
                         size_t n_bytes)
{
    struct grpc_call *call = find_call(c, id);

    if (!(flags & FLAG_END_HEADERS) || flags & (FLAG_PADDED | FLAG_PRIORITY))
        tally_die("HEADERS with the flags 0x%x are not for this client", flags);
    struct grpc_head head = grpc_head_read(&c->heads, bytes, n_bytes);
    if (head.http_status >= 0 && head.http_status != 200)
        tally_die("HTTP status %d", head.http_status);
    if (call && flags & FLAG_END_STREAM)
        end_call(c, call, &head);
}

static void take_settings(struct grpc_conn *c, uint8_t flags, const uint8_t *bytes, size_t n_bytes)
{
    if (flags & FLAG_ACK)
        return;
    for (size_t i = 0; i + 6 <= n_bytes; i += 6) {
        uint32_t value = get_u32(bytes + i + 2);

        if (bytes[i + 1] == SETTING_FRAME)
            c->max_frame = value;
        if (bytes[i + 1] != SETTING_WINDOW)
            continue;
        for (unsigned int n = 0; n < c->plan->n_calls; n++)
            c->calls[n].window += (int64_t)value - c->first_window;
        c->first_window = value;
    }
    add_control(c, SETTINGS, FLAG_ACK, 0, NULL, 0);
}

static void take_window(struct grpc_conn *c, uint32_t id, const uint8_t *bytes)
{
    struct grpc_call *call = id ? find_call(c, id) : NULL;

    if (id == 0)
        c->window += get_u32(bytes);
    else if (call)
        call->window += get_u32(bytes);
    c->needs_flush = true;
}

/* Handles a frame other than DATA, which is complete. */
static void take_frame(struct grpc_conn *c, const uint8_t *head, const uint8_t *bytes,
                       size_t n_bytes)
{
    uint32_t id = get_u32(head + 5);

    switch (head[3]) {
    case HEADERS:
        take_headers(c, id, head[4], bytes, n_bytes);
        break;
    case RST_STREAM:
        if (find_call(c, id))
            tally_die("the server reset a call: error %u", get_u32(bytes));
        break;
    case SETTINGS:
        take_settings(c, head[4], bytes, n_bytes);
        break;
    case PING:
        if (!(head[4] & FLAG_ACK))
            add_control(c, PING, FLAG_ACK, 0, bytes, n_bytes);
        break;
    case GOAWAY:
        tally_die("the server says GOAWAY: error %u, %.*s", get_u32(bytes + 4), (int)(n_bytes - 8),
                  bytes + 8);
    case WINDOW_UPDATE:
        take_window(c, id, bytes);
        break;
    default:
        break;
    }
}

static void end_data(struct grpc_conn *c)
{
    if (c->data_ends && c->data_call)
        end_call(c, c->data_call, NULL);
}

static void begin_data(struct grpc_conn *c, const uint8_t *head, size_t length)
{
    if (head[4] & FLAG_PADDED)
        tally_die("padded DATA is not for this client");
    c->data_call = find_call(c, get_u32(head + 5));
    c->data_left = length;
    c->data_ends = head[4] & FLAG_END_STREAM;
    c->consumed += (int64_t)length;
    if (c->consumed > OUR_WINDOW / 2) {
        add_window(c, 0, (uint32_t)c->consumed);
        c->consumed = 0;
    }
    if (length == 0)
        end_data(c);
}

static size_t get_length(const uint8_t *head)
{
    return (size_t)head[0] << 16 | (size_t)head[1] << 8 | head[2];
}

/* Handles one frame, or the head of DATA, at the front of the bytes; 0: it is not complete. */
static size_t take_one(struct grpc_conn *c, const uint8_t *bytes, size_t n_bytes)
{
    if (n_bytes < GRPC_FRAME_HEAD)
        return 0;
    size_t length = get_length(bytes);
    if (bytes[3] == DATA) {
        begin_data(c, bytes, length);
        return GRPC_FRAME_HEAD;
    }
    if (GRPC_FRAME_HEAD + length > GRPC_CARRY_BYTES)
        tally_die("a frame of %zu bytes is not for this client", length);
    if (n_bytes < GRPC_FRAME_HEAD + length)
        return 0;
    take_frame(c, bytes, bytes + GRPC_FRAME_HEAD, length);
    return GRPC_FRAME_HEAD + length;
}

/* Adds bytes to the carried frame, until that is complete. Returns the number of bytes used. */
static size_t carry_on(struct grpc_conn *c, const uint8_t *bytes, size_t n_bytes)
{
    size_t wanted = GRPC_FRAME_HEAD;
    if (c->n_carry >= GRPC_FRAME_HEAD)
        wanted += get_length(c->carry);
    size_t n = wanted - c->n_carry < n_bytes ? wanted - c->n_carry : n_bytes;
    memcpy(c->carry + c->n_carry, bytes, n);
    c->n_carry += n;
    if (c->n_carry == wanted && take_one(c, c->carry, c->n_carry) > 0)
        c->n_carry = 0;
    return n;
}

static void take_bytes(struct grpc_conn *c, const uint8_t *bytes, size_t n_bytes)
{
    while (n_bytes > 0) {
        size_t n;

        if (c->data_left > 0) {
            n = c->data_left < n_bytes ? c->data_left : n_bytes;
            if (c->data_call)
                take_data(c, c->data_call, bytes, n);
            c->data_left -= n;
            if (c->data_left == 0)
                end_data(c);
        } else {
            n = c->n_carry == 0 ? take_one(c, bytes, n_bytes) : 0;
            if (n == 0)
                n = carry_on(c, bytes, n_bytes);
        }
        bytes += n;
        n_bytes -= n;
    }
}

void grpc_conn_read(struct grpc_conn *c)
{
    for (;;) {
        ssize_t n = channel_recv(&c->channel, c->plan->scratch, GRPC_READ_BYTES);

        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0)
            tally_die("the server has closed the connection");
        take_bytes(c, (const uint8_t *)c->plan->scratch, (size_t)n);
        if (n < GRPC_READ_BYTES)
            return;
    }
}
