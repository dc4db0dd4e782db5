// SPDX-License-Identifier: MIT
#include "cli/device.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/suggest.h"

enum conv_status conv_device_parse(const struct conv_options *options,
                                   enum conv_device_choice *choice, int *ordinal,
                                   struct conv_err *err)
{
    const char *text = options->device_text ? options->device_text : "auto";
    static const char *const names[] = {"auto", "cpu", "cuda"};
    *ordinal = 0;
    for (int i = 0; i < 3; i++) {
        *choice = (enum conv_device_choice)i;
        if (strcmp(text, names[i]) == 0)
            return CONV_OK;
    }
    char *end;
    if (strncmp(text, "cuda:", 5) == 0 && isdigit((unsigned char)text[5])) {
        long number = strtol(text + 5, &end, 10);
        if (!*end && number < 1024) {
            *ordinal = (int)number;
            return CONV_OK;
        }
    }
    const char *near = strncmp(text, "gpu", 3) == 0
                           ? "cuda"
                           : conv_suggest_nearest(text, names, sizeof names[0], 3);
    return conv_err_set(err, CONV_ERR_USAGE,
                        "unknown device '%s'; %s%s%s auto, cpu, cuda or cuda:N", text,
                        near ? "did you mean '" : "it is", near ? near : "", near ? "'?" : "");
}

static enum conv_status open_backend(struct conv_device *device, const struct conv_backend_ops *ops,
                                     const struct conv_backend_config *config, struct conv_err *err)
{
    if (!ops)
        return conv_err_set(err, CONV_ERR_DEVICE, "this conv was built without CUDA");
    enum conv_status status = ops->open(&device->backend, config, err);
    if (status)
        return status;
    device->ops = ops;
    ops->describe(device->backend, device->name, sizeof device->name);
    return CONV_OK;
}

static enum conv_status open_spare(struct conv_device *device,
                                   const struct conv_backend_config *config, struct conv_err *err)
{
    struct conv_backend_config any = *config;
    any.variant = NULL; // a name of the other table
    device->spare_ops = &conv_backend_cpu;
    return device->spare_ops->open(&device->spare, &any, err);
}

enum conv_status conv_device_open(struct conv_device *device, const struct conv_options *options,
                                  const struct conv_filter *filters, int filter_count,
                                  struct conv_err *err)
{
    *device = (struct conv_device){0};
    struct conv_backend_config config = {
        .filters = filters,
        .filter_count = filter_count,
        .border = options->border,
        .border_value = options->border_value,
        .premultiplied = options->alpha == CONV_ALPHA_PREMULTIPLY,
        .variant = options->variant,
    };
    enum conv_device_choice choice;
    enum conv_status status = conv_device_parse(options, &choice, &config.device, err);
    if (status)
        return status;
    config.codes = options->decode_on == CONV_CODER_GPU || options->encode_on == CONV_CODER_GPU;
    if (config.codes && choice == CONV_DEVICE_CPU)
        return conv_err_set(err, CONV_ERR_USAGE, "--%s gpu and --device cpu exclude each other",
                            options->encode_on == CONV_CODER_GPU ? "encode-on" : "decode-on");
    if (choice == CONV_DEVICE_AUTO && options->variant && strncmp(options->variant, "cpu_", 4) == 0)
        choice = CONV_DEVICE_CPU; // a kernel's name says where it runs
    if (choice == CONV_DEVICE_CUDA || choice == CONV_DEVICE_AUTO) {
        struct conv_err reason;
        status = open_backend(device, conv_backend_cuda(), &config, &reason);
        bool forced = options->variant && strncmp(options->variant, "cuda_", 5) == 0;
        bool spare = choice == CONV_DEVICE_AUTO && !forced;
        bool fall_back = spare && !config.codes;
        if (!status)
            return spare ? open_spare(device, &config, err) : CONV_OK;
        if (status == CONV_ERR_MEMORY)
            status = CONV_ERR_DEVICE; // another process has the device's memory
        if (!fall_back || status != CONV_ERR_DEVICE)
            return conv_err_set(err, status, "%s", reason.text);
        if (!options->quiet)
            fprintf(stderr, "conv: %s; filtering on the CPU\n", reason.text);
    }
    return open_backend(device, &conv_backend_cpu, &config, err);
}

void conv_device_close(struct conv_device *device)
{
    if (device->ops)
        device->ops->close(device->backend);
    if (device->spare_ops)
        device->spare_ops->close(device->spare);
    *device = (struct conv_device){0};
}
