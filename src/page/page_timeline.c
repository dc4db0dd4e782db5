// SPDX-License-Identifier: MIT
// The page's timeline: one row per thread and engine, each stage an area whose height is its share
// of the moment. Its size is bounded, however long the run and however many the rows.
#include <string.h>

#include "page/page_internal.h"

#define MOST_ROWS 64
#define MOST_CELLS 8192 // rows times bins; a cell takes up to 7 bytes per stage

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

// All rows get bins of one width; the last used one is where the image ends.
bool conv_page_prepare_timeline(struct conv_template *filled, struct conv_page_state *state)
{
    const char *name;
    struct conv_timeline *row;
    int rows = 0, last = 0;
    state->bin_width = 0;
    for (; conv_trace_timeline(state->page->trace, rows, &name, &row); rows++)
        state->bin_width = row->width > state->bin_width ? row->width : state->bin_width;
    int all = rows;
    rows = all < MOST_ROWS ? all : MOST_ROWS;
    state->hidden_rows = all - rows;
    conv_template_number(filled, "hidden_rows", state->hidden_rows, 0);
    for (int i = 0; i < rows; i++) {
        conv_trace_timeline(state->page->trace, i, &name, &row);
        conv_timeline_widen(row, state->bin_width);
        for (int b = last; b < CONV_TIMELINE_BINS; b++)
            for (int s = 0; s < CONV_STAGE_COUNT; s++)
                last = row->ns[b][s] > 0 ? b + 1 : last;
    }
    if (last == 0)
        return false;
    state->merge = 1;
    while (rows * ((last + state->merge - 1) / state->merge) > MOST_CELLS)
        state->merge *= 2;
    state->bins = (last + state->merge - 1) / state->merge;
    state->span = state->bin_width * (uint64_t)(state->bins * state->merge);
    state->tick = choose_tick(state->span);
    describe(state->span_text, sizeof state->span_text, state->span);
    conv_template_text(filled, "timeline_span", state->span_text);
    conv_template_number(filled, "row_bins", state->bins, 0);
    return true;
}

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

static bool has_stage(const struct conv_page_state *state, int stage)
{
    for (int b = 0; b < CONV_TIMELINE_BINS; b++)
        if (state->bin->ns[b][stage] > 0)
            return true;
    return false;
}

// From the tallest to the lowest, each over the one before.
static void write_row(FILE *file, const void *what)
{
    const struct conv_page_state *state = what;
    for (int s = CONV_STAGE_COUNT - 1; s >= 0; s--) {
        if (!has_stage(state, s))
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

static bool next_row(struct conv_template *filled, int index)
{
    struct conv_page_state *state = filled->context;
    const char *name;
    struct conv_timeline *row;
    if (index == MOST_ROWS || !conv_trace_timeline(state->page->trace, index, &name, &row))
        return false;
    state->bin = row;
    conv_template_text(filled, "row_name", name);
    conv_template_markup(filled, "row_paths", write_row, state);
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
    if (strcmp(list, "rows") == 0)
        return next_row(filled, index);
    if (strcmp(list, "more_rows") == 0)
        return index == 0 && state->hidden_rows > 0;
    return strcmp(list, "ticks") == 0 && next_tick(filled, index);
}
