// SPDX-License-Identifier: MIT
// conv devices: the GPUs, the processor and what limits its use; with --json one object.
#include "cli/commands.h"

#include "base/features.h"
#include "base/limits.h"
#include "engine/engine.h"
#include "report/json.h"
#include "report/report.h"

// Prints words, or with `quoted` the elements of a JSON array.
static void print_features(bool quoted)
{
    size_t count;
    const struct conv_cpu_feature_row *rows = conv_cpu_feature_rows(&count);
    unsigned have = conv_cpu_features();
    const char *lead = quoted ? "\"" : " ";
    for (size_t i = 0; i < count; i++)
        if (have & rows[i].bit) {
            printf("%s%s%s", lead, rows[i].title, quoted ? "\"" : "");
            lead = quoted ? ",\"" : " ";
        }
}

// The limit that applies to the cores: a quota, or else the affinity mask.
static const char *cores_source(const struct conv_limits *limits)
{
    return limits->cores_source[0]                         ? limits->cores_source
           : limits->allowed_cores < limits->machine_cores ? "affinity mask"
                                                           : "no limit";
}

static const char *memory_source(const struct conv_limits *limits)
{
    return limits->memory_source[0] ? limits->memory_source : "no limit";
}

static void print_limits_json(const struct conv_limits *limits)
{
    printf("\"limits\":{\"machine_cores\":%d,\"machine_memory\":%zu,\"memory_used\":%zu",
           limits->machine_cores, limits->physical, limits->memory_used);
    conv_json_member(stdout, "cores_source", cores_source(limits));
    conv_json_member(stdout, "memory_source", memory_source(limits));
    fputs(",\"open_files\":", stdout);
    if (limits->descriptors < SIZE_MAX)
        printf("%zu}", limits->descriptors);
    else
        fputs("null}", stdout);
}

#define MOST_LISTED 64

// Fills info[MOST_LISTED], what is free included.
static enum conv_status list_gpus(const struct conv_device_ops *ops, struct conv_device_info *info,
                                  int *count, struct conv_err *err)
{
    enum conv_status status = ops->devices(info, MOST_LISTED, count, err);
    for (int i = 0; i < *count && i < MOST_LISTED && ops->read_memory && !status; i++)
        status = ops->read_memory(&info[i], i, err);
    return status;
}

static void print_gpus_json(const struct conv_device_ops *ops)
{
    struct conv_device_info info[MOST_LISTED];
    struct conv_err err = {0};
    int count;
    (void)list_gpus(ops, info, &count, &err);
    printf(",\"%s\":[", ops->name);
    for (int i = 0; i < count && i < MOST_LISTED; i++) {
        printf("%s{\"name\":\"%s:%d\"", i ? "," : "", ops->name, i);
        conv_json_member(stdout, "model", info[i].name);
        printf(",\"compute_capability\":\"%u.%u\",\"multiprocessors\":%d,\"memory\":%zu,"
               "\"free\":%zu}",
               info[i].capability / 10, info[i].capability % 10, info[i].multiprocessors,
               info[i].memory, info[i].free);
    }
    char name[32];
    snprintf(name, sizeof name, "%s_error", ops->name);
    putchar(']');
    conv_json_member(stdout, name, err.status ? err.text : NULL);
}

static void print_devices_json(const struct conv_machine_options *machine)
{
    const struct conv_limits *limits = machine->limits;
    printf("{\"type\":\"devices\",\"cpu\":{\"cores\":%d,\"features\":[", limits->cores);
    print_features(true);
    printf("],\"memory\":%zu},", limits->memory);
    print_limits_json(limits);
    for (int i = 0; i < CONV_ENGINE_DEVICES; i++)
        if (machine->backends[i]->place != CONV_ON_CPU)
            print_gpus_json(machine->backends[i]);
    puts("}");
}

static void print_gpus(const struct conv_device_ops *ops)
{
    struct conv_device_info info[MOST_LISTED];
    struct conv_err err = {0};
    int count;
    if (list_gpus(ops, info, &count, &err))
        printf("%-7s none: %s\n", ops->name, err.text);
    for (int i = 0; i < count && i < MOST_LISTED; i++)
        printf("%s:%-2d %s, compute capability %u.%u, %d multiprocessors, %zu of %zu MiB free\n",
               ops->name, i, info[i].name, info[i].capability / 10, info[i].capability % 10,
               info[i].multiprocessors, info[i].free >> 20, info[i].memory >> 20);
}

// Group names are not ours: control characters are escaped.
static void print_source(const char *source)
{
    fputs(" (", stdout);
    conv_report_print_path(stdout, source);
    fputs(")\n", stdout);
}

// The limits on cores, memory and files, and the setting that each comes from.
static void print_limits(const struct conv_limits *limits)
{
    printf("limits  cores: %d of %d", limits->cores, limits->machine_cores);
    print_source(cores_source(limits));
    printf("        memory: %zu MiB of %zu MiB", limits->memory >> 20, limits->physical >> 20);
    if (conv_limits_memory_is_limited(limits))
        printf(", %zu MiB in use", limits->memory_used >> 20);
    print_source(memory_source(limits));
    if (limits->descriptors < SIZE_MAX)
        printf("        open files: %zu (RLIMIT_NOFILE)\n", limits->descriptors);
}

int conv_devices_main(const struct conv_options *options)
{
    struct conv_err err = {0};
    if (conv_commands_check_operands(options, &err))
        return conv_errors_fail(&err);
    if (options->report.json) {
        print_devices_json(&options->machine);
        return conv_errors_flush();
    }
    for (int i = 0; i < CONV_ENGINE_DEVICES; i++)
        if (options->machine.backends[i]->place != CONV_ON_CPU)
            print_gpus(options->machine.backends[i]);
    const struct conv_limits *limits = options->machine.limits;
    printf("cpu     %d core%s,", limits->cores, limits->cores == 1 ? "" : "s");
    print_features(false);
    printf(", %zu MiB of memory\n", limits->memory >> 20);
    print_limits(limits);
    return conv_errors_flush();
}
