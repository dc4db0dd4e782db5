// SPDX-License-Identifier: MIT
// Blocks have one of four sizes for each power of two. Each pool has a table of all its blocks, by
// address, since device memory cannot hold a header, and a list of free ones for each size.
#include "engine/memory.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/lock.h"
#include "engine/engine.h"

#define ALIGN 256
#define CLASSES (4 * 64)
#define MOST_LARGER 3 // classes that a free block may be larger than needed: less than twice

struct block {
    void *data;
    struct block *next; // of the same bucket of the table
    struct block *next_free;
    size_t bytes;
    int class;
    bool is_free; // in the list: giving it again is the caller's mistake and does nothing
};

struct pool {
    struct conv_lock lock;
    struct block *free[CLASSES]; // the last freed first, which may still be in a cache
    size_t free_bytes;
    struct block **buckets; // a power of two of them
    size_t bucket_count, block_count;
};

struct conv_memory_pools {
    struct conv_device_context *device;
    size_t keep;
    struct pool pool[2]; // by enum conv_memory; one only on the CPU
};

// The smallest class whose blocks hold `bytes`, and their size; false if there is none.
static bool find_class(size_t bytes, int *class, size_t *rounded)
{
    size_t units = bytes / ALIGN + (bytes % ALIGN > 0);
    if (units < 4) {
        *class = units > 0 ? (int)units : 1;
        *rounded = (size_t) * class * ALIGN;
        return true;
    }
    // units is in (4..8] << shift; quarters of that octave.
    int shift = 61 - __builtin_clzll((unsigned long long)units);
    size_t step = (size_t)1 << shift;
    size_t quarters = (units + step - 1) >> shift; // 4 to 8
    if (quarters == 8) {
        shift++;
        quarters = 4;
    }
    *class = 4 * shift + (int)quarters;
    return !__builtin_mul_overflow(quarters << shift, (size_t)ALIGN, rounded) &&
           *rounded <= PTRDIFF_MAX;
}

static size_t bucket_of(const struct pool *pool, const void *data)
{
    uint64_t hash = (uint64_t)(uintptr_t)data / ALIGN * 0x9e3779b97f4a7c15u;
    return (size_t)(hash >> 32) & (pool->bucket_count - 1);
}

static bool grow_table(struct pool *pool)
{
    size_t count = pool->bucket_count ? 2 * pool->bucket_count : 64;
    struct block **buckets = calloc(count, sizeof(struct block *));
    if (!buckets)
        return false;
    struct block **old = pool->buckets;
    size_t old_count = pool->bucket_count;
    pool->buckets = buckets;
    pool->bucket_count = count;
    for (size_t i = 0; i < old_count; i++)
        for (struct block *block = old[i], *next; block; block = next) {
            next = block->next;
            struct block **bucket = &buckets[bucket_of(pool, block->data)];
            block->next = *bucket;
            *bucket = block;
        }
    free(old);
    return true;
}

static struct block *pop_free(struct pool *pool, int class)
{
    for (int c = class; c <= class + MOST_LARGER && c < CLASSES; c++) {
        struct block *block = pool->free[c];
        if (block) {
            pool->free[c] = block->next_free;
            pool->free_bytes -= block->bytes;
            block->is_free = false;
            return block;
        }
    }
    return NULL;
}

static void release_block(struct conv_memory_pools *pools, conv_memory memory, struct block *block)
{
    struct pool *pool = &pools->pool[memory];
    struct block **link = &pool->buckets[bucket_of(pool, block->data)];
    while (*link != block)
        link = &(*link)->next;
    *link = block->next;
    pool->block_count--;
    if (memory == CONV_DEVICE)
        pools->device->ops->release(pools->device, block->data);
    else
        free(block->data);
    free(block);
}

static void release_free(struct conv_memory_pools *pools, conv_memory memory)
{
    struct pool *pool = &pools->pool[memory];
    for (int c = 0; c < CLASSES; c++)
        while (pool->free[c]) {
            struct block *block = pool->free[c];
            pool->free[c] = block->next_free;
            release_block(pools, memory, block);
        }
    pool->free_bytes = 0;
}

// Host memory is pageable on every device: results of coders are written by threads of the host,
// and pinning takes a second for 4 GB.
static enum conv_status allocate(const struct conv_memory_pools *pools, conv_memory memory,
                                 size_t bytes, void **data, struct conv_err *err)
{
    if (memory == CONV_DEVICE)
        return pools->device->ops->allocate(pools->device, bytes, data, err);
    *data = aligned_alloc(ALIGN, bytes);
    return *data ? CONV_OK : conv_err_memory(err, "no memory for %zu KiB", bytes >> 10);
}

static enum conv_status make_block(struct conv_memory_pools *pools, conv_memory memory, int class,
                                   size_t bytes, struct block **out, struct conv_err *err)
{
    struct pool *pool = &pools->pool[memory];
    struct block *block = malloc(sizeof *block);
    if (!block || (pool->block_count >= pool->bucket_count && !grow_table(pool))) {
        free(block);
        return conv_err_memory(err, "out of memory");
    }
    *block = (struct block){.bytes = bytes, .class = class};
    enum conv_status status = allocate(pools, memory, bytes, &block->data, err);
    if (status == CONV_ERR_MEMORY && pool->free_bytes > 0) {
        release_free(pools, memory);
        status = allocate(pools, memory, bytes, &block->data, err);
    }
    if (status) {
        free(block);
        return status;
    }
    struct block **bucket = &pool->buckets[bucket_of(pool, block->data)];
    block->next = *bucket;
    *bucket = block;
    pool->block_count++;
    *out = block;
    return CONV_OK;
}

// On the CPU there is one kind of memory.
static conv_memory kind_of(const struct conv_memory_pools *pools, conv_memory memory)
{
    return pools->device->ops->place == CONV_ON_CPU ? CONV_HOST : memory;
}

enum conv_status conv_memory_take(struct conv_memory_pools *pools, conv_memory memory, size_t bytes,
                                  void **data, struct conv_err *err)
{
    int class;
    size_t rounded;
    enum conv_status status = CONV_OK;
    memory = kind_of(pools, memory);
    if (!find_class(bytes, &class, &rounded))
        return conv_err_memory(err, "no memory for %zu bytes", bytes);
    struct pool *pool = &pools->pool[memory];
    conv_lock_acquire(&pool->lock);
    struct block *block = pop_free(pool, class);
    if (!block)
        status = make_block(pools, memory, class, rounded, &block, err);
    conv_lock_release(&pool->lock);
    if (!status)
        *data = block->data;
    return status;
}

void conv_memory_give(struct conv_memory_pools *pools, conv_memory memory, void *data)
{
    memory = kind_of(pools, memory);
    struct pool *pool = &pools->pool[memory];
    if (!data)
        return;
    conv_lock_acquire(&pool->lock);
    struct block *block = pool->bucket_count ? pool->buckets[bucket_of(pool, data)] : NULL;
    while (block && block->data != data)
        block = block->next;
    if (block && block->is_free)
        block = NULL;
    if (block && pools->keep && pool->free_bytes + block->bytes > pools->keep) {
        release_block(pools, memory, block);
    } else if (block) {
        block->next_free = pool->free[block->class];
        pool->free[block->class] = block;
        pool->free_bytes += block->bytes;
        block->is_free = true;
    }
    conv_lock_release(&pool->lock);
}

enum conv_status conv_memory_open(struct conv_memory_pools **out,
                                  struct conv_device_context *device, size_t keep,
                                  struct conv_err *err)
{
    struct conv_memory_pools *pools = calloc(1, sizeof *pools);
    if (!pools)
        return conv_err_memory(err, "out of memory");
    pools->device = device;
    pools->keep = keep;
    for (int i = 0; i < 2; i++)
        conv_lock_init(&pools->pool[i].lock);
    *out = pools;
    return CONV_OK;
}

void conv_memory_close(struct conv_memory_pools *pools)
{
    if (!pools)
        return;
    for (int i = 0; i < 2; i++) {
        struct pool *pool = &pools->pool[i];
        release_free(pools, (conv_memory)i);
        // Blocks that the caller has not freed are the caller's mistake; their entries are freed
        // nevertheless.
        for (size_t b = 0; b < pool->bucket_count; b++)
            for (struct block *block = pool->buckets[b], *next; block; block = next) {
                next = block->next;
                free(block);
            }
        free(pool->buckets);
        conv_lock_destroy(&pool->lock);
    }
    free(pools);
}

// --- staging memory of groups --------------------------------------------------------------------

// Where the system has pages of this size, touching and pinning take half the time.
#define HUGE_PAGE ((size_t)2 << 20)

static void *map(size_t size)
{
    void *pages = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return pages == MAP_FAILED ? NULL : pages;
}

// Maps more than needed and unmaps what lies around the aligned part.
static void *map_aligned(size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), kept = (size + page - 1) / page * page;
    uint8_t *pages = map(kept + HUGE_PAGE);
    if (!pages)
        return NULL;
    size_t lead = (HUGE_PAGE - (uintptr_t)pages % HUGE_PAGE) % HUGE_PAGE;
    if (lead > 0)
        munmap(pages, lead);
    munmap(pages + lead + kept, HUGE_PAGE - lead);
    (void)madvise(pages + lead, kept, MADV_HUGEPAGE);
    return pages + lead;
}

enum conv_status conv_staging_alloc(void **memory, size_t size, struct conv_err *err)
{
    void *pages = size < HUGE_PAGE ? NULL : map_aligned(size);
    *memory =
        pages ? pages : map(size); // under a limit on address space the aligned attempt may fail
    if (!*memory)
        return conv_err_memory(err, "no memory for %zu MiB of staging: %s", size >> 20,
                               strerror(errno));
    return CONV_OK;
}

// Writes to each page the value that it has. MAP_POPULATE or madvise would hold the lock on the
// address space meanwhile, which stalls every other mapping, above all the CUDA driver's.
void conv_staging_touch(void *memory, size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (size_t at = 0; at < size; at += page)
        atomic_fetch_or_explicit((atomic_uchar *)memory + at, 0, memory_order_relaxed);
}

void conv_staging_free(void *memory, size_t size)
{
    if (memory)
        munmap(memory, size);
}
