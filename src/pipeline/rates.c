// SPDX-License-Identifier: MIT
#include "pipeline/rates.h"

// Nanoseconds for an image, a byte of its decoded samples and a byte of its file. A linear model:
// inflating and choosing matches follow the bytes of the file, all else the samples.
struct rates {
    double image, sample, byte;
};

// 16 cores of a Xeon at work and an H200, `tools/bench-runs --parts kinds`, 2026-11-23, nothing
// saved: 40,000 icons (128 x 128 RGBA, 5.6 KB) take the cores 0.47 s, 2,000 photographs (768 x 512,
// 640 KB) 0.63 s; the GPU took 0.57 s and 0.47 s.
static const struct rates on_cores = {25e3, 2.15, 3.85}; // of a core
static const struct rates on_device = {2e3, 0.03, 0};    // of the device
#define DEVICE_COST 0.40e9 // to start it, to finish its first groups, and to close it

// The work that remains on a core: reading, writing and the copy to staging memory; or decoding as
// well.
static const struct rates beside_device = {20e3, 0.05, 0.5};
static const struct rates beside_encoder = {22e3, 1.25, 3.0};

// A name of a folder on a memory file system: 40,000 take 12 ms.
#define NAME 300

static struct conv_workload_gain gain_of(const struct rates *left, double cores)
{
    return (struct conv_workload_gain){
        .image = (on_cores.image - left->image) / cores - on_device.image,
        .sample = (on_cores.sample - left->sample) / cores - on_device.sample,
        .byte = (on_cores.byte - left->byte) / cores - on_device.byte,
    };
}

struct conv_workload_choice conv_rates_choice(int cores, bool decodes, bool encodes)
{
    struct conv_workload_choice choice = {.cost = DEVICE_COST, .name = NAME};
    if (encodes) {
        choice.others = gain_of(&beside_encoder, cores);
        choice.plain = decodes ? gain_of(&beside_device, cores) : choice.others;
    }
    return choice;
}
