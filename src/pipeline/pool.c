// SPDX-License-Identifier: MIT
#include "pipeline/pool.h"

#include <stdlib.h>

// Planes a group holds at most: bounds the table; 16 MiB of 40 x 40 pictures in RGB reach it.
#define MAX_PLANES 6144
#define GROW_STEP ((size_t)1 << 20)

static void free_memory(struct conv_pool *pool, struct conv_slot *slot)
{
    struct conv_group *group = &slot->group;
    const struct conv_backend_ops *ops = slot->from_spare ? pool->spare_ops : pool->ops;
    struct conv_backend *backend = slot->from_spare ? pool->spare : pool->backend;
    ops->host_free(backend, group->h_in, group->capacity);
    ops->host_free(backend, group->h_out, group->capacity);
    group->h_in = group->h_out = NULL;
    pool->used -= 2 * group->capacity;
    group->capacity = 0;
}

static enum conv_status alloc_sides(const struct conv_backend_ops *ops,
                                    struct conv_backend *backend, struct conv_group *group,
                                    size_t bytes, struct conv_err *err)
{
    void *in = NULL, *out = NULL;
    enum conv_status status = ops->host_alloc(backend, &in, bytes, err);
    if (!status)
        status = ops->host_alloc(backend, &out, bytes, err);
    if (status) {
        ops->host_free(backend, in, bytes);
        return status;
    }
    group->h_in = in;
    group->h_out = out;
    group->capacity = bytes;
    return CONV_OK;
}

static enum conv_status alloc_memory(struct conv_pool *pool, struct conv_slot *slot, size_t bytes,
                                     struct conv_err *err)
{
    enum conv_status status = alloc_sides(pool->ops, pool->backend, &slot->group, bytes, err);
    slot->from_spare = status && pool->spare_ops;
    if (slot->from_spare)
        status = alloc_sides(pool->spare_ops, pool->spare, &slot->group, bytes, err);
    if (!status)
        pool->used += 2 * bytes;
    return status;
}

enum conv_status conv_pool_open(struct conv_pool *pool, const struct conv_pipeline_config *config,
                                int count, struct conv_err *err)
{
    *pool = (struct conv_pool){
        .ops = config->ops,
        .backend = config->backend,
        .spare_ops = config->spare_ops,
        .spare = config->spare,
        .limit = config->mem_limit,
    };
    pool->slots = calloc((size_t)count, sizeof *pool->slots);
    if (!pool->slots)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for %d groups", count);
    pool->count = count;
    size_t share = config->mem_limit / 2 / (size_t)count / GROW_STEP * GROW_STEP;
    pool->bytes = config->group_bytes < share ? config->group_bytes : share;
    for (int i = 0; i < count; i++) {
        struct conv_slot *slot = &pool->slots[i];
        slot->group.plane_capacity = MAX_PLANES;
        slot->group.planes = malloc(MAX_PLANES * sizeof *slot->group.planes);
        if (!slot->group.planes)
            return conv_err_set(err, CONV_ERR_MEMORY, "no memory for %d groups", count);
    }
    return CONV_OK;
}

void conv_pool_close(struct conv_pool *pool)
{
    for (int i = 0; i < pool->count; i++) {
        free_memory(pool, &pool->slots[i]);
        free(pool->slots[i].group.planes);
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

enum conv_status conv_pool_acquire(struct conv_pool *pool, size_t need, struct conv_slot **out,
                                   struct conv_err *err)
{
    *out = NULL;
    if (need > pool->limit / 2)
        return conv_err_set(err, CONV_ERR_LIMIT,
                            "the picture needs %zu KiB of staging memory, --mem-limit is %zu KiB",
                            (2 * need >> 10) + 1, pool->limit >> 10);
    bool busy;
    struct conv_slot *slot = find_free(pool, need, &busy);
    if (!slot)
        return CONV_OK;
    if (slot->group.capacity < need) {
        // Growing by more than needed spares the next slightly larger picture the same trouble.
        size_t want =
            need <= pool->bytes ? pool->bytes : conv_image_align(need + need / 8, GROW_STEP);
        free_memory(pool, slot);
        for (int i = 0; i < pool->count && pool->used + 2 * want > pool->limit; i++)
            if (!pool->slots[i].busy)
                free_memory(pool, &pool->slots[i]);
        if (pool->used + 2 * want > pool->limit)
            want = need;
        if (pool->used + 2 * want > pool->limit)
            return CONV_OK; // others hold the rest; their release is waited for
        enum conv_status status = alloc_memory(pool, slot, want, err);
        if (status)
            return busy ? CONV_OK : status;
    }
    slot->busy = true;
    slot->sealed = false;
    slot->decoding = slot->unfinished = 0;
    slot->jobs = NULL;
    conv_group_reset(&slot->group);
    *out = slot;
    return CONV_OK;
}

void conv_pool_release(struct conv_slot *slot)
{
    slot->busy = false;
}
