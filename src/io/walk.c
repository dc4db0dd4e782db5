// SPDX-License-Identifier: MIT
// Hands the operands on to the sources that they stand for, in order.
#include "io/walk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/folder_source.h"
#include "io/list_source.h"
#include "io/paths.h"

// A step that was taken ahead.
struct peeked {
    enum conv_source_step step;
    struct conv_item item;
    struct conv_err err;
};

struct conv_walk {
    struct conv_source source;
    struct conv_walk_config config;
    struct conv_operands_shape shape;
    int next_input;
    struct conv_folder_source folder; // the input that is being walked, if it is a folder
    struct conv_list_source list;
    uint64_t items;
    struct peeked *peeked; // NULL: nothing
};

// The output of standard input in a folder. It follows the item's name: struct conv_item.
static const char standard_name[] = "-\0stdin.png";

static enum conv_source_step next_input(struct conv_walk *walk, struct conv_item *item,
                                        struct conv_err *err)
{
    const char *input = walk->config.operands.inputs[walk->next_input++];
    size_t length = strlen(input), base = (size_t)(conv_paths_base(input) - input);
    snprintf(item->name, sizeof item->name, "%.*s", (int)sizeof item->name - 1, input);
    item->ops = &conv_item_file;
    item->target = length; // until the whole name has been written
    item->is_named = false;
    item->in_place = walk->config.operands.in_place;
    if (length >= sizeof item->name) {
        item->target = sizeof item->name - 1;
        conv_err_set(err, CONV_ERR_LIMIT, "path too long");
        return CONV_SOURCE_BAD;
    }
    if (conv_operands_is_standard(input)) {
        memcpy(item->name, standard_name, sizeof standard_name);
        item->ops = &conv_item_standard;
        item->target = 2;
    } else if (conv_paths_is_folder(input)) {
        bool slash = length > 0 && input[length - 1] == '/';
        size_t target = walk->shape.several ? base : length + !slash;
        if (walk->shape.several)
            item->target = base;
        return conv_folder_source_begin(&walk->folder, input, target, err) ? CONV_SOURCE_BAD
                                                                           : CONV_SOURCE_END;
    } else {
        item->target = base;
    }
    item->is_named = true;
    return CONV_SOURCE_ITEM;
}

static enum conv_source_step take_step(struct conv_walk *walk, struct conv_item *item,
                                       struct conv_err *err)
{
    if (walk->config.operands.files_from)
        return conv_source_next(&walk->list.source, item, err);
    for (;;) {
        enum conv_source_step step = conv_source_next(&walk->folder.source, item, err);
        if (step != CONV_SOURCE_END || walk->next_input == walk->config.operands.input_count)
            return step;
        step = next_input(walk, item, err);
        if (step != CONV_SOURCE_END)
            return step;
    }
}

static enum conv_source_step next_item(struct conv_source *source, struct conv_item *item,
                                       struct conv_err *err)
{
    struct conv_walk *walk = (struct conv_walk *)source;
    struct peeked *peeked = walk->peeked;
    if (peeked) {
        enum conv_source_step first = peeked->step;
        memcpy(item, &peeked->item, sizeof *item);
        if (first == CONV_SOURCE_BAD)
            *err = peeked->err;
        free(peeked);
        walk->peeked = NULL;
        return first;
    }
    enum conv_source_step step = take_step(walk, item, err);
    walk->items += step != CONV_SOURCE_END;
    return step;
}

static bool may_wait(const struct conv_source *source)
{
    const struct conv_walk *walk = (const struct conv_walk *)source;
    return !walk->peeked && walk->config.operands.files_from &&
           conv_source_may_wait(&walk->list.source);
}

enum conv_status conv_walk_peek(struct conv_walk *walk, bool *is_image, struct conv_err *err)
{
    struct peeked *peeked = calloc(1, sizeof *peeked);
    if (!peeked)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for the walk");
    peeked->step = next_item(&walk->source, &peeked->item, &peeked->err);
    walk->peeked = peeked;
    *is_image = peeked->step == CONV_SOURCE_ITEM;
    return CONV_OK;
}

enum conv_status conv_walk_open(struct conv_walk **out, const struct conv_walk_config *config,
                                struct conv_err *err)
{
    static const struct conv_source_ops ops = {.next = next_item, .may_wait = may_wait};
    const struct conv_operands *operands = &config->operands;
    struct conv_walk *walk = calloc(1, sizeof *walk);
    if (!walk)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for the walk");
    walk->source.ops = &ops;
    walk->config = *config;
    struct conv_folder_rules rules = {
        .recursive = operands->recursive,
        .in_place = operands->in_place,
        .include = config->include,
        .include_count = config->include_count,
        .exclude = config->exclude,
        .exclude_count = config->exclude_count,
        .no_ignore = config->no_ignore,
    };
    conv_folder_source_init(&walk->folder, &rules);
    enum conv_status status = conv_operands_check(operands, &walk->shape, err);
    if (!status && operands->files_from)
        status = conv_list_source_open(&walk->list, operands->files_from, config->nul,
                                       operands->input_count ? operands->inputs[0] : NULL,
                                       operands->in_place, config->stop, err);
    if (status) {
        conv_walk_close(walk);
        return status;
    }
    *out = walk;
    return CONV_OK;
}

void conv_walk_close(struct conv_walk *walk)
{
    if (!walk)
        return;
    conv_folder_source_close(&walk->folder);
    conv_list_source_close(&walk->list);
    free(walk->peeked);
    free(walk);
}

struct conv_source *conv_walk_source(struct conv_walk *walk)
{
    return &walk->source;
}

const struct conv_operands_shape *conv_walk_shape(const struct conv_walk *walk)
{
    return &walk->shape;
}

bool conv_walk_is_repeatable(const struct conv_walk_config *config)
{
    struct stat info;
    const char *list = config->operands.files_from;
    return !list ||
           (!conv_operands_is_standard(list) && stat(list, &info) == 0 && S_ISREG(info.st_mode));
}

struct conv_walk_count conv_walk_count(const struct conv_walk *walk)
{
    const struct conv_folder_source *folder = &walk->folder;
    return (struct conv_walk_count){walk->items, folder->others, folder->other, folder->ignored};
}
