// SPDX-License-Identifier: MIT
#include "bench/bench_streams.h"

#include <inttypes.h>

#include "report/json.h"

static bool is_shown(const struct conv_streams_table *table, int stage)
{
    bool copy = stage == CONV_STAGE_COPY_IN || stage == CONV_STAGE_COPY_OUT;
    if (table->device_only && stage != CONV_STAGE_KERNEL && !copy)
        return false;
    return (table->async || !copy) && stage != CONV_STAGE_WRITE;
}

// With the device alone there are no workers that could wait.
static bool has_waiting(const struct conv_streams_table *table)
{
    return !(table->device_only && table->async);
}

// --- text ----------------------------------------------------------------------------------------

static void print_copies(const struct conv_bench_copies *copies)
{
    printf("copies of pinned memory: %.1f GB/s in, %.1f GB/s out, %.1f GB/s both ways at once\n",
           copies->in, copies->out, copies->both);
    if (copies->small_count > 0)
        printf("%d images in and out: one by one %.2f ms, over %d streams %.2f ms, "
               "as groups %.2f ms\n",
               copies->small_count, copies->small_one, copies->small_streams, copies->small_many,
               copies->small_group);
}

void conv_streams_table_print_head(const struct conv_streams_table *table)
{
    conv_text_terminal(stdout, table->filter);
    printf(" on %s, %s\n", table->device,
           table->device_only ? "images in memory, results discarded" : "nothing written");
    if (table->async)
        puts("copy_in, kernel, copy_out: % of the run with a stream at it; the rest: % of the "
             "workers' time");
    else
        puts("stages and waiting: % of the workers' time");
    printf("medians of %d runs; slowest and fastest: img/s of one of them\n", CONV_STREAMS_RUNS);
    if (table->copied)
        print_copies(&table->copies);
    printf("%7s %9s %10s %9s %9s %9s ", table->async ? "streams" : "workers", "img/s", "Mpix/s",
           "speed-up", "slowest", "fastest");
    if (table->copied)
        printf(" %8s", "of copy");
    if (table->async)
        printf(" %8s %8s", "2 at once", "3 at once");
    for (int s = 0; s < CONV_STAGE_COUNT; s++)
        if (is_shown(table, s))
            printf(" %8s", conv_record_stage_name((enum conv_stage)s));
    printf(" %8s\n", has_waiting(table) ? "waiting" : "");
}

void conv_streams_table_print_line(const struct conv_streams_table *table, int line)
{
    const struct conv_streams_line *entry = &table->lines[line];
    const struct conv_figures *figures = &entry->figures;
    printf("%7d %9.1f %10.1f %8.2fx %9.1f %9.1f ", entry->count, figures->images_per_s,
           figures->mpix_per_s, entry->speed_up, entry->slowest, entry->fastest);
    if (table->copied)
        printf(" %8.1f", 100 * entry->share_of_copy);
    if (table->async)
        printf(" %9.1f %9.1f", 100 * figures->overlap_two, 100 * figures->overlap_three);
    for (int s = 0; s < CONV_STAGE_COUNT; s++)
        if (is_shown(table, s))
            printf(" %8.1f", 100 * figures->busy[s]);
    if (has_waiting(table))
        printf(" %8.1f", 100 * figures->waiting);
    putchar('\n');
    fflush(stdout);
}

// --- for programs --------------------------------------------------------------------------------

static void print_json_line(const struct conv_streams_table *table, int line, FILE *stream)
{
    const struct conv_streams_line *entry = &table->lines[line];
    const struct conv_totals *totals = &entry->totals;
    if (table->async)
        fprintf(stream, "{\"streams\":%d,", entry->count);
    else
        fputs("{\"streams\":null,", stream);
    fprintf(stream,
            "\"workers\":%d,\"done\":%" PRIu64 ",\"pixels\":%" PRIu64
            ",\"seconds\":%.9f,\"runs\":%d,\"images_per_s_min\":%.4f,\"images_per_s_max\":%.4f,"
            "\"speed_up\":%.4f,\"share_of_copy\":",
            entry->jobs, totals->done, totals->pixels, totals->seconds, CONV_STREAMS_RUNS,
            entry->slowest, entry->fastest, entry->speed_up);
    if (entry->share_of_copy < 0)
        fputs("null", stream);
    else
        fprintf(stream, "%.6f", entry->share_of_copy);
    conv_json_figures(stream, &entry->figures);
    fputc('}', stream);
}

static void print_json_copies(const struct conv_bench_copies *copies, FILE *stream)
{
    fprintf(stream, ",\"copy\":{\"in_gb_per_s\":%.4f,\"out_gb_per_s\":%.4f,\"both_gb_per_s\":%.4f}",
            copies->in, copies->out, copies->both);
    fprintf(stream,
            ",\"small\":{\"images\":%d,\"streams\":%d,\"one_by_one_ms\":%.4f,"
            "\"streams_ms\":%.4f,\"group_ms\":%.4f}",
            copies->small_count, copies->small_streams, copies->small_one, copies->small_many,
            copies->small_group);
}

void conv_streams_table_print_json(const void *context, FILE *stream)
{
    const struct conv_streams_table *table = context;
    fputs("{\"type\":\"bench-streams\",\"version\":\"" CONV_VERSION "\",\"filter\":", stream);
    conv_json_string(stream, table->filter);
    fputs(",\"folder\":", stream);
    conv_json_string(stream, table->folder);
    fputs(",\"device\":", stream);
    conv_json_string(stream, table->device);
    fprintf(stream, ",\"stage\":\"%s\"", table->device_only ? "device" : "all");
    if (table->copied)
        print_json_copies(&table->copies, stream);
    else
        fputs(",\"copy\":null,\"small\":null", stream);
    fputs(",\"rows\":[\n", stream);
    for (int i = 0; i < table->count; i++) {
        print_json_line(table, i, stream);
        fputs(i + 1 < table->count ? ",\n" : "\n", stream);
    }
    fputs("]}\n", stream);
}

void conv_streams_table_print_csv(const struct conv_streams_table *table)
{
    fputs("streams,workers,done,pixels,seconds,runs,images_per_s,images_per_s_min,"
          "images_per_s_max,mpix_per_s,speed_up,share_of_copy,overlap_two,overlap_three",
          stdout);
    for (int s = 0; s < CONV_STAGE_COUNT; s++)
        printf(",%s", conv_record_stage_name((enum conv_stage)s));
    puts(",waiting,cpu_utilisation");
    for (int i = 0; i < table->count; i++) {
        const struct conv_streams_line *entry = &table->lines[i];
        const struct conv_figures *figures = &entry->figures;
        const struct conv_totals *totals = &entry->totals;
        if (table->async)
            printf("%d", entry->count);
        printf(",%d,%" PRIu64 ",%" PRIu64 ",%.6f,%d,%.4f,%.4f,%.4f,%.4f,%.4f,", entry->jobs,
               totals->done, totals->pixels, totals->seconds, CONV_STREAMS_RUNS,
               figures->images_per_s, entry->slowest, entry->fastest, figures->mpix_per_s,
               entry->speed_up);
        if (entry->share_of_copy >= 0)
            printf("%.6f", entry->share_of_copy);
        if (table->async)
            printf(",%.6f,%.6f", figures->overlap_two, figures->overlap_three);
        else
            fputs(",,", stdout);
        for (int s = 0; s < CONV_STAGE_COUNT; s++)
            printf(",%.6f", figures->busy[s]);
        printf(",%.6f,%.6f\n", figures->waiting, figures->cpu_utilisation);
    }
}
