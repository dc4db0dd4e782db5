// SPDX-License-Identifier: MIT
// Samples the first files and extrapolates.
#include "pipeline/workload.h"

#include <string.h>

#include "io/formats.h"

// Files whose size is looked up: a microsecond or two each, or a while over a network.
#define SAMPLED 256
#define OPEN_EACH 16 // one of them in 16 is opened

// Images whose files are smaller than this on average are not counted further: a name takes a
// microsecond, which must not show beside the work on its image.
#define LEAST_BYTES ((uint64_t)16 << 10)

// What the sampled files have in common.
struct sample {
    uint64_t files, bytes; // of all of them
    int opened, plain;     // of some
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

static bool looks_plain(const struct conv_item *item)
{
    uint8_t head[CONV_FORMATS_HEAD];
    ssize_t got = read_head(head, item);
    if (got <= 0)
        return false;
    const struct conv_format_device *device = conv_formats_find(head, (size_t)got)->device;
    return device && (size_t)got >= device->head_bytes && device->looks_decodable(head);
}

static void add_sample(struct sample *sample, const struct conv_item *item)
{
    uint64_t size = file_size(item);
    if (size > 0 && sample->files % OPEN_EACH == 0) {
        sample->opened++;
        sample->plain += looks_plain(item);
    }
    sample->files++;
    sample->bytes += size;
}

static bool is_much(const struct conv_workload *workload, const struct sample *sample,
                    const struct conv_workload_thresholds *thresholds)
{
    bool plain = 4 * sample->plain >= 3 * sample->opened;
    return workload->bytes >= (plain ? thresholds->plain : thresholds->others);
}

void conv_workload_measure(struct conv_workload *workload, struct conv_source *source,
                           const struct conv_workload_thresholds *thresholds)
{
    struct conv_item item = {0};
    struct conv_err err;
    struct sample sample = {0};
    bool much = false;
    enum conv_source_step step = CONV_SOURCE_ITEM;
    *workload = (struct conv_workload){CONV_WORKLOAD_UNKNOWN, 0, 0};
    while (step != CONV_SOURCE_END && !much &&
           (sample.files < SAMPLED || sample.bytes / SAMPLED >= LEAST_BYTES)) {
        step = conv_source_next(source, &item, &err);
        if (step != CONV_SOURCE_ITEM || item.is_copy) {
            conv_item_release(&item);
            continue;
        }
        if (sample.files < SAMPLED)
            add_sample(&sample, &item);
        conv_item_release(&item);
        workload->images++;
        workload->bytes =
            sample.files < SAMPLED ? sample.bytes : sample.bytes / SAMPLED * workload->images;
        much = sample.files == SAMPLED && is_much(workload, &sample, thresholds);
    }
    much = much || (step == CONV_SOURCE_END && is_much(workload, &sample, thresholds));
    workload->kind = much ? CONV_WORKLOAD_LARGE : CONV_WORKLOAD_SMALL;
}
