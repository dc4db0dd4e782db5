// SPDX-License-Identifier: MIT
// conv verify FILTER INPUT...: every kernel of every device against the plain definition, through
// the functions of conv.h, so that what is verified is the library that other programs use. With
// --json: one object per image, and one for the whole.
#include "cli/commands.h"
#include "cli/device.h"
#include "cli/run_inputs.h"
#include "cli/signals.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "conv.h"
#include "io/files/file_read.h"
#include "io/walk/walk.h"
#include "report/json.h"
#include "report/report.h"

// --- the kernels ---------------------------------------------------------------------------------

// Each kernel is a filter of the library.
struct kernel {
    const char *name;
    conv_context *context;
    conv_filter *filter; // NULL: the kernel does not take part
    char reason[160];    // why not
};

struct verify {
    const struct conv_options *options;
    struct conv_image_reader reader;
    uint8_t *memory; // of `input`, `expected` and `result`, one after another
    size_t memory_size;
    struct conv_image input, expected, result;
    conv_context *cpu, *gpu;        // `gpu` is NULL if no GPU takes part
    char no_gpu[CONV_MESSAGE_SIZE]; // then why not
    struct kernel *kernels;         // the first one is the definition
    int kernel_count;
    int images, failed;
    bool differs;
};

static enum conv_status open_context(conv_context **context,
                                     const struct conv_machine_options *machine, const char *device,
                                     char *message)
{
    conv_context_options settings = CONV_CONTEXT_OPTIONS_INIT;
    settings.device = device;
    settings.threads = machine->jobs;
    return conv_context_create(context, &settings, message);
}

// A missing GPU is reported once, and is an error only if --device asks for one.
static enum conv_status open_contexts(struct verify *verify, bool has_gpu_kernels,
                                      struct conv_err *err)
{
    const struct conv_options *options = verify->options;
    struct conv_device_list list;
    char message[CONV_MESSAGE_SIZE], device[32];
    enum conv_status status = conv_device_parse_one(&options->machine, &list, err);
    if (status)
        return status;
    status = open_context(&verify->cpu, &options->machine, "cpu", message);
    if (status)
        return conv_err_set(err, status, "%s", message);
    snprintf(verify->no_gpu, sizeof verify->no_gpu, "excluded by --device cpu");
    if (list.choice == CONV_DEVICE_CPU)
        return CONV_OK;
    snprintf(device, sizeof device, "%s:%d", list.gpu->name, list.ordinals[0]);
    if (!open_context(&verify->gpu, &options->machine, device, verify->no_gpu))
        return CONV_OK;
    if (list.choice == CONV_DEVICE_GPU)
        return conv_err_set(err, CONV_ERR_DEVICE, "%s", verify->no_gpu);
    if (!options->report.quiet && has_gpu_kernels)
        conv_report_say("%s kernels skipped: %s", list.gpu->title, verify->no_gpu);
    return CONV_OK;
}

// True if the kernel can run each filter of the chain at one depth at least; at other depths the
// best kernel takes its place.
static bool takes_part(const struct kernel *kernel)
{
    const char *byte, *word;
    for (int i = 0; (byte = conv_filter_kernel(kernel->filter, i, CONV_SAMPLE_U8)); i++) {
        word = conv_filter_kernel(kernel->filter, i, CONV_SAMPLE_U16);
        if (strcmp(byte, kernel->name) != 0 && strcmp(word, kernel->name) != 0)
            return false;
    }
    return true;
}

// Creates the filter from the options, to be run by that kernel, or sets the reason why it takes no
// part. Only the definition, which takes everything, has to.
static enum conv_status open_kernel(const struct verify *verify, struct kernel *kernel,
                                    struct conv_err *err)
{
    const struct conv_filter_choice *choice = &verify->options->filter;
    char border[32];
    snprintf(border, sizeof border, "%s", conv_filter_border_name(choice->border));
    if (choice->border == CONV_BORDER_CONSTANT)
        snprintf(border, sizeof border, "constant:%d", choice->border_value);
    conv_filter_options public = CONV_FILTER_OPTIONS_INIT;
    public.border = border;
    public.alpha = conv_alpha_names[choice->alpha];
    public.kernel = choice->settings.kernel;
    public.divisor = choice->settings.divisor;
    public.bias = choice->settings.bias;
    public.side = choice->settings.size;
    public.flip = choice->settings.flip;
    public.variant = kernel->name;
    enum conv_status status =
        conv_filter_create(&kernel->filter, kernel->context, verify->options->operands[0], &public);
    bool is_definition = kernel == verify->kernels;
    if (status && is_definition)
        return conv_err_set(err, status, "%s", conv_context_message(kernel->context));
    if (status && status != CONV_ERR_USAGE)
        snprintf(kernel->reason, sizeof kernel->reason, "%.*s", (int)sizeof kernel->reason - 1,
                 conv_context_message(kernel->context));
    if (!status && takes_part(kernel))
        return CONV_OK;
    conv_filter_destroy(kernel->filter);
    kernel->filter = NULL;
    if (!kernel->reason[0])
        snprintf(kernel->reason, sizeof kernel->reason, "not for this filter or this %s",
                 kernel->context == verify->cpu ? "CPU" : "GPU");
    return is_definition ? conv_err_usage(err, "%s", kernel->reason) : CONV_OK;
}

// Opens every kernel that can run the filter of the first operand, on the devices of the options.
// Reports a missing GPU once.
static enum conv_status open_kernels(struct verify *verify, struct conv_err *err)
{
    const char *device;
    int count = 0;
    bool has_gpu_kernels = false;
    for (; conv_kernel_name(count, &device); count++)
        has_gpu_kernels = has_gpu_kernels || strcmp(device, "cpu") != 0;
    enum conv_status status = open_contexts(verify, has_gpu_kernels, err);
    if (status)
        return status;
    verify->kernels = calloc((size_t)count, sizeof *verify->kernels);
    if (!verify->kernels)
        return conv_err_memory(err, "no memory for %d kernels", count);
    for (; verify->kernel_count < count && !status; verify->kernel_count++) {
        struct kernel *kernel = &verify->kernels[verify->kernel_count];
        kernel->name = conv_kernel_name(verify->kernel_count, &device);
        kernel->context = strcmp(device, "cpu") == 0 ? verify->cpu : verify->gpu;
        if (kernel->context)
            status = open_kernel(verify, kernel, err);
        else
            snprintf(kernel->reason, sizeof kernel->reason, "%.*s", (int)sizeof kernel->reason - 1,
                     verify->no_gpu);
    }
    return status;
}

// Prints which kernels were skipped, one line per reason. A missing GPU has already been reported.
static void say_skipped(const struct verify *verify)
{
    const struct kernel *kernels = verify->kernels, *end = kernels + verify->kernel_count;
    for (const struct kernel *first = kernels; first < end; first++) {
        char names[512] = "";
        bool said = first->filter || !first->context;
        for (const struct kernel *k = kernels; k < first; k++)
            said = said || strcmp(k->reason, first->reason) == 0;
        for (const struct kernel *k = first; k < end && !said; k++)
            if (strcmp(k->reason, first->reason) == 0)
                conv_text_add(names, sizeof names, ", ", "%s", k->name);
        if (!said)
            conv_report_say("%s skipped: %s", names, first->reason);
    }
}

static void close_kernels(struct verify *verify)
{
    for (int i = 0; i < verify->kernel_count; i++)
        conv_filter_destroy(verify->kernels[i].filter);
    conv_context_destroy(verify->gpu);
    conv_context_destroy(verify->cpu);
    free(verify->kernels);
}

// --- what is printed -----------------------------------------------------------------------------

// An image's JSON object, up to its end or that of its status.
static void print_file_json(const char *input, const char *status, const char *end)
{
    fputs("{\"type\":\"file\"", stdout);
    conv_json_member(stdout, "input", input);
    conv_json_member(stdout, "status", status);
    fputs(end, stdout);
}

static void print_difference(const struct verify *verify, const char *input,
                             const struct kernel *kernel, const struct conv_image_difference *first)
{
    if (verify->options->report.json) {
        print_file_json(input, "differs", "");
        printf(",\"variant\":\"%s\",\"channel\":%d,\"x\":%d,\"y\":%d,\"value\":%u,"
               "\"expected\":%u}\n",
               kernel->name, first->channel, first->x, first->y, first->a, first->b);
        return;
    }
    conv_text_terminal(stdout, input);
    printf(": %s differs from %s: channel %d, x %d, y %d: %u, not %u\n", kernel->name,
           verify->kernels[0].name, first->channel, first->x, first->y, first->a, first->b);
}

static void print_failure(const struct verify *verify, const char *input, const char *reason)
{
    conv_report_say("%s: %s", input, reason);
    if (!verify->options->report.json)
        return;
    print_file_json(input, "failed", "");
    conv_json_member(stdout, "error", reason);
    puts("}");
}

static void print_summary(const struct verify *verify)
{
    bool json = verify->options->report.json, identical = !verify->differs && verify->images > 0;
    const char *separator = "";
    if (json)
        printf("{\"type\":\"verify\",\"images\":%d,\"failed\":%d,\"identical\":%s,\"variants\":[",
               verify->images, verify->failed, identical ? "true" : "false");
    else if (identical)
        printf("%d %s, identical pixels from", verify->images,
               verify->images == 1 ? "image" : "images");
    else
        return;
    for (int i = 0; i < verify->kernel_count; i++)
        if (verify->kernels[i].filter) {
            printf(json ? "%s\"%s\"" : "%s %s", separator, verify->kernels[i].name);
            separator = json ? "," : "";
        }
    fputs(json ? "],\"skipped\":[" : "\n", stdout);
    separator = "";
    for (int i = 0; i < verify->kernel_count && json; i++)
        if (!verify->kernels[i].filter) {
            printf("%s{\"name\":\"%s\"", separator, verify->kernels[i].name);
            conv_json_member(stdout, "reason", verify->kernels[i].reason);
            putchar('}');
            separator = ",";
        }
    if (json)
        puts("]}");
}

// --- comparing -----------------------------------------------------------------------------------

static enum conv_status reserve_images(struct verify *verify, struct conv_err *err)
{
    const struct conv_image *shape = &verify->reader.header.shape;
    size_t each = conv_image_bytes(shape);
    if (3 * each > verify->memory_size) {
        free(verify->memory);
        verify->memory = aligned_alloc(CONV_IMAGE_PLANE_ALIGN, 3 * each);
        verify->memory_size = verify->memory ? 3 * each : 0;
        if (!verify->memory)
            return conv_err_memory(err, "no memory for an image of %d x %d pixels", shape->width,
                                   shape->height);
    }
    conv_image_lay_out(&verify->input, shape, verify->memory);
    conv_image_lay_out(&verify->expected, shape, verify->memory + each);
    conv_image_lay_out(&verify->result, shape, verify->memory + 2 * each);
    return CONV_OK;
}

// Planes of 8 or 16 bits as a view of conv.h.
static conv_image view_of(const struct conv_image *image)
{
    conv_image view =
        conv_image_planar(image->plane[0].data, image->width, image->height, image->channels,
                          image->depth == 16 ? CONV_SAMPLE_U16 : CONV_SAMPLE_U8, CONV_HOST);
    view.has_alpha = image->alpha;
    view.row_stride = image->plane[0].stride;
    view.channel_stride = image->channels > 1 ? image->plane[1].data - image->plane[0].data : 0;
    return view;
}

static enum conv_status run_kernel(const struct verify *verify, const struct kernel *kernel,
                                   const struct conv_image *result, struct conv_err *err)
{
    conv_image from = view_of(&verify->input), to = view_of(result);
    enum conv_status status = conv_filter_run(kernel->filter, &from, &to, 1, NULL);
    return status ? conv_err_set(err, status, "%s", conv_context_message(kernel->context))
                  : CONV_OK;
}

// False if a kernel differs from the definition.
static bool verify_image(struct verify *verify, const struct conv_item *item,
                         enum conv_status *status, struct conv_err *err)
{
    *status = conv_image_reader_read(&verify->reader, item, err);
    if (!*status && verify->reader.header.shape.depth > 16)
        *status = conv_err_unsupported(err, "float32 samples; images of 8 and 16 bits are read");
    if (!*status)
        *status = reserve_images(verify, err);
    if (!*status)
        *status = conv_image_reader_decode(&verify->reader, &verify->input, err);
    if (!*status)
        *status = run_kernel(verify, &verify->kernels[0], &verify->expected, err);
    for (int i = 1; i < verify->kernel_count && !*status; i++) {
        const struct kernel *kernel = &verify->kernels[i];
        struct conv_image_difference first;
        if (!kernel->filter)
            continue;
        *status = run_kernel(verify, kernel, &verify->result, err);
        if (*status || !conv_image_differ(&verify->result, &verify->expected, &first))
            continue;
        print_difference(verify, item->name, kernel, &first);
        return false;
    }
    if (!*status && verify->options->report.json)
        print_file_json(item->name, "same", "}\n");
    return true;
}

static int verify_all(struct verify *verify, struct conv_walk *walk)
{
    for (;;) {
        struct conv_item item;
        struct conv_err err = {0};
        enum conv_source_step step = conv_source_next(conv_walk_source(walk), &item, &err);
        if (step == CONV_SOURCE_END)
            break;
        if (step == CONV_SOURCE_ITEM && item.is_copy) { // a link to a member that is an image
            conv_item_release(&item);
            continue;
        }
        enum conv_status status = err.status;
        bool same = step != CONV_SOURCE_ITEM || verify_image(verify, &item, &status, &err);
        conv_item_release(&item);
        if (!same) {
            verify->differs = true;
            return CONV_EXIT_SOME_FAILED;
        }
        if (step == CONV_SOURCE_BAD || status) {
            char text[CONV_ERRORS_SIZE];
            print_failure(verify, item.name, conv_errors_explain(text, sizeof text, &err));
            verify->failed++;
            if (status == CONV_ERR_DEVICE)
                return CONV_EXIT_DEVICE;
            continue;
        }
        verify->images++;
    }
    if (verify->images + verify->failed == 0) {
        fprintf(stderr, "conv: no %s found\n", conv_formats_read);
        return CONV_EXIT_NOTHING;
    }
    return verify->failed ? CONV_EXIT_SOME_FAILED : CONV_EXIT_OK;
}

// A matrix file is read for each kernel.
static bool is_pipe(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISFIFO(info.st_mode);
}

// Mistakes in the filter are reported in the words of the command line.
static enum conv_status check_filter(const struct conv_options *options, struct conv_err *err)
{
    struct conv_filter filters[CONV_FILTER_MAX_CHAIN];
    int count = 0;
    const char *kernel = options->filter.settings.kernel;
    if (is_pipe(options->operands[0]) || (kernel && *kernel == '@' && is_pipe(kernel + 1)))
        return conv_err_usage(
            err, "conv verify reads the matrix several times: name a file, not a pipe");
    return conv_commands_parse_chain(options, options->operands[0], filters, &count, err);
}

int conv_verify_main(const struct conv_options *options)
{
    int code = CONV_EXIT_OK;
    struct conv_err err = {0};
    struct conv_walk *walk = NULL;
    struct conv_walk_config walk_config;
    struct verify verify = {
        .options = options,
        .reader = {.file_limit = conv_options_mem_limit(&options->machine, true),
                   .pixel_limit = options->inputs.max_pixels},
    };
    enum conv_status status = CONV_OK;
    if (options->operand_count < 2)
        status = conv_err_usage(&err, "conv verify takes a filter and images or folders");
    if (!status)
        status = check_filter(options, &err);
    conv_places_fill_reading_walk(&options->inputs, options->operands + 1,
                                  options->operand_count - 1, &walk_config);
    if (!status)
        status = conv_walk_open(&walk, &walk_config, &err);
    if (!status && conv_walk_reads_archives(walk))
        conv_signals_expect_truncation();
    if (!status)
        status = open_kernels(&verify, &err);
    if (!status && !options->report.quiet)
        say_skipped(&verify);
    if (!status) {
        code = verify_all(&verify, walk);
        print_summary(&verify);
        int flushed = conv_errors_flush();
        code = code ? code : flushed;
    }
    close_kernels(&verify);
    free(verify.memory);
    conv_image_reader_close(&verify.reader);
    conv_walk_close(walk);
    return status ? conv_errors_fail(&err) : code;
}
