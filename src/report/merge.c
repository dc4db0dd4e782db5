// SPDX-License-Identifier: MIT
// The first pass over the reports finds which one has the best record of each image, the second
// copies these records. An image is a digest of its name.
#include "report/merge.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buffer.h"
#include "base/digest.h"
#include "report/json.h"
#include "report/record.h"

#define SHARDS_MOST 1000000
#define NAME_MOST (6 * 4096) // of an image: each byte of a path may be an escape

// From the worst to the best.
enum state { FAILED, PLANNED, SKIPPED, COPIED, DONE, STATES };

// An image is identified by the digest of its name alone: in forged reports, names whose digests
// collide count as one image.
struct image {
    int report; // with its best record
    enum state state : 8;
    bool overlaps;
    unsigned char pass; // of writing in which its record was copied
};

// One report, of one run.
struct report {
    const char *path;
    dev_t device;
    ino_t inode;
    int shard;        // -1: the run is no shard
    bool is_finished; // the run came to its end
    double seconds;
    struct conv_record_listing listing;
};

struct conv_merge {
    struct report *reports;
    int count;
    int shards;                    // 0: none so far
    struct report **last;          // the last report of each shard; NULL: none
    bool *finished;                // shards of which any run came to its end
    char filter[4096];             // of all reports
    struct conv_digest_set images; // the data are a struct image
    uint64_t counts[STATES];       // of images
    unsigned char pass;
    struct conv_merge_totals totals;
};

// --- lines ---------------------------------------------------------------------------------------
// Terminated strings.

enum kind { BEGIN, RECORD, SUMMARY };

// The number of the text among those that the member may be; -1: it is another one.
static int line_choice(const char *line, const char *name, const char *const texts[], int count)
{
    struct conv_json_value value;
    if (!conv_json_read(&value, line, name))
        return -1;
    for (int i = 0; i < count; i++)
        if (value.size == strlen(texts[i]) + 2 &&
            memcmp(value.text + 1, texts[i], value.size - 2) == 0)
            return i;
    return -1;
}

// enum kind, or -1 if the line, of `length` bytes, is no record.
static int line_kind(const char *line, ssize_t length)
{
    static const char *const kinds[] = {"begin", "file", "summary"};
    return strlen(line) == (size_t)length && conv_json_is_object(line)
               ? line_choice(line, "type", kinds, 3)
               : -1;
}

// A member of an object, which may be inside a line: 0 if it is not a number; false if it is not a
// text or longer than size - 1 bytes.
static uint64_t line_integer(const char *object, const char *name)
{
    struct conv_json_value value;
    uint64_t number;
    return conv_json_read(&value, object, name) && conv_json_integer(&value, &number) ? number : 0;
}

static bool line_text(char *text, size_t size, const char *object, const char *name)
{
    struct conv_json_value value;
    return conv_json_read(&value, object, name) && conv_json_text(&value, text, size);
}

// enum state of a record, or -1 if it has none.
static int line_state(const char *line)
{
    static const char *const states[STATES] = {"failed", "planned", "skipped", "copied", "done"};
    return line_choice(line, "status", states, STATES);
}

// The input of a record as it stands in the line, escapes included (all reports escape alike), and
// its digest. False if it has none.
static bool line_name(struct conv_digest *digest, struct conv_json_value *name, const char *line)
{
    *digest = (struct conv_digest){0};
    if (!conv_json_read(name, line, "input") || name->size < 2 || name->size > NAME_MOST)
        return false;
    conv_hash_add(digest, name->text, name->size);
    return true;
}

// --- reading -------------------------------------------------------------------------------------

static enum conv_status no_memory(struct conv_err *err)
{
    return conv_err_memory(err, "no memory for the reports");
}

enum conv_status conv_merge_open(struct conv_merge **merge, struct conv_err *err)
{
    *merge = calloc(1, sizeof **merge);
    if (!*merge)
        return no_memory(err);
    (*merge)->images.data_bytes = sizeof(struct image);
    return CONV_OK;
}

void conv_merge_close(struct conv_merge *merge)
{
    if (!merge)
        return;
    conv_digest_set_free(&merge->images);
    free(merge->reports);
    free(merge->last);
    free(merge->finished);
    free(merge);
}

static enum conv_status read_shard(struct conv_merge *merge, struct report *report,
                                   const char *line, struct conv_err *err)
{
    struct conv_json_value shard;
    report->shard = -1;
    if (!conv_json_read(&shard, line, "shard"))
        return CONV_OK;
    uint64_t index = line_integer(shard.text, "index"), count = line_integer(shard.text, "count");
    if (count < 1 || count > SHARDS_MOST || index >= count)
        return conv_err_usage(err, "%s: there is no shard %" PRIu64 " of %" PRIu64, report->path,
                              index, count);
    if (merge->shards && merge->shards != (int)count)
        return conv_err_usage(
            err, "%s: shard %" PRIu64 "/%" PRIu64 " is of another job: the others are of %d shards",
            report->path, index, count, merge->shards);
    if (!merge->shards) {
        merge->last = calloc(count, sizeof(struct report *));
        merge->finished = calloc(count, sizeof(bool));
        if (!merge->last || !merge->finished)
            return no_memory(err);
        merge->shards = (int)count;
    }
    report->shard = (int)index;
    return CONV_OK;
}

static enum conv_status read_begin(struct conv_merge *merge, struct report *report,
                                   const char *line, struct conv_err *err)
{
    char filter[sizeof merge->filter];
    if (!line_text(filter, sizeof filter, line, "filter"))
        filter[0] = '\0';
    if (merge->count == 0)
        strcpy(merge->filter, filter); // of the same size
    else if (strcmp(filter, merge->filter) != 0)
        return conv_err_usage(err, "%s is of another job: its filter is %s, not %s", report->path,
                              filter, merge->filter);
    return read_shard(merge, report, line, err);
}

// Images of one shard may be in several of its runs; that of a failed run is replaced.
static enum conv_status read_file(struct conv_merge *merge, const struct report *report,
                                  const char *line, struct conv_err *err)
{
    struct conv_merge_totals *totals = &merge->totals;
    struct conv_digest digest;
    struct conv_json_value name;
    bool added;
    int state = line_state(line);
    if (state < 0 || !line_name(&digest, &name, line)) {
        totals->damaged++;
        return CONV_OK;
    }
    enum conv_status status = conv_digest_set_add(&merge->images, &digest, &added, err);
    if (status)
        return status;
    struct image *image = conv_digest_set_data(&merge->images, &digest);
    if (state == DONE) {
        totals->pixels += line_integer(line, "width") * line_integer(line, "height");
        totals->bytes_in += line_integer(line, "bytes_in");
        totals->bytes_out += line_integer(line, "bytes_out");
    }
    if (added) {
        merge->counts[state]++;
        *image = (struct image){.state = (enum state)state, .report = merge->count};
        return CONV_OK;
    }
    const struct report *before =
        image->report == merge->count ? report : &merge->reports[image->report];
    bool same = before == report || (report->shard >= 0 && before->shard == report->shard);
    bool both = state == DONE && image->state == DONE;
    // A folder that cannot be read fails in every shard.
    bool all_failed = state == FAILED && image->state == FAILED;
    totals->repeated += same && both;
    // Runs that are not shards may follow each other.
    bool overlaps = report->shard >= 0 || before->shard >= 0 ? !all_failed : both;
    if (!same && overlaps && !image->overlaps) {
        if (totals->overlaps++ == 0 &&
            !line_text(totals->overlap, sizeof totals->overlap, line, "input"))
            snprintf(totals->overlap, sizeof totals->overlap, "%.*s", (int)name.size, name.text);
        image->overlaps = true;
    }
    if (state >= (int)image->state) {
        merge->counts[image->state]--;
        merge->counts[state]++;
        image->state = (enum state)state;
        image->report = merge->count;
    }
    return CONV_OK;
}

static void read_summary(struct conv_merge *merge, struct report *report, const char *line)
{
    struct conv_json_value value;
    uint64_t code;
    merge->totals.replaced += line_integer(line, "replaced");
    report->is_finished =
        conv_json_read(&value, line, "exit_code") && conv_json_integer(&value, &code) && code < 128;
    if (conv_json_read(&value, line, "seconds"))
        (void)conv_json_number(&value, &report->seconds);
    if (conv_json_read(&value, line, "listing") &&
        line_text(report->listing.digest, sizeof report->listing.digest, value.text, "digest"))
        report->listing.images = line_integer(value.text, "images");
}

// Lines in order: `take` gets each with its newline removed. The last of a run that was
// killed may be cut short.
static enum conv_status read_lines(struct conv_merge *merge, struct report *report, FILE *file,
                                   struct conv_err *err)
{
    char *line = NULL;
    size_t size = 0;
    ssize_t length;
    bool begun = false;
    enum conv_status status = CONV_OK;
    while (!status && (length = getline(&line, &size, file)) > 0) {
        bool whole = line[length - 1] == '\n';
        int kind = line_kind(line, length);
        if (!begun && kind != BEGIN) {
            status = conv_err_usage(err, "%s is not a report in JSON Lines", report->path);
        } else if (kind == BEGIN) {
            // Reports that were appended to each other are several runs of one shard.
            report->is_finished = false;
            status = read_begin(merge, report, line, err);
            begun = true;
        } else if (kind == RECORD) {
            status = read_file(merge, report, line, err);
        } else if (kind == SUMMARY) {
            read_summary(merge, report, line);
        } else {
            merge->totals.damaged += whole;
        }
    }
    if (!status && ferror(file))
        status = conv_err_errno(err, errno, "cannot read %s", report->path);
    free(line);
    return status;
}

static enum conv_status open_report(struct conv_merge *merge, struct report *report, FILE **file,
                                    struct conv_err *err)
{
    struct stat info;
    *file = fopen(report->path, "re");
    if (!*file || fstat(fileno(*file), &info) != 0) {
        conv_err_errno(err, errno, "cannot open the report %s", report->path);
        return err->status = CONV_ERR_USAGE;
    }
    if (!S_ISREG(info.st_mode))
        return conv_err_usage(err, "%s is not a file that can be read twice", report->path);
    report->device = info.st_dev;
    report->inode = info.st_ino;
    for (int i = 0; i < merge->count; i++)
        if (merge->reports[i].device == info.st_dev && merge->reports[i].inode == info.st_ino)
            return conv_err_usage(err, "%s and %s are the same report", merge->reports[i].path,
                                  report->path);
    return CONV_OK;
}

enum conv_status conv_merge_add(struct conv_merge *merge, const char *path, struct conv_err *err)
{
    struct report report = {.path = path, .shard = -1};
    FILE *file = NULL;
    struct report *reports = conv_array_grow(merge->reports, (size_t)merge->count, sizeof *reports);
    if (!reports)
        return no_memory(err);
    merge->reports = reports;
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
        struct report *report = &merge->reports[i];
        if (report->shard >= 0 && (report->listing.digest[0] || !merge->last[report->shard]))
            merge->last[report->shard] = report;
    }
}

void conv_merge_count(struct conv_merge *merge, struct conv_merge_totals *totals)
{
    const uint64_t *counts = merge->counts;
    const struct conv_record_listing *listing = NULL;
    bool complete = merge->shards > 0;
    find_last(merge);
    merge->totals.unreported = 0;
    *totals = merge->totals;
    totals->reports = merge->count;
    totals->shards = merge->shards;
    totals->done = counts[DONE];
    totals->failed = counts[FAILED];
    totals->skipped = counts[SKIPPED];
    totals->planned = counts[PLANNED];
    totals->copied = counts[COPIED];
    for (int s = 0; s < merge->shards; s++) {
        const struct report *report = merge->last[s];
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
    return merge->last[shard] ? CONV_MERGE_UNFINISHED : CONV_MERGE_MISSING;
}

const char *conv_merge_next_unfinished(const struct conv_merge *merge, int *at)
{
    while (*at < merge->count) {
        const struct report *report = &merge->reports[(*at)++];
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
    char input[NAME_MOST], reason[4096 + 512];
    int state = line_state(line);
    struct image *image = state >= 0 && line_name(&digest, &name, line)
                              ? conv_digest_set_data(&copy->merge->images, &digest)
                              : NULL;
    if (!image || image->report != number || (int)image->state != state ||
        image->pass == copy->merge->pass)
        return;
    image->pass = copy->merge->pass;
    if (copy->stream)
        fprintf(copy->stream, "%.*s\n", (int)strcspn(line, "\n"), line);
    if (copy->failed && state == FAILED) {
        if (!line_text(input, sizeof input, line, "input"))
            snprintf(input, sizeof input, "%.*s", (int)name.size, name.text);
        copy->failed(input, line_text(reason, sizeof reason, line, "error") ? reason : "failed");
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
        if (line_kind(line, length) == RECORD)
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
            ",\"bytes_out\":%" PRIu64 ",\"replaced\":%" PRIu64,
            exit_code, totals->done, totals->failed, totals->skipped, totals->planned,
            totals->copied, totals->seconds, totals->pixels, totals->bytes_in, totals->bytes_out,
            totals->replaced);
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
    if (stream) {
        fputs("{\"type\":\"begin\",\"schema\":1,\"version\":\"" CONV_VERSION "\",\"filter\":",
              stream);
        conv_json_string(stream, merge->filter);
        fputs(",\"dry_run\":false}\n", stream);
    }
    merge->pass++;
    for (int i = 0; i < merge->count && !status; i++)
        status = copy_report(&copy, i, err);
    if (stream && !status)
        write_summary(merge, stream, exit_code);
    return status;
}
