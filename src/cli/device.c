// SPDX-License-Identifier: MIT
#include "cli/device.h"

#include <ctype.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/suggest.h"

// --- --device ------------------------------------------------------------------------------------

static const char *const choices[] = {"auto", "cpu", "cuda", "all"}; // enum conv_device_choice

static enum conv_status explain(const char *text, struct conv_err *err)
{
    const char *near = strncmp(text, "gpu", 3) == 0
                           ? "cuda"
                           : conv_suggest_nearest(text, choices, sizeof choices[0], 4);
    return conv_err_set(err, CONV_ERR_USAGE,
                        "unknown device '%s'; %s%s%s auto, cpu, cuda, cuda:N, all, or a list such "
                        "as cuda:0,cuda:1",
                        text, near ? "did you mean '" : "it is", near ? near : "",
                        near ? "'?" : "");
}

// "cuda:3", followed by a comma or the end: 3; "cuda": 0. -1 if it is something else.
static int parse_ordinal(const char *text, size_t size)
{
    char *end;
    if (size == 4 && strncmp(text, "cuda", 4) == 0)
        return 0;
    if (size < 6 || strncmp(text, "cuda:", 5) != 0 || !isdigit((unsigned char)text[5]))
        return -1;
    long number = strtol(text + 5, &end, 10);
    return end == text + size && number < 1024 ? (int)number : -1;
}

static enum conv_status parse_list(const char *text, struct conv_device_list *list,
                                   struct conv_err *err)
{
    list->choice = CONV_DEVICE_CUDA;
    list->count = 0;
    for (const char *item = text;; item++) {
        size_t size = strcspn(item, ",");
        int ordinal = parse_ordinal(item, size);
        if (ordinal < 0)
            return explain(text, err);
        for (int i = 0; i < list->count; i++)
            if (list->ordinals[i] == ordinal)
                return conv_err_set(err, CONV_ERR_USAGE, "--device %s names cuda:%d twice", text,
                                    ordinal);
        if (list->count == CONV_BACKEND_MOST_DEVICES)
            return conv_err_set(err, CONV_ERR_USAGE, "--device takes at most %d devices",
                                CONV_BACKEND_MOST_DEVICES);
        list->ordinals[list->count++] = ordinal;
        item += size;
        if (!*item)
            return CONV_OK;
    }
}

enum conv_status conv_device_parse(const struct conv_options *options,
                                   struct conv_device_list *list, struct conv_err *err)
{
    const char *text = options->device_text ? options->device_text : "auto";
    *list = (struct conv_device_list){.count = 1};
    for (int i = 0; i < 4; i++) {
        list->choice = (enum conv_device_choice)i;
        if (strcmp(text, choices[i]) == 0)
            return CONV_OK;
    }
    return parse_list(text, list, err);
}

enum conv_status conv_device_parse_one(const struct conv_options *options,
                                       enum conv_device_choice *choice, int *ordinal,
                                       struct conv_err *err)
{
    struct conv_device_list list;
    enum conv_status status = conv_device_parse(options, &list, err);
    if (status)
        return status;
    if (list.choice == CONV_DEVICE_ALL || list.count > 1)
        return conv_err_set(err, CONV_ERR_USAGE, "this command takes one device, not %s",
                            options->device_text);
    *choice = list.choice;
    *ordinal = list.ordinals[0];
    return CONV_OK;
}

// --- opening -------------------------------------------------------------------------------------

// A device on its way: waking one takes a tenth of a second and more, so several wake at once.
struct opening {
    const struct conv_backend_ops *ops;
    struct conv_backend_config config;
    struct conv_backend *backend;
    struct conv_err err;
    pthread_t thread;
    bool started;
};

static void *open_main(void *argument)
{
    struct opening *opening = argument;
    opening->err.status = opening->ops->open(&opening->backend, &opening->config, &opening->err);
    return NULL;
}

static void open_all(struct opening *openings, int count)
{
    for (int i = 1; i < count; i++)
        openings[i].started =
            pthread_create(&openings[i].thread, NULL, open_main, &openings[i]) == 0;
    for (int i = 0; i < count; i++)
        if (!openings[i].started)
            open_main(&openings[i]);
    for (int i = 0; i < count; i++)
        if (openings[i].started)
            pthread_join(openings[i].thread, NULL);
}

static void add_backend(struct conv_device *device, const struct conv_backend_ops *ops,
                        struct conv_backend *backend)
{
    char name[16];
    size_t used = strlen(device->name);
    ops->describe(backend, name, sizeof name);
    snprintf(device->name + used, sizeof device->name - used, "%s%s", used ? "," : "", name);
    device->ops = ops;
    device->backends[device->count++] = backend;
}

static enum conv_status open_cpu(struct conv_device *device,
                                 const struct conv_backend_config *config, struct conv_err *err)
{
    struct conv_backend *backend;
    enum conv_status status = conv_backend_cpu.open(&backend, config, err);
    if (!status)
        add_backend(device, &conv_backend_cpu, backend);
    return status;
}

static enum conv_status open_spare(struct conv_device *device,
                                   const struct conv_backend_config *config, struct conv_err *err)
{
    struct conv_backend_config any = *config;
    any.variant = NULL; // a name of the other table
    device->spare_ops = &conv_backend_cpu;
    return device->spare_ops->open(&device->spare, &any, err);
}

// Of a list, all of them or a failure; `all` takes those that can be used, if that is any.
static enum conv_status open_cuda(struct conv_device *device, const struct conv_device_list *list,
                                  const struct conv_backend_config *config, bool quiet,
                                  struct conv_err *err)
{
    const struct conv_backend_ops *ops = conv_backend_cuda();
    bool all = list->choice == CONV_DEVICE_ALL;
    int count = list->count;
    if (!ops)
        return conv_err_set(err, CONV_ERR_DEVICE, "this conv was built without CUDA");
    enum conv_status status = all ? conv_backend_cuda_devices(NULL, 0, &count, err) : CONV_OK;
    if (status)
        return status;
    count = count < CONV_BACKEND_MOST_DEVICES ? count : CONV_BACKEND_MOST_DEVICES;
    struct opening *openings = calloc((size_t)count, sizeof *openings);
    if (!openings)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for %d devices", count);
    for (int i = 0; i < count; i++) {
        openings[i].ops = ops;
        openings[i].config = *config;
        openings[i].config.device = all ? i : list->ordinals[i];
    }
    open_all(openings, count);
    for (int i = 0; i < count; i++) {
        struct opening *opening = &openings[i];
        if (!opening->err.status)
            add_backend(device, ops, opening->backend);
        else if (all && opening->err.status != CONV_ERR_USAGE && !quiet)
            fprintf(stderr, "conv: cuda:%d: %s; left out\n", i, opening->err.text);
        if (opening->err.status && !status)
            status = conv_err_set(err, opening->err.status, "%s", opening->err.text);
    }
    free(openings);
    return all && device->count > 0 && status != CONV_ERR_USAGE ? CONV_OK : status;
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
    struct conv_device_list list;
    enum conv_status status = conv_device_parse(options, &list, err);
    if (status)
        return status;
    config.codes = options->decode_on == CONV_CODER_GPU || options->encode_on == CONV_CODER_GPU;
    if (config.codes && list.choice == CONV_DEVICE_CPU)
        return conv_err_set(err, CONV_ERR_USAGE, "--%s gpu and --device cpu exclude each other",
                            options->encode_on == CONV_CODER_GPU ? "encode-on" : "decode-on");
    const char *variant = options->variant ? options->variant : "";
    if (list.choice == CONV_DEVICE_AUTO && strncmp(variant, "cpu_", 4) == 0)
        list.choice = CONV_DEVICE_CPU; // a kernel's name says where it runs
    if (list.choice == CONV_DEVICE_CPU)
        return open_cpu(device, &config, err);
    struct conv_err reason;
    status = open_cuda(device, &list, &config, options->quiet, &reason);
    bool spare = list.choice != CONV_DEVICE_CUDA && strncmp(variant, "cuda_", 5) != 0;
    bool fall_back = spare && !config.codes;
    if (!status)
        return spare ? open_spare(device, &config, err) : CONV_OK;
    if (status == CONV_ERR_MEMORY)
        status = CONV_ERR_DEVICE; // another process has the device's memory
    if (!fall_back || status != CONV_ERR_DEVICE)
        return conv_err_set(err, status, "%s", reason.text);
    if (!options->quiet)
        fprintf(stderr, "conv: %s; filtering on the CPU\n", reason.text);
    return open_cpu(device, &config, err);
}

void conv_device_close(struct conv_device *device)
{
    for (int i = 0; i < device->count; i++)
        device->ops->close(device->backends[i]);
    if (device->spare_ops)
        device->spare_ops->close(device->spare);
    *device = (struct conv_device){0};
}
