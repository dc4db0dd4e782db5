// SPDX-License-Identifier: MIT
// Three stages, each only if the one before has left a shard too far from the mean: shards give
// surplus images away, single images move from the largest to the smallest shard, all images are
// distributed by size. Integers and doubles of integers below 2^53 only: every machine gets the
// same result.
#include "io/walk/shard_balance.h"

#include <stdlib.h>
#include <string.h>

// Beyond this deviation from the mean the next stage is tried.
#define TOLERANCE 0.05

// Shards give images away, and single images move, until they are this near to the mean.
#define SLACK 0.005

// Images that the second stage looks at: 0.1 s.
#define MOST_LOOKS 1e8

struct balance {
    const struct conv_shard_image *images;
    size_t image_count;
    int count; // shards
    double mean;
    uint64_t *loads;                      // bytes of each shard
    int *heap;                            // shards, the one of the least load first
    const struct conv_shard_image **pool; // images without a shard
};

static int compare_sizes(const void *a, const void *b)
{
    const struct conv_shard_image *x = *(const struct conv_shard_image *const *)a;
    const struct conv_shard_image *y = *(const struct conv_shard_image *const *)b;
    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    return x < y ? -1 : x > y; // both lie in the sorted array
}

static bool is_less(const struct balance *balance, int a, int b)
{
    uint64_t x = balance->loads[balance->heap[a]], y = balance->loads[balance->heap[b]];
    return x != y ? x < y : balance->heap[a] < balance->heap[b];
}

static void sift_down(struct balance *balance, int at)
{
    for (;;) {
        int least = at;
        for (int child = 2 * at + 1; child <= 2 * at + 2 && child < balance->count; child++)
            if (is_less(balance, child, least))
                least = child;
        if (least == at)
            return;
        int shard = balance->heap[at];
        balance->heap[at] = balance->heap[least];
        balance->heap[least] = shard;
        at = least;
    }
}

static void add_loads(struct balance *balance, const int *shards)
{
    memset(balance->loads, 0, (size_t)balance->count * sizeof balance->loads[0]);
    for (size_t i = 0; i < balance->image_count; i++)
        balance->loads[shards[i]] += balance->images[i].bytes;
}

static int find_extreme(const struct balance *balance, bool largest)
{
    int found = 0;
    for (int s = 1; s < balance->count; s++)
        if (largest ? balance->loads[s] > balance->loads[found]
                    : balance->loads[s] < balance->loads[found])
            found = s;
    return found;
}

static uint64_t largest_load(const struct balance *balance)
{
    return balance->loads[find_extreme(balance, true)];
}

static bool is_balanced(const struct balance *balance, double tolerance)
{
    double most = (double)largest_load(balance);
    double least = (double)balance->loads[find_extreme(balance, false)];
    return most <= (1 + tolerance) * balance->mean && least >= (1 - tolerance) * balance->mean;
}

// Gives each image of the pool to the shard that has the least, the largest image first.
static void place(struct balance *balance, int *shards, size_t pooled)
{
    for (int s = 0; s < balance->count; s++)
        balance->heap[s] = s;
    for (int s = balance->count / 2; s >= 0; s--)
        sift_down(balance, s);
    if (pooled > 0)
        qsort(balance->pool, pooled, sizeof balance->pool[0], compare_sizes);
    for (size_t i = 0; i < pooled; i++) {
        int shard = balance->heap[0];
        shards[balance->pool[i] - balance->images] = shard;
        balance->loads[shard] += balance->pool[i]->bytes;
        sift_down(balance, 0);
    }
}

// Shards above the mean give away images, in the order of their digests, that are not larger than
// their surplus.
static void share_surplus(struct balance *balance, int *shards)
{
    size_t pooled = 0;
    for (size_t i = 0; i < balance->image_count; i++) {
        uint64_t *load = &balance->loads[shards[i]], bytes = balance->images[i].bytes;
        double surplus = (double)*load - balance->mean, slack = SLACK * balance->mean;
        if (surplus <= slack || bytes == 0 || (double)bytes > surplus + slack)
            continue;
        *load -= bytes;
        balance->pool[pooled++] = &balance->images[i];
    }
    place(balance, shards, pooled);
}

// Moves single images from the largest to the smallest shard, each time the image that brings the
// two sizes nearest to each other.
static void move_single(struct balance *balance, int *shards)
{
    double looks = 0;
    while (!is_balanced(balance, SLACK) && looks < MOST_LOOKS) {
        int from = find_extreme(balance, true), to = find_extreme(balance, false);
        uint64_t gap = balance->loads[from] - balance->loads[to], nearest = gap;
        size_t best = balance->image_count;
        looks += (double)balance->image_count;
        for (size_t i = 0; i < balance->image_count; i++) {
            uint64_t bytes = balance->images[i].bytes;
            if (shards[i] != from || bytes == 0 || bytes >= gap)
                continue;
            uint64_t left = 2 * bytes > gap ? 2 * bytes - gap : gap - 2 * bytes;
            if (left < nearest) {
                nearest = left;
                best = i;
            }
        }
        if (best == balance->image_count)
            return;
        shards[best] = to;
        balance->loads[from] -= balance->images[best].bytes;
        balance->loads[to] += balance->images[best].bytes;
    }
}

static void distribute_all(struct balance *balance, int *shards)
{
    memset(balance->loads, 0, (size_t)balance->count * sizeof balance->loads[0]);
    for (size_t i = 0; i < balance->image_count; i++)
        balance->pool[i] = &balance->images[i];
    place(balance, shards, balance->image_count);
}

static void run_stages(struct balance *balance, int *shards, int *others)
{
    add_loads(balance, shards);
    share_surplus(balance, shards);
    if (is_balanced(balance, TOLERANCE))
        return;
    move_single(balance, shards);
    if (is_balanced(balance, TOLERANCE))
        return;
    uint64_t largest = largest_load(balance);
    distribute_all(balance, others);
    if (largest_load(balance) < largest)
        memcpy(shards, others, balance->image_count * sizeof *shards);
}

enum conv_status conv_shard_balance(const struct conv_shard_image *images, size_t image_count,
                                    int *shards, int count, struct conv_err *err)
{
    struct balance balance = {.images = images, .image_count = image_count, .count = count};
    double total = 0;
    for (size_t i = 0; i < image_count; i++)
        total += (double)images[i].bytes;
    if (total <= 0)
        return CONV_OK;
    balance.mean = total / count;
    balance.loads = calloc((size_t)count, sizeof balance.loads[0]);
    balance.heap = calloc((size_t)count, sizeof balance.heap[0]);
    balance.pool = calloc(image_count, sizeof balance.pool[0]);
    int *others = calloc(image_count, sizeof *others);
    bool complete = balance.loads && balance.heap && balance.pool && others;
    if (complete)
        run_stages(&balance, shards, others);
    free(others);
    free(balance.pool);
    free(balance.heap);
    free(balance.loads);
    return complete ? CONV_OK
                    : conv_err_set(err, CONV_ERR_MEMORY,
                                   "no memory to divide %zu images into shards", image_count);
}
