// SPDX-License-Identifier: MIT
#include "pipeline/pool.h"

#include <stdlib.h>

#include "backend/staging.h"

// Planes a group holds at most: bounds the table; 16 MiB of 40 x 40 pictures in RGB reach it.
#define MAX_PLANES 6144
#define GROW_STEP ((size_t)1 << 20)

static void free_side(const struct conv_pool *pool, struct conv_backend *pinned_by, uint8_t *memory,
                      size_t size)
{
    if (!pinned_by || pool->ops->host_unpin(pinned_by, memory))
        conv_staging_free(memory, size);
}

static void free_memory(struct conv_pool *pool, struct conv_slot *slot)
{
    struct conv_group *group = &slot->group;
    free_side(pool, slot->in_pinned_by, group->h_in, group->capacity);
    free_side(pool, slot->out_pinned_by, group->h_out, group->capacity);
    slot->in_pinned_by = slot->out_pinned_by = NULL;
    slot->pin_tried = false;
    group->h_in = group->h_out = NULL;
    pool->used -= 2 * group->capacity;
    group->capacity = 0;
}

static enum conv_status alloc_memory(struct conv_pool *pool, struct conv_slot *slot, size_t bytes,
                                     struct conv_err *err)
{
    void *in = NULL, *out = NULL;
    enum conv_status status = conv_staging_alloc(&in, bytes, err);
    if (!status)
        status = conv_staging_alloc(&out, bytes, err);
    if (status) {
        conv_staging_free(in, bytes);
        return status;
    }
    slot->group.h_in = in;
    slot->group.h_out = out;
    slot->group.capacity = bytes;
    pool->used += 2 * bytes;
    return CONV_OK;
}

enum conv_status conv_pool_open(struct conv_pool *pool, const struct conv_pipeline_config *config,
                                int count, struct conv_err *err)
{
    *pool = (struct conv_pool){
        .ops = config->ops,
        .limit = config->mem_limit,
    };
    pool->slots = calloc((size_t)count, sizeof *pool->slots);
    if (!pool->slots)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for %d groups", count);
    pool->count = count;
    bool codes = config->decode_on != CONV_CODER_CPU || config->encode_on != CONV_CODER_CPU;
    size_t share = config->mem_limit / 2 / (size_t)count / GROW_STEP * GROW_STEP;
    pool->bytes = config->group_bytes < share ? config->group_bytes : share;
    for (int i = 0; i < count; i++) {
        struct conv_slot *slot = &pool->slots[i];
        slot->group.plane_capacity = MAX_PLANES;
        slot->group.planes = malloc(MAX_PLANES * sizeof *slot->group.planes);
        slot->group.picture_capacity = codes ? MAX_PLANES : 0;
        slot->group.pictures = codes ? malloc(MAX_PLANES * sizeof *slot->group.pictures) : NULL;
        if (!slot->group.planes || (codes && !slot->group.pictures))
            return conv_err_set(err, CONV_ERR_MEMORY, "no memory for %d groups", count);
    }
    return CONV_OK;
}

void conv_pool_close(struct conv_pool *pool)
{
    for (int i = 0; i < pool->count; i++) {
        free_memory(pool, &pool->slots[i]);
        free(pool->slots[i].group.planes);
        free(pool->slots[i].group.pictures);
    }
    free(pool->slots);
    *pool = (struct conv_pool){0};
}

// The smallest free slot that takes `need`, else the largest free one; *busy tells if any is in
// use.
static struct conv_slot *find_free(struct conv_pool *pool, size_t need, bool *busy)
{
    struct conv_slot *best = NULL;
    *busy = false;
    for (int i = 0; i < pool->count; i++) {
        struct conv_slot *slot = &pool->slots[i];
        *busy |= slot->busy;
        if (slot->busy)
            continue;
        size_t have = slot->group.capacity, best_have = best ? best->group.capacity : 0;
        bool enough = have >= need, best_enough = best && best_have >= need;
        if (!best || (enough && (!best_enough || have < best_have)) ||
            (!enough && !best_enough && have > best_have))
            best = slot;
    }
    return best;
}

// Free slots but this one give memory back until there is room for `more`. False if too much is in
// use.
static bool make_room(struct conv_pool *pool, const struct conv_slot *slot, size_t more)
{
    for (int i = 0; i < pool->count && pool->used + pool->carried + more > pool->limit; i++)
        if (!pool->slots[i].busy && &pool->slots[i] != slot)
            free_memory(pool, &pool->slots[i]);
    return pool->used + pool->carried + more <= pool->limit;
}

// The slot is free and smaller than `need`. *waits: others hold the rest, their release helps.
static enum conv_status grow_slot(struct conv_pool *pool, struct conv_slot *slot, size_t need,
                                  size_t carried, bool busy, bool *waits, struct conv_err *err)
{
    // Growing by more than needed spares the next slightly larger picture the same trouble.
    size_t want = need <= pool->bytes ? pool->bytes : conv_image_align(need + need / 8, GROW_STEP);
    free_memory(pool, slot);
    if (!make_room(pool, slot, 2 * want + carried))
        want = need;
    *waits = !make_room(pool, slot, 2 * want + carried) && busy;
    if (*waits)
        return CONV_OK;
    enum conv_status status = alloc_memory(pool, slot, want, err);
    *waits = status && busy;
    return *waits ? CONV_OK : status;
}

enum conv_status conv_pool_acquire(struct conv_pool *pool, size_t need, size_t carried,
                                   struct conv_slot **out, struct conv_err *err)
{
    *out = NULL;
    if (need > pool->limit / 2)
        return conv_err_set(err, CONV_ERR_LIMIT,
                            "the picture needs %zu KiB of staging memory, --mem-limit is %zu KiB",
                            (2 * need >> 10) + 1, pool->limit >> 10);
    bool busy, waits;
    enum conv_status status = CONV_OK;
    struct conv_slot *slot = find_free(pool, need, &busy);
    if (!slot)
        return CONV_OK;
    if (slot->group.capacity < need)
        status = grow_slot(pool, slot, need, carried, busy, &waits, err);
    else
        waits = !make_room(pool, slot, carried) && busy;
    if (status || waits)
        return status;
    slot->busy = true;
    slot->sealed = slot->again = slot->counted = false;
    slot->longest = 0;
    conv_pool_carry(pool, slot, carried);
    slot->decoding = slot->unfinished = 0;
    slot->jobs = NULL;
    conv_group_reset(&slot->group);
    *out = slot;
    return CONV_OK;
}

bool conv_pool_may_carry(struct conv_pool *pool, const struct conv_slot *slot, size_t carried)
{
    return carried == 0 || make_room(pool, slot, carried);
}

void conv_pool_carry(struct conv_pool *pool, struct conv_slot *slot, size_t carried)
{
    slot->carried += carried;
    pool->carried += carried;
}

void conv_pool_release(struct conv_pool *pool, struct conv_slot *slot)
{
    pool->carried -= slot->carried;
    slot->carried = 0;
    slot->busy = false;
}

void conv_pool_pin(const struct conv_pool *pool, struct conv_slot *slot,
                   struct conv_backend *backend)
{
    struct conv_group *group = &slot->group;
    if (slot->pin_tried || !pool->ops->host_pin)
        return;
    slot->pin_tried = true;
    if (pool->ops->host_pin(backend, group->h_in, group->capacity))
        slot->in_pinned_by = backend;
    if (pool->ops->host_pin(backend, group->h_out, group->capacity))
        slot->out_pinned_by = backend;
}
