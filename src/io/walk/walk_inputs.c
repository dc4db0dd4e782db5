// SPDX-License-Identifier: MIT
// Walks the operands one after the other, and the contents of each.
#include <stdio.h>
#include <string.h>

#include "io/files/formats.h"
#include "io/files/paths.h"
#include "io/walk/walk_internal.h"

// --- folders of archives -------------------------------------------------------------------------

// A dot at the beginning is part of the name and does not begin an extension.
static size_t short_length(const char *base)
{
    return base[0] ? 1 + strcspn(base + 1, ".") : 0;
}

static struct conv_digest digest_of(const char *path, bool is_archive)
{
    const char *base = conv_paths_base(path);
    struct conv_digest digest = {0};
    conv_hash_add(&digest, base, is_archive ? short_length(base) : strcspn(base, "/"));
    return digest;
}

enum conv_status conv_walk_add_folder(struct conv_walk *walk, const char *input, bool is_archive,
                                      struct conv_err *err)
{
    struct conv_digest digest = digest_of(input, is_archive);
    bool added;
    enum conv_status status = conv_digest_set_add(&walk->used, &digest, &added, err);
    return status || added ? status : conv_digest_set_add(&walk->shared, &digest, NULL, err);
}

// The folder of an archive, once all inputs were added.
static void name_folder(char name[NAME_MAX + 1], const struct conv_walk *walk, const char *path)
{
    const char *base = conv_paths_base(path);
    struct conv_digest digest = digest_of(path, true);
    bool shared = conv_digest_set_has(&walk->shared, &digest);
    snprintf(name, NAME_MAX + 1, "%.*s", shared ? NAME_MAX : (int)short_length(base), base);
}

// --- operands ------------------------------------------------------------------------------------

// Names the output of standard input in a folder, which follows the item's name (struct conv_item):
// by the format of the input, or PNG if that was not examined.
static void name_standard(struct conv_item *item)
{
    struct conv_err ignored; // reading it again reports it
    const uint8_t *head;
    ssize_t got = item->stream
                      ? conv_archive_input_peek(item->stream, &head, CONV_FORMATS_HEAD, &ignored)
                      : 0;
    const char *extension =
        got > 0 ? conv_formats_find(head, (size_t)got)->extension : conv_formats[0]->extension;
    memcpy(item->name, "-", 2);
    snprintf(item->name + 2, sizeof item->name - 2, "stdin%s", extension);
}

// The offset in an input folder's path at which the names below the sink begin.
size_t conv_walk_folder_target(const struct conv_walk *walk, const char *folder)
{
    size_t length = strlen(folder);
    bool slash = length > 0 && folder[length - 1] == '/';
    return walk->shape.several ? (size_t)(conv_paths_base(folder) - folder) : length + !slash;
}

// An archive is reproducible only if its members have a defined order, and with archives nothing
// else sorts the images of folders.
static enum conv_status begin_folder(struct conv_walk *walk, const char *input, size_t target,
                                     struct conv_err *err)
{
    const struct conv_walk_order order = {.stop = walk->config.stop};
    enum conv_status status = conv_folder_source_begin(&walk->folder, input, target, err);
    if (!status && (walk->shape.sink == CONV_SINK_ARCHIVE || walk->archives.count > 0))
        status =
            conv_sorted_open(&walk->sorted, conv_folder_source_next, &walk->folder, &order, err);
    return status;
}

static enum conv_source_step begin_archive(struct conv_walk *walk,
                                           const struct conv_archive_format *format,
                                           struct conv_item *item, struct conv_err *err)
{
    struct conv_archive_operands *archives = &walk->archives;
    struct conv_archive_input input = archives->standard;
    struct conv_archive_source *source = &walk->archive;
    const char *path = walk->config.operands.inputs[walk->next_input - 1];
    item->archive = archives->each ? walk->next_input - 1 : 0;
    source->path = path;
    source->is_due = archives->target_count > 0 ? &archives->targets[item->archive].is_due : NULL;
    source->below[0] = '\0';
    if (walk->shape.several && !source->is_due)
        name_folder(source->below, walk, path);
    enum conv_status status = CONV_OK;
    if (conv_paths_is_standard(path) && input.buffer)
        archives->standard = (struct conv_archive_input){.fd = -1};
    else
        status = conv_archive_input_open(&input, path, !walk->config.archives.unmapped,
                                         walk->config.stop, err);
    if (!status && walk->config.archives.unmapped && format->seeks) {
        status = conv_archive_input_copy(&input, walk->config.archives.most_copied, err);
        if (status)
            conv_archive_input_close(&input);
    }
    if (!status)
        status = conv_archive_source_begin(source, format, item->archive, &input, err);
    return status ? CONV_SOURCE_BAD : CONV_SOURCE_END;
}

static enum conv_source_step next_input(struct conv_walk *walk, struct conv_item *item,
                                        struct conv_err *err)
{
    const char *input = walk->config.operands.inputs[walk->next_input++];
    size_t length = strlen(input), base = (size_t)(conv_paths_base(input) - input);
    snprintf(item->name, sizeof item->name, "%.*s", (int)sizeof item->name - 1, input);
    item->ops = &conv_item_file;
    item->target = length; // until the whole name has been written
    item->in_place = walk->config.operands.in_place;
    const struct conv_archive_format *format =
        walk->config.archives.enabled ? walk->archives.inputs[walk->next_input - 1] : NULL;
    if (length >= sizeof item->name) {
        item->target = sizeof item->name - 1;
        conv_err_limit(err, "path too long");
        return CONV_SOURCE_BAD;
    }
    if (format && walk->config.plan && walk->config.whole) {
        walk->listed++;
        if (!conv_walk_count_name(walk, conv_paths_base(input), true))
            return CONV_SOURCE_END;
    }
    const struct conv_archive_operands *archives = &walk->archives;
    int target = archives->each ? walk->next_input - 1 : 0;
    if (archives->target_count > 0 && archives->targets[target].done) {
        item->reason = archives->targets[target].done;
        item->archive = target;
        return CONV_SOURCE_DONE;
    }
    if (format)
        return begin_archive(walk, format, item, err);
    if (conv_paths_is_standard(input)) {
        item->stream = walk->archives.standard.buffer ? &walk->archives.standard : NULL;
        name_standard(item);
        item->ops = &conv_item_standard;
        item->target = 2;
    } else if (conv_paths_is_folder(input)) {
        if (walk->shape.several)
            item->target = base;
        return begin_folder(walk, input, conv_walk_folder_target(walk, input), err)
                   ? CONV_SOURCE_BAD
                   : CONV_SOURCE_END;
    } else {
        item->target = base;
    }
    item->is_named = true;
    return CONV_SOURCE_ITEM;
}

// The next step of the folder or archive that is being walked.
static enum conv_source_step next_inside(struct conv_walk *walk, struct conv_item *item,
                                         struct conv_err *err)
{
    enum conv_source_step step = CONV_SOURCE_END;
    if (walk->sorted) {
        step = conv_sorted_next(walk->sorted, item, err);
        if (step == CONV_SOURCE_END) {
            conv_sorted_close(walk->sorted);
            walk->sorted = NULL;
        }
    }
    if (step == CONV_SOURCE_END)
        step = conv_folder_source_next(&walk->folder, item, err);
    if (step == CONV_SOURCE_END)
        step = conv_archive_source_next(&walk->archive, item, err);
    bool is_last = walk->archives.each || walk->next_input == walk->config.operands.input_count;
    if (step == CONV_SOURCE_END && is_last)
        step = conv_archive_source_next_held(&walk->archive, item, err);
    return step;
}

static enum conv_source_step next_listed(struct conv_walk *walk, struct conv_item *item,
                                         struct conv_err *err)
{
    const struct conv_archive_target *target = walk->archives.targets;
    if (walk->archives.target_count == 0 || !target->done)
        return conv_list_source_next(&walk->list, item, err);
    item->ops = &conv_item_file;
    snprintf(item->name, sizeof item->name, "%s", walk->config.operands.files_from);
    item->target = strlen(item->name);
    item->reason = target->done;
    return walk->items > 0 ? CONV_SOURCE_END : CONV_SOURCE_DONE;
}

enum conv_source_step conv_walk_next_input(struct conv_walk *walk, struct conv_item *item,
                                           struct conv_err *err)
{
    if (walk->has_ended)
        return conv_archive_source_next_held(&walk->archive, item, err);
    if (walk->config.operands.files_from)
        return next_listed(walk, item, err);
    for (;;) {
        enum conv_source_step step = next_inside(walk, item, err);
        if (step == CONV_SOURCE_ITEM && walk->watch && !conv_watch_take_found(walk->watch, item))
            continue;
        if (step != CONV_SOURCE_END || walk->next_input == walk->config.operands.input_count)
            return step;
        step = next_input(walk, item, err);
        if (step != CONV_SOURCE_END)
            return step;
    }
}
