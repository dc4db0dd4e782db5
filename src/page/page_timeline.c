// SPDX-License-Identifier: MIT
// The page's timelines: one row per thread and engine. Rows with few slices have each of them, the
// others the share of each stage by bin of time. The size is bounded, however long the run and
// however many the rows.
#include <inttypes.h>
#include <string.h>

#include "page/page.h"
#include "report/json.h"

#define MOST_ROWS 64
#define MOST_CELLS 8192   // rows times bins; a cell takes 14 bytes or more
#define MOST_SLICES 12288 // 2,000 images on workers; a slice takes 10 to 20 bytes, and its name

struct row {
    const char *name;
    struct conv_timeline *bins;
    const struct conv_slices *slices;
    bool is_listed; // its slices are written
};

struct chart {
    struct row rows[MOST_ROWS];
    int count, hidden;
};

// Streams first, also those that were opened later than the workers. Tracks without a slice are
// left out.
static void find_rows(struct chart *chart, const struct conv_trace *trace)
{
    struct row row = {0};
    for (int of_streams = 1; of_streams >= 0; of_streams--)
        for (int track = 0; conv_trace_timeline(trace, track, &row.name, &row.bins, &row.slices);
             track++) {
            if ((strstr(row.name, "stream ") != NULL) != of_streams ||
                (row.slices->count == 0 && !row.slices->overflowed))
                continue;
            if (chart->count < MOST_ROWS)
                chart->rows[chart->count++] = row;
            else
                chart->hidden++;
        }
}

static int last_used(const struct conv_timeline *bins)
{
    for (int b = CONV_TIMELINE_BINS; b > 0; b--)
        for (int s = 0; s < CONV_STAGE_COUNT; s++)
            if (bins->ns[b - 1][s] > 0)
                return b;
    return 0;
}

// Slices are listed for the rows that fit into what is left of the page's share; rows with fewer
// slices come first.
static void choose_listed(struct chart *chart, int most)
{
    for (;;) {
        struct row *least = NULL;
        for (int i = 0; i < chart->count; i++) {
            struct row *row = &chart->rows[i];
            if (!row->is_listed && !row->slices->overflowed &&
                (!least || row->slices->count < least->slices->count))
                least = row;
        }
        if (!least || least->slices->count > most)
            return;
        least->is_listed = true;
        most -= least->slices->count;
    }
}

// "names":["a.png",...],"slices":[...]: for each slice the µs since the start of the slice before,
// its duration in µs, its stage, and the number of its name.
static void write_slices(FILE *file, const struct conv_slices *slices)
{
    fputs(",\"names\":[", file);
    for (int i = 0; i < slices->count; i++) {
        if (i > 0 && slices->list[i].text == slices->list[i - 1].text)
            continue;
        fputs(i > 0 ? "," : "", file);
        conv_json_string(file, slices->text + slices->list[i].text);
    }
    fputs("],\"slices\":[", file);
    int name = -1;
    int64_t before = 0;
    for (int i = 0; i < slices->count; i++) {
        const struct conv_slice *slice = &slices->list[i];
        int64_t start = (int64_t)(slice->start / 1000);
        name += i == 0 || slice->text != slices->list[i - 1].text;
        fprintf(file, "%s%" PRId64 ",%" PRIu64 ",%d,%d", i > 0 ? "," : "", start - before,
                (slice->end - slice->start + 500) / 1000, slice->stage, name);
        before = start;
    }
    fputc(']', file);
}

// "bins":[...]: for each bin the percent of it that each stage took.
static void write_bins(FILE *file, const struct conv_timeline *bins, int count, int merge)
{
    uint64_t all = bins->width * (uint64_t)merge;
    for (int b = 0; b < count; b++)
        for (int s = 0; s < CONV_STAGE_COUNT; s++) {
            uint64_t ns = 0;
            for (int i = b * merge; i < (b + 1) * merge && i < CONV_TIMELINE_BINS; i++)
                ns += bins->ns[i][s];
            fprintf(file, "%s%d", b + s ? "," : ",\"bins\":[", (int)((ns * 100 + all / 2) / all));
        }
    fputc(']', file);
}

// All rows get bins of one width; the last used one is where the chart ends.
bool conv_page_write_timelines(const struct conv_page *page, FILE *file)
{
    struct chart charts[CONV_PAGE_MOST_TIMELINES] = {0};
    int last = 0, most_rows = 0, merge = 1;
    uint64_t width = 0;
    for (int t = 0; t < page->timeline_count; t++) {
        find_rows(&charts[t], page->timelines[t].trace);
        choose_listed(&charts[t], MOST_SLICES / page->timeline_count);
        most_rows = charts[t].count > most_rows ? charts[t].count : most_rows;
        for (int i = 0; i < charts[t].count; i++)
            width = charts[t].rows[i].bins->width > width ? charts[t].rows[i].bins->width : width;
    }
    for (int t = 0; t < page->timeline_count; t++)
        for (int i = 0; i < charts[t].count; i++) {
            conv_timeline_widen(charts[t].rows[i].bins, width);
            int used = last_used(charts[t].rows[i].bins);
            last = used > last ? used : last;
        }
    while (page->timeline_count * most_rows * ((last + merge - 1) / merge) > MOST_CELLS)
        merge *= 2;
    int bins = (last + merge - 1) / merge;
    for (int t = 0; t < page->timeline_count && last > 0; t++) {
        fprintf(file, "%c{\"span\":%" PRIu64 ",\"hidden\":%d", t ? ',' : '[',
                width * (uint64_t)(bins * merge) / 1000, charts[t].hidden);
        conv_json_member(file, "title", page->timelines[t].title);
        fputs(",\"rows\":[", file);
        for (int i = 0; i < charts[t].count; i++) {
            const struct row *row = &charts[t].rows[i];
            fputs(i ? ",\n{\"name\":" : "{\"name\":", file);
            conv_json_string(file, row->name);
            if (row->is_listed)
                write_slices(file, row->slices);
            else
                write_bins(file, row->bins, bins, merge);
            fputc('}', file);
        }
        fputs("]}", file);
    }
    if (last > 0)
        fputc(']', file);
    return last > 0;
}
