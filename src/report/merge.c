// SPDX-License-Identifier: MIT
// The first pass over the reports: finds which one has the best record of each image. An image is a
// digest of its name.
#include "report/merge_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/features.h"

#define SHARDS_MOST 1000000

// --- reading --------------------------------------------------------------------------------

static enum conv_status no_memory(struct conv_err *err)
{
    return conv_err_set(err, CONV_ERR_MEMORY, "no memory for the reports");
}

enum conv_status conv_merge_open(struct conv_merge **merge, struct conv_err *err)
{
    *merge = calloc(1, sizeof **merge);
    return *merge ? CONV_OK : no_memory(err);
}

void conv_merge_close(struct conv_merge *merge)
{
    if (!merge)
        return;
    conv_merge_table_free(&merge->images);
    free(merge->reports);
    free(merge->last);
    free(merge->finished);
    free(merge);
}

static enum conv_status read_shard(struct conv_merge *merge, struct conv_merge_report *report,
                                   const char *line, struct conv_err *err)
{
    struct conv_json_value shard;
    report->shard = -1;
    if (!conv_json_read(&shard, line, "shard"))
        return CONV_OK;
    uint64_t index = conv_merge_line_integer(shard.text, "index"),
             count = conv_merge_line_integer(shard.text, "count");
    if (count < 1 || count > SHARDS_MOST || index >= count)
        return conv_err_set(err, CONV_ERR_USAGE, "%s: there is no shard %" PRIu64 " of %" PRIu64,
                            report->path, index, count);
    if (merge->shards && merge->shards != (int)count)
        return conv_err_set(err, CONV_ERR_USAGE,
                            "%s: shard %" PRIu64 "/%" PRIu64
                            " is of another job: the others are of "
                            "%d shards",
                            report->path, index, count, merge->shards);
    if (!merge->shards) {
        merge->last = calloc(count, sizeof(struct conv_merge_report *));
        merge->finished = calloc(count, sizeof(bool));
        if (!merge->last || !merge->finished)
            return no_memory(err);
        merge->shards = (int)count;
    }
    report->shard = (int)index;
    return CONV_OK;
}

static enum conv_status read_begin(struct conv_merge *merge, struct conv_merge_report *report,
                                   const char *line, struct conv_err *err)
{
    char filter[sizeof merge->filter];
    if (!conv_merge_line_text(filter, sizeof filter, line, "filter"))
        filter[0] = '\0';
    if (merge->count == 0)
        strcpy(merge->filter, filter); // of the same size
    else if (strcmp(filter, merge->filter) != 0)
        return conv_err_set(err, CONV_ERR_USAGE, "%s is of another job: its filter is %s, not %s",
                            report->path, filter, merge->filter);
    return read_shard(merge, report, line, err);
}

// Images of one shard may be in several of its runs; that of a failed run is replaced.
static enum conv_status read_file(struct conv_merge *merge, const struct conv_merge_report *report,
                                  const char *line, struct conv_err *err)
{
    struct conv_merge_totals *totals = &merge->totals;
    struct conv_digest digest;
    struct conv_json_value name;
    struct conv_merge_image *image;
    bool known, added;
    enum conv_merge_state state = conv_merge_line_state(line, &known);
    if (!known || !conv_merge_line_name(&digest, &name, line)) {
        totals->damaged++;
        return CONV_OK;
    }
    enum conv_status status = conv_merge_table_add(&merge->images, &digest, &image, &added, err);
    if (status)
        return status;
    if (state == CONV_MERGE_DONE) {
        totals->pixels +=
            conv_merge_line_integer(line, "width") * conv_merge_line_integer(line, "height");
        totals->bytes_in += conv_merge_line_integer(line, "bytes_in");
        totals->bytes_out += conv_merge_line_integer(line, "bytes_out");
    }
    if (added) {
        image->state = state;
        image->report = merge->count;
        return CONV_OK;
    }
    const struct conv_merge_report *before =
        image->report == merge->count ? report : &merge->reports[image->report];
    bool same = before == report || (report->shard >= 0 && before->shard == report->shard);
    bool both = state == CONV_MERGE_DONE && image->state == CONV_MERGE_DONE;
    // A folder that cannot be read fails in every shard.
    bool all_failed = state == CONV_MERGE_FAILED && image->state == CONV_MERGE_FAILED;
    totals->repeated += same && both;
    // Runs that are not shards may follow each other.
    bool overlaps = report->shard >= 0 || before->shard >= 0 ? !all_failed : both;
    if (!same && overlaps && !image->overlaps) {
        if (totals->overlaps++ == 0 &&
            !conv_merge_line_text(totals->overlap, sizeof totals->overlap, line, "input"))
            snprintf(totals->overlap, sizeof totals->overlap, "%.*s", (int)name.size, name.text);
        image->overlaps = true;
    }
    if (state >= image->state) {
        image->state = state;
        image->report = merge->count;
    }
    return CONV_OK;
}

static void read_summary(struct conv_merge_report *report, const char *line)
{
    struct conv_json_value value;
    uint64_t code;
    report->is_finished =
        conv_json_read(&value, line, "exit_code") && conv_json_integer(&value, &code) && code < 128;
    if (conv_json_read(&value, line, "seconds"))
        (void)conv_json_number(&value, &report->seconds);
    if (conv_json_read(&value, line, "listing") &&
        conv_merge_line_text(report->listing.digest, sizeof report->listing.digest, value.text,
                             "digest"))
        report->listing.images = conv_merge_line_integer(value.text, "images");
}

// Lines in order: `take` gets each with its newline removed. The last of a run that was
// killed may be cut short.
static enum conv_status read_lines(struct conv_merge *merge, struct conv_merge_report *report,
                                   FILE *file, struct conv_err *err)
{
    char *line = NULL;
    size_t size = 0;
    ssize_t length;
    bool begun = false;
    enum conv_status status = CONV_OK;
    while (!status && (length = getline(&line, &size, file)) > 0) {
        bool whole = line[length - 1] == '\n';
        enum conv_merge_record record =
            strlen(line) == (size_t)length ? conv_merge_line_record(line) : CONV_MERGE_RECORD_NONE;
        if (!begun && record != CONV_MERGE_RECORD_BEGIN) {
            status =
                conv_err_set(err, CONV_ERR_USAGE, "%s is not a report in JSON Lines", report->path);
        } else if (record == CONV_MERGE_RECORD_BEGIN) {
            // Reports that were appended to each other are several runs of one shard.
            report->is_finished = false;
            status = read_begin(merge, report, line, err);
            begun = true;
        } else if (record == CONV_MERGE_RECORD_FILE) {
            status = read_file(merge, report, line, err);
        } else if (record == CONV_MERGE_RECORD_SUMMARY) {
            read_summary(report, line);
        } else {
            merge->totals.damaged += whole;
        }
    }
    if (!status && ferror(file))
        status = conv_err_errno(err, errno, "cannot read %s", report->path);
    free(line);
    return status;
}

static enum conv_status open_report(struct conv_merge *merge, struct conv_merge_report *report,
                                    FILE **file, struct conv_err *err)
{
    struct stat info;
    *file = fopen(report->path, "re");
    if (!*file || fstat(fileno(*file), &info) != 0) {
        conv_err_errno(err, errno, "cannot open the report %s", report->path);
        return err->status = CONV_ERR_USAGE;
    }
    if (!S_ISREG(info.st_mode))
        return conv_err_set(err, CONV_ERR_USAGE, "%s is not a file that can be read twice",
                            report->path);
    report->device = info.st_dev;
    report->inode = info.st_ino;
    for (int i = 0; i < merge->count; i++)
        if (merge->reports[i].device == info.st_dev && merge->reports[i].inode == info.st_ino)
            return conv_err_set(err, CONV_ERR_USAGE, "%s and %s are the same report",
                                merge->reports[i].path, report->path);
    return CONV_OK;
}

enum conv_status conv_merge_add(struct conv_merge *merge, const char *path, struct conv_err *err)
{
    struct conv_merge_report report = {.path = path, .shard = -1};
    FILE *file = NULL;
    if (merge->count == merge->capacity) {
        int capacity = merge->capacity ? 2 * merge->capacity : 64;
        struct conv_merge_report *reports =
            realloc(merge->reports, (size_t)capacity * sizeof *reports);
        if (!reports)
            return no_memory(err);
        merge->reports = reports;
        merge->capacity = capacity;
    }
    enum conv_status status = open_report(merge, &report, &file, err);
    if (!status)
        status = read_lines(merge, &report, file, err);
    if (file)
        fclose(file);
    if (status)
        return status;
    merge->reports[merge->count++] = report;
    merge->totals.seconds += report.seconds;
    if (report.seconds > merge->totals.longest)
        merge->totals.longest = report.seconds;
    if (report.shard >= 0)
        merge->finished[report.shard] |= report.is_finished;
    return CONV_OK;
}

// --- results -------------------------------------------------------------------------------------

// The last report of each shard that states what was divided.
static void find_last(struct conv_merge *merge)
{
    for (int i = 0; i < merge->count; i++) {
        struct conv_merge_report *report = &merge->reports[i];
        if (report->shard >= 0 && (report->listing.digest[0] || !merge->last[report->shard]))
            merge->last[report->shard] = report;
    }
}

void conv_merge_count(struct conv_merge *merge, struct conv_merge_totals *totals)
{
    uint64_t counts[CONV_MERGE_STATES] = {0};
    const struct conv_record_listing *listing = NULL;
    bool complete = merge->shards > 0;
    find_last(merge);
    conv_merge_table_count(&merge->images, counts);
    merge->totals.unreported = 0;
    *totals = merge->totals;
    totals->reports = merge->count;
    totals->shards = merge->shards;
    totals->done = counts[CONV_MERGE_DONE];
    totals->failed = counts[CONV_MERGE_FAILED];
    totals->skipped = counts[CONV_MERGE_SKIPPED];
    totals->planned = counts[CONV_MERGE_PLANNED];
    totals->copied = counts[CONV_MERGE_COPIED];
    for (int s = 0; s < merge->shards; s++) {
        const struct conv_merge_report *report = merge->last[s];
        complete = complete && merge->finished[s];
        if (!report || !report->listing.digest[0])
            continue;
        totals->is_mixed |= listing && strcmp(listing->digest, report->listing.digest) != 0;
        listing = &report->listing;
    }
    if (complete && listing && !totals->is_mixed && listing->images > merge->images.count)
        totals->unreported = listing->images - merge->images.count;
    merge->totals = *totals;
}

enum conv_merge_shard conv_merge_shard_state(const struct conv_merge *merge, int shard)
{
    if (merge->finished[shard])
        return CONV_MERGE_FINISHED;
    for (int i = 0; i < merge->count; i++)
        if (merge->reports[i].shard == shard)
            return CONV_MERGE_UNFINISHED;
    return CONV_MERGE_MISSING;
}

const char *conv_merge_next_unfinished(const struct conv_merge *merge, int *at)
{
    while (*at < merge->count) {
        const struct conv_merge_report *report = &merge->reports[(*at)++];
        if (report->shard < 0 && !report->is_finished)
            return report->path;
    }
    return NULL;
}

// --- the second pass -----------------------------------------------------------------------------

struct copy {
    struct conv_merge *merge;
    FILE *stream;
    void (*failed)(const char *input, const char *reason);
};

static void copy_file(const struct copy *copy, int number, const char *line)
{
    struct conv_digest digest;
    struct conv_json_value name;
    char input[CONV_MERGE_LINE_NAME], reason[4096 + 512];
    bool known;
    enum conv_merge_state state = conv_merge_line_state(line, &known);
    struct conv_merge_image *image = known && conv_merge_line_name(&digest, &name, line)
                                         ? conv_merge_table_find(&copy->merge->images, &digest)
                                         : NULL;
    if (!image || image->report != number || image->state != state || image->copied)
        return;
    image->copied = true;
    if (copy->stream)
        fputs(line, copy->stream);
    if (copy->stream && line[strlen(line) - 1] != '\n')
        fputc('\n', copy->stream);
    if (copy->failed && state == CONV_MERGE_FAILED) {
        if (!conv_merge_line_text(input, sizeof input, line, "input"))
            snprintf(input, sizeof input, "%.*s", (int)name.size, name.text);
        copy->failed(input, conv_merge_line_text(reason, sizeof reason, line, "error") ? reason
                                                                                       : "failed");
    }
}

static enum conv_status copy_report(const struct copy *copy, int number, struct conv_err *err)
{
    const char *path = copy->merge->reports[number].path;
    char *line = NULL;
    size_t size = 0;
    FILE *file = fopen(path, "re");
    if (!file)
        return conv_err_errno(err, errno, "cannot open the report %s", path);
    ssize_t length;
    while ((length = getline(&line, &size, file)) > 0)
        if (strlen(line) == (size_t)length &&
            conv_merge_line_record(line) == CONV_MERGE_RECORD_FILE)
            copy_file(copy, number, line);
    bool bad = ferror(file) != 0;
    int errnum = errno;
    fclose(file);
    free(line);
    return bad ? conv_err_errno(err, errnum, "cannot read %s", path) : CONV_OK;
}

static void write_summary(const struct conv_merge *merge, FILE *stream, int exit_code)
{
    const struct conv_merge_totals *totals = &merge->totals;
    fprintf(stream,
            "{\"type\":\"summary\",\"exit_code\":%d,\"done\":%" PRIu64 ",\"failed\":%" PRIu64
            ",\"skipped\":%" PRIu64 ",\"planned\":%" PRIu64 ",\"copied\":%" PRIu64
            ",\"seconds\":%.6f,\"pixels\":%" PRIu64 ",\"bytes_in\":%" PRIu64
            ",\"bytes_out\":%" PRIu64,
            exit_code, totals->done, totals->failed, totals->skipped, totals->planned,
            totals->copied, totals->seconds, totals->pixels, totals->bytes_in, totals->bytes_out);
    fprintf(stream,
            ",\"merged\":{\"reports\":%d,\"shards\":%d,\"longest\":%.6f,\"repeated\":%" PRIu64
            ",\"overlaps\":%" PRIu64 ",\"unreported\":%" PRIu64 ",\"mixed\":%s",
            totals->reports, totals->shards, totals->longest, totals->repeated, totals->overlaps,
            totals->unreported, totals->is_mixed ? "true" : "false");
    for (int kind = CONV_MERGE_UNFINISHED; kind <= CONV_MERGE_MISSING; kind++) {
        const char *comma = "";
        fprintf(stream, ",\"%s\":[", kind == CONV_MERGE_MISSING ? "missing" : "unfinished");
        for (int s = 0; s < totals->shards; s++)
            if ((int)conv_merge_shard_state(merge, s) == kind) {
                fprintf(stream, "%s%d", comma, s);
                comma = ",";
            }
        fputc(']', stream);
    }
    fputs("}}\n", stream);
}

enum conv_status conv_merge_write(struct conv_merge *merge, FILE *stream, int exit_code,
                                  void (*failed)(const char *input, const char *reason),
                                  struct conv_err *err)
{
    struct copy copy = {merge, stream, failed};
    enum conv_status status = CONV_OK;
    if (stream)
        fputs("{\"type\":\"begin\",\"schema\":1,\"version\":\"" CONV_VERSION "\",\"filter\":",
              stream);
    if (stream) {
        conv_json_string(stream, merge->filter);
        fputs(",\"dry_run\":false}\n", stream);
    }
    conv_merge_table_forget_copies(&merge->images);
    for (int i = 0; i < merge->count && !status; i++)
        status = copy_report(&copy, i, err);
    if (stream && !status)
        write_summary(merge, stream, exit_code);
    return status;
}
