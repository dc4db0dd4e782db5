// SPDX-License-Identifier: MIT
// The second pass over the reports: copies the best record of each image.
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/features.h"
#include "report/json.h"
#include "report/merge_internal.h"

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
