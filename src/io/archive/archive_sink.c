// SPDX-License-Identifier: MIT
// Members of archives keep their metadata. Files get fixed owners and modes, and their time in
// whole seconds, so that the bytes of an archive depend on its inputs alone.
#include "io/archive/archive_sink.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/archive/archive_members.h"
#include "io/archive/archive_order.h"
#include "io/files/file_sink.h"
#include "io/files/output_names.h"
#include "io/files/special.h"

#define FILE_MODE 0644
#define MOST_HOLDS 8

struct archive_sink {
    struct conv_sink sink;
    struct conv_archive_order *order;
    struct conv_sink_config config;
    struct conv_output_names names;
};

static struct conv_archive_order *order_of(const struct conv_sink *sink)
{
    return ((const struct archive_sink *)sink)->order;
}

static const char *original_of(const struct conv_item *item)
{
    return item->body ? item->body->member.name : conv_item_target(item);
}

// True if the link has to come after the member that it leads to, which has not come yet: a hard
// link, or one whose target may get another name or may not come. It is held back again and again
// if it leads through other such links. Other symbolic links stay where they are.
static bool is_early(struct archive_sink *sink, const struct conv_item *item)
{
    const struct conv_sink_config *config = &sink->config;
    char target[2 * PATH_MAX];
    if (!item->is_link || item->holds == MOST_HOLDS ||
        !conv_archive_body_target(target, item->body) ||
        conv_output_names_fate(&sink->names, item->archive, target) != CONV_OUTPUT_UNKNOWN)
        return false;
    if (item->body->member.kind == CONV_ARCHIVE_HARDLINK || config->format || config->npy ||
        config->is_partial)
        return true;
    conv_output_names_note(&sink->names, item->archive, target, CONV_OUTPUT_AWAITED);
    return false;
}

static enum conv_status refuse_lost(const struct conv_archive_member *link, struct conv_err *err)
{
    return conv_err_set(err, CONV_ERR_UNSUPPORTED, "is a link to %s, which is not in the output",
                        link->link);
}

// True for a hard link to a member that has never come, or to itself, and if not all members come,
// for a symbolic link to one.
static bool leads_nowhere(struct archive_sink *sink, const struct conv_item *item)
{
    char target[2 * PATH_MAX];
    return item->is_link &&
           (item->body->member.kind == CONV_ARCHIVE_HARDLINK || sink->config.is_partial) &&
           conv_archive_body_target(target, item->body) &&
           conv_output_names_fate(&sink->names, item->archive, target) == CONV_OUTPUT_UNKNOWN;
}

static enum conv_status claim(struct conv_sink *base, struct conv_item *item,
                              enum conv_sink_claim *result, struct conv_err *err)
{
    struct archive_sink *sink = (struct archive_sink *)base;
    const struct conv_archive_body *body = item->body;
    struct conv_output_claim place = {
        .archive = item->archive,
        .name = conv_item_target(item),
        .original = body ? body->member.name : NULL,
        .is_folder = body && body->member.kind == CONV_ARCHIVE_FOLDER,
    };
    if (is_early(sink, item)) {
        *result = CONV_SINK_CLAIM_LATER;
        return CONV_OK;
    }
    if (leads_nowhere(sink, item))
        return refuse_lost(&body->member, err);
    enum conv_status status =
        conv_output_names_claim(&sink->names, &place, &item->is_repeated, err);
    item->is_refused = status != CONV_OK;
    char target[2 * PATH_MAX];
    if (!status && item->is_link && body->member.kind == CONV_ARCHIVE_SYMLINK &&
        conv_archive_body_target(target, body))
        status =
            conv_output_names_link(&sink->names, item->archive, body->member.name, target, err);
    if (item->is_repeated) {
        *result = CONV_SINK_CLAIM_REPEATED;
        item->reason = "the output has this folder already";
    }
    if (!item->is_copy && body && sink->config.copies)
        item->keeps_name =
            strcmp(place.name, place.original) == 0
                ? !status
                : conv_output_names_reserve(&sink->names, item->archive, place.original);
    return status;
}

// The target of a link follows the member that it leads to. `item` is where the new target is made.
static enum conv_status follow(struct archive_sink *sink, const struct conv_archive_body *body,
                               int archive, struct conv_archive_member *member,
                               struct conv_item *item, struct conv_err *err)
{
    const struct conv_sink_config *config = &sink->config;
    char target[2 * PATH_MAX];
    if (!conv_archive_body_target(target, body))
        return CONV_OK;
    enum conv_output_fate fate = conv_output_names_fate(&sink->names, archive, target);
    if (fate == CONV_OUTPUT_LOST)
        return refuse_lost(member, err);
    if (fate != CONV_OUTPUT_RENAMED)
        return CONV_OK;
    snprintf(item->name, sizeof item->name, "%s", member->link);
    item->target = 0;
    member->link = item->name;
    if (conv_item_set_format(item, config->format, config->npy, err))
        return err->status;
    member->link = conv_item_target(item);
    return CONV_OK;
}

// "out.tar:a.png", for reports.
static enum conv_status place(const struct conv_sink *base, const struct conv_item *item,
                              struct conv_output *output, struct conv_err *err)
{
    const struct archive_sink *sink = (const struct archive_sink *)base;
    int length = snprintf(output->path, sizeof output->path, "%s:%s",
                          sink->config.targets[item->archive].path, conv_item_target(item));
    return length < (int)sizeof output->path ? CONV_OK
                                             : conv_err_set(err, CONV_ERR_LIMIT, "path too long");
}

static enum conv_status write_output(struct conv_sink *base, int worker,
                                     const struct conv_item *item, const struct stat *input,
                                     const struct conv_output *output,
                                     const struct conv_encoded *file, enum conv_sink_result *result,
                                     struct conv_err *err)
{
    (void)worker;
    (void)output;
    struct archive_sink *sink = (struct archive_sink *)base;
    struct conv_archive_body *body = item->body;
    struct conv_item other; // for the name of a link's target
    struct conv_archive_member member = {.mode = FILE_MODE, .link = "", .uname = "", .gname = ""};
    *result = CONV_SINK_WRITTEN;
    if (body)
        member = body->member;
    else
        member.mtime.tv_sec = input->st_mtim.tv_sec;
    member.name = conv_item_target(item);
    enum conv_status status =
        item->is_link ? follow(sink, body, item->archive, &member, &other, err) : CONV_OK;
    if (status)
        return status;
    if (item->keeps_name && strcmp(member.name, original_of(item)) == 0)
        conv_output_names_note(&sink->names, item->archive, member.name, CONV_OUTPUT_COPIED);
    bool is_file = member.kind == CONV_ARCHIVE_FILE;
    member.size = is_file ? file->size : 0;
    // A content that is copied unchanged can stay where it is.
    bool stays = body && is_file && file->part[0].data == body->data;
    return conv_archive_order_put(sink->order, item->number, item->archive, &member,
                                  is_file ? file : NULL, stays ? body : NULL, err);
}

static bool is_due(const struct conv_sink *sink, const struct conv_item *item)
{
    return conv_archive_order_is_due(order_of(sink), item->number);
}

static bool drop(struct conv_sink *base, const struct conv_item *item)
{
    struct archive_sink *sink = (struct archive_sink *)base;
    bool lacks = !item->is_repeated;
    const char *original = original_of(item);
    if (lacks && sink->config.writes && !item->is_refused)
        conv_output_names_note(&sink->names, item->archive, original, CONV_OUTPUT_MISSING);
    conv_archive_order_drop(sink->order, item->number, item->archive, lacks);
    return lacks &&
           conv_output_names_has(&sink->names, item->archive, original, CONV_OUTPUT_AWAITED) &&
           conv_output_names_has(&sink->names, item->archive, original, CONV_OUTPUT_MISSING);
}

static bool may_begin(const struct conv_sink *sink, const struct conv_item *item)
{
    return conv_archive_order_may_begin(order_of(sink), item->number);
}

static bool has_failed(const struct conv_sink *sink)
{
    return conv_archive_order_has_failed(order_of(sink));
}

static void limit(struct conv_sink *sink, size_t bytes)
{
    conv_archive_order_limit(order_of(sink), bytes);
}

static bool is_written(const struct conv_sink *base, int archive)
{
    return atomic_load(&((const struct archive_sink *)base)->config.targets[archive].is_written);
}

static enum conv_status finish(struct conv_sink *base, struct conv_err *err)
{
    struct archive_sink *sink = (struct archive_sink *)base;
    int stop = atomic_load(sink->config.stop);
    bool keep = sink->config.writes && (stop == 0 || (stop > 0 && sink->config.is_endless));
    enum conv_status status = conv_archive_order_finish(sink->order, keep, err);
    conv_output_names_close(&sink->names);
    free(sink);
    return status;
}

static void remove_temporaries(struct conv_sink *sink)
{
    conv_archive_order_remove(order_of(sink));
}

static enum conv_status open_archives(struct conv_sink **out, const struct conv_sink_config *config,
                                      struct conv_err *err)
{
    static const struct conv_sink_ops ops = {
        .claim = claim,
        .place = place,
        .write = write_output,
        .is_due = is_due,
        .drop = drop,
        .may_begin = may_begin,
        .has_failed = has_failed,
        .limit = limit,
        .is_written = is_written,
        .finish = finish,
        .remove_temporaries = remove_temporaries,
    };
    struct archive_sink *sink = calloc(1, sizeof *sink);
    if (!sink)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for the output");
    sink->sink.ops = &ops;
    sink->config = *config;
    enum conv_status status = conv_archive_order_open(&sink->order, config, err);
    if (status) {
        free(sink);
        return status;
    }
    conv_output_names_open(&sink->names);
    *out = &sink->sink;
    return CONV_OK;
}

enum conv_status conv_sink_open(struct conv_sink **sink, const struct conv_sink_config *config,
                                struct conv_err *err)
{
    *sink = NULL;
    if (config->kind == CONV_SINK_NONE)
        return CONV_OK;
    if (config->kind == CONV_SINK_STANDARD)
        return conv_standard_sink_open(sink, config, err);
    if (config->kind == CONV_SINK_ARCHIVE)
        return open_archives(sink, config, err);
    return conv_file_sink_open(sink, config, err);
}
