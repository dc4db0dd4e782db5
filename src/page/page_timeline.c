// SPDX-License-Identifier: MIT
// The page's timelines: one row per thread and engine, each stage is an area whose height is its
// share of the time at that moment. Rows with few slices also carry them as data, and the page's
// script draws each of them. The size is bounded, however long the run and however many the rows.
#include <string.h>

#include "page/page_internal.h"
#include "report/text.h"

#define MOST_ROWS 64
#define MOST_CELLS 8192   // rows times bins; a cell takes up to 7 bytes per stage
#define MOST_SLICES 12288 // 2,000 images on workers; a slice takes 10 to 20 bytes, and its name

static const struct {
    uint64_t ns;
    const char *name;
} units[] = {{1000000000, "s"}, {1000000, "ms"}, {1000, "µs"}};

// "250 ms"
static void describe(char *text, size_t size, uint64_t ns)
{
    int unit = 0;
    while (unit < 2 && ns < units[unit].ns)
        unit++;
    snprintf(text, size, "%.3g %s", (double)ns / (double)units[unit].ns, units[unit].name);
}

// A round step (1, 2 or 5 of a power of ten) that makes 4 to 10 ticks.
static uint64_t choose_tick(uint64_t span)
{
    static const uint64_t steps[] = {1, 2, 5};
    for (uint64_t power = 1000;; power *= 10)
        for (int i = 0; i < 3; i++)
            if (steps[i] * power * 6 >= span)
                return steps[i] * power;
}

// --- rows ----------------------------------------------------------------------------------------

struct row {
    const char *name;
    struct conv_timeline *bins;
    const struct conv_slices *slices;
};

// The i-th row of a timeline: streams first, also those that were opened later than the workers.
// Tracks without a slice are not counted.
static bool find_row(const struct conv_page_state *state, int timeline, int i, struct row *row)
{
    const struct conv_trace *trace = state->page->timelines[timeline].trace;
    for (int of_streams = 1; of_streams >= 0; of_streams--)
        for (int track = 0; conv_trace_timeline(trace, track, &row->name, &row->bins, &row->slices);
             track++)
            if ((strncmp(row->name, "stream ", 7) == 0) == of_streams &&
                (row->slices->count > 0 || row->slices->overflowed) && i-- == 0)
                return true;
    return false;
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
static void choose_listed(struct conv_page_state *state, int timeline, int rows, int most)
{
    struct row row;
    bool any = true;
    while (any) {
        int least = -1, count = 0;
        for (int i = 0; i < rows; i++) {
            find_row(state, timeline, i, &row);
            if (!state->is_listed[timeline][i] && !row.slices->overflowed &&
                (least < 0 || row.slices->count < count)) {
                least = i;
                count = row.slices->count;
            }
        }
        any = least >= 0 && count <= most;
        if (any) {
            state->is_listed[timeline][least] = true;
            most -= count;
        }
    }
}

// All rows get bins of one width; the last used one is where the chart ends.
bool conv_page_prepare_timeline(struct conv_template *filled, struct conv_page_state *state)
{
    const struct conv_page *page = state->page;
    struct row row;
    int last = 0, most_rows = 0;
    state->bin_width = 0;
    for (int t = 0; t < page->timeline_count; t++)
        for (int i = 0; find_row(state, t, i, &row); i++)
            state->bin_width =
                row.bins->width > state->bin_width ? row.bins->width : state->bin_width;
    for (int t = 0; t < page->timeline_count; t++) {
        int rows = 0;
        for (; find_row(state, t, rows, &row) && rows < MOST_ROWS; rows++) {
            conv_timeline_widen(row.bins, state->bin_width);
            int used = last_used(row.bins);
            last = used > last ? used : last;
        }
        most_rows = rows > most_rows ? rows : most_rows;
        choose_listed(state, t, rows, MOST_SLICES / page->timeline_count);
    }
    if (last == 0)
        return false;
    state->merge = 1;
    while (page->timeline_count * most_rows * ((last + state->merge - 1) / state->merge) >
           MOST_CELLS)
        state->merge *= 2;
    state->bins = (last + state->merge - 1) / state->merge;
    state->span = state->bin_width * (uint64_t)(state->bins * state->merge);
    state->tick = choose_tick(state->span);
    describe(state->span_text, sizeof state->span_text, state->span);
    conv_template_text(filled, "timeline_span", state->span_text);
    snprintf(state->span_us, sizeof state->span_us, "%llu",
             (unsigned long long)(state->span / 1000));
    conv_template_text(filled, "span_us", state->span_us); // for the script, without separators
    conv_template_number(filled, "row_bins", state->bins, 0);
    return true;
}

// --- areas ---------------------------------------------------------------------------------------

// Percent of bin `bin` that stages 0 to `top` took.
static int stacked(const struct conv_page_state *state, int bin, int top)
{
    uint64_t ns = 0;
    for (int b = bin * state->merge; b < (bin + 1) * state->merge && b < CONV_TIMELINE_BINS; b++)
        for (int s = 0; s <= top; s++)
            ns += state->bin->ns[b][s];
    uint64_t all = state->bin_width * (uint64_t)state->merge;
    int share = (int)((ns * 100 + all / 2) / all);
    return share < 100 ? share : 100;
}

static uint64_t stage_ns(const struct conv_timeline *bins, int stage)
{
    uint64_t sum = 0;
    for (int b = 0; b < CONV_TIMELINE_BINS; b++)
        sum += bins->ns[b][stage];
    return sum;
}

// Writes the areas from the tallest to the lowest, each drawn over the one before.
static void write_areas(FILE *file, const void *what)
{
    const struct conv_page_state *state = what;
    for (int s = CONV_STAGE_COUNT - 1; s >= 0; s--) {
        if (stage_ns(state->bin, s) == 0)
            continue;
        fprintf(file, "<path class=\"%s\" d=\"M0 100", conv_record_stage_name((enum conv_stage)s));
        int height = 0, run = 0;
        for (int b = 0; b < state->bins; b++, run++) {
            int share = stacked(state, b, s);
            if (share == height)
                continue;
            if (run > 0)
                fprintf(file, "h%d", run);
            fprintf(file, "V%d", 100 - share);
            height = share;
            run = 0;
        }
        fprintf(file, "h%dV100z\"/>", run);
    }
}

// --- slices --------------------------------------------------------------------------------------

// {"names":["a.png",...],"slices":[...]}: for each slice the µs since the start of the slice
// before, its duration in µs, its stage, and the number of its name.
static void write_row_slices(FILE *file, const struct conv_slices *slices)
{
    fputs("{\"names\":[", file);
    for (int i = 0; i < slices->count; i++) {
        if (i > 0 && slices->list[i].text == slices->list[i - 1].text)
            continue;
        fputs(i > 0 ? ",\"" : "\"", file);
        conv_text_json(file, slices->text + slices->list[i].text);
        fputc('"', file);
    }
    fputs("],\"slices\":[", file);
    int name = -1;
    int64_t before = 0;
    for (int i = 0; i < slices->count; i++) {
        const struct conv_slice *slice = &slices->list[i];
        int64_t start = (int64_t)(slice->start / 1000);
        name += i == 0 || slice->text != slices->list[i - 1].text;
        fprintf(file, "%s%lld,%llu,%d,%d", i > 0 ? "," : "", (long long)(start - before),
                (unsigned long long)((slice->end - slice->start + 500) / 1000), slice->stage, name);
        before = start;
    }
    fputs("]}", file);
}

// An array with an entry per row; null where there are only areas.
static void write_slices(FILE *file, const void *what)
{
    const struct conv_page_state *state = what;
    struct row row;
    fputc('[', file);
    for (int i = 0; i < MOST_ROWS && find_row(state, state->timeline_shown, i, &row); i++) {
        fputs(i > 0 ? ",\n" : "", file);
        if (state->is_listed[state->timeline_shown][i])
            write_row_slices(file, row.slices);
        else
            fputs("null", file);
    }
    fputc(']', file);
}

// --- lists ---------------------------------------------------------------------------------------

static bool next_timeline(struct conv_template *filled, int index)
{
    struct conv_page_state *state = filled->context;
    struct row row;
    int rows = 0, listed = 0;
    if (index >= state->page->timeline_count)
        return false;
    state->timeline_shown = index;
    for (; find_row(state, index, rows, &row); rows++)
        listed += rows < MOST_ROWS && state->is_listed[index][rows];
    state->hidden_rows = rows > MOST_ROWS ? rows - MOST_ROWS : 0;
    conv_template_number(filled, "timeline_index", index, 0);
    conv_template_text(filled, "timeline_title", state->page->timelines[index].title);
    conv_template_number(filled, "hidden_rows", state->hidden_rows, 0);
    conv_template_number(filled, "coarse_rows", rows - state->hidden_rows - listed, 0);
    conv_template_markup(filled, "timeline_data", write_slices, state);
    state->coarse_rows = rows - state->hidden_rows - listed;
    return true;
}

static bool next_row(struct conv_template *filled, int index)
{
    struct conv_page_state *state = filled->context;
    struct row row;
    if (index == MOST_ROWS || !find_row(state, state->timeline_shown, index, &row))
        return false;
    state->bin = row.bins;
    conv_template_text(filled, "row_name", row.name);
    conv_template_markup(filled, "row_paths", write_areas, state);
    return true;
}

// The share of the whole timeline that the row spent in each stage.
static bool next_row_share(struct conv_template *filled, int index)
{
    const struct conv_page_state *state = filled->context;
    if (index == CONV_STAGE_COUNT)
        return false;
    uint64_t ns = stage_ns(state->bin, index);
    conv_template_number(filled, "row_share", 100 * (double)ns / (double)state->span, 1);
    return true;
}

static bool next_row_stage(struct conv_template *filled, int index)
{
    if (index == CONV_STAGE_COUNT)
        return false;
    conv_template_text(filled, "stage_label", conv_page_stage_label((enum conv_stage)index));
    return true;
}

static bool next_tick(struct conv_template *filled, int index)
{
    struct conv_page_state *state = filled->context;
    uint64_t at = state->tick * (uint64_t)index;
    if (at > state->span / 16 * 15) // its text would extend beyond the right edge
        return false;
    if (index == 0)
        snprintf(state->tick_text, sizeof state->tick_text, "0");
    else
        describe(state->tick_text, sizeof state->tick_text, at);
    conv_template_text(filled, "tick", state->tick_text);
    conv_template_number(filled, "tick_at", 100 * (double)at / (double)state->span, 2);
    return true;
}

bool conv_page_next_timeline(struct conv_template *filled, const char *list, int index)
{
    const struct conv_page_state *state = filled->context;
    if (strcmp(list, "timelines") == 0)
        return state->timeline && next_timeline(filled, index);
    if (strcmp(list, "timeline_named") == 0)
        return index == 0 && state->page->timelines[state->timeline_shown].title[0];
    if (strcmp(list, "rows") == 0 || strcmp(list, "row_lines") == 0)
        return next_row(filled, index);
    if (strcmp(list, "row_stages") == 0)
        return next_row_stage(filled, index);
    if (strcmp(list, "row_shares") == 0)
        return next_row_share(filled, index);
    if (strcmp(list, "more_rows") == 0)
        return index == 0 && state->hidden_rows > 0;
    if (strcmp(list, "some_coarse") == 0)
        return index == 0 && state->coarse_rows > 0;
    return strcmp(list, "ticks") == 0 && next_tick(filled, index);
}
