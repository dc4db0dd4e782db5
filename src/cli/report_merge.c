// SPDX-License-Identifier: MIT
// conv report merge REPORT...
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "base/standard.h"
#include "cli/commands.h"
#include "report/merge.h"
#include "report/report.h"

// The end of the file decides whether it was written.
static enum conv_status write_file(struct conv_merge *merge, const char *path, int code,
                                   struct conv_err *err)
{
    FILE *file = conv_standard_create(path, CONV_HINT_REPORT, err);
    if (!file)
        return CONV_ERR_USAGE;
    enum conv_status status = conv_merge_write(merge, file, code, NULL, err);
    enum conv_status closed = conv_standard_close(file, "the report ", path, status ? NULL : err);
    return status ? status : closed;
}

static enum conv_status check_output(const struct conv_options *options, struct conv_err *err)
{
    struct stat output, input;
    if (!options->report.path || stat(options->report.path, &output) != 0)
        return CONV_OK;
    for (int i = 1; i < options->operand_count; i++)
        if (stat(options->operands[i], &input) == 0 && input.st_dev == output.st_dev &&
            input.st_ino == output.st_ino)
            return conv_err_usage(err,
                                  "--report %s is one of the reports to merge; name another file",
                                  options->report.path);
    return CONV_OK;
}

static void print_failed(const char *input, const char *reason)
{
    conv_report_say("%s: %s", input, reason);
}

// The shards in that state as Slurm writes the tasks of an array: "0,3-5". Returns their number.
static int list_shards(char *text, size_t size, const struct conv_merge *merge, int count,
                       enum conv_merge_shard state)
{
    int found = 0;
    size_t used = 0;
    text[0] = '\0';
    for (int first = 0; first < count; first++) {
        int end = first;
        while (end < count && conv_merge_shard_state(merge, end) == state)
            end++;
        if (end == first)
            continue;
        found += end - first;
        if (used + 32 < size)
            used += (size_t)snprintf(text + used, size - used, end - first > 1 ? "%s%d-%d" : "%s%d",
                                     used ? "," : "", first, end - 1);
        else if (text[used - 1] != '.')
            used += (size_t)snprintf(text + used, size - used, ",...");
        first = end;
    }
    return found;
}

static bool print_shards(const struct conv_merge *merge, const struct conv_merge_totals *totals,
                         enum conv_merge_shard state, const char *what)
{
    char list[1024];
    int found = list_shards(list, sizeof list, merge, totals->shards, state);
    if (found > 0)
        conv_report_say("of %d shards %d %s: %s", totals->shards, found, what, list);
    return found > 0;
}

// What is wrong with the job, on stderr. Returns true if anything is.
static bool print_problems(const struct conv_merge *merge, const struct conv_merge_totals *totals)
{
    bool wrong = print_shards(merge, totals, CONV_MERGE_MISSING, "are missing");
    wrong |= print_shards(merge, totals, CONV_MERGE_UNFINISHED, "did not finish");
    int at = 0;
    for (const char *path; (path = conv_merge_next_unfinished(merge, &at)); wrong = true)
        conv_report_say("%s: the run did not finish", path);
    if (totals->is_mixed)
        conv_report_say("the shards have divided different images: the inputs have changed between "
                        "the tasks");
    if (totals->overlaps)
        conv_report_say("%" PRIu64 " image%s in several %s, such as %s", totals->overlaps,
                        totals->overlaps == 1 ? " is" : "s are",
                        totals->shards ? "shards" : "reports", totals->overlap);
    if (totals->unreported)
        conv_report_say("%" PRIu64 " image%s in no report", totals->unreported,
                        totals->unreported == 1 ? " is" : "s are");
    if (totals->damaged)
        conv_report_say("%" PRIu64 " damaged line%s", totals->damaged,
                        totals->damaged == 1 ? "" : "s");
    return wrong || totals->is_mixed || totals->overlaps || totals->unreported || totals->damaged;
}

static void print_totals(const struct conv_merge_totals *totals)
{
    printf("%d report%s", totals->reports, totals->reports == 1 ? "" : "s");
    if (totals->shards)
        printf(" of %d shard%s", totals->shards, totals->shards == 1 ? "" : "s");
    printf(": %" PRIu64 " done, %" PRIu64 " failed, %" PRIu64 " skipped", totals->done,
           totals->failed, totals->skipped);
    if (totals->copied)
        printf(", %" PRIu64 " copied", totals->copied);
    if (totals->planned)
        printf(", %" PRIu64 " to do", totals->planned);
    if (totals->repeated)
        printf(", %" PRIu64 " done twice", totals->repeated);
    if (totals->replaced)
        printf(", %" PRIu64 " replaced", totals->replaced);
    printf("; %.2f s in total, the longest run %.2f s\n", totals->seconds, totals->longest);
}

static enum conv_status merge_reports(const struct conv_options *options, struct conv_merge *merge,
                                      int *code, struct conv_err *err)
{
    struct conv_merge_totals totals;
    enum conv_status status = check_output(options, err);
    for (int i = 1; i < options->operand_count && !status; i++)
        status = conv_merge_add(merge, options->operands[i], err);
    if (status)
        return status;
    conv_merge_count(merge, &totals);
    bool wrong = print_problems(merge, &totals);
    *code = wrong || totals.failed ? CONV_EXIT_SOME_FAILED : CONV_EXIT_OK;
    status =
        conv_merge_write(merge, options->report.json ? stdout : NULL, *code, print_failed, err);
    if (!status && options->report.path)
        status = write_file(merge, options->report.path, *code, err);
    if (!status && !options->report.json && !options->report.quiet)
        print_totals(&totals);
    return status;
}

int conv_report_merge_main(const struct conv_options *options)
{
    struct conv_err err = {0};
    struct conv_merge *merge = NULL;
    int code = CONV_EXIT_OK;
    enum conv_status status;
    if (options->operand_count < 2 || strcmp(options->operands[0], "merge") != 0)
        status = conv_err_usage(&err, "conv report takes: merge REPORT...");
    else
        status = conv_merge_open(&merge, &err);
    if (!status)
        status = merge_reports(options, merge, &code, &err);
    conv_merge_close(merge);
    if (status)
        return conv_errors_fail(&err);
    int flushed = conv_errors_flush();
    return flushed ? flushed : code;
}
