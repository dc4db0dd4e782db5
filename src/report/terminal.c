// SPDX-License-Identifier: MIT
#include "report/terminal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "report/json.h"
#include "report/record.h"

// --- lines in order ------------------------------------------------------------------------------

static struct conv_order_line *line_of(struct conv_order *order, uint64_t number)
{
    return &order->lines[number % CONV_ORDER_MOST];
}

// Prints the lines up to this number.
static void print_until(struct conv_order *order, FILE *stream, uint64_t number)
{
    while (order->printed < number) {
        struct conv_order_line *line = line_of(order, ++order->printed);
        if (line->text)
            fputs(line->text, stream);
        free(line->text);
        *line = (struct conv_order_line){0};
    }
}

void conv_order_add(struct conv_order *order, FILE *stream, uint64_t number, char *text)
{
    if (number <= order->printed) { // its turn is over
        if (text)
            fputs(text, stream);
        free(text);
        return;
    }
    if (number - order->printed > CONV_ORDER_MOST)
        print_until(order, stream, number - CONV_ORDER_MOST);
    *line_of(order, number) = (struct conv_order_line){true, text};
    order->last = number > order->last ? number : order->last;
    while (line_of(order, order->printed + 1)->is_here)
        print_until(order, stream, order->printed + 1);
}

void conv_order_flush(struct conv_order *order, FILE *stream)
{
    print_until(order, stream, order->last);
}

// --- the progress --------------------------------------------------------------------------------

#define REDRAW_NS 100000000u
#define FIRST_LINE_NS 1000000000u
#define LINE_NS 5000000000u
#define MOMENT_NS 400000000u // the ring spans 12 s

// --- text ----------------------------------------------------------------------------------------

// "0:43", "2:01:05"
static void format_seconds(char *text, size_t size, double seconds)
{
    uint64_t s = seconds < 1e9 ? (uint64_t)(seconds + 0.5) : 1000000000;
    if (s < 3600)
        snprintf(text, size, "%d:%02d", (int)(s / 60), (int)(s % 60));
    else
        snprintf(text, size, "%" PRIu64 ":%02d:%02d", s / 3600, (int)(s / 60 % 60), (int)(s % 60));
}

enum part { PART_PERCENT, PART_COUNT, PART_RATE, PART_LEFT, PART_FAILED, PARTS };

// Each part as a text, "" if there is none.
struct parts {
    char text[PARTS][64];
};

static void make_parts(struct parts *parts, const struct conv_progress_state *state)
{
    char left[32];
    bool known = state->total > 0 && state->is_complete;
    memset(parts, 0, sizeof *parts);
    if (known)
        snprintf(parts->text[PART_PERCENT], sizeof parts->text[0], "%3d %%",
                 (int)(100 * (double)state->over / (double)state->total));
    if (state->total > 0)
        snprintf(parts->text[PART_COUNT], sizeof parts->text[0], "%" PRIu64 " of %s%" PRIu64,
                 state->over, known ? "" : "at least ", state->total);
    else
        snprintf(parts->text[PART_COUNT], sizeof parts->text[0], "%" PRIu64 " done", state->over);
    if (state->rate > 0)
        snprintf(parts->text[PART_RATE], sizeof parts->text[0], "%.*f img/s",
                 state->rate < 9.95 ? 1 : 0, state->rate);
    if (known && state->rate > 0 && state->over < state->total) {
        format_seconds(left, sizeof left, (double)(state->total - state->over) / state->rate);
        snprintf(parts->text[PART_LEFT], sizeof parts->text[0], "%s left", left);
    }
    if (state->failed > 0)
        snprintf(parts->text[PART_FAILED], sizeof parts->text[0], "%" PRIu64 " failed",
                 state->failed);
}

static int width_of(const struct parts *parts)
{
    int width = 0;
    for (int i = 0; i < PARTS; i++)
        if (parts->text[i][0])
            width += (int)strlen(parts->text[i]) + (width > 0 ? 2 : 0);
    return width;
}

// The terminal itself writes "^C" after the bar, which must not begin another line.
#define FREE 3
#define LEAST_BAR 12
#define MOST_BAR 62

// "[=====>    ]", with two columns after it `width` columns.
static void put_bar(char *text, int width, double share)
{
    int inner = width - 4, filled = (int)(share * inner);
    text[0] = '[';
    memset(text + 1, ' ', (size_t)inner);
    memset(text + 1, '=', (size_t)filled);
    if (filled < inner)
        text[1 + filled] = '>';
    strcpy(text + 1 + inner, "]");
}

void conv_progress_format_bar(char *text, size_t size, int columns,
                              const struct conv_progress_state *state)
{
    // The percentage says more than the count, but if it is unknown, only the count can be shown.
    static const enum part least_first[] = {PART_RATE, PART_COUNT, PART_LEFT, PART_FAILED};
    struct parts parts;
    int room = columns - FREE < (int)size - 1 ? columns - FREE : (int)size - 1;
    make_parts(&parts, state);
    for (size_t i = 0; i < sizeof least_first / sizeof least_first[0] && width_of(&parts) > room;
         i++)
        if (least_first[i] != PART_COUNT || parts.text[PART_PERCENT][0])
            parts.text[least_first[i]][0] = '\0';
    text[0] = '\0';
    if (width_of(&parts) > room)
        return;
    int bar = room - width_of(&parts);
    if (bar >= LEAST_BAR && parts.text[PART_PERCENT][0])
        put_bar(text, bar < MOST_BAR ? bar : MOST_BAR, (double)state->over / (double)state->total);
    for (int i = 0; i < PARTS; i++)
        if (parts.text[i][0])
            conv_text_add(text, size, "  ", "%s", parts.text[i]);
}

void conv_progress_format_line(char *text, size_t size, const struct conv_progress_state *state)
{
    struct parts parts;
    make_parts(&parts, state);
    const char *percent = parts.text[PART_PERCENT];
    percent += strspn(percent, " ");
    snprintf(text, size, "%s%s%s%s", parts.text[PART_COUNT], *percent ? " (" : "", percent,
             *percent ? ")" : "");
    for (int i = PART_RATE; i < PARTS; i++)
        if (parts.text[i][0])
            conv_text_add(text, size, ", ", "%s", parts.text[i]);
}

// --- drawing -------------------------------------------------------------------------------------

bool conv_progress_is_wanted(enum conv_when when, bool quiet)
{
    return when == CONV_ALWAYS || (when == CONV_AUTO && !quiet && isatty(STDERR_FILENO));
}

void conv_progress_init(struct conv_progress *progress, bool wanted,
                        const struct conv_report_total *total)
{
    const char *terminal = getenv("TERM");
    uint64_t now = conv_clock_ns();
    *progress = (struct conv_progress){
        .active = wanted,
        .is_bar = isatty(STDERR_FILENO) && terminal && *terminal && strcmp(terminal, "dumb") != 0,
        .total = total,
        .start_ns = now,
        .last_ns = now,
        .moments = {{now, 0}},
        .moment_count = 1,
    };
}

// Queried each time, since the window may have been resized.
static int columns_of_terminal(void)
{
    struct winsize window;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 0)
        return window.ws_col;
    const char *columns = getenv("COLUMNS");
    int number = columns ? atoi(columns) : 0;
    return number > 0 ? number : 80;
}

// Images per second since the oldest moment in the ring.
static double measure_rate(struct conv_progress *progress, uint64_t now, uint64_t over)
{
    unsigned count = progress->moment_count;
    unsigned last = (count - 1) % CONV_PROGRESS_MOMENTS;
    unsigned oldest = count > CONV_PROGRESS_MOMENTS ? count % CONV_PROGRESS_MOMENTS : 0;
    uint64_t ns = now - progress->moments[oldest].ns;
    uint64_t images = over - progress->moments[oldest].over;
    if (now - progress->moments[last].ns >= MOMENT_NS) {
        progress->moments[count % CONV_PROGRESS_MOMENTS].ns = now;
        progress->moments[count % CONV_PROGRESS_MOMENTS].over = over;
        progress->moment_count++;
    }
    return ns > 0 ? (double)images / ((double)ns / 1e9) : 0;
}

static void read_state(struct conv_progress *progress, const struct conv_totals *totals,
                       uint64_t now, struct conv_progress_state *state)
{
    const struct conv_report_total *total = progress->total;
    uint64_t over = totals->done + totals->failed + totals->skipped + totals->planned;
    // Read in this order: a complete total does not grow any more.
    bool complete = total && atomic_load(&total->is_complete);
    uint64_t counted = total ? atomic_load(&total->images) : 0;
    *state = (struct conv_progress_state){
        .over = over,
        .failed = totals->failed,
        .total = counted > 0 && counted < over ? over : counted, // files were added
        .is_complete = complete,
        .rate = measure_rate(progress, now, over),
    };
}

void conv_progress_update(struct conv_progress *progress, const struct conv_totals *totals)
{
    char text[512];
    struct conv_progress_state state;
    if (!progress->active)
        return;
    uint64_t now = conv_clock_ns();
    bool first = progress->last_ns == progress->start_ns;
    if (now - progress->last_ns < (progress->is_bar ? REDRAW_NS : first ? FIRST_LINE_NS : LINE_NS))
        return;
    progress->last_ns = now;
    read_state(progress, totals, now, &state);
    if (progress->is_bar) {
        conv_progress_format_bar(text, sizeof text, columns_of_terminal(), &state);
        fprintf(stderr, "\r%s\033[K", text);
        progress->drawn = true;
    } else {
        conv_progress_format_line(text, sizeof text, &state);
        fprintf(stderr, "conv: %s\n", text);
    }
    fflush(stderr);
}

void conv_progress_clear(struct conv_progress *progress)
{
    if (progress->drawn)
        fputs("\r\033[K", stderr);
    progress->drawn = false;
}

// --- the closing line ----------------------------------------------------------------------------

// "cuda:0, 4 streams"; several devices with the share of each.
static void print_devices(const struct conv_report_config *config, const struct conv_totals *totals)
{
    char name[16];
    double share;
    bool several = conv_figures_device(config, totals, 1, name, &share);
    if (several)
        for (int i = 0; conv_figures_device(config, totals, i, name, &share); i++)
            fprintf(stderr, "%s%s (%.0f %%)", i ? " + " : ", ", name, 100 * share);
    else
        fprintf(stderr, ", %s", config->device);
    fprintf(stderr, ", %d %s", config->device_async ? config->streams : config->jobs,
            config->device_async ? (config->streams == 1 ? "stream" : "streams")
                                 : (config->jobs == 1 ? "worker" : "workers"));
}

static const char *plural(uint64_t count)
{
    return count == 1 ? "" : "s";
}

static void print_count(uint64_t count, const char *what)
{
    if (count)
        fprintf(stderr, ", %" PRIu64 " %s", count, what);
}

// The end of the line.
static void print_passed(const struct conv_record_passed *passed)
{
    if (passed->ignored)
        fprintf(stderr, "; %" PRIu64 " ignored", passed->ignored);
    if (passed->images)
        fprintf(stderr, "; %" PRIu64 " other image%s: %s", passed->images, plural(passed->images),
                passed->formats);
    if (passed->folders)
        fprintf(stderr, "; %" PRIu64 " folder%s not entered (-r)", passed->folders,
                plural(passed->folders));
    fputc('\n', stderr);
}

// "24 images -> embossed/ in 0.4 s (61 images/s)", and what else there is to say.
static void print_short(const struct conv_report_config *config, const struct conv_totals *totals,
                        const struct conv_figures *figures)
{
    double seconds = totals->seconds;
    fprintf(stderr, "%" PRIu64 " image%s", totals->done, plural(totals->done));
    conv_text_terminal(stderr, config->where ? config->where : "");
    fprintf(stderr, " in %.*f s", seconds < 0.095 ? 2 : seconds < 9.95 ? 1 : 0, seconds);
    if (totals->done)
        fprintf(stderr, " (%.*f images/s)", figures->images_per_s < 9.95 ? 1 : 0,
                figures->images_per_s);
    print_count(totals->failed, "failed");
    print_count(totals->skipped, "skipped");
    print_count(totals->copied, "copied");
    print_count(totals->replaced, totals->replaced == 1 ? "file replaced" : "files replaced");
    print_passed(&totals->passed);
}

static void print_interrupted(const struct conv_totals *totals, const struct conv_report_rest *rest)
{
    uint64_t over = totals->done + totals->failed + totals->skipped + totals->planned;
    fprintf(stderr, "interrupted: %" PRIu64, totals->done);
    if (rest->known)
        fprintf(stderr, " of %" PRIu64, over + rest->images);
    fputs(" done", stderr);
    print_count(totals->failed, "failed");
    print_count(totals->skipped, "skipped");
    if (rest->known || rest->images)
        fprintf(stderr, ", %s%" PRIu64 " left", rest->known ? "" : "at least ", rest->images);
    fputs(rest->advice ? "; " : "", stderr);
    conv_text_terminal(stderr, rest->advice ? rest->advice : "");
    fputc('\n', stderr);
}

void conv_closing_print(const struct conv_report_config *config, const struct conv_totals *totals,
                        const struct conv_report_rest *rest)
{
    uint64_t over =
        totals->done + totals->failed + totals->skipped + totals->planned + totals->copied;
    if (rest) {
        print_interrupted(totals, rest);
        return;
    }
    if (over == 0 || (config->single && !config->verbose && !config->dry_run && !totals->skipped))
        return;
    if (config->dry_run) {
        fprintf(stderr, "%" PRIu64 " to do, %" PRIu64 " failed, %" PRIu64 " skipped",
                totals->planned, totals->failed, totals->skipped);
        print_passed(&totals->passed);
        return;
    }
    struct conv_figures figures;
    conv_figures_compute(config, totals, &figures);
    if (!config->verbose) {
        print_short(config, totals, &figures);
        return;
    }
    fprintf(stderr, "%" PRIu64 " done, %" PRIu64 " failed, %" PRIu64 " skipped", totals->done,
            totals->failed, totals->skipped);
    print_count(totals->copied, "copied");
    print_count(totals->replaced, "replaced");
    fprintf(stderr, ", %.2f s", totals->seconds);
    if (totals->done)
        fprintf(stderr, ", %.*f img/s, %.*f Mpix/s", figures.images_per_s < 10 ? 1 : 0,
                figures.images_per_s, figures.mpix_per_s < 10 ? 1 : 0, figures.mpix_per_s);
    print_devices(config, totals);
    print_count(totals->decoded_on_device, "decoded there");
    print_count(totals->encoded_on_device, "encoded there");
    if (figures.limit)
        fprintf(stderr, ", limit: %s", figures.limit);
    if (figures.next_limit)
        fprintf(stderr, ", then %s", figures.next_limit);
    if (totals->done)
        fprintf(stderr, ", CPU utilisation %.0f %%", 100 * figures.cpu_utilisation);
    print_passed(&totals->passed);
}
