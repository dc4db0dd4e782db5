// SPDX-License-Identifier: MIT
#include "report/closing.h"

#include <inttypes.h>
#include <stdio.h>

#include "report/figures.h"

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

static void print_passed(const struct conv_record_passed *passed)
{
    if (passed->ignored)
        fprintf(stderr, ", %" PRIu64 " ignored", passed->ignored);
    if (passed->images)
        fprintf(stderr, ", %" PRIu64 " %s not read (%s)", passed->images,
                passed->images == 1 ? "image" : "images", passed->formats);
    if (passed->folders)
        fprintf(stderr, ", %" PRIu64 " %s not entered (%s)", passed->folders,
                passed->folders == 1 ? "folder" : "folders", passed->enter);
}

static void print_interrupted(const struct conv_totals *totals, const struct conv_report_rest *rest)
{
    uint64_t over = totals->done + totals->failed + totals->skipped + totals->planned;
    fprintf(stderr, "interrupted: %" PRIu64, totals->done);
    if (rest->known)
        fprintf(stderr, " of %" PRIu64, over + rest->images);
    fputs(" done", stderr);
    if (totals->failed)
        fprintf(stderr, ", %" PRIu64 " failed", totals->failed);
    if (totals->skipped)
        fprintf(stderr, ", %" PRIu64 " skipped", totals->skipped);
    if (rest->known || rest->images)
        fprintf(stderr, ", %s%" PRIu64 " left", rest->known ? "" : "at least ", rest->images);
    fprintf(stderr, "%s%s\n", rest->advice ? "; " : "", rest->advice ? rest->advice : "");
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
        fputc('\n', stderr);
        return;
    }
    struct conv_figures figures;
    conv_figures_compute(config, totals, &figures);
    fprintf(stderr, "%" PRIu64 " done, %" PRIu64 " failed, %" PRIu64 " skipped", totals->done,
            totals->failed, totals->skipped);
    if (totals->copied)
        fprintf(stderr, ", %" PRIu64 " copied", totals->copied);
    print_passed(&totals->passed);
    fprintf(stderr, ", %.2f s", totals->seconds);
    if (totals->done)
        fprintf(stderr, ", %.*f img/s, %.*f Mpix/s", figures.images_per_s < 10 ? 1 : 0,
                figures.images_per_s, figures.mpix_per_s < 10 ? 1 : 0, figures.mpix_per_s);
    print_devices(config, totals);
    if (totals->decoded_on_device)
        fprintf(stderr, ", %" PRIu64 " decoded there", totals->decoded_on_device);
    if (totals->encoded_on_device)
        fprintf(stderr, ", %" PRIu64 " encoded there", totals->encoded_on_device);
    if (figures.limit)
        fprintf(stderr, ", limit: %s", figures.limit);
    if (figures.next_limit)
        fprintf(stderr, ", then %s", figures.next_limit);
    if (totals->done)
        fprintf(stderr, ", CPU utilisation %.0f %%", 100 * figures.cpu_utilisation);
    fputc('\n', stderr);
}
