// SPDX-License-Identifier: MIT
// Images through a layer: workers that each take an image, decode it, run the layer and write the
// result. Decoding, computing, copies to a device and writing of different images overlap.
#ifndef CONV_RUN_LAYER_IMAGES_H
#define CONV_RUN_LAYER_IMAGES_H

#include <stdatomic.h>

#include "io/files/tensor_file.h"
#include "io/sink.h"
#include "io/source.h"
#include "report/report.h"
#include "run/layer_image.h"

struct conv_layer_images {
    struct conv_layer_contexts contexts;
    struct conv_layer_samples samples;
    int jobs;         // workers
    size_t mem_limit; // bytes of images and results in flight
    uint64_t max_pixels;

    // Where results go: to a .npy file per image, or all into one of shape (images, maps, height,
    // width), in the order of the source; or nowhere.
    struct conv_sink *sink;
    const char *collect; // the path of that one file, or NULL
    bool fsync, force;   // of that file

    bool skip_existing, update, dry_run, no_save, fail_fast;
    bool resume;              // skip what the sink's journal lists as done
    struct conv_trace *trace; // of the workers; may be NULL
    atomic_int *stop;         // a signal ends the run after the images in flight
    // Receives the writer of `collect`, so that a signal can remove its temporary file; NULL at the
    // end.
    void (*watch)(struct conv_sink *sink);
};

// Runs all images of the source. Images that fail are reported and do not end the run.
// CONV_ERR_DEVICE if the device is lost; CONV_ERR_CANCELLED for `collect` after a signal, which
// then is not written; CONV_ERR_IO if it cannot be; CONV_ERR_MEMORY if no worker can be started.
enum conv_status conv_layer_images_run(const struct conv_layer_images *images,
                                       struct conv_source *source, struct conv_report *report,
                                       struct conv_err *err);

#endif
