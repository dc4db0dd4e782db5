// SPDX-License-Identifier: MIT
#include "png/cpu/gather.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "png/chunk.h"
#include "png/cpu/crc.h"

#define LEAST_FILE ((size_t)4 << 20)    // bytes: smaller files are checked within 1 ms
#define GROUP_BYTES ((size_t)512 << 10) // of the file, at least

struct conv_gather_group {
    const uint8_t *from, *to; // data of the first chunk, end of the last one's
    size_t at;                // of its bytes in the joined data
};

struct work {
    const struct conv_gather *gather;
    uint8_t *joined; // NULL: the data stays where it is
    atomic_size_t next;
    atomic_bool bad;
};

bool conv_gather_start(struct conv_gather *gather, size_t file_size)
{
    *gather = (struct conv_gather){0};
    if (file_size < LEAST_FILE)
        return false;
    // Each but the last has GROUP_BYTES.
    gather->groups = calloc(file_size / GROUP_BYTES + 1, sizeof *gather->groups);
    return gather->groups;
}

void conv_gather_add(struct conv_gather *gather, const uint8_t *data, size_t size)
{
    struct conv_gather_group *last = gather->groups + gather->count - (gather->count > 0);
    if (gather->count == 0 || (size_t)(last->to - last->from) >= GROUP_BYTES) {
        last = gather->groups + gather->count++;
        *last = (struct conv_gather_group){.from = data, .at = gather->size};
    }
    last->to = data + size;
    if (gather->chunks++ == 0)
        gather->data = data;
    gather->size += size;
}

// `at` is the data of a chunk.
static bool is_right(const uint8_t *at, size_t size)
{
    return conv_png_crc(0, at - 4, size + 4) == conv_chunk_read_u32(at + size);
}

static bool do_group(const struct work *work, const struct conv_gather_group *group)
{
    uint8_t *to = work->joined ? work->joined + group->at : NULL;
    for (const uint8_t *at = group->from;;) {
        size_t size = conv_chunk_read_u32(at - 8);
        if (!is_right(at, size))
            return false;
        if (to) {
            memcpy(to, at, size);
            to += size;
        }
        if (at + size == group->to)
            return true;
        at += size + CONV_CHUNK_FRAME;
    }
}

static void work_on(void *context)
{
    struct work *work = context;
    const struct conv_gather *gather = work->gather;
    for (;;) {
        size_t i = atomic_fetch_add(&work->next, 1);
        if (i >= gather->count || atomic_load(&work->bad))
            return;
        if (!do_group(work, &gather->groups[i]))
            atomic_store(&work->bad, true);
    }
}

bool conv_gather_end(struct conv_gather *gather, bool wanted, struct conv_buffer *joined,
                     struct conv_parallel *parallel)
{
    struct work work = {.gather = gather};
    bool good = wanted;
    if (good && gather->chunks > 1) {
        joined->size = 0; // the last image's
        good = conv_buffer_reserve(joined, gather->size);
        work.joined = joined->data;
    }
    if (good) {
        conv_parallel_run(gather->count > 1 ? parallel : NULL, 0, work_on, &work);
        good = !atomic_load(&work.bad);
    }
    if (good && work.joined) {
        gather->data = joined->data;
        joined->size = gather->size;
    }
    free(gather->groups);
    gather->groups = NULL;
    return good;
}
