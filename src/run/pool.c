// SPDX-License-Identifier: MIT
#include "run/pool.h"

#include <assert.h>
#include <stdlib.h>

#include "engine/memory.h"

// --- states --------------------------------------------------------------------------------------

#define TO(state) (1u << CONV_SLOT_##state)

bool conv_slot_may_move(enum conv_slot_state from, enum conv_slot_state to)
{
    static const unsigned next[] = {
        [CONV_SLOT_FREE] = TO(OPEN),
        [CONV_SLOT_OPEN] = TO(SEALED) | TO(FREE),
        [CONV_SLOT_SEALED] = TO(READY) | TO(DRAINING) | TO(FREE),
        [CONV_SLOT_READY] = TO(RUNNING),
        [CONV_SLOT_RUNNING] = TO(READY) | TO(DRAINING), // put back by a thread that only pins it
        [CONV_SLOT_DRAINING] = TO(FREE),
    };
    return next[from] >> to & 1;
}

void conv_slot_move(struct conv_slot *slot, enum conv_slot_state state)
{
    assert(conv_slot_may_move(slot->state, state));
    slot->state = state;
}

// Bounds a group's table of planes: 16 MiB of 40 x 40 RGB images reach it.
#define MAX_PLANES 6144
#define GROW_STEP ((size_t)1 << 20)

// Where a device both decodes and encodes, a group's planes may take this many times a buffer's
// size. The planes of photographs take twice the bytes of their streams; if planes take far more, a
// group is large enough without more streams.
#define DEVICE_CODED_PLANES 3

// --- buffers -------------------------------------------------------------------------------------

void conv_pool_free_buffer(const struct conv_pool *pool, const struct conv_pool_buffer *buffer)
{
    if (!buffer->pinned_by || pool->ops->host_unpin(buffer->pinned_by, buffer->data))
        conv_staging_free(buffer->data, buffer->bytes);
}

// Detaches the buffer's memory.
static struct conv_pool_buffer take_memory(struct conv_pool *pool, struct conv_pool_buffer *buffer)
{
    struct conv_pool_buffer taken = *buffer;
    pool->used -= buffer->bytes;
    *buffer = (struct conv_pool_buffer){.busy = buffer->busy};
    return taken;
}

static void free_memory(struct conv_pool *pool, struct conv_pool_buffer *buffer)
{
    struct conv_pool_buffer taken = take_memory(pool, buffer);
    conv_pool_free_buffer(pool, &taken);
}

static enum conv_status alloc_memory(struct conv_pool *pool, struct conv_pool_buffer *buffer,
                                     size_t bytes, struct conv_err *err)
{
    void *memory = NULL;
    enum conv_status status = conv_staging_alloc(&memory, bytes, err);
    if (status)
        return status;
    buffer->data = memory;
    buffer->bytes = bytes;
    pool->used += bytes;
    return CONV_OK;
}

// Takes the smallest free buffer with `need` bytes, else the largest free one. There is always one:
// two for each slot.
static struct conv_pool_buffer *take_buffer(struct conv_pool *pool, size_t need)
{
    struct conv_pool_buffer *best = NULL;
    for (int i = 0; i < 2 * pool->count; i++) {
        struct conv_pool_buffer *buffer = &pool->buffers[i];
        if (buffer->busy)
            continue;
        size_t have = buffer->bytes, best_have = best ? best->bytes : 0;
        bool enough = have >= need, best_enough = best && best_have >= need;
        if (!best || (enough && (!best_enough || have < best_have)) ||
            (!enough && !best_enough && have > best_have))
            best = buffer;
    }
    best->busy = true;
    return best;
}

static void give_buffer(struct conv_pool_buffer **buffer)
{
    if (*buffer)
        (*buffer)->busy = false;
    *buffer = NULL;
}

// Free buffers give memory back until there is room for `more`. False if too much is in use.
static bool make_room(struct conv_pool *pool, size_t more)
{
    for (int i = 0; i < 2 * pool->count && pool->used + pool->reserved + more > pool->limit; i++)
        if (!pool->buffers[i].busy)
            free_memory(pool, &pool->buffers[i]);
    return pool->used + pool->reserved + more <= pool->limit;
}

// Bytes to allocate for `need`: an eighth more, so that a slightly larger image also fits later.
static size_t with_headroom(const struct conv_pool *pool, size_t need)
{
    return need <= pool->usual_bytes ? pool->usual_bytes
                                     : conv_image_align(need + need / 8, GROW_STEP);
}

// --- the pool ------------------------------------------------------------------------------------

enum conv_status conv_pool_open(struct conv_pool *pool, int count, int most, struct conv_err *err)
{
    size_t share = pool->limit / 2 / (size_t)count / GROW_STEP * GROW_STEP;
    pool->usual_bytes = pool->usual_bytes < share ? pool->usual_bytes : share;
    pool->usual_bytes = pool->usual_bytes < pool->keep ? pool->usual_bytes : pool->keep;
    pool->slots = calloc((size_t)most, sizeof *pool->slots);
    pool->buffers = calloc(2 * (size_t)most, sizeof *pool->buffers);
    if (!pool->slots || !pool->buffers)
        return conv_err_memory(err, "no memory for %d groups", most);
    pool->count = most;
    return conv_pool_add_slots(pool, count) == count
               ? CONV_OK
               : conv_err_memory(err, "no memory for %d groups", count);
}

static bool make_tables(const struct conv_pool *pool, struct conv_group *group)
{
    group->plane_capacity = MAX_PLANES;
    group->planes = malloc(MAX_PLANES * sizeof *group->planes);
    group->image_capacity = pool->codes ? MAX_PLANES : 0;
    group->images = pool->codes ? malloc(MAX_PLANES * sizeof *group->images) : NULL;
    return group->planes && (!pool->codes || group->images);
}

// Makes tables for the first `count` slots, or for as many as there is memory for.
static void make_slots(struct conv_pool *pool, int count)
{
    for (; pool->made < count && pool->made < pool->count; pool->made++) {
        struct conv_group *group = &pool->slots[pool->made].group;
        if (!make_tables(pool, group)) {
            free(group->planes);
            group->planes = NULL;
            return;
        }
    }
}

int conv_pool_add_slots(struct conv_pool *pool, int more)
{
    make_slots(pool, pool->usable + more);
    int room = pool->made - pool->usable;
    more = more < room ? more : room;
    pool->usable += more;
    return more;
}

void conv_pool_take_back_slots(struct conv_pool *pool, int count)
{
    assert(count <= pool->usable);
    pool->usable -= count;
}

void conv_pool_close(struct conv_pool *pool)
{
    for (int i = 0; i < 2 * pool->count; i++)
        free_memory(pool, &pool->buffers[i]);
    for (int i = 0; i < pool->count; i++) {
        free(pool->slots[i].group.planes);
        free(pool->slots[i].group.images);
    }
    free(pool->slots);
    free(pool->buffers);
    *pool = (struct conv_pool){0};
}

// --- slots ---------------------------------------------------------------------------------------

// NULL if as many slots are in use as may be.
static struct conv_slot *find_free(const struct conv_pool *pool, bool *busy)
{
    struct conv_slot *slot = NULL;
    int used = 0;
    for (int i = 0; i < pool->made; i++) {
        if (pool->slots[i].state == CONV_SLOT_FREE)
            slot = &pool->slots[i];
        else
            used++;
    }
    *busy = used > 0;
    return used < pool->usable ? slot : NULL;
}

// Bytes that the two sides take at least, now or later.
static size_t least(const struct conv_pool_need *need)
{
    return need->room.in + need->room.planes;
}

bool conv_pool_is_too_much(const struct conv_pool *pool, const struct conv_pool_need *need)
{
    return least(need) > pool->limit;
}

// Makes the slot's buffers at least `in` and `out` bytes large. *waits: other slots hold the memory
// that is missing for that and for `extra` further bytes.
static enum conv_status fill(struct conv_pool *pool, const struct conv_slot *slot, size_t in,
                             size_t out, size_t extra, bool *waits, struct conv_err *err)
{
    struct conv_pool_buffer *buffers[2] = {slot->in, slot->out};
    size_t bytes[2] = {in, out}, more = extra;
    for (int i = 0; i < 2; i++) {
        if (!buffers[i] || buffers[i]->bytes >= bytes[i]) {
            buffers[i] = NULL;
            continue;
        }
        free_memory(pool, buffers[i]);
        more += bytes[i];
    }
    *waits = !make_room(pool, more);
    enum conv_status status = CONV_OK;
    for (int i = 0; i < 2 && !status && !*waits; i++)
        if (buffers[i])
            status = alloc_memory(pool, buffers[i], bytes[i], err);
    return status;
}

// Reserves for h_out the bytes to which a buffer full of streams decodes, but not more than half of
// what is left, since other groups need some, too.
static void reserve_out(struct conv_pool *pool, struct conv_slot *slot,
                        const struct conv_pool_need *need)
{
    size_t taken = pool->used + pool->reserved + need->metadata + need->room.planes;
    size_t left = pool->limit > taken ? (pool->limit - taken) / 2 : 0;
    size_t most = DEVICE_CODED_PLANES * (pool->usual_bytes ? pool->usual_bytes : slot->in->bytes);
    if (most > need->room.planes + left)
        most = need->room.planes + left;
    slot->reserved_out = most > need->room.planes ? most : need->room.planes;
}

// Allocates what the slot's two buffers lack, and reserves h_out. *waits: as for `fill`.
static enum conv_status allocate(struct conv_pool *pool, struct conv_slot *slot,
                                 const struct conv_pool_need *need, bool busy, bool *waits,
                                 struct conv_err *err)
{
    size_t in = need->room.in, out = need->device_coded ? 0 : need->room.planes;
    size_t want_in = slot->in->bytes < in ? with_headroom(pool, in) : slot->in->bytes;
    size_t want_out = slot->out && slot->out->bytes < out ? with_headroom(pool, out) : out;
    size_t extra = need->device_coded ? need->room.planes : 0; // of reserved_out, at least
    enum conv_status status =
        fill(pool, slot, want_in, want_out, need->metadata + extra, waits, err);
    if (*waits)
        status = fill(pool, slot, in, out, need->metadata + extra, waits, err);
    if (*waits && !busy) {
        // An image that is alone may carry more metadata than the limit has room for. Only its own
        // buffers can then be in its way, one of which may be larger than needed.
        free_memory(pool, slot->in);
        if (slot->out)
            free_memory(pool, slot->out);
        status = fill(pool, slot, in, out, extra, waits, err);
        assert(!*waits);
    }
    if (status && busy) { // memory of other slots may become free
        *waits = true;
        status = CONV_OK;
    }
    if (!status && !*waits && need->device_coded)
        reserve_out(pool, slot, need);
    return status;
}

// The hint says which limit would be enough; both numbers have a unit that leaves several digits.
static enum conv_status refuse(const struct conv_pool *pool, size_t bytes, struct conv_err *err)
{
    int shift = bytes < (size_t)10 << 20 ? 10 : 20;
    char unit = shift == 10 ? 'K' : 'M';
    size_t needed = (bytes >> shift) + 1;
    conv_err_limit(err, "the image needs %zu%c of staging memory, and the limit is %zu%c", needed,
                   unit, pool->limit >> shift, unit);
    return conv_err_hint(err, CONV_HINT_MEM_LIMIT, needed << shift, CONV_ERR_LIMIT);
}

enum conv_status conv_pool_acquire(struct conv_pool *pool, const struct conv_pool_need *need,
                                   struct conv_slot **out, struct conv_err *err)
{
    *out = NULL;
    if (conv_pool_is_too_much(pool, need))
        return refuse(pool, least(need), err);
    bool busy, waits;
    struct conv_slot *slot = find_free(pool, &busy);
    if (!slot)
        return CONV_OK;
    slot->in = take_buffer(pool, need->room.in);
    slot->out = need->device_coded ? NULL : take_buffer(pool, need->room.planes);
    enum conv_status status = allocate(pool, slot, need, busy, &waits, err);
    if (status || waits) {
        slot->reserved_out = 0;
        give_buffer(&slot->in);
        give_buffer(&slot->out);
        return status;
    }
    struct conv_group *group = &slot->group;
    conv_group_reset(group);
    group->h_in = slot->in->data;
    group->h_out = group->h_result = slot->out ? slot->out->data : NULL;
    group->in_capacity = slot->in->bytes;
    if (slot->out && slot->out->bytes < slot->in->bytes)
        group->in_capacity = slot->out->bytes;
    group->capacity = need->device_coded ? slot->reserved_out : group->in_capacity;
    conv_slot_move(slot, CONV_SLOT_OPEN);
    slot->longest = 0;
    pool->reserved += slot->reserved_out;
    conv_pool_add_metadata(pool, slot, need->metadata);
    slot->decoding = slot->unfinished = 0;
    slot->jobs = NULL;
    *out = slot;
    return CONV_OK;
}

bool conv_pool_has_room_for_metadata(struct conv_pool *pool, size_t bytes)
{
    return bytes == 0 || make_room(pool, bytes);
}

void conv_pool_add_metadata(struct conv_pool *pool, struct conv_slot *slot, size_t bytes)
{
    slot->metadata += bytes;
    pool->reserved += bytes;
}

bool conv_pool_reserve(struct conv_pool *pool, size_t bytes)
{
    if (!make_room(pool, bytes))
        return false;
    pool->reserved += bytes;
    return true;
}

void conv_pool_unreserve(struct conv_pool *pool, size_t bytes)
{
    pool->reserved -= bytes;
}

static void return_out(struct conv_pool *pool, struct conv_slot *slot)
{
    pool->reserved -= slot->reserved_out;
    slot->reserved_out = 0;
}

void conv_pool_release(struct conv_pool *pool, struct conv_slot *slot)
{
    pool->reserved -= slot->metadata;
    slot->metadata = 0;
    return_out(pool, slot);
    give_buffer(&slot->in);
    give_buffer(&slot->out);
    conv_slot_move(slot, CONV_SLOT_FREE);
}

int conv_pool_shed(struct conv_pool *pool, struct conv_slot *slot, struct conv_pool_buffer shed[2])
{
    struct conv_pool_buffer *buffers[2] = {slot->in, slot->out};
    int count = 0;
    for (int i = 0; i < 2; i++)
        if (buffers[i] && buffers[i]->bytes > pool->keep)
            shed[count++] = take_memory(pool, buffers[i]);
    return count;
}

void conv_pool_release_in(struct conv_pool *, struct conv_slot *slot)
{
    slot->group.h_in = NULL;
    give_buffer(&slot->in);
}

enum conv_status conv_pool_acquire_out(struct conv_pool *pool, struct conv_slot *slot, size_t bytes,
                                       struct conv_err *err)
{
    bool waits;
    return_out(pool, slot);
    slot->out = take_buffer(pool, bytes);
    size_t want = slot->out->bytes < bytes ? with_headroom(pool, bytes) : bytes;
    enum conv_status status = fill(pool, slot, 0, want, 0, &waits, err);
    if (waits) // reserved memory is there, except for an image that carries too much metadata
        status = alloc_memory(pool, slot->out, bytes, err);
    slot->group.h_out = slot->group.h_result = status ? NULL : slot->out->data;
    return status;
}

// --- pinning -------------------------------------------------------------------------------------

void conv_pool_pin(const struct conv_pool *pool, struct conv_slot *slot,
                   struct conv_backend *backend)
{
    struct conv_pool_buffer *buffers[2] = {slot->in, slot->out};
    for (int i = 0; i < 2 && pool->ops->host_pin; i++) {
        struct conv_pool_buffer *buffer = buffers[i];
        if (!buffer || buffer->pin_tried)
            continue;
        buffer->pin_tried = true;
        conv_staging_touch(buffer->data, buffer->bytes);
        if (pool->ops->host_pin(backend, buffer->data, buffer->bytes))
            buffer->pinned_by = backend;
    }
}

bool conv_pool_detach(struct conv_pool *pool, struct conv_pool_buffer *buffer)
{
    for (int i = 0; i < 2 * pool->count; i++) {
        if (pool->buffers[i].busy || !pool->buffers[i].data)
            continue;
        *buffer = take_memory(pool, &pool->buffers[i]);
        return true;
    }
    return false;
}
