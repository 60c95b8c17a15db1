/* SPDX-License-Identifier: Apache-2.0 */
/* reply - see reply.h. */
#include "python/reply.h"

static void say_or_condemn(struct child *c, uint64_t id, channel_pack_fn *pack, const void *arg)
{
    if (!channel_say(&c->channel, NOTE_REPLY, id, pack, arg))
        child_condemn(c, "does not read what is sent to it, or its memory is full");
}

static void pack_nothing(struct packer *p, const void *arg)
{
    (void)arg;
    pack_u8(p, 0);
}

static void pack_flag(struct packer *p, const void *arg)
{
    pack_u8(p, 0);
    pack_u8(p, *(const bool *)arg);
}

static void pack_whole(struct packer *p, const void *arg)
{
    pack_u8(p, 0);
    pack_u64(p, *(const uint64_t *)arg);
}

static void pack_float(struct packer *p, const void *arg)
{
    pack_u8(p, 0);
    pack_f64(p, *(const double *)arg);
}

static void pack_error(struct packer *p, const void *arg)
{
    TRITONSERVER_Error *err = (TRITONSERVER_Error *)(uintptr_t)arg;

    pack_u8(p, 1);
    pack_u32(p, TRITONSERVER_ErrorCode(err));
    pack_text(p, TRITONSERVER_ErrorMessage(err));
}

void reply_nothing(struct child *c, uint64_t id)
{
    say_or_condemn(c, id, pack_nothing, NULL);
}

void reply_flag(struct child *c, uint64_t id, bool flag)
{
    say_or_condemn(c, id, pack_flag, &flag);
}

void reply_u64(struct child *c, uint64_t id, uint64_t number)
{
    say_or_condemn(c, id, pack_whole, &number);
}

void reply_f64(struct child *c, uint64_t id, double number)
{
    say_or_condemn(c, id, pack_float, &number);
}

void reply_error(struct child *c, uint64_t id, TRITONSERVER_Error *err)
{
    say_or_condemn(c, id, pack_error, err);
    TRITONSERVER_ErrorDelete(err);
}
