// SPDX-License-Identifier: MIT
// conv verify FILTER INPUT...: every kernel of every device against the plain definition.
#include "cli/commands.h"
#include "cli/contender.h"

#include <stdlib.h>
#include <string.h>

#include "pipeline/steps.h"

struct verify {
    const struct conv_options *options;
    struct conv_pipeline_config config; // what reading a picture needs
    struct conv_png_codec *codec;
    struct conv_contender *contenders; // the reference first
    int count;
    int pictures, failed;
};

static enum conv_status open_contenders(struct verify *verify, const struct conv_filter *filters,
                                        int filter_count, struct conv_err *err)
{
    int rows;
    const struct conv_variant *const *variants = conv_stencil_variants(&rows);
    verify->contenders = calloc((size_t)rows, sizeof *verify->contenders);
    if (!verify->contenders)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for %d kernels", rows);
    for (int i = 0; i < rows; i++) {
        const struct conv_variant *row = variants[rows - 1 - i]; // the reference is the last row
        struct conv_contender *contender = &verify->contenders[verify->count];
        struct conv_err reason = {0};
        if (conv_contender_open(contender, row, verify->options, filters, filter_count, &reason)) {
            conv_contender_close(contender);
            if (i == 0)
                return conv_err_set(err, reason.status, "%s", reason.text);
            if (!verify->options->quiet)
                fprintf(stderr, "conv: %s left out: %s\n", row->name, reason.text);
            continue;
        }
        verify->count++;
    }
    return CONV_OK;
}

// True if all kernels agree about the picture; *job holds its header.
static bool verify_picture(struct verify *verify, struct conv_job *job, enum conv_status *status)
{
    struct conv_contender *reference = &verify->contenders[0];
    struct conv_err *err = &job->err;
    bool filter_alpha = verify->options->alpha != CONV_ALPHA_KEEP;
    *status = conv_steps_read(&verify->config, job);
    if (!*status)
        *status =
            conv_contender_place(reference, &job->header.shape, 1, filter_alpha, &job->in, err);
    if (!*status)
        *status = conv_steps_decode(&verify->config, verify->codec, job);
    for (int i = 1; i < verify->count && !*status; i++)
        *status = conv_contender_copy(&verify->contenders[i], reference, &job->header.shape,
                                      filter_alpha, err);
    for (int i = 0; i < verify->count && !*status; i++) {
        struct conv_contender *contender = &verify->contenders[i];
        struct conv_difference first;
        *status = contender->ops->lane_run(contender->lane, &contender->group, err);
        if (*status || i == 0 || !conv_contender_differs(reference, contender, &first))
            continue;
        conv_report_print_path(stdout, job->path.input);
        printf(": %s differs from %s: channel %d, x %d, y %d: %u, not %u\n",
               contender->variant->name, reference->variant->name, first.plane, first.x, first.y,
               first.got, first.expected);
        return false;
    }
    return true;
}

static int verify_all(struct verify *verify, struct conv_walk *walk, struct conv_job *job)
{
    for (;;) {
        enum conv_walk_step step = conv_walk_next(walk, &job->path, &job->err);
        if (step == CONV_WALK_END)
            break;
        enum conv_status status = job->err.status;
        if (step == CONV_WALK_ENTRY && !verify_picture(verify, job, &status))
            return CONV_EXIT_SOME_FAILED;
        if (step == CONV_WALK_BAD || status) {
            fputs("conv: ", stderr);
            conv_report_print_path(stderr, job->path.input);
            fprintf(stderr, ": %s\n", job->err.text);
            verify->failed++;
            if (status == CONV_ERR_DEVICE)
                return CONV_EXIT_DEVICE;
            continue;
        }
        verify->pictures++;
    }
    if (verify->pictures + verify->failed == 0) {
        fputs("conv: no PNG found\n", stderr);
        return CONV_EXIT_NOTHING;
    }
    if (verify->pictures == 0)
        return CONV_EXIT_SOME_FAILED;
    printf("%d %s, the same bytes from", verify->pictures,
           verify->pictures == 1 ? "picture" : "pictures");
    for (int i = 0; i < verify->count; i++)
        printf(" %s", verify->contenders[i].variant->name);
    putchar('\n');
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
                   .mem_limit = options->mem_limit,
                   .alpha = (enum conv_alpha_mode)options->alpha,
                   .strip = true,
                   .no_save = true},
    };
    enum conv_status status = CONV_OK;
    if (!job)
        status = conv_err_set(&err, CONV_ERR_MEMORY, "no memory for a picture");
    else if (options->operand_count < 2)
        status = conv_err_set(&err, CONV_ERR_USAGE,
                              "conv verify takes a filter and pictures or folders");
    if (!status)
        status =
            conv_commands_parse_chain(options, options->operands[0], filters, &filter_count, &err);
    struct conv_walk_config walk_config = {
        .inputs = options->operands + 1,
        .input_count = options->operand_count - 1,
        .recursive = options->recursive,
        .include = options->include.items,
        .include_count = options->include.count,
        .exclude = options->exclude.items,
        .exclude_count = options->exclude.count,
    };
    if (!status)
        status = conv_walk_open(&walk, &walk_config, &err);
    if (!status)
        status = conv_png_codec_open(&verify.codec, &options->png, &err);
    if (!status)
        status = open_contenders(&verify, filters, filter_count, &err);
    if (!status) {
        job->file = &file;
        code = verify_all(&verify, walk, job);
        int flushed = conv_commands_flush();
        code = code ? code : flushed;
    }
    for (int i = 0; i < verify.count; i++)
        conv_contender_close(&verify.contenders[i]);
    free(verify.contenders);
    conv_png_codec_close(verify.codec);
    conv_walk_close(walk);
    free(file.data);
    free(job);
    return status ? conv_commands_fail(&err) : code;
}
