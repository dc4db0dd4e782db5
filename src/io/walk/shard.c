// SPDX-License-Identifier: MIT
// The shard of a name, and a plan that corrects it by size.
#include "io/walk/shard.h"

#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/digest.h"

// --- balance -------------------------------------------------------------------------------------

// Moves images from the shards that their names determine, so that all shards get the same number
// of bytes.
//
// Hashing balances the number of images, and bytes only where there are many images: with sizes of
// standard deviation c (relative to their mean) and m images per shard, a shard deviates from the
// mean by sqrt((1 + c * c) / m), one standard deviation: 11 % at m = 200 and c = 1.2. Distributing
// all images by size, the largest first, balances well, but then one image more or less changes the
// shard of most others. So an image stays in the shard of its name unless that shard is too large.
//
// Three stages, each only if the one before has left a shard too far from the mean: shards give
// surplus images away, single images move from the largest to the smallest shard, all images are
// distributed by size. Integers and doubles of integers below 2^53 only: every machine gets the
// same result.

// Beyond this deviation from the mean the next stage is tried.
#define TOLERANCE 0.05

// Shards give images away, and single images move, until they are this near to the mean.
#define SLACK 0.005

// Images that the second stage looks at: 0.1 s.
#define MOST_LOOKS 1e8

struct image {
    struct conv_digest digest; // of its name
    uint64_t bytes;
};

struct balance {
    const struct image *images;
    size_t image_count;
    int count; // shards
    double mean;
    uint64_t *loads;           // bytes of each shard
    int *heap;                 // shards, the one of the least load first
    const struct image **pool; // images without a shard
};

static enum conv_status no_memory(size_t images, struct conv_err *err)
{
    return conv_err_memory(err, "no memory to divide %zu images into shards", images);
}

static int compare_sizes(const void *a, const void *b)
{
    const struct image *x = *(const struct image *const *)a;
    const struct image *y = *(const struct image *const *)b;
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
    for (size_t i = 0; i < balance->image_count; i++)
        balance->loads[shards[i]] += balance->images[i].bytes;
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

// shards[i] is the shard of images[i] by its name, of `count` shards, and becomes the balanced one.
// The images are sorted by digest, and no two have the same.
static enum conv_status balance_images(const struct image *images, size_t image_count, int *shards,
                                       int count, struct conv_err *err)
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
    return complete ? CONV_OK : no_memory(image_count, err);
}

// --- plans ---------------------------------------------------------------------------------------

struct conv_shard_plan {
    struct conv_shard shard;
    struct image *images;
    size_t count;
    uint64_t added;
    struct conv_digest listing;          // sum of the digests of names and sizes
    struct conv_digest_set gained, lost; // images of this shard, and of others, against their names
};

struct conv_digest conv_shard_digest(const char *name)
{
    struct conv_digest digest = {0};
    for (size_t length; *name; name += length) {
        name += strspn(name, "/");
        length = strcspn(name, "/");
        if (length > 0 && !(length == 1 && name[0] == '.'))
            conv_hash_add(&digest, name, length);
    }
    return digest;
}

size_t conv_shard_sample(const char *member)
{
    const char *slash = strrchr(member, '/'), *base = slash ? slash + 1 : member;
    size_t hidden = strspn(base, "."); // ".a.png" belongs to ".a"
    return (size_t)(base - member) + hidden + strcspn(base + hidden, ".");
}

int conv_shard_home(const struct conv_digest *digest, int count)
{
    return (int)(digest->word[0] % (uint64_t)count);
}

enum conv_status conv_shard_plan_open(struct conv_shard_plan **out, const struct conv_shard *shard,
                                      struct conv_err *err)
{
    struct conv_shard_plan *plan = calloc(1, sizeof *plan);
    if (!plan)
        return no_memory(0, err);
    plan->shard = *shard;
    *out = plan;
    return CONV_OK;
}

void conv_shard_plan_close(struct conv_shard_plan *plan)
{
    if (!plan)
        return;
    conv_digest_set_free(&plan->gained);
    conv_digest_set_free(&plan->lost);
    free(plan->images);
    free(plan);
}

enum conv_status conv_shard_plan_add(struct conv_shard_plan *plan, const char *name, uint64_t bytes,
                                     struct conv_err *err)
{
    struct image *images = conv_array_grow(plan->images, plan->count, sizeof *images);
    if (!images)
        return no_memory(plan->count + 1, err);
    plan->images = images;
    struct conv_digest digest = conv_shard_digest(name), sized = digest;
    conv_hash_add(&sized, &bytes, sizeof bytes);
    for (int i = 0; i < 2; i++)
        plan->listing.word[i] += sized.word[i];
    plan->added++;
    plan->images[plan->count++] = (struct image){digest, bytes};
    return CONV_OK;
}

static int compare_digests(const void *a, const void *b)
{
    const struct conv_digest *x = a, *y = b; // the first member of an image
    for (int i = 0; i < 2; i++)
        if (x->word[i] != y->word[i])
            return x->word[i] < y->word[i] ? -1 : 1;
    return 0;
}

// Sorts the images by digest and joins those with one name.
static void sort_images(struct conv_shard_plan *plan)
{
    size_t kept = 0;
    if (plan->count > 0)
        qsort(plan->images, plan->count, sizeof plan->images[0], compare_digests);
    for (size_t i = 0; i < plan->count; i++) {
        struct image *last = kept ? &plan->images[kept - 1] : NULL;
        if (last && compare_digests(last, &plan->images[i]) == 0)
            last->bytes += plan->images[i].bytes;
        else
            plan->images[kept++] = plan->images[i];
    }
    plan->count = kept;
}

// Keeps what differs from the shards of the names.
static enum conv_status keep(struct conv_shard_plan *plan, const int *shards, struct conv_err *err)
{
    enum conv_status status = CONV_OK;
    for (size_t i = 0; i < plan->count && !status; i++) {
        const struct conv_digest *digest = &plan->images[i].digest;
        bool is_home = conv_shard_home(digest, plan->shard.count) == plan->shard.index;
        bool is_ours = shards[i] == plan->shard.index;
        if (is_home != is_ours)
            status = conv_digest_set_add(is_ours ? &plan->gained : &plan->lost, digest, NULL, err);
    }
    return status;
}

enum conv_status conv_shard_plan_balance(struct conv_shard_plan *plan, struct conv_err *err)
{
    sort_images(plan);
    int *shards = calloc(plan->count + 1, sizeof *shards);
    enum conv_status status = shards ? CONV_OK : no_memory(plan->count, err);
    for (size_t i = 0; i < plan->count && !status; i++)
        shards[i] = conv_shard_home(&plan->images[i].digest, plan->shard.count);
    if (!status)
        status = balance_images(plan->images, plan->count, shards, plan->shard.count, err);
    if (!status)
        status = keep(plan, shards, err);
    free(shards);
    free(plan->images);
    plan->images = NULL;
    plan->count = 0;
    return status;
}

bool conv_shard_plan_has(const struct conv_shard_plan *plan, const char *name)
{
    struct conv_digest digest = conv_shard_digest(name);
    if (conv_shard_home(&digest, plan->shard.count) == plan->shard.index)
        return !conv_digest_set_has(&plan->lost, &digest);
    return conv_digest_set_has(&plan->gained, &digest);
}

void conv_shard_plan_list(const struct conv_shard_plan *plan, uint64_t *images,
                          struct conv_digest *digest)
{
    *images = plan->added;
    *digest = plan->listing;
}
