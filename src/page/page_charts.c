// SPDX-License-Identifier: MIT
// The page's shares of stages, its throughput over streams and its ladder of kernels.
#include <string.h>

#include "page/page_internal.h"

const char *conv_page_stage_label(enum conv_stage stage)
{
    static const char *const labels[CONV_STAGE_COUNT] = {"read",     "decode", "copy in", "kernel",
                                                         "copy out", "encode", "write"};
    return labels[stage];
}

void conv_page_bind_figures(struct conv_template *filled, const struct conv_figures *figures)
{
    conv_template_number(filled, "images_per_s", figures->images_per_s,
                         figures->images_per_s < 100 ? 1 : 0);
    conv_template_number(filled, "mpix_per_s", figures->mpix_per_s,
                         figures->mpix_per_s < 100 ? 1 : 0);
    conv_template_number(filled, "waiting", 100 * figures->waiting, 1);
    conv_template_number(filled, "cpu_utilisation", 100 * figures->cpu_utilisation, 0);
    conv_template_number(filled, "overlap_two", 100 * figures->overlap_two, 1);
    conv_template_number(filled, "overlap_three", 100 * figures->overlap_three, 1);
}

void conv_page_bind_copies(struct conv_template *filled, const struct conv_page_copies *copies)
{
    conv_template_number(filled, "copy_in", copies->in, 1);
    conv_template_number(filled, "copy_out", copies->out, 1);
    conv_template_number(filled, "copy_both", copies->both, 1);
    conv_template_number(filled, "small_count", copies->small_count, 0);
    conv_template_number(filled, "small_streams", copies->small_streams, 0);
    conv_template_number(filled, "small_one", copies->small_one, 2);
    conv_template_number(filled, "small_many", copies->small_many, 2);
    conv_template_number(filled, "small_group", copies->small_group, 2);
}

// --- stages --------------------------------------------------------------------------------------

static bool is_on_device(const struct conv_page *page, int stage)
{
    bool async = page->config ? page->config->device_async : page->counts_streams;
    return async && stage >= CONV_STAGE_COPY_IN && stage <= CONV_STAGE_COPY_OUT;
}

// Where filtering needs no copies, they are not listed; nor are stages that a benchmark skips.
static bool is_listed(const struct conv_page *page, int stage)
{
    bool copy = stage == CONV_STAGE_COPY_IN || stage == CONV_STAGE_COPY_OUT;
    bool measured = !page->device_only || copy || stage == CONV_STAGE_KERNEL;
    bool written = !page->lines || stage != CONV_STAGE_WRITE;
    return measured && written && (!copy || is_on_device(page, stage));
}

// Workers have shares of their time, a device of the run's, so lists do not mix the two.
enum stage_kind { ALL_STAGES, WORKER_STAGES, DEVICE_STAGES };

// The i-th listed stage of a kind; CONV_STAGE_COUNT after the last one.
static int find_stage(const struct conv_page *page, int i, enum stage_kind kind)
{
    int stage = 0;
    for (; stage < CONV_STAGE_COUNT; stage++) {
        bool wanted = kind == ALL_STAGES || is_on_device(page, stage) == (kind == DEVICE_STAGES);
        if (wanted && is_listed(page, stage) && i-- == 0)
            break;
    }
    return stage;
}

static bool next_stage(struct conv_template *filled, int index, enum stage_kind kind)
{
    const struct conv_page_state *state = filled->context;
    const struct conv_page *page = state->page;
    int stage = find_stage(page, index, kind);
    if (stage == CONV_STAGE_COUNT)
        return false;
    conv_template_text(filled, "stage", conv_record_stage_name((enum conv_stage)stage));
    conv_template_text(filled, "stage_label", conv_page_stage_label((enum conv_stage)stage));
    const struct conv_figures *figures = state->shown ? state->shown : &state->figures;
    conv_template_number(filled, "stage_busy", 100 * figures->busy[stage], 1);
    conv_template_number(filled, "stage_width", 100 * figures->busy[stage], 3);
    if (page->totals) {
        double ns = (double)page->totals->ns[stage];
        conv_template_number(filled, "stage_seconds", ns / 1e9, 2);
        conv_template_number(filled, "stage_each",
                             page->totals->done ? ns / 1e6 / (double)page->totals->done : 0, 3);
    }
    return true;
}

// --- streams -------------------------------------------------------------------------------------

static bool next_line(struct conv_template *filled, int index)
{
    struct conv_page_state *state = filled->context;
    const struct conv_page *page = state->page;
    if (index >= page->line_count)
        return false;
    const struct conv_page_line *line = &page->lines[index];
    double top = 0;
    for (int i = 0; i < page->line_count; i++)
        top = page->lines[i].figures.mpix_per_s > top ? page->lines[i].figures.mpix_per_s : top;
    state->shown = &line->figures;
    conv_page_bind_figures(filled, &line->figures);
    conv_template_number(filled, "line_index", index, 0);
    conv_template_number(filled, "line_value", line->count, 0);
    snprintf(state->line, sizeof state->line, "%d %s%s", line->count,
             page->counts_streams ? "stream" : "worker", line->count == 1 ? "" : "s");
    conv_template_text(filled, "line_name", state->line);
    conv_template_number(filled, "speed_up", line->speed_up, 2);
    conv_template_number(filled, "share_of_copy", 100 * line->share_of_copy, 1);
    conv_template_number(filled, "line_width", top > 0 ? 100 * line->figures.mpix_per_s / top : 0,
                         2);
    conv_template_number(filled, "line_rate", line->figures.mpix_per_s,
                         line->figures.mpix_per_s < 100 ? 1 : 0);
    conv_template_text(filled, "line_unit", "Mpix/s");
    return true;
}

// --- kernels -------------------------------------------------------------------------------------

static bool has_kernels(const struct conv_page_ladder *ladder, int place)
{
    for (int i = 0; i < ladder->kernel_count; i++)
        if (ladder->kernels[i].place == place && ladder->kernels[i].ms > 0)
            return true;
    return false;
}

// A panel per ladder and place. A figure's key begins with the rows of its ladder in the record.
static bool next_panel(struct conv_template *filled, int index)
{
    struct conv_page_state *state = filled->context;
    const struct conv_page *page = state->page;
    int panel = 0, most = CONV_PAGE_MOST_PLACES * page->ladder_count;
    for (; panel < most; panel++)
        if (has_kernels(&page->ladders[panel / CONV_PAGE_MOST_PLACES],
                        panel % CONV_PAGE_MOST_PLACES) &&
            index-- == 0)
            break;
    if (panel == most)
        return false;
    state->ladder = panel / CONV_PAGE_MOST_PLACES;
    state->place = panel % CONV_PAGE_MOST_PLACES;
    const struct conv_page_ladder *ladder = &page->ladders[state->ladder];
    const char *machine = ladder->places[state->place];
    double copy = ladder->copy_gb_per_s[state->place];
    snprintf(state->panel, sizeof state->panel, "%s", machine);
    snprintf(state->rows, sizeof state->rows, "rows");
    if (page->ladder_count > 1) {
        snprintf(state->panel, sizeof state->panel, "%s, %s", machine, ladder->images);
        snprintf(state->rows, sizeof state->rows, "%d.rows", state->ladder);
    }
    conv_template_number(filled, "panel_index", panel, 0);
    conv_template_text(filled, "panel_title", state->panel);
    conv_template_text(filled, "kernel_rows", state->rows);
    conv_template_text(filled, "compared_with", ladder->compared ? ladder->compared : "");
    char copied[64] = "the copy in this table";
    if (copy > 0)
        snprintf(copied, sizeof copied, "a copy of the same bytes, %.1f GB/s", copy);
    snprintf(state->lede, sizeof state->lede,
             "Bytes read and written per second, from the simplest kernel to the fastest. "
             "The share is of the speed of %s, the dashed line at 100 %%; the step (×) is "
             "over the variant before. Medians, with cold caches.",
             copied);
    conv_template_text(filled, "panel_lede", state->lede);
    return true;
}

static bool next_kernel(struct conv_template *filled, int index, bool measured_only)
{
    const struct conv_page_state *state = filled->context;
    const struct conv_page_ladder *ladder = &state->page->ladders[state->ladder];
    double copy = ladder->copy_gb_per_s[state->place], top = copy;
    int found = -1;
    for (int i = 0; i < ladder->kernel_count; i++) {
        const struct conv_page_kernel *kernel = &ladder->kernels[i];
        if (kernel->place != state->place || (measured_only && kernel->ms <= 0))
            continue;
        top = kernel->gb_per_s > top ? kernel->gb_per_s : top;
        copy = strcmp(kernel->kind, "copy") == 0 ? kernel->gb_per_s : copy;
        if (index-- == 0)
            found = i;
    }
    if (found < 0)
        return false;
    const struct conv_page_kernel *kernel = &ladder->kernels[found];
    conv_template_text(filled, "kernel_name", kernel->name);
    conv_template_text(filled, "kernel_kind", kernel->kind);
    conv_template_text(filled, "kernel_summary", kernel->summary);
    conv_template_number(filled, "kernel_index", found, 0);
    conv_template_number(filled, "kernel_width", top > 0 ? 100 * kernel->gb_per_s / top : 0, 2);
    conv_template_number(filled, "kernel_rate", kernel->gb_per_s, kernel->gb_per_s < 100 ? 2 : 0);
    conv_template_number(filled, "kernel_of_copy", 100 * kernel->share_of_copy, 0);
    conv_template_number(filled, "kernel_step_value", kernel->step, 2);
    conv_template_number(filled, "kernel_limit", top > 0 ? 100 * copy / top : 0, 2);
    conv_template_number(filled, "kernel_ms", kernel->ms, 3);
    conv_template_number(filled, "kernel_ms_min", kernel->ms_min, 3);
    conv_template_number(filled, "kernel_ms_max", kernel->ms_max, 3);
    conv_template_number(filled, "kernel_runs", kernel->runs, 0);
    conv_template_number(filled, "kernel_tflops", kernel->tflop_per_s, 4);
    conv_template_number(filled, "kernel_old_ms", kernel->old_ms, 3);
    conv_template_number(filled, "kernel_speed_up",
                         kernel->ms > 0 ? kernel->old_ms / kernel->ms : 0, 2);
    conv_template_text(filled, "kernel_change", kernel->change ? kernel->change : "");
    return true;
}

static bool is_compared(const struct conv_template *filled)
{
    const struct conv_page_state *state = filled->context;
    return state->page->ladders[state->ladder].compared != NULL;
}

// Kernels of layers have figures of their arithmetic.
static bool has_tflops(const struct conv_template *filled)
{
    const struct conv_page_state *state = filled->context;
    const struct conv_page_ladder *ladder = &state->page->ladders[state->ladder];
    for (int i = 0; i < ladder->kernel_count; i++)
        if (ladder->kernels[i].tflop_per_s > 0)
            return true;
    return false;
}

// Conditions on the kernel whose values are bound.
static bool kernel_has(const struct conv_template *filled, const char *what)
{
    const struct conv_page_state *state = filled->context;
    for (int i = 0; i < filled->count; i++) {
        if (strcmp(filled->values[i].name, "kernel_index") != 0)
            continue;
        const struct conv_page_kernel *kernel =
            &state->page->ladders[state->ladder].kernels[(int)filled->values[i].number];
        if (strcmp(what, "kernel_share") == 0)
            return strcmp(kernel->kind, "copy") != 0;
        if (strcmp(what, "kernel_compared") == 0)
            return kernel->change != NULL;
        return strcmp(what, "kernel_step") == 0 ? kernel->step > 0 : kernel->ms > 0;
    }
    return false;
}

bool conv_page_next_chart(struct conv_template *filled, const char *list, int index)
{
    if (strcmp(list, "stages") == 0 || strcmp(list, "worker_stages") == 0)
        return next_stage(filled, index, WORKER_STAGES);
    if (strcmp(list, "device_stages") == 0)
        return next_stage(filled, index, DEVICE_STAGES);
    if (strcmp(list, "legend") == 0 || strcmp(list, "stage_heads") == 0 ||
        strcmp(list, "stage_cells") == 0)
        return next_stage(filled, index, ALL_STAGES);
    if (strcmp(list, "line_bars") == 0 || strcmp(list, "line_rows") == 0)
        return next_line(filled, index);
    if (strcmp(list, "kernel_panels") == 0)
        return next_panel(filled, index);
    if (strcmp(list, "kernels") == 0 || strcmp(list, "kernel_lines") == 0)
        return next_kernel(filled, index, strcmp(list, "kernels") == 0);
    if (strcmp(list, "kernel_share") == 0 || strcmp(list, "kernel_step") == 0 ||
        strcmp(list, "kernel_measured") == 0 || strcmp(list, "kernel_compared") == 0)
        return index == 0 && kernel_has(filled, list);
    if (strcmp(list, "panel_compared") == 0)
        return index == 0 && is_compared(filled);
    if (strcmp(list, "panel_tflops") == 0)
        return index == 0 && has_tflops(filled);
    return false;
}
