// SPDX-License-Identifier: MIT
#include "io/walk/sorted_source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/digest.h"

// One step of the inner source.
struct entry {
    enum conv_source_step step;
    const struct conv_item_ops *ops;
    char *name; // malloc'ed; after its NUL the target if it is not a suffix of the name, and `text`
    const char *text;
    size_t target;
    uint64_t draw; // of a sample: the images with the smallest are taken
    bool is_named, in_place;
    enum conv_status status; // of a bad one, with its text
    enum conv_hint hint;
    uint64_t value;
};

struct conv_sorted_source {
    struct conv_source source;
    struct entry *entries;
    size_t count, capacity, next;
};

static enum conv_source_step next_item(struct conv_source *source, struct conv_item *item,
                                       struct conv_err *err)
{
    struct conv_sorted_source *sorted = (struct conv_sorted_source *)source;
    if (sorted->next == sorted->count)
        return CONV_SOURCE_END;
    const struct entry *entry = &sorted->entries[sorted->next++];
    item->ops = entry->ops;
    size_t length = strlen(entry->name) + 1;
    if (entry->target >= length)
        length = entry->target + strlen(entry->name + entry->target) + 1;
    memcpy(item->name, entry->name, length);
    item->target = entry->target;
    item->is_named = entry->is_named;
    item->in_place = entry->in_place;
    if (entry->step == CONV_SOURCE_BAD) {
        conv_err_set(err, entry->status, "%s", entry->text);
        conv_err_hint(err, entry->hint, entry->value, entry->status);
    }
    return entry->step;
}

static bool never_waits(const struct conv_source *source)
{
    (void)source;
    return false;
}

static enum conv_status reserve(struct conv_sorted_source *sorted, struct conv_err *err)
{
    if (sorted->count < sorted->capacity)
        return CONV_OK;
    size_t capacity = sorted->capacity ? 2 * sorted->capacity : 256;
    struct entry *entries = realloc(sorted->entries, capacity * sizeof *entries);
    if (!entries)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for the names of %zu images",
                            capacity);
    sorted->entries = entries;
    sorted->capacity = capacity;
    return CONV_OK;
}

static enum conv_status add(struct conv_sorted_source *sorted, enum conv_source_step step,
                            const struct conv_item *item, const struct conv_err *reason,
                            struct conv_err *err)
{
    enum conv_status status = reserve(sorted, err);
    if (status)
        return status;
    const char *text = step == CONV_SOURCE_BAD ? reason->text : "";
    size_t length = strlen(item->name) + 1, text_size = strlen(text) + 1;
    if (item->target >= length)
        length = item->target + strlen(item->name + item->target) + 1;
    char *name = malloc(length + text_size);
    if (!name)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for the names of %zu images",
                            sorted->count + 1);
    memcpy(name, item->name, length);
    memcpy(name + length, text, text_size);
    sorted->entries[sorted->count++] = (struct entry){
        .step = step,
        .ops = item->ops,
        .name = name,
        .text = name + length,
        .target = item->target,
        .is_named = item->is_named,
        .in_place = item->in_place,
        .status = reason->status,
        .hint = reason->hint,
        .value = reason->value,
    };
    return CONV_OK;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const struct entry *)a)->name, ((const struct entry *)b)->name);
}

static void sort(struct conv_sorted_source *sorted)
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

// --- samples -------------------------------------------------------------------------------------

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

// Chooses config->sample images at random; all others become CONV_SOURCE_END, which is dropped.
static enum conv_status choose(struct conv_sorted_source *sorted,
                               const struct conv_sorted_config *config, struct conv_err *err)
{
    size_t images = 0;
    struct entry **drawn = malloc((sorted->count + 1) * sizeof *drawn);
    if (!drawn)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for the names of %zu images",
                            sorted->count);
    for (size_t i = 0; i < sorted->count; i++) {
        struct entry *entry = &sorted->entries[i];
        if (entry->step != CONV_SOURCE_ITEM)
            continue;
        entry->draw = draw(entry, config->seed);
        drawn[images++] = entry;
    }
    qsort(drawn, images, sizeof(struct entry *), compare_draws);
    for (size_t i = config->sample; i < images; i++)
        drawn[i]->step = CONV_SOURCE_END;
    free(drawn);
    return CONV_OK;
}

static void drop_others(struct conv_sorted_source *sorted)
{
    size_t kept = 0;
    for (size_t i = 0; i < sorted->count; i++) {
        struct entry *entry = &sorted->entries[i];
        if (entry->step == CONV_SOURCE_ITEM || entry->step == CONV_SOURCE_BAD)
            sorted->entries[kept++] = *entry;
        else
            free(entry->name);
    }
    sorted->count = kept;
}

// -------------------------------------------------------------------------------------------------

enum conv_status conv_sorted_source_open(struct conv_sorted_source **out, struct conv_source *inner,
                                         const struct conv_sorted_config *config,
                                         struct conv_err *err)
{
    static const struct conv_source_ops ops = {.next = next_item, .may_wait = never_waits};
    struct conv_sorted_source *sorted = calloc(1, sizeof *sorted);
    if (!sorted)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for the names of the images");
    sorted->source.ops = &ops;
    enum conv_status status = CONV_OK;
    while (!status && !(config->stop && atomic_load(config->stop))) {
        struct conv_item item = {0};
        struct conv_err reason = {0};
        enum conv_source_step step = conv_source_next(inner, &item, &reason);
        if (step == CONV_SOURCE_END)
            break;
        status = add(sorted, step, &item, &reason, err);
    }
    if (!status && config->sample)
        status = choose(sorted, config, err);
    if (status) {
        conv_sorted_source_close(sorted);
        return status;
    }
    if (config->sample)
        drop_others(sorted);
    if (!config->keeps_order)
        sort(sorted);
    *out = sorted;
    return CONV_OK;
}

uint64_t conv_sorted_source_count(const struct conv_sorted_source *sorted, uint64_t images)
{
    size_t count = 0;
    for (uint64_t found = 0; count < sorted->count && (!images || found < images); count++)
        found += sorted->entries[count].step == CONV_SOURCE_ITEM;
    return count;
}

struct conv_source *conv_sorted_source_get(struct conv_sorted_source *sorted)
{
    return &sorted->source;
}

void conv_sorted_source_close(struct conv_sorted_source *sorted)
{
    if (!sorted)
        return;
    for (size_t i = 0; i < sorted->count; i++)
        free(sorted->entries[i].name);
    free(sorted->entries);
    free(sorted);
}

// --- a number of images --------------------------------------------------------------------------

static enum conv_source_step next_of_limited(struct conv_source *source, struct conv_item *item,
                                             struct conv_err *err)
{
    struct conv_limited_source *limited = (struct conv_limited_source *)source;
    if (limited->left == 0 && !limited->inner->ops->end)
        return CONV_SOURCE_END;
    if (limited->left == 0)
        limited->inner->ops->end(limited->inner); // links to what came before are left
    enum conv_source_step step = conv_source_next(limited->inner, item, err);
    limited->left -= step == CONV_SOURCE_ITEM && !item->is_copy;
    return step;
}

static enum conv_status hold(struct conv_source *source, struct conv_item *item,
                             struct conv_err *err)
{
    return conv_source_hold(((struct conv_limited_source *)source)->inner, item, err);
}

static bool may_wait(const struct conv_source *source)
{
    const struct conv_limited_source *limited = (const struct conv_limited_source *)source;
    return limited->left > 0 && conv_source_may_wait(limited->inner);
}

static bool is_full(const struct conv_source *source)
{
    return conv_source_is_full(((const struct conv_limited_source *)source)->inner);
}

static bool limit(struct conv_source *source, size_t usual, size_t most)
{
    return conv_source_limit(((struct conv_limited_source *)source)->inner, usual, most);
}

void conv_limited_source_init(struct conv_limited_source *limited, struct conv_source *inner,
                              uint64_t images)
{
    static const struct conv_source_ops ops = {
        .next = next_of_limited,
        .may_wait = may_wait,
        .is_full = is_full,
        .limit = limit,
        .hold = hold,
    };
    *limited = (struct conv_limited_source){{&ops}, inner, images};
}
