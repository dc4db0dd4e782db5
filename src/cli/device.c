// SPDX-License-Identifier: MIT
#include "cli/device.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "run/workload.h"

static bool left_open; // see conv_device_is_left_open

// --- --device ------------------------------------------------------------------------------------

static enum conv_status explain(const struct conv_machine_options *machine, const char *text,
                                struct conv_err *err)
{
    const char *cpu = machine->backends[CONV_ON_CPU]->name;
    const char *gpu = machine->backends[CONV_ON_CUDA]->name;
    const char *const choices[] = {"auto", "all", cpu, gpu};
    const char *near = strncmp(text, "gpu", 3) == 0
                           ? gpu
                           : conv_suggest_nearest(text, choices, sizeof choices[0],
                                                  sizeof choices / sizeof choices[0]);
    return conv_err_usage(
        err, "unknown device '%s'; %s%s%s auto, %s, %s, %s:N, all, or a list such as %s:0,%s:1",
        text, near ? "did you mean '" : "it is", near ? near : "", near ? "'?" : "", cpu, gpu, gpu,
        gpu, gpu);
}

// A list of devices of one backend.
static enum conv_status parse_list(const struct conv_machine_options *machine, const char *text,
                                   struct conv_device_list *list, struct conv_err *err)
{
    list->choice = CONV_DEVICE_GPU;
    list->is_numbered = strchr(text, ':') || strchr(text, ',');
    list->count = 0;
    for (const char *item = text;; item++) {
        item += strspn(item, " ");
        size_t size = strcspn(item, ", ");
        int ordinal;
        if (conv_engine_parse(machine->backends, item, size, &ordinal) != list->gpu)
            return explain(machine, text, err);
        for (int i = 0; i < list->count; i++)
            if (list->ordinals[i] == ordinal)
                return conv_err_usage(err, "--device %s names %s:%d twice", text, list->gpu->name,
                                      ordinal);
        if (list->count == CONV_BACKEND_MOST_DEVICES)
            return conv_err_usage(err, "--device takes at most %d devices",
                                  CONV_BACKEND_MOST_DEVICES);
        list->ordinals[list->count++] = ordinal;
        item += size + strspn(item + size, " ");
        if (!*item)
            return CONV_OK;
    }
}

// Parses --device. CONV_ERR_USAGE for an unknown device, a device given twice, or too many.
static enum conv_status parse_devices(const struct conv_machine_options *machine,
                                      struct conv_device_list *list, struct conv_err *err)
{
    const char *text = machine->device_text ? machine->device_text : "auto";
    *list = (struct conv_device_list){.gpu = machine->backends[CONV_ON_CUDA], .count = 1};
    if (strcmp(text, "auto") == 0)
        return CONV_OK; // CONV_DEVICE_AUTO
    if (strcmp(text, "all") == 0)
        list->choice = CONV_DEVICE_ALL;
    else if (strcmp(text, machine->backends[CONV_ON_CPU]->name) == 0)
        list->choice = CONV_DEVICE_CPU;
    else
        return parse_list(machine, text, list, err);
    return CONV_OK;
}

void conv_device_spread(struct conv_device_list *list)
{
    int rank = conv_options_local_rank(), count = 0;
    bool chooses = list->choice == CONV_DEVICE_AUTO || list->choice == CONV_DEVICE_GPU;
    if (rank > 0 && chooses && !list->is_numbered &&
        list->gpu->devices(NULL, 0, &count, NULL) == CONV_OK && count > 1)
        list->ordinals[0] = rank % count;
}

void conv_device_set_up_process(const struct conv_machine_options *machine)
{
    struct conv_device_list list;
    bool first_only = parse_devices(machine, &list, NULL) == CONV_OK &&
                      (list.choice == CONV_DEVICE_AUTO || list.choice == CONV_DEVICE_GPU) &&
                      list.count == 1 && list.ordinals[0] == 0 &&
                      (list.is_numbered || conv_options_local_rank() == 0);
    for (int i = 0; i < CONV_ENGINE_DEVICES; i++)
        if (machine->backends[i]->set_up_process)
            machine->backends[i]->set_up_process(first_only);
}

enum conv_status conv_device_parse_one(const struct conv_machine_options *machine,
                                       struct conv_device_list *list, struct conv_err *err)
{
    enum conv_status status = parse_devices(machine, list, err);
    if (!status && (list->choice == CONV_DEVICE_ALL || list->count > 1))
        return conv_err_usage(err, "this command takes one device, not %s", machine->device_text);
    return status;
}

// --- opening -------------------------------------------------------------------------------------

// With this many taps a core filters about as fast as it decodes and encodes: 5 x 5 real taps reach
// 200 million pixels per second, PNG 110 million.
#define AT_ONCE_TAPS 50

static void add_device(struct conv_device *device, const char *name, int ordinal,
                       struct conv_async_open *opening, struct conv_backend *backend)
{
    int i = device->count++;
    device->ordinals[i] = ordinal;
    snprintf(device->names[i], sizeof device->names[i], "%s", name);
    conv_text_add(device->name, sizeof device->name, ",", "%s", name);
    device->openings[i] = opening;
    device->backends[i] = backend;
}

static enum conv_status open_cpu(struct conv_device *device, const struct conv_device_ops *cpu,
                                 const struct conv_backend_config *config, struct conv_err *err)
{
    struct conv_backend *backend;
    enum conv_status status = cpu->open(&backend, config, err);
    if (status)
        return status;
    device->ops = cpu;
    device->decode_on = device->encode_on = CONV_CODER_CPU;
    add_device(device, cpu->name, 0, NULL, backend);
    return CONV_OK;
}

static enum conv_status open_fallback(struct conv_device *device, const struct conv_device_ops *cpu,
                                      const struct conv_backend_config *config,
                                      struct conv_err *err)
{
    struct conv_backend_config any = *config;
    any.variant = NULL; // it names a variant of the GPU
    device->fallback_ops = cpu;
    return device->fallback_ops->open(&device->fallback, &any, err);
}

// Waits for the first `count` devices. All devices of a list are needed; `all` drops those that
// cannot be used, if at least one can.
static enum conv_status await(struct conv_device *device, bool all, bool quiet,
                              struct conv_err *err)
{
    struct conv_device found = {.ops = device->ops, .filter_count = device->filter_count};
    enum conv_status status = CONV_OK;
    for (int i = 0; i < device->count; i++) {
        struct conv_backend *backend;
        struct conv_err reason = {0};
        if (conv_async_open_result(device->openings[i], &backend, &reason) == CONV_OK) {
            add_device(&found, device->names[i], device->ordinals[i], device->openings[i], backend);
            continue;
        }
        (void)conv_async_open_close(device->openings[i]); // it is over
        if (all && reason.status != CONV_ERR_USAGE && !quiet)
            conv_report_say("%s: %s; skipped", device->names[i], reason.text);
        if (!status)
            status = conv_err_set(err, reason.status, "%s", reason.text);
    }
    *device = found;
    return all && device->count > 0 && status != CONV_ERR_USAGE ? CONV_OK : status;
}

// Opens all devices at the same time.
static enum conv_status open_gpus(struct conv_device *device, const struct conv_device_list *list,
                                  const struct conv_backend_config *config, bool wait, bool quiet,
                                  struct conv_err *err)
{
    const struct conv_device_ops *ops = list->gpu;
    bool all = list->choice == CONV_DEVICE_ALL;
    int count = list->count;
    // A backend that is not in the build fails at once, without a thread.
    enum conv_status status = all || !ops->built ? ops->devices(NULL, 0, &count, err) : CONV_OK;
    device->ops = ops;
    for (int i = 0; i < count && i < CONV_BACKEND_MOST_DEVICES && !status; i++) {
        char name[16];
        struct conv_async_open *opening;
        struct conv_backend_config own = *config;
        own.device = all ? i : list->ordinals[i];
        status = conv_async_open_start(&opening, ops, &own, err);
        if (status)
            break;
        snprintf(name, sizeof name, "%s:%d", ops->name, own.device);
        add_device(device, name, own.device, opening, NULL);
    }
    return status || !wait ? status : await(device, all, quiet, err);
}

static bool decodes_by_choice(const struct conv_options *options)
{
    return options->machine.decode_on == CONV_CODER_AUTO;
}

static bool encodes_by_choice(const struct conv_options *options)
{
    return options->machine.encode_on == CONV_CODER_AUTO && !options->outputs.codec.encoder &&
           options->outputs.codec.level == -1; // the GPU's encoder has one level
}

// The bytes of files depend on the encoder, so it stays the same during the whole run. The decoder
// may change from image to image.
static void choose_coders(struct conv_device *device, const struct conv_options *options, bool much)
{
    bool able = device->ops->takes_stream != NULL;
    device->decode_on = options->machine.decode_on;
    device->encode_on = options->machine.encode_on;
    if (device->encode_on == CONV_CODER_AUTO)
        device->encode_on =
            able && much && encodes_by_choice(options) ? CONV_CODER_GPU : CONV_CODER_CPU;
    if (device->decode_on == CONV_CODER_AUTO && !(able && decodes_by_choice(options)))
        device->decode_on = CONV_CODER_CPU;
}

// Counts the machine's cores, not --jobs, since files must not depend on that.
bool conv_device_choice(const struct conv_options *options, struct conv_workload_choice *choice)
{
    struct conv_device_list list;
    bool decodes = decodes_by_choice(options), encodes = encodes_by_choice(options);
    *choice = conv_workload_choice_for(options->machine.limits->cores, decodes, encodes,
                                       !options->outputs.no_save);
    if (options->outputs.reproducible) // encoded by the CPU
        choice->plain[CONV_DEVICE_PNG] = choice->others[CONV_DEVICE_PNG] =
            (struct conv_workload_gain){0};
    return parse_devices(&options->machine, &list, NULL) == CONV_OK &&
           (list.choice == CONV_DEVICE_AUTO || (list.choice == CONV_DEVICE_GPU && decodes) ||
            (list.choice == CONV_DEVICE_ALL && (decodes || encodes)));
}

static bool is_small(const struct conv_filter *filters, int count)
{
    int taps = 0;
    for (int i = 0; i < count; i++)
        taps += filters[i].width * filters[i].height;
    return taps <= AT_ONCE_TAPS;
}

// Parses --device, and replaces `auto` by the CPU where the options or a small job decide that.
static enum conv_status choose_devices(struct conv_device_list *list,
                                       const struct conv_options *options,
                                       const struct conv_device_ops *forced, bool codes,
                                       bool small_job, struct conv_err *err)
{
    enum conv_status status = parse_devices(&options->machine, list, err);
    if (status)
        return status;
    if (codes && list->choice == CONV_DEVICE_CPU)
        return conv_err_usage(err, "--%s gpu and --device cpu cannot be combined",
                              options->machine.encode_on == CONV_CODER_GPU ? "encode-on"
                                                                           : "decode-on");
    bool on_cpu = forced == options->machine.backends[CONV_ON_CPU] ||
                  (small_job && !codes && !(options->machine.variant && *options->machine.variant));
    if (list->choice == CONV_DEVICE_AUTO && on_cpu)
        list->choice = CONV_DEVICE_CPU;
    return CONV_OK;
}

enum conv_status conv_device_open(struct conv_device *device, const struct conv_options *options,
                                  const struct conv_filter *filters, int filter_count, bool at_once,
                                  enum conv_workload_kind work, atomic_int *stop,
                                  struct conv_err *err)
{
    *device = (struct conv_device){.filter_count = filter_count};
    struct conv_backend_config config = {
        .filters = filters,
        .filter_count = filter_count,
        .border = options->filter.border,
        .border_value = options->filter.border_value,
        .alpha = options->filter.alpha,
        .alpha_kept = options->filter.alpha_kept,
        .floats = options->outputs.type == CONV_OUTPUT_F32,
        .float_samples = true,
        .variant = options->machine.variant,
        .launch_bytes = conv_options_group_bytes(&options->machine, true),
        .stop = stop,
    };
    struct conv_device_list list;
    int ignored;
    const char *variant = options->machine.variant ? options->machine.variant : "";
    const struct conv_device_ops *cpu = options->machine.backends[CONV_ON_CPU];
    const struct conv_device_ops *forced =
        conv_engine_parse(options->machine.backends, variant, strcspn(variant, "_"), &ignored);
    bool codes = options->machine.decode_on == CONV_CODER_GPU ||
                 options->machine.encode_on == CONV_CODER_GPU;
    bool small = is_small(filters, filter_count);
    enum conv_status status =
        choose_devices(&list, options, forced, codes, work == CONV_WORKLOAD_SMALL && small, err);
    if (status)
        return status;
    if (list.choice == CONV_DEVICE_CPU)
        return open_cpu(device, cpu, &config, err);
    struct conv_err reason;
    bool cpu_allowed = list.choice != CONV_DEVICE_GPU && (!forced || forced == cpu);
    bool fall_back = cpu_allowed && !codes; // --decode-on or --encode-on gpu needs the GPU
    conv_device_spread(&list);
    at_once &= fall_back && !*variant && small && list.gpu->has_driver();
    status = open_gpus(device, &list, &config, !at_once, options->report.quiet, &reason);
    if (!status) {
        choose_coders(device, options, work == CONV_WORKLOAD_LARGE || !cpu_allowed);
        return cpu_allowed ? open_fallback(device, cpu, &config, err) : CONV_OK;
    }
    conv_device_close(device);
    device->filter_count = filter_count;
    if (status == CONV_ERR_MEMORY)
        status = CONV_ERR_DEVICE; // another process has the device's memory
    if (!fall_back || status != CONV_ERR_DEVICE)
        return conv_err_set(err, status, "%s", reason.text);
    // A machine without a GPU is expected with `auto`; a GPU that cannot be used is reported.
    bool expected = list.choice == CONV_DEVICE_AUTO && !list.gpu->has_driver();
    if (!options->report.quiet && (!expected || options->report.verbose))
        conv_report_say("%s; filtering on the CPU", reason.text);
    return open_cpu(device, cpu, &config, err);
}

void conv_device_look(struct conv_device *device)
{
    for (int i = 0; i < device->count; i++)
        if (!device->backends[i] && conv_async_open_is_over(device->openings[i]))
            (void)conv_async_open_result(device->openings[i], &device->backends[i], NULL);
}

bool conv_device_may_be_left(const struct conv_device *device)
{
    static const char *const watchers[] = {"CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH",
                                           "LD_PRELOAD"};
    bool watched = false;
    for (size_t i = 0; i < sizeof watchers / sizeof watchers[0]; i++) {
        const char *value = getenv(watchers[i]);
        watched |= value && *value;
    }
    return device->ops->freed_at_exit && !watched;
}

bool conv_device_is_left_open(void)
{
    return left_open;
}

void conv_device_close(struct conv_device *device)
{
    left_open |= device->is_left;
    if (device->left_threads || device->is_left)
        return;
    for (int i = 0; i < device->count; i++) {
        if (device->openings[i])
            left_open |= !conv_async_open_close(device->openings[i]);
        else
            device->ops->close(device->backends[i]);
    }
    if (device->fallback_ops)
        device->fallback_ops->close(device->fallback);
    *device = (struct conv_device){0};
}
