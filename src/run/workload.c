// SPDX-License-Identifier: MIT
// Samples the first files and extrapolates.
#include "run/workload.h"

#include <string.h>

#include "io/files/formats.h"

// Files whose size is looked up: a microsecond or two each, or a while over a network.
#define SAMPLED 256
#define OPEN_EACH 4 // one of them in 4 is opened

// Names are counted only while the work of an image is at least this many times the cost of
// counting it. When the decision is made, counting has then taken at most that part of the device's
// cost.
#define WORTH_NAMES 10

// Decoded samples of a file are at most this many times its bytes (deflate: 1032).
#define MOST_EXPANSION 1032.0

// Totals and averages of the sampled files.
struct sample {
    uint64_t files, bytes; // of all of them
    uint64_t opened_bytes; // of those that were opened
    double opened_gain;
};

static uint64_t file_size(const struct conv_item *item)
{
    struct stat info;
    bool is_file = item->ops->identify && item->ops->identify(item, &info) && S_ISREG(info.st_mode);
    return is_file ? (uint64_t)info.st_size : 0;
}

// The first bytes of the item. Returns how many.
static ssize_t read_head(uint8_t head[CONV_FORMATS_HEAD], const struct conv_item *item)
{
    struct conv_input input = {0};
    struct conv_err err;
    if (item->ops->view) {
        const uint8_t *data;
        size_t size;
        if (item->ops->view(item, &input, &data, &size, &err))
            return -1;
        size = size < CONV_FORMATS_HEAD ? size : CONV_FORMATS_HEAD;
        memcpy(head, data, size);
        return (ssize_t)size;
    }
    if (item->ops->open(item, &input, &err))
        return -1;
    ssize_t got = item->ops->read(&input, head, CONV_FORMATS_HEAD, &err);
    item->ops->close(&input);
    return got;
}

static double evaluate(const struct conv_workload_gain *gain, double samples, double bytes)
{
    return gain->image + gain->sample * samples + gain->byte * bytes +
           gain->square * samples * samples;
}

static double gain_of(const struct conv_workload_choice *choice, const struct conv_item *item,
                      uint64_t size)
{
    uint8_t head[CONV_FORMATS_HEAD];
    ssize_t got = read_head(head, item);
    if (got <= 0)
        return 0;
    const struct conv_format_device *device = conv_formats_find(head, (size_t)got)->device;
    bool known = device && (size_t)got >= device->head_bytes;
    double samples = known ? (double)device->head_samples(head) : 0;
    // A header may state any size; compression does not gain more than this.
    double most = MOST_EXPANSION * (double)size;
    samples = samples < most ? samples : most;
    if (!known || !device->looks_decodable(head))
        return evaluate(&choice->others, samples, (double)size);
    double gain = evaluate(&choice->plain, samples, (double)size);
    return gain > 0 ? gain : 0; // the CPU decodes it
}

static void add_sample(struct sample *sample, const struct conv_workload_choice *choice,
                       const struct conv_item *item)
{
    uint64_t size = file_size(item);
    if (size > 0 && sample->files % OPEN_EACH == 0) {
        sample->opened_gain += gain_of(choice, item, size);
        sample->opened_bytes += size;
    }
    sample->files++;
    sample->bytes += size;
}

// The gain of an average image: that of the opened files, weighted by bytes.
static double average_gain(const struct sample *sample)
{
    if (sample->opened_bytes == 0)
        return 0;
    return sample->opened_gain / (double)sample->opened_bytes * (double)sample->bytes /
           (double)sample->files;
}

void conv_workload_measure(struct conv_workload *workload, struct conv_source *source,
                           const struct conv_workload_choice *choice)
{
    struct conv_item item = {0};
    struct conv_err err;
    struct sample sample = {0};
    bool much = false, worth = true;
    enum conv_source_step step = CONV_SOURCE_ITEM;
    *workload = (struct conv_workload){.kind = CONV_WORKLOAD_UNKNOWN};
    while (step != CONV_SOURCE_END && !much && worth) {
        step = conv_source_next(source, &item, &err);
        if (step != CONV_SOURCE_ITEM || item.is_copy) {
            conv_item_release(&item);
            continue;
        }
        if (sample.files < SAMPLED)
            add_sample(&sample, choice, &item);
        conv_item_release(&item);
        workload->images++;
        if (sample.files < SAMPLED)
            continue;
        double gain = average_gain(&sample);
        workload->saved = gain * (double)workload->images;
        much = workload->saved >= choice->cost;
        worth = gain > WORTH_NAMES * choice->name;
    }
    if (sample.files < SAMPLED)
        workload->saved = average_gain(&sample) * (double)workload->images;
    workload->bytes =
        sample.files < SAMPLED ? sample.bytes : sample.bytes / SAMPLED * workload->images;
    much = much || (step == CONV_SOURCE_END && workload->saved >= choice->cost);
    workload->kind = much ? CONV_WORKLOAD_LARGE : CONV_WORKLOAD_SMALL;
}
