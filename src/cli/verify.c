// SPDX-License-Identifier: MIT
// conv verify FILTER INPUT...: every kernel of every device against the plain definition. With
// --json: one object per image, and one for the whole.
#include "bench/kernel_run.h"
#include "cli/commands.h"
#include "cli/device.h"
#include "cli/hints.h"

#include <stdlib.h>
#include <string.h>

#include "io/walk.h"
#include "pipeline/stages.h"
#include "report/json.h"

struct verify {
    const struct conv_options *options;
    struct conv_pipeline_config config; // what reading an image needs
    struct conv_codecs *codec;
    struct conv_kernel_run *contenders; // the reference first
    int count;
    struct skipped *skipped; // the other variants
    int skipped_count;
    struct conv_err no_gpu; // why a GPU's variants do not take part
    int images, failed;
    bool differs;
};

struct skipped {
    const char *name;
    char reason[160];
};

static void skip(struct verify *verify, const struct conv_variant *row, const char *reason)
{
    struct skipped *skipped = &verify->skipped[verify->skipped_count++];
    skipped->name = row->name;
    snprintf(skipped->reason, sizeof skipped->reason, "%.*s", (int)sizeof skipped->reason - 1,
             reason);
}

// Whether a GPU's variants take part, as --device says. If there is no usable GPU, that is said
// once, and is an error only if a GPU was asked for.
static enum conv_status choose_devices(struct verify *verify, bool *on_gpu, struct conv_err *err)
{
    struct conv_device_list list;
    struct conv_err *reason = &verify->no_gpu;
    int count;
    enum conv_status status = conv_device_parse_one(verify->options, &list, err);
    *on_gpu = !status && list.choice != CONV_DEVICE_CPU;
    if (!*on_gpu)
        conv_err_set(reason, CONV_ERR_DEVICE, "excluded by --device cpu");
    if (!*on_gpu || !list.gpu->devices(NULL, 0, &count, reason))
        return status;
    *on_gpu = false;
    if (list.choice == CONV_DEVICE_GPU)
        return conv_err_set(err, reason->status, "%s", reason->text);
    if (!verify->options->quiet && list.gpu->built) // else there are no such kernels
        conv_report_say("%s kernels skipped: %s", list.gpu->title, reason->text);
    return CONV_OK;
}

static enum conv_status open_contenders(struct verify *verify, const struct conv_filter *filters,
                                        int filter_count, struct conv_err *err)
{
    int rows;
    bool on_gpu;
    const struct conv_variant *const *variants = conv_stencil_variants(&rows);
    enum conv_status status = choose_devices(verify, &on_gpu, err);
    if (status)
        return status;
    verify->contenders = calloc((size_t)rows, sizeof *verify->contenders);
    verify->skipped = calloc((size_t)rows, sizeof *verify->skipped);
    if (!verify->contenders || !verify->skipped)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for %d kernels", rows);
    for (int i = 0; i < rows; i++) {
        const struct conv_variant *row = variants[rows - 1 - i]; // the reference is the last row
        struct conv_kernel_run *contender = &verify->contenders[verify->count];
        struct conv_err reason = {0};
        if (row->place != CONV_ON_CPU && !on_gpu) {
            skip(verify, row, verify->no_gpu.text);
            continue;
        }
        if (conv_kernel_run_open(contender, row, verify->options, filters, filter_count, &reason)) {
            conv_kernel_run_close(contender);
            if (i == 0)
                return conv_err_set(err, reason.status, "%s", reason.text);
            skip(verify, row, reason.text);
            if (!verify->options->quiet)
                conv_report_say("%s skipped: %s", row->name, reason.text);
            continue;
        }
        verify->count++;
    }
    return CONV_OK;
}

// --- what is printed -----------------------------------------------------------------------------

// The beginning of an image's JSON object.
static void print_file_json(const char *input, const char *status)
{
    fputs("{\"type\":\"file\",\"input\":", stdout);
    conv_json_string(stdout, input);
    printf(",\"status\":\"%s\"", status);
}

static void print_difference(const struct verify *verify, const char *input,
                             const struct conv_kernel_run *contender,
                             const struct conv_difference *first)
{
    if (verify->options->json) {
        print_file_json(input, "differs");
        printf(",\"variant\":\"%s\",\"channel\":%d,\"x\":%d,\"y\":%d,\"value\":%u,"
               "\"expected\":%u}\n",
               contender->variant->name, first->plane, first->x, first->y, first->got,
               first->expected);
        return;
    }
    conv_report_print_path(stdout, input);
    printf(": %s differs from %s: channel %d, x %d, y %d: %u, not %u\n", contender->variant->name,
           verify->contenders[0].variant->name, first->plane, first->x, first->y, first->got,
           first->expected);
}

static void print_failure(const struct verify *verify, const char *input, const char *reason)
{
    conv_report_say("%s: %s", input, reason);
    if (!verify->options->json)
        return;
    print_file_json(input, "failed");
    fputs(",\"error\":", stdout);
    conv_json_string(stdout, reason);
    puts("}");
}

static void print_summary(const struct verify *verify)
{
    if (!verify->options->json) {
        if (verify->images == 0 || verify->differs)
            return;
        printf("%d %s, identical pixels from", verify->images,
               verify->images == 1 ? "image" : "images");
        for (int i = 0; i < verify->count; i++)
            printf(" %s", verify->contenders[i].variant->name);
        putchar('\n');
        return;
    }
    printf("{\"type\":\"verify\",\"images\":%d,\"failed\":%d,\"identical\":%s,\"variants\":[",
           verify->images, verify->failed,
           verify->differs || verify->images == 0 ? "false" : "true");
    for (int i = 0; i < verify->count; i++)
        printf("%s\"%s\"", i ? "," : "", verify->contenders[i].variant->name);
    fputs("],\"skipped\":[", stdout);
    for (int i = 0; i < verify->skipped_count; i++) {
        printf("%s{\"name\":\"%s\",\"reason\":", i ? "," : "", verify->skipped[i].name);
        conv_json_string(stdout, verify->skipped[i].reason);
        putchar('}');
    }
    puts("]}");
}

// --- comparing -----------------------------------------------------------------------------------

// False if a kernel differs; *job holds the image's header.
static bool verify_image(struct verify *verify, struct conv_job *job, enum conv_status *status)
{
    struct conv_kernel_run *reference = &verify->contenders[0];
    struct conv_err *err = &job->err;
    bool filter_alpha = verify->options->alpha != CONV_ALPHA_KEEP;
    *status = conv_stages_read(&verify->config, job);
    if (!*status)
        *status =
            conv_kernel_run_place(reference, &job->header.shape, 1, filter_alpha, &job->in, err);
    if (!*status)
        *status = conv_stages_decode(&verify->config, verify->codec, job);
    for (int i = 1; i < verify->count && !*status; i++)
        *status = conv_kernel_run_copy(&verify->contenders[i], reference, &job->header.shape,
                                       filter_alpha, err);
    for (int i = 0; i < verify->count && !*status; i++) {
        struct conv_kernel_run *contender = &verify->contenders[i];
        struct conv_difference first;
        *status = contender->ops->stream_run(contender->stream, &contender->group, err);
        if (*status || i == 0 || !conv_kernel_run_differs(reference, contender, &first))
            continue;
        print_difference(verify, job->item.name, contender, &first);
        return false;
    }
    if (!*status && verify->options->json) {
        print_file_json(job->item.name, "same");
        puts("}");
    }
    return true;
}

static int verify_all(struct verify *verify, struct conv_walk *walk, struct conv_job *job)
{
    for (;;) {
        enum conv_source_step step =
            conv_source_next(conv_walk_source(walk), &job->item, &job->err);
        if (step == CONV_SOURCE_END)
            break;
        enum conv_status status = job->err.status;
        if (step == CONV_SOURCE_ITEM && !verify_image(verify, job, &status)) {
            verify->differs = true;
            return CONV_EXIT_SOME_FAILED;
        }
        if (step == CONV_SOURCE_BAD || status) {
            char text[CONV_HINTS_SIZE];
            print_failure(verify, job->item.name, conv_hints_explain(text, sizeof text, &job->err));
            verify->failed++;
            if (status == CONV_ERR_DEVICE)
                return CONV_EXIT_DEVICE;
            continue;
        }
        verify->images++;
    }
    if (verify->images + verify->failed == 0) {
        fputs("conv: no PNG found\n", stderr);
        return CONV_EXIT_NOTHING;
    }
    return verify->failed ? CONV_EXIT_SOME_FAILED : CONV_EXIT_OK;
}

int conv_verify_main(const struct conv_options *options)
{
    struct conv_filter filters[CONV_FILTER_MAX_CHAIN];
    int filter_count = 0, code = CONV_EXIT_OK;
    struct conv_err err = {0};
    struct conv_walk *walk = NULL;
    struct conv_job *job = calloc(1, sizeof *job);
    struct conv_file file = {0};
    struct verify verify = {
        .options = options,
        .config = {.max_pixels = options->max_pixels,
                   .mem_limit = conv_options_mem_limit(options, true),
                   .alpha = (enum conv_alpha_mode)options->alpha,
                   .strip = true,
                   .first_frame = true,
                   .no_save = true},
    };
    enum conv_status status = CONV_OK;
    if (!job)
        status = conv_err_set(&err, CONV_ERR_MEMORY, "no memory for an image");
    else if (options->operand_count < 2)
        status =
            conv_err_set(&err, CONV_ERR_USAGE, "conv verify takes a filter and images or folders");
    if (!status)
        status =
            conv_commands_parse_chain(options, options->operands[0], filters, &filter_count, &err);
    struct conv_walk_config walk_config = {
        .operands = {.inputs = options->operands + 1,
                     .input_count = options->operand_count - 1,
                     .recursive = options->recursive},
        .include = options->include.items,
        .include_count = options->include.count,
        .exclude = options->exclude.items,
        .exclude_count = options->exclude.count,
    };
    if (!status)
        status = conv_walk_open(&walk, &walk_config, &err);
    if (!status)
        status = conv_codecs_open(&verify.codec, &options->png, &err);
    if (!status)
        status = open_contenders(&verify, filters, filter_count, &err);
    if (!status) {
        job->file = &file;
        code = verify_all(&verify, walk, job);
        print_summary(&verify);
        int flushed = conv_commands_flush();
        code = code ? code : flushed;
    }
    for (int i = 0; i < verify.count; i++)
        conv_kernel_run_close(&verify.contenders[i]);
    free(verify.contenders);
    free(verify.skipped);
    conv_codecs_close(verify.codec);
    conv_walk_close(walk);
    free(file.data);
    free(job);
    return status ? conv_commands_fail(&err) : code;
}
