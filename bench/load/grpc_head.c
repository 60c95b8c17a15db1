/* SPDX-License-Identifier: Apache-2.0 */
#include "grpc_head.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "tally.h"

/* RFC 7541: the static table's names, and the first index of the dynamic table. */
enum {
    METHOD_POST = 3,
    PATH = 4,
    SCHEME_HTTP = 6,
    AUTHORITY = 1,
    CONTENT_TYPE = 31,
    USER_AGENT = 58,
    DYNAMIC = 62,
    INDEXED = 0x80,
    ADDED = 0x40,
};

/* The fields that go into the table, in this order; index 0: a name of its own. */
static const struct {
    uint8_t index;
    const char *name, *value; /* value NULL: the path */
} fields[] = {
    {PATH, NULL, NULL},
    {AUTHORITY, NULL, "localhost"},
    {0, "te", "trailers"},
    {CONTENT_TYPE, NULL, "application/grpc"},
    {USER_AGENT, NULL, "grpc-c/29.0.0 (linux; bench)"},
    {0, "grpc-accept-encoding", "identity, deflate, gzip"},
};

enum { N_FIELDS = sizeof(fields) / sizeof(fields[0]) };

static size_t put_text(char *at, const char *text)
{
    size_t n = strlen(text);

    if (n > 126)
        tally_die("the path is too long: %s", text);
    at[0] = (char)n;
    memcpy(at + 1, text, n);
    return 1 + n;
}

static size_t put_static(char *at)
{
    at[0] = (char)(INDEXED | METHOD_POST);
    at[1] = (char)(INDEXED | SCHEME_HTTP);
    return 2;
}

size_t grpc_head_first(const char *path, char at[GRPC_HEAD_BYTES])
{
    size_t n = put_static(at);

    for (size_t i = 0; i < N_FIELDS; i++) {
        at[n++] = (char)(ADDED | fields[i].index);
        if (fields[i].index == 0)
            n += put_text(at + n, fields[i].name);
        n += put_text(at + n, fields[i].value ? fields[i].value : path);
    }
    return n;
}

size_t grpc_head_again(char at[GRPC_HEAD_BYTES])
{
    size_t n = put_static(at);

    for (size_t i = 0; i < N_FIELDS; i++) /* the newest field has the first index */
        at[n++] = (char)(INDEXED | (DYNAMIC + (N_FIELDS - 1 - i)));
    return n;
}

void grpc_head_reader_init(struct grpc_head_reader *r)
{
    memset(r, 0, sizeof(*r));
    if (nghttp2_hd_inflate_new(&r->inflater) != 0)
        tally_die("out of memory");
}

static bool is_indices_only(const uint8_t *bytes, size_t n_bytes)
{
    bool is = n_bytes <= GRPC_HEAD_KNOWN_BYTES;

    /* An index from 127 on takes further bytes, which do not have the bit. */
    for (size_t i = 0; i < n_bytes && is; i++)
        is = bytes[i] & INDEXED && bytes[i] != 0xff;
    return is;
}

static void take_field(struct grpc_head_reader *r, const nghttp2_nv *nv, struct grpc_head *head)
{
    size_t n = nv->valuelen;

    if (nv->namelen == 7 && memcmp(nv->name, ":status", 7) == 0)
        head->http_status = atoi((const char *)nv->value);
    else if (nv->namelen == 11 && memcmp(nv->name, "grpc-status", 11) == 0)
        head->grpc_status = atoi((const char *)nv->value);
    if (nv->namelen != 12 || memcmp(nv->name, "grpc-message", 12) != 0)
        return;
    n = n < sizeof(r->message) ? n : sizeof(r->message) - 1;
    memcpy(r->message, nv->value, n);
    r->message[n] = '\0';
}

static struct grpc_head inflate_head(struct grpc_head_reader *r, const uint8_t *bytes,
                                     size_t n_bytes)
{
    struct grpc_head head = {-1, -1};
    int flags = 0;

    r->message[0] = '\0';
    while (!(flags & NGHTTP2_HD_INFLATE_FINAL)) {
        nghttp2_nv nv;
        ssize_t n = nghttp2_hd_inflate_hd2(r->inflater, &nv, &flags, bytes, n_bytes, 1);

        if (n < 0)
            tally_die("a head that is not HPACK: %s", nghttp2_strerror((int)n));
        bytes += n;
        n_bytes -= (size_t)n;
        if (flags & NGHTTP2_HD_INFLATE_EMIT)
            take_field(r, &nv, &head);
    }
    nghttp2_hd_inflate_end_headers(r->inflater);
    return head;
}

struct grpc_head grpc_head_read(struct grpc_head_reader *r, const uint8_t *bytes, size_t n_bytes)
{
    struct grpc_head head;

    for (int i = 0; i < GRPC_HEAD_KNOWN; i++) {
        if (r->known[i].n_bytes == n_bytes && memcmp(r->known[i].bytes, bytes, n_bytes) == 0)
            return r->known[i].head;
    }
    head = inflate_head(r, bytes, n_bytes);
    if (!is_indices_only(bytes, n_bytes)) { /* perhaps the table has changed */
        for (int i = 0; i < GRPC_HEAD_KNOWN; i++)
            r->known[i].n_bytes = 0;
        return head;
    }
    unsigned int i = r->next_known++ % GRPC_HEAD_KNOWN;
    memcpy(r->known[i].bytes, bytes, n_bytes);
    r->known[i].n_bytes = n_bytes;
    r->known[i].head = head;
    return head;
}
