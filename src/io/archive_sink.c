// SPDX-License-Identifier: MIT
// Members of archives keep their metadata. Files get fixed owners and modes, and their time in
// whole seconds, so that the bytes of an archive depend on its inputs alone.
#include "io/archive_sink.h"

#include <stdio.h>
#include <stdlib.h>

#include "io/archive_body.h"
#include "io/operands.h"

#define FILE_MODE 0644

struct archive_sink {
    struct conv_sink sink;
    struct conv_archive_order *order;
    const struct conv_archive_target *targets;
    const atomic_int *stop;
    bool writes;
};

static struct conv_archive_order *order_of(const struct conv_sink *sink)
{
    return ((const struct archive_sink *)sink)->order;
}

// "out.tar:a.png", for reports.
static enum conv_status place(const struct conv_sink *base, const struct conv_item *item,
                              struct conv_output *output, struct conv_err *err)
{
    const struct archive_sink *sink = (const struct archive_sink *)base;
    int length = snprintf(output->path, sizeof output->path, "%s:%s",
                          sink->targets[item->archive].path, conv_item_target(item));
    return length < (int)sizeof output->path ? CONV_OK
                                             : conv_err_set(err, CONV_ERR_LIMIT, "path too long");
}

static enum conv_status write_output(struct conv_sink *sink, int worker,
                                     const struct conv_item *item, const struct stat *input,
                                     const struct conv_output *output,
                                     const struct conv_encoded *file, enum conv_sink_result *result,
                                     struct conv_err *err)
{
    (void)worker;
    (void)output;
    struct conv_archive_body *body = item->body;
    struct conv_archive_member member = {.mode = FILE_MODE, .link = "", .uname = "", .gname = ""};
    *result = CONV_SINK_WRITTEN;
    if (body)
        member = body->member;
    else
        member.mtime.tv_sec = input->st_mtim.tv_sec;
    member.name = conv_item_target(item);
    bool is_file = member.kind == CONV_ARCHIVE_FILE;
    member.size = is_file ? file->size : 0;
    // A content that is copied unchanged can stay where it is.
    bool stays = body && is_file && file->part[0].data == body->data;
    return conv_archive_order_put(order_of(sink), item->number, item->archive, &member,
                                  is_file ? file : NULL, stays ? body : NULL, err);
}

static void drop(struct conv_sink *sink, const struct conv_item *item)
{
    conv_archive_order_drop(order_of(sink), item->number, item->archive);
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

static enum conv_status finish(struct conv_sink *base, struct conv_err *err)
{
    struct archive_sink *sink = (struct archive_sink *)base;
    bool keep = sink->writes && atomic_load(sink->stop) == 0;
    enum conv_status status = conv_archive_order_finish(sink->order, keep, err);
    free(sink);
    return status;
}

static void remove_temporaries(struct conv_sink *sink)
{
    conv_archive_order_remove(order_of(sink));
}

enum conv_status conv_archive_sink_open(struct conv_sink **out,
                                        const struct conv_sink_config *config, struct conv_err *err)
{
    static const struct conv_sink_ops ops = {
        .place = place,
        .write = write_output,
        .drop = drop,
        .may_begin = may_begin,
        .has_failed = has_failed,
        .limit = limit,
        .finish = finish,
        .remove_temporaries = remove_temporaries,
    };
    const struct conv_archive_order_config order = {
        .targets = config->targets,
        .target_count = config->target_count,
        .fsync = config->fsync,
        .force = config->force,
        .threads = config->workers,
        .journal = config->journal,
        .stop = config->stop,
    };
    struct archive_sink *sink = calloc(1, sizeof *sink);
    if (!sink)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for the output");
    sink->sink.ops = &ops;
    sink->targets = config->targets;
    sink->stop = config->stop;
    sink->writes = config->writes;
    enum conv_status status = conv_archive_order_open(&sink->order, &order, err);
    if (status)
        free(sink);
    else
        *out = &sink->sink;
    return status;
}
