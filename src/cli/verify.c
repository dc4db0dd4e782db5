// SPDX-License-Identifier: MIT
// conv verify FILTER INPUT...: every kernel of every device against the plain definition. With
// --json: one object per image, and one for the whole.
#include "backend/filter_image.h"
#include "cli/commands.h"
#include "cli/device.h"
#include "cli/hints.h"
#include "cli/signals.h"

#include <stdlib.h>
#include <string.h>

#include "io/image_reader.h"
#include "io/walk.h"
#include "report/json.h"

struct kernel {
    const struct conv_variant *variant;
    struct conv_filter_context *context;
};

struct verify {
    const struct conv_options *options;
    struct conv_image_reader reader;
    uint8_t *memory; // of `input`, `expected` and `result`, one after another
    size_t memory_size;
    struct conv_image input, expected, result;
    struct kernel *kernels; // the reference first
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

// Sets *on_gpu if a GPU's variants take part. A missing GPU is reported once, and is an error only
// if --device asks for one.
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
    if (!verify->options->quiet && list.gpu->built) // a build without it has no such variants
        conv_report_say("%s kernels skipped: %s", list.gpu->title, reason->text);
    return CONV_OK;
}

static enum conv_status open_kernel(const struct verify *verify, struct kernel *kernel,
                                    const struct conv_filter *filters, int filter_count,
                                    struct conv_err *err)
{
    const struct conv_options *options = verify->options;
    struct conv_device_list list;
    enum conv_status status = conv_device_parse_one(options, &list, err);
    struct conv_backend_config config = {
        .filters = filters,
        .filter_count = filter_count,
        .border = options->border,
        .border_value = options->border_value,
        .alpha = (enum conv_alpha_mode)options->alpha,
        .kernel = kernel->variant,
        .device = list.ordinals[0],
    };
    if (status)
        return status;
    return conv_filter_context_open(&kernel->context, options->backends[kernel->variant->place],
                                    &config, err);
}

static enum conv_status open_kernels(struct verify *verify, const struct conv_filter *filters,
                                     int filter_count, struct conv_err *err)
{
    int variant_count;
    bool on_gpu;
    const struct conv_variant *const *variants = conv_stencil_variants(&variant_count);
    enum conv_status status = choose_devices(verify, &on_gpu, err);
    if (status)
        return status;
    verify->kernels = calloc((size_t)variant_count, sizeof *verify->kernels);
    verify->skipped = calloc((size_t)variant_count, sizeof *verify->skipped);
    if (!verify->kernels || !verify->skipped)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for %d kernels", variant_count);
    for (int i = 0; i < variant_count; i++) {
        // The reference is the last variant of the table.
        struct kernel kernel = {.variant = variants[variant_count - 1 - i]};
        struct conv_err reason = {0};
        if (kernel.variant->place != CONV_ON_CPU && !on_gpu) {
            skip(verify, kernel.variant, verify->no_gpu.text);
        } else if (!open_kernel(verify, &kernel, filters, filter_count, &reason)) {
            verify->kernels[verify->count++] = kernel;
        } else if (i == 0) {
            return conv_err_set(err, reason.status, "%s", reason.text);
        } else {
            skip(verify, kernel.variant, reason.text);
            if (!verify->options->quiet)
                conv_report_say("%s skipped: %s", kernel.variant->name, reason.text);
        }
    }
    return CONV_OK;
}

// --- what is printed -----------------------------------------------------------------------------

// The beginning of an image's JSON object.
static void print_file_json(const char *input, const char *status)
{
    fputs("{\"type\":\"file\"", stdout);
    conv_json_member(stdout, "input", input);
    conv_json_member(stdout, "status", status);
}

static void print_difference(const struct verify *verify, const char *input,
                             const struct conv_variant *variant,
                             const struct conv_image_difference *first)
{
    if (verify->options->json) {
        print_file_json(input, "differs");
        printf(",\"variant\":\"%s\",\"channel\":%d,\"x\":%d,\"y\":%d,\"value\":%u,"
               "\"expected\":%u}\n",
               variant->name, first->channel, first->x, first->y, first->a, first->b);
        return;
    }
    conv_report_print_path(stdout, input);
    printf(": %s differs from %s: channel %d, x %d, y %d: %u, not %u\n", variant->name,
           verify->kernels[0].variant->name, first->channel, first->x, first->y, first->a,
           first->b);
}

static void print_failure(const struct verify *verify, const char *input, const char *reason)
{
    conv_report_say("%s: %s", input, reason);
    if (!verify->options->json)
        return;
    print_file_json(input, "failed");
    conv_json_member(stdout, "error", reason);
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
            printf(" %s", verify->kernels[i].variant->name);
        putchar('\n');
        return;
    }
    printf("{\"type\":\"verify\",\"images\":%d,\"failed\":%d,\"identical\":%s,\"variants\":[",
           verify->images, verify->failed,
           verify->differs || verify->images == 0 ? "false" : "true");
    for (int i = 0; i < verify->count; i++)
        printf("%s\"%s\"", i ? "," : "", verify->kernels[i].variant->name);
    fputs("],\"skipped\":[", stdout);
    for (int i = 0; i < verify->skipped_count; i++) {
        printf("%s{\"name\":\"%s\"", i ? "," : "", verify->skipped[i].name);
        conv_json_member(stdout, "reason", verify->skipped[i].reason);
        putchar('}');
    }
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
            return conv_err_set(err, CONV_ERR_MEMORY, "no memory for an image of %d x %d pixels",
                                shape->width, shape->height);
    }
    conv_image_lay_out(&verify->input, shape, verify->memory);
    conv_image_lay_out(&verify->expected, shape, verify->memory + each);
    conv_image_lay_out(&verify->result, shape, verify->memory + 2 * each);
    return CONV_OK;
}

// False if a kernel differs from the reference.
static bool verify_image(struct verify *verify, const struct conv_item *item,
                         enum conv_status *status, struct conv_err *err)
{
    const struct kernel *reference = &verify->kernels[0];
    *status = conv_image_reader_read(&verify->reader, item, err);
    if (!*status)
        *status = reserve_images(verify, err);
    if (!*status)
        *status = conv_image_reader_decode(&verify->reader, &verify->input, err);
    if (!*status)
        *status = conv_filter_image(reference->context, &verify->expected, &verify->input, err);
    for (int i = 1; i < verify->count && !*status; i++) {
        const struct kernel *kernel = &verify->kernels[i];
        struct conv_image_difference first;
        *status = conv_filter_image(kernel->context, &verify->result, &verify->input, err);
        if (*status || !conv_image_differ(&verify->result, &verify->expected, &first))
            continue;
        print_difference(verify, item->name, kernel->variant, &first);
        return false;
    }
    if (!*status && verify->options->json) {
        print_file_json(item->name, "same");
        puts("}");
    }
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
        enum conv_status status = err.status;
        bool same = step != CONV_SOURCE_ITEM || verify_image(verify, &item, &status, &err);
        conv_item_release(&item);
        if (!same) {
            verify->differs = true;
            return CONV_EXIT_SOME_FAILED;
        }
        if (step == CONV_SOURCE_BAD || status) {
            char text[CONV_HINTS_SIZE];
            print_failure(verify, item.name, conv_hints_explain(text, sizeof text, &err));
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

int conv_verify_main(const struct conv_options *options)
{
    struct conv_filter filters[CONV_FILTER_MAX_CHAIN];
    int filter_count = 0, code = CONV_EXIT_OK;
    struct conv_err err = {0};
    struct conv_walk *walk = NULL;
    struct verify verify = {
        .options = options,
        .reader = {.file_limit = conv_options_mem_limit(options, true),
                   .pixel_limit = options->max_pixels},
    };
    enum conv_status status = CONV_OK;
    if (options->operand_count < 2)
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
        .no_ignore = options->no_ignore,
        .archives = {.enabled = true, .images_only = true},
    };
    if (!status)
        status = conv_walk_open(&walk, &walk_config, &err);
    if (!status && conv_walk_reads_archives(walk))
        conv_signals_expect_truncation();
    if (!status)
        status = open_kernels(&verify, filters, filter_count, &err);
    if (!status) {
        code = verify_all(&verify, walk);
        print_summary(&verify);
        int flushed = conv_commands_flush();
        code = code ? code : flushed;
    }
    for (int i = 0; i < verify.count; i++)
        conv_filter_context_close(verify.kernels[i].context);
    free(verify.kernels);
    free(verify.skipped);
    free(verify.memory);
    conv_image_reader_close(&verify.reader);
    conv_walk_close(walk);
    return status ? conv_commands_fail(&err) : code;
}
