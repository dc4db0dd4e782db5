// SPDX-License-Identifier: MIT
// Steps in an order that does not depend on the file system, or a random sample that does not.
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "io/walk/walk_internal.h"

// One step that was read.
struct entry {
    enum conv_source_step step;
    const struct conv_item_ops *ops;
    char *name; // malloc'ed; after its NUL the target if it is not a suffix of the name
    size_t target;
    bool is_named, in_place, is_copy;
    uint64_t draw;           // of a sample: the images with the smallest are taken
    struct conv_err *reason; // of a bad one; malloc'ed
};

struct conv_sorted {
    struct entry *entries;
    size_t count, next;
};

static size_t size_of_name(const char *name, size_t target)
{
    size_t size = strlen(name) + 1;
    return target < size ? size : target + strlen(name + target) + 1;
}

enum conv_source_step conv_sorted_next(struct conv_sorted *sorted, struct conv_item *item,
                                       struct conv_err *err)
{
    if (sorted->next == sorted->count)
        return CONV_SOURCE_END;
    const struct entry *entry = &sorted->entries[sorted->next++];
    item->ops = entry->ops;
    memcpy(item->name, entry->name, size_of_name(entry->name, entry->target));
    item->target = entry->target;
    item->is_named = entry->is_named;
    item->in_place = entry->in_place;
    item->is_copy = entry->is_copy;
    if (entry->reason)
        *err = *entry->reason;
    return entry->step;
}

static void free_entry(struct entry *entry)
{
    free(entry->name);
    free(entry->reason);
}

static enum conv_status no_memory(const struct conv_sorted *sorted, struct conv_err *err)
{
    return conv_err_memory(err, "no memory for the names of %zu images", sorted->count + 1);
}

static enum conv_status add(struct conv_sorted *sorted, enum conv_source_step step,
                            const struct conv_item *item, const struct conv_err *reason,
                            struct conv_err *err)
{
    struct entry *entries = conv_array_grow(sorted->entries, sorted->count, sizeof *entries);
    if (!entries)
        return no_memory(sorted, err);
    sorted->entries = entries;
    bool is_bad = step == CONV_SOURCE_BAD;
    size_t size = size_of_name(item->name, item->target);
    struct entry entry = {
        .step = step,
        .ops = item->ops,
        .name = malloc(size),
        .target = item->target,
        .is_named = item->is_named,
        .in_place = item->in_place,
        .is_copy = item->is_copy,
        .reason = is_bad ? malloc(sizeof *reason) : NULL,
    };
    if (!entry.name || (is_bad && !entry.reason)) {
        free_entry(&entry);
        return no_memory(sorted, err);
    }
    memcpy(entry.name, item->name, size);
    if (is_bad)
        *entry.reason = *reason;
    sorted->entries[sorted->count++] = entry;
    return CONV_OK;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const struct entry *)a)->name, ((const struct entry *)b)->name);
}

static void sort(struct conv_sorted *sorted)
{
    for (size_t first = 0; first < sorted->count;) {
        size_t end = first;
        while (end < sorted->count && !sorted->entries[end].is_named)
            end++;
        if (end > first)
            qsort(sorted->entries + first, end - first, sizeof sorted->entries[0], compare_names);
        first = end + 1;
    }
}

static uint64_t draw(const struct entry *entry, uint64_t seed)
{
    const char *target = entry->name + entry->target;
    struct conv_digest digest = {0};
    conv_hash_add(&digest, &seed, sizeof seed);
    conv_hash_add(&digest, target, strlen(target));
    return digest.word[0];
}

static int compare_draws(const void *a, const void *b)
{
    const struct entry *x = *(const struct entry *const *)a, *y = *(const struct entry *const *)b;
    if (x->draw != y->draw)
        return x->draw < y->draw ? -1 : 1;
    return strcmp(x->name, y->name);
}

// Chooses order->sample images at random, and drops all other steps except failures.
static enum conv_status choose(struct conv_sorted *sorted, const struct conv_walk_order *order,
                               struct conv_err *err)
{
    size_t images = 0, kept = 0;
    struct entry **drawn = malloc((sorted->count + 1) * sizeof *drawn);
    if (!drawn)
        return no_memory(sorted, err);
    for (size_t i = 0; i < sorted->count; i++) {
        struct entry *entry = &sorted->entries[i];
        if (entry->step != CONV_SOURCE_ITEM)
            continue;
        entry->draw = draw(entry, order->seed);
        drawn[images++] = entry;
    }
    qsort(drawn, images, sizeof(struct entry *), compare_draws);
    for (size_t i = order->sample; i < images; i++)
        drawn[i]->step = CONV_SOURCE_END;
    free(drawn);
    for (size_t i = 0; i < sorted->count; i++) {
        struct entry *entry = &sorted->entries[i];
        if (entry->step == CONV_SOURCE_ITEM || entry->step == CONV_SOURCE_BAD)
            sorted->entries[kept++] = *entry;
        else
            free_entry(entry);
    }
    sorted->count = kept;
    return CONV_OK;
}

enum conv_status conv_sorted_open(struct conv_sorted **out, conv_step_fn *next, void *from,
                                  const struct conv_walk_order *order, struct conv_err *err)
{
    struct conv_sorted *sorted = calloc(1, sizeof *sorted);
    enum conv_status status = CONV_OK;
    if (!sorted)
        return conv_err_memory(err, "no memory for the names of the images");
    while (!status && !(order->stop && atomic_load(order->stop))) {
        struct conv_item item = {0};
        struct conv_err reason = {0};
        enum conv_source_step step = next(from, &item, &reason);
        if (step == CONV_SOURCE_END)
            break;
        status = add(sorted, step, &item, &reason, err);
    }
    if (!status && order->sample)
        status = choose(sorted, order, err);
    if (!status && !order->keeps_order)
        sort(sorted);
    if (status)
        conv_sorted_close(sorted);
    else
        *out = sorted;
    return status;
}

uint64_t conv_sorted_count(const struct conv_sorted *sorted, uint64_t images)
{
    size_t count = 0;
    for (uint64_t found = 0; count < sorted->count && (!images || found < images); count++)
        found += sorted->entries[count].step == CONV_SOURCE_ITEM && !sorted->entries[count].is_copy;
    return count;
}

void conv_sorted_close(struct conv_sorted *sorted)
{
    for (size_t i = 0; sorted && i < sorted->count; i++)
        free_entry(&sorted->entries[i]);
    free(sorted ? sorted->entries : NULL);
    free(sorted);
}
