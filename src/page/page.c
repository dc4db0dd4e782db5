// SPDX-License-Identifier: MIT
#include "page/page.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "page/page_internal.h"
#define PAGE_TEXT(name, text) static const char name[] = text;
#include "page_texts.h"
#undef PAGE_TEXT

// --- values of the whole page --------------------------------------------------------------------

static void write_text(FILE *file, const void *what)
{
    fputs(what, file);
}

// "copy out" for the record's "copy_out"; other words, such as "listing", as they are.
static const char *label_of(const char *limit)
{
    for (int s = 0; limit && s < CONV_STAGE_COUNT; s++)
        if (strcmp(limit, conv_record_stage_name((enum conv_stage)s)) == 0)
            return conv_page_stage_label((enum conv_stage)s);
    return limit ? limit : "";
}

static void bind_run(struct conv_template *filled, const struct conv_page *page)
{
    struct conv_page_state *state = filled->context;
    const struct conv_report_config *config = page->config;
    const struct conv_totals *totals = page->totals;
    conv_figures_compute(config, totals, &state->figures);
    conv_page_bind_figures(filled, &state->figures);
    conv_template_number(filled, "seconds", totals->seconds, totals->seconds < 100 ? 2 : 0);
    conv_template_number(filled, "done", (double)totals->done, 0);
    conv_template_number(filled, "failed", (double)totals->failed, 0);
    conv_template_number(filled, "skipped", (double)totals->skipped, 0);
    conv_template_number(filled, "start_seconds", state->figures.start_seconds, 2);
    conv_template_text(filled, "limit", label_of(state->figures.limit));
    conv_template_text(filled, "next_limit", label_of(state->figures.next_limit));
    snprintf(state->workers, sizeof state->workers, "%d %s", config->jobs,
             config->jobs == 1 ? "worker" : "workers");
    conv_template_text(filled, "workers", state->workers);
    snprintf(state->streams, sizeof state->streams, "%d %s%s", config->streams,
             config->streams == 1 ? "stream" : "streams", config->device_count > 1 ? " each" : "");
    conv_template_text(filled, "streams", state->streams);
    snprintf(state->cores, sizeof state->cores, "%d %s", state->figures.cores,
             state->figures.cores == 1 ? "core" : "cores");
    conv_template_text(filled, "core_count", state->cores);
    conv_template_text(filled, "device", config->device);
    if (page->samples)
        conv_page_bind_samples(filled, state);
}

static void bind_page(struct conv_template *filled, const struct conv_page *page)
{
    conv_template_text(filled, "version", CONV_VERSION);
    conv_template_text(filled, "kind", page->kind);
    conv_template_text(filled, "title", page->title);
    conv_template_text(filled, "command", page->command);
    conv_template_text(filled, "when", page->when);
    conv_template_text(filled, "note_text", page->note ? page->note : "");
    conv_template_markup(filled, "style", write_text, page_css);
    conv_template_markup(filled, "script", write_text, page_js);
    conv_template_markup(filled, "record", write_text, page->record);
    conv_template_text(filled, "streams_or_workers", page->counts_streams ? "streams" : "workers");
    if (page->config)
        bind_run(filled, page);
    if (page->copies)
        conv_page_bind_copies(filled, page->copies);
    struct conv_page_state *state = filled->context;
    state->timeline = conv_page_prepare_timeline(filled, state);
}

// --- lists ---------------------------------------------------------------------------------------

static bool is_true(const struct conv_page_state *state, const char *name, bool *known)
{
    const struct conv_page *page = state->page;
    const struct conv_totals *totals = page->totals;
    const struct conv_page_copies *copies = page->copies;
    const struct {
        const char *name;
        bool value;
    } conditions[] = {
        {"note", page->note != NULL},
        {"at", page->when[0] != '\0'},
        {"run", page->config != NULL},
        {"some_failed", totals && totals->failed > 0},
        {"some_skipped", totals && totals->skipped > 0},
        {"limited", state->figures.limit != NULL},
        {"limited_next", state->figures.next_limit != NULL},
        {"on_stream", page->config && page->config->device_async},
        {"overlapped", page->config && state->figures.overlap_two >= 0},
        {"any_pairs", page->pair_count > 0},
        {"any_timeline", state->timeline},
        {"streams_table", page->line_count > 0},
        {"has_limit", page->lines_have_limit},
        {"has_waiting", !(page->device_only && page->counts_streams)},
        {"has_overlap", page->counts_streams},
        {"copy_limit", copies && copies->both > 0},
        {"small_copies", copies && copies->small_count > 0},
        {"any_failures", page->samples && totals && totals->failed > 0},
    };
    for (size_t i = 0; i < sizeof conditions / sizeof conditions[0]; i++) {
        *known = strcmp(conditions[i].name, name) == 0;
        if (*known)
            return conditions[i].value;
    }
    return false;
}

static bool next_fact(struct conv_template *filled, const struct conv_page *page, int i)
{
    if (i >= page->fact_count)
        return false;
    conv_template_text(filled, "fact", page->facts[i].label);
    conv_template_text(filled, "fact_value", page->facts[i].value);
    return true;
}

static bool next_filter(struct conv_template *filled, struct conv_page_state *state, int i)
{
    if (i >= state->page->filter_count)
        return false;
    const struct conv_page_filter *filter = state->filter = &state->page->filters[i];
    conv_template_text(filled, "filter_name", filter->name);
    snprintf(state->terms, sizeof state->terms, "%d × %d%s, divided by %g%s", filter->width,
             filter->height, filter->magnitude ? ", magnitude with the transpose" : "",
             filter->scale, filter->offset < 0 ? ", minus " : "");
    size_t used = strlen(state->terms);
    if (filter->offset != 0)
        snprintf(state->terms + used, sizeof state->terms - used, "%s%g",
                 filter->offset < 0 ? "" : ", plus ",
                 filter->offset < 0 ? -filter->offset : filter->offset);
    conv_template_text(filled, "filter_terms", state->terms);
    return true;
}

static bool next_coefficient(struct conv_template *filled, struct conv_page_state *state, int i)
{
    const struct conv_page_filter *filter = state->filter;
    if (i >= filter->width)
        return false;
    snprintf(state->number, sizeof state->number, "%.5g",
             filter->coef[state->row * filter->width + i]);
    conv_template_text(filled, "coefficient", state->number);
    return true;
}

static bool next(struct conv_template *filled, const char *list, int i)
{
    struct conv_page_state *state = filled->context;
    const struct conv_page *page = state->page;
    bool known, value = is_true(state, list, &known);
    if (known)
        return value && i == 0;
    if (strcmp(list, "facts") == 0)
        return next_fact(filled, page, i);
    if (strcmp(list, "filters") == 0)
        return next_filter(filled, state, i);
    if (strcmp(list, "matrix_rows") == 0) {
        state->row = i;
        return i < state->filter->height;
    }
    if (strcmp(list, "matrix_cells") == 0)
        return next_coefficient(filled, state, i);
    return conv_page_next_chart(filled, list, i) || conv_page_next_timeline(filled, list, i) ||
           conv_page_next_sample(filled, list, i) || conv_page_next_pair(filled, list, i);
}

// -------------------------------------------------------------------------------------------------

enum conv_status conv_page_write(const struct conv_page *page, FILE *file, const char *path,
                                 struct conv_err *err)
{
    struct conv_page_state *state = calloc(1, sizeof *state);
    struct conv_template *filled = calloc(1, sizeof *filled);
    struct conv_stall *stall = conv_stall_of(page->stall, file);
    bool bad = !state || !filled;
    if (!bad) {
        char name[64];
        state->page = page;
        filled->next = next;
        filled->context = state;
        bind_page(filled, page);
        conv_stall_begin(stall);
        bool whole = conv_template_write(filled, file, page_html, name);
        conv_stall_end(stall);
        assert(whole);
        (void)whole;
    }
    free(state);
    free(filled);
    if (bad) {
        fclose(file);
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for the page");
    }
    errno = 0;
    bad = ferror(file) != 0;
    conv_stall_begin(stall);
    bad |= fclose(file) != 0;
    conv_stall_end(stall);
    return bad ? conv_err_errno(err, errno, "cannot write the page to %s", path) : CONV_OK;
}
