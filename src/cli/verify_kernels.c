// SPDX-License-Identifier: MIT
#include "cli/verify_kernels.h"

#include <stdlib.h>
#include <string.h>

#include "cli/device.h"
#include "conv.h"

static void skip(struct conv_verify_kernels *kernels, const char *name, const char *reason)
{
    struct conv_verify_skipped *skipped = &kernels->skipped[kernels->skipped_count++];
    skipped->name = name;
    snprintf(skipped->reason, sizeof skipped->reason, "%.*s", (int)sizeof skipped->reason - 1,
             reason);
}

static enum conv_status open_context(conv_context **context, const struct conv_options *options,
                                     const char *device, char *message)
{
    conv_context_options settings = CONV_CONTEXT_OPTIONS_INIT;
    settings.device = device;
    settings.threads = options->jobs;
    return conv_context_create(context, &settings, message);
}

// A missing GPU is reported once, and is an error only if --device asks for one.
static enum conv_status open_contexts(struct conv_verify_kernels *kernels,
                                      const struct conv_options *options, bool has_gpu_kernels,
                                      struct conv_err *err)
{
    struct conv_device_list list;
    char message[CONV_MESSAGE_SIZE], device[32];
    enum conv_status status = conv_device_parse_one(options, &list, err);
    if (status)
        return status;
    status = open_context(&kernels->cpu, options, "cpu", message);
    if (status)
        return conv_err_set(err, status, "%s", message);
    snprintf(kernels->no_gpu, sizeof kernels->no_gpu, "excluded by --device cpu");
    if (list.choice == CONV_DEVICE_CPU)
        return CONV_OK;
    snprintf(device, sizeof device, "%s:%d", list.gpu->name, list.ordinals[0]);
    status = open_context(&kernels->gpu, options, device, kernels->no_gpu);
    if (!status)
        return CONV_OK;
    if (list.choice == CONV_DEVICE_GPU)
        return conv_err_set(err, CONV_ERR_DEVICE, "%s", kernels->no_gpu);
    if (!options->quiet && has_gpu_kernels)
        conv_report_say("%s kernels skipped: %s", list.gpu->title, kernels->no_gpu);
    return CONV_OK;
}

// True if the kernel can run each filter of the chain at one depth at least; at other depths the
// best kernel takes its place.
static bool takes_part(const struct conv_verify_kernel *kernel)
{
    const char *byte, *word;
    for (int i = 0; (byte = conv_filter_kernel(kernel->filter, i, CONV_SAMPLE_U8)); i++) {
        word = conv_filter_kernel(kernel->filter, i, CONV_SAMPLE_U16);
        if (strcmp(byte, kernel->name) != 0 && strcmp(word, kernel->name) != 0)
            return false;
    }
    return true;
}

// Creates the filter from the options, to be run by that kernel.
static enum conv_status open_kernel(const struct conv_verify_kernels *kernels,
                                    const struct conv_options *options,
                                    struct conv_verify_kernel *kernel, struct conv_err *err)
{
    static const char *const alpha[] = {[CONV_ALPHA_KEEP] = "keep",
                                        [CONV_ALPHA_FILTER] = "filter",
                                        [CONV_ALPHA_PREMULTIPLY] = "premultiply"};
    const struct conv_filter_settings *settings = &options->filter;
    char border[32];
    snprintf(border, sizeof border, "%s", conv_filter_border_name(options->border));
    if (options->border == CONV_BORDER_CONSTANT)
        snprintf(border, sizeof border, "constant:%d", options->border_value);
    conv_filter_options public = CONV_FILTER_OPTIONS_INIT;
    public.border = border;
    public.alpha = alpha[options->alpha];
    public.kernel = settings->kernel;
    public.divisor = settings->divisor;
    public.bias = settings->bias;
    public.side = settings->size;
    public.flip = settings->flip;
    public.variant = kernel->name;
    enum conv_status status =
        conv_filter_create(&kernel->filter, kernel->context, options->operands[0], &public);
    bool is_definition = kernels->count == 0;
    if (status && (is_definition || status != CONV_ERR_USAGE))
        return conv_err_set(err, status, "%s", conv_context_message(kernel->context));
    if (!status && takes_part(kernel))
        return CONV_OK;
    conv_filter_destroy(kernel->filter);
    return conv_err_set(err, CONV_ERR_USAGE, "not for this filter or this %s",
                        kernel->context == kernels->cpu ? "CPU" : "GPU");
}

enum conv_status conv_verify_kernels_open(struct conv_verify_kernels *kernels,
                                          const struct conv_options *options, struct conv_err *err)
{
    const char *device;
    int count = 0;
    bool has_gpu_kernels = false;
    for (; conv_kernel_name(count, &device); count++)
        has_gpu_kernels = has_gpu_kernels || strcmp(device, "cpu") != 0;
    enum conv_status status = open_contexts(kernels, options, has_gpu_kernels, err);
    if (status)
        return status;
    kernels->kernels = calloc((size_t)count, sizeof *kernels->kernels);
    kernels->skipped = calloc((size_t)count, sizeof *kernels->skipped);
    if (!kernels->kernels || !kernels->skipped)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for %d kernels", count);
    for (int i = 0; i < count; i++) {
        struct conv_verify_kernel kernel = {.name = conv_kernel_name(i, &device)};
        struct conv_err reason = {0};
        kernel.context = strcmp(device, "cpu") == 0 ? kernels->cpu : kernels->gpu;
        if (!kernel.context) {
            skip(kernels, kernel.name, kernels->no_gpu);
        } else if (!open_kernel(kernels, options, &kernel, &reason)) {
            kernels->kernels[kernels->count++] = kernel;
        } else if (i == 0) { // the definition takes everything
            return conv_err_set(err, reason.status, "%s", reason.text);
        } else {
            skip(kernels, kernel.name, reason.text);
        }
    }
    return CONV_OK;
}

void conv_verify_kernels_say_skipped(const struct conv_verify_kernels *kernels)
{
    for (int i = 0; i < kernels->skipped_count; i++) {
        const char *reason = kernels->skipped[i].reason;
        char names[512] = "";
        bool said = !kernels->gpu && strcmp(reason, kernels->no_gpu) == 0;
        for (int k = 0; k < i; k++)
            said = said || strcmp(kernels->skipped[k].reason, reason) == 0;
        for (int k = i; k < kernels->skipped_count && !said; k++) {
            size_t used = strlen(names);
            if (strcmp(kernels->skipped[k].reason, reason) == 0)
                snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "",
                         kernels->skipped[k].name);
        }
        if (!said)
            conv_report_say("%s skipped: %s", names, reason);
    }
}

void conv_verify_kernels_close(struct conv_verify_kernels *kernels)
{
    for (int i = 0; i < kernels->count; i++)
        conv_filter_destroy(kernels->kernels[i].filter);
    conv_context_destroy(kernels->gpu);
    conv_context_destroy(kernels->cpu);
    free(kernels->kernels);
    free(kernels->skipped);
}
