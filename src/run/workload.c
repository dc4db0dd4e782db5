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

// What is read of a file: metadata come before the sizes of a JPEG.
#define HEAD 65536

// The first bytes of the item. Returns how many.
static ssize_t read_head(uint8_t head[HEAD], const struct conv_item *item)
{
    struct conv_input input = {0};
    struct conv_err err;
    if (item->ops->view) {
        const uint8_t *data;
        size_t size;
        if (item->ops->view(item, &input, &data, &size, &err))
            return -1;
        size = size < HEAD ? size : HEAD;
        memcpy(head, data, size);
        return (ssize_t)size;
    }
    if (item->ops->open(item, &input, &err))
        return -1;
    ssize_t got = item->ops->read(&input, head, HEAD, &err);
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
    uint8_t head[HEAD];
    ssize_t got = read_head(head, item);
    if (got <= 0)
        return 0;
    const struct conv_format_device *device = conv_formats_find(head, (size_t)got)->device;
    bool known = device && (size_t)got >= device->head_bytes;
    double samples = known ? (double)device->head_samples(head, (size_t)got, size) : 0;
    enum conv_device_coder coder = device ? device->coder : CONV_DEVICE_PNG;
    // A header may state any size; compression does not gain more than this.
    double most = MOST_EXPANSION * (double)size;
    samples = samples < most ? samples : most;
    if (!known || !device->looks_decodable(head, (size_t)got))
        return evaluate(&choice->others[coder], samples, (double)size);
    double gain = evaluate(&choice->plain[coder], samples, (double)size);
    return gain > 0 ? gain : 0; // the CPU decodes it
}

static void add_sample(struct sample *sample, const struct conv_workload_choice *choice,
                       const struct conv_item *item)
{
    uint64_t size = conv_item_bytes(item);
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

// --- rates ---------------------------------------------------------------------------------------
// Measured times of images on cores and on a device, for the choice between them.

// Nanoseconds for an image, a byte of its decoded samples, a byte of its file, and the square of
// its samples.
struct rates {
    double image, sample, byte, square;
};

// By the coder of the images' format.
static const struct {
    struct rates on_cores, on_device;
    // The work that remains on a core: reading, writing and the copy to staging memory; or decoding
    // as well.
    struct rates beside_device, beside_encoder;
} rates_of[CONV_DEVICE_CODERS] = {
    // 16 cores of a Xeon and an H100, `tools/bench auto`, 2026-11-26, nothing saved: the time of
    // all cores for an icon (128 x 128 RGBA, 5.6 KB), a photograph (768 x 512, 640 KB) and a
    // screenshot (29 MB of samples, 300 KB on average) is 0.16, 4.7 and 28 ms, which are three
    // equations. Inflating and choosing matches follow the bytes of the file, all else the samples.
    // On a device an image is inflated serially, 2.5 ns per byte, while the groups of all streams
    // have room for 480 MB of samples: so a device is slow with large images. The quotient is the
    // square's rate.
    [CONV_DEVICE_PNG] = {.on_cores = {67e3, 0.91, 5.6, 0},
                         .on_device = {1e3, 0, 0, 5e-9},
                         .beside_device = {35e3, 0.05, 0.5, 0},
                         .beside_encoder = {25e3, 0.81, 3.9, 0}},
    // 16 cores of a Xeon and an H200, 2026-11-29, nothing saved: the processor time for an icon
    // (128 x 128, 6.8 KB), a photograph (768 x 512, 164 KB) and one of 24 megapixels (2.8 MB) is
    // 0.25, 4.6 and 212 ms, and 0.12, 2.3 and 71 ms if the device encodes. A device works on all
    // parts of an image at once: runs of 4,000 and 10,000 photographs differ by 85 GB of samples
    // per second.
    [CONV_DEVICE_JPEG] = {.on_cores = {60e3, 2.6, 9, 0},
                          .on_device = {1e3, 0.012, 0, 0},
                          .beside_device = {120e3, 0, 0, 0},
                          .beside_encoder = {25e3, 0.6, 9, 0}},
};

#define DEVICE_COST 0.322e9 // to start it, to finish its first groups, and to close it

// What a saved file takes longer beside a device: the workers, which do little else, enter names in
// the same folder at the same time. In four pairs of runs in two jobs, 2026-11-26, 40,000 icons
// took 0.17 to 0.36 s longer if they were saved, and 0.03 to 0.13 s on the cores alone: 4 us per
// file.
#define SAVED 4e3

// A name of a folder on a memory file system: 40,000 take 12 ms.
#define NAME 300

static struct conv_workload_gain gain_over(int coder, const struct rates *left, double cores,
                                           bool saves)
{
    const struct rates *on_cores = &rates_of[coder].on_cores;
    const struct rates *on_device = &rates_of[coder].on_device;
    return (struct conv_workload_gain){
        .image = (on_cores->image - left->image) / cores - on_device->image - (saves ? SAVED : 0),
        .sample = (on_cores->sample - left->sample) / cores - on_device->sample,
        .byte = (on_cores->byte - left->byte) / cores - on_device->byte,
    };
}

struct conv_workload_choice conv_workload_choice_for(int cores, bool decodes, bool encodes,
                                                     bool saves)
{
    struct conv_workload_choice choice = {.cost = DEVICE_COST, .name = NAME};
    for (int f = 0; f < CONV_DEVICE_CODERS && encodes; f++) {
        choice.others[f] = gain_over(f, &rates_of[f].beside_encoder, cores, saves);
        choice.plain[f] = choice.others[f];
        if (decodes) {
            choice.plain[f] = gain_over(f, &rates_of[f].beside_device, cores, saves);
            choice.plain[f].square = -rates_of[f].on_device.square;
        }
    }
    return choice;
}
