// SPDX-License-Identifier: MIT
// The shard of a name, and a plan that corrects it by size.
#include "io/walk/shard_balance.h"

#include <stdlib.h>
#include <string.h>

#include "base/digest_set.h"

struct conv_shard_plan {
    struct conv_shard shard;
    struct conv_shard_image *images;
    size_t count, capacity;
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

static enum conv_status no_memory(size_t images, struct conv_err *err)
{
    return conv_err_set(err, CONV_ERR_MEMORY, "no memory to divide %zu images into shards", images);
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
    if (plan->count == plan->capacity) {
        size_t capacity = plan->capacity ? 2 * plan->capacity : 256;
        struct conv_shard_image *images = realloc(plan->images, capacity * sizeof *images);
        if (!images)
            return no_memory(capacity, err);
        plan->images = images;
        plan->capacity = capacity;
    }
    struct conv_digest digest = conv_shard_digest(name), sized = digest;
    conv_hash_add(&sized, &bytes, sizeof bytes);
    for (int i = 0; i < 2; i++)
        plan->listing.word[i] += sized.word[i];
    plan->added++;
    plan->images[plan->count++] = (struct conv_shard_image){digest, bytes};
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
        struct conv_shard_image *last = kept ? &plan->images[kept - 1] : NULL;
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
        status = conv_shard_balance(plan->images, plan->count, shards, plan->shard.count, err);
    if (!status)
        status = keep(plan, shards, err);
    free(shards);
    free(plan->images);
    plan->images = NULL;
    plan->count = plan->capacity = 0;
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
