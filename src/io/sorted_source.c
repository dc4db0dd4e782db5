// SPDX-License-Identifier: MIT
#include "io/sorted_source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// One step of the inner source.
struct entry {
    enum conv_source_step step;
    const struct conv_item_ops *ops;
    char *name; // malloc'ed; with `text` after its NUL
    const char *text;
    size_t target;
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
    snprintf(item->name, sizeof item->name, "%s", entry->name);
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

// A target that is no suffix of the name follows its NUL and is not kept: it is the name's base.
static enum conv_status add(struct conv_sorted_source *sorted, enum conv_source_step step,
                            const struct conv_item *item, const struct conv_err *reason,
                            struct conv_err *err)
{
    enum conv_status status = reserve(sorted, err);
    if (status)
        return status;
    const char *text = step == CONV_SOURCE_BAD ? reason->text : "";
    size_t length = strlen(item->name) + 1, text_size = strlen(text) + 1;
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
        .target = item->target < length ? item->target : 0,
        .is_named = item->is_named,
        .in_place = item->in_place,
        .status = reason->status,
        .hint = reason->hint,
        .value = reason->value,
    };
    return CONV_OK;
}

static int compare(const void *a, const void *b)
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
            qsort(sorted->entries + first, end - first, sizeof sorted->entries[0], compare);
        first = end + 1;
    }
}

enum conv_status conv_sorted_source_open(struct conv_sorted_source **out, struct conv_source *inner,
                                         const atomic_int *stop, struct conv_err *err)
{
    static const struct conv_source_ops ops = {.next = next_item, .may_wait = never_waits};
    struct conv_sorted_source *sorted = calloc(1, sizeof *sorted);
    if (!sorted)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for the names of the images");
    sorted->source.ops = &ops;
    enum conv_status status = CONV_OK;
    while (!status && !(stop && atomic_load(stop))) {
        struct conv_item item = {0};
        struct conv_err reason = {0};
        enum conv_source_step step = conv_source_next(inner, &item, &reason);
        if (step == CONV_SOURCE_END)
            break;
        status = add(sorted, step, &item, &reason, err);
    }
    if (status) {
        conv_sorted_source_close(sorted);
        return status;
    }
    sort(sorted);
    *out = sorted;
    return CONV_OK;
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
