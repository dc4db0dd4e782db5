// SPDX-License-Identifier: MIT
#include "run/rates.h"

// Nanoseconds for an image, a byte of its decoded samples, a byte of its file, and the square of
// its samples. Inflating and choosing matches follow the bytes of the file, all else the samples.
struct rates {
    double image, sample, byte, square;
};

// 16 cores of a Xeon and an H100, `tools/bench-auto`, 2026-11-26, nothing saved: the time of all
// cores for an icon (128 x 128 RGBA, 5.6 KB), a photograph (768 x 512, 640 KB) and a screenshot (29
// MB of samples, 300 KB on average) is 0.16, 4.7 and 28 ms, which are three equations.
static const struct rates on_cores = {67e3, 0.91, 5.6, 0};

// An image is inflated serially, 2.5 ns per byte, while the groups of all streams have room for 480
// MB of samples: so a device is slow with large images. The quotient is the square's rate.
static const struct rates on_device = {1e3, 0, 0, 5e-9};
#define DEVICE_COST 0.322e9 // to start it, to finish its first groups, and to close it

// The work that remains on a core: reading, writing and the copy to staging memory; or decoding as
// well.
static const struct rates beside_device = {35e3, 0.05, 0.5, 0};
static const struct rates beside_encoder = {25e3, 0.81, 3.9, 0};

// What a saved file takes longer beside a device: the workers, which do little else, enter names in
// the same folder at the same time. In four pairs of runs in two jobs, 2026-11-26, 40,000 icons
// took 0.17 to 0.36 s longer if they were saved, and 0.03 to 0.13 s on the cores alone: 4 us per
// file.
#define SAVED 4e3

// A name of a folder on a memory file system: 40,000 take 12 ms.
#define NAME 300

static struct conv_workload_gain gain_of(const struct rates *left, double cores, bool saves)
{
    return (struct conv_workload_gain){
        .image = (on_cores.image - left->image) / cores - on_device.image - (saves ? SAVED : 0),
        .sample = (on_cores.sample - left->sample) / cores - on_device.sample,
        .byte = (on_cores.byte - left->byte) / cores - on_device.byte,
    };
}

struct conv_workload_choice conv_rates_choice(int cores, bool decodes, bool encodes, bool saves)
{
    struct conv_workload_choice choice = {.cost = DEVICE_COST, .name = NAME};
    if (encodes) {
        choice.others = gain_of(&beside_encoder, cores, saves);
        choice.plain = choice.others;
    }
    if (encodes && decodes) {
        choice.plain = gain_of(&beside_device, cores, saves);
        choice.plain.square = -on_device.square;
    }
    return choice;
}
