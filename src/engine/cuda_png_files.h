// SPDX-License-Identifier: MIT
// What the two halves of encoding on a CUDA device share: cuda_png_encode.c (the device's half and
// the call) and cuda_png_files.c (the host's half, which makes files of what was downloaded).
#ifndef CONV_ENGINE_CUDA_PNG_FILES_H
#define CONV_ENGINE_CUDA_PNG_FILES_H

#include "engine/cuda_context.h"
#include "png/cuda/cuda_encode.h"

#define CONV_CUDA_ENCODING_AHEAD 2 // pieces that are downloaded while the host copies another one

// An image of the call that the device encodes.
struct conv_cuda_encoding_entry {
    int item;                         // index in the caller's list
    bool direct;                      // from the caller's planes
    size_t samples;                   // bytes
    size_t planes_at;                 // of its planes, if they are not the caller's
    struct conv_encode_result result; // its chunk in the part's output
};

// A piece that is downloaded.
struct conv_cuda_encoding_fetch {
    struct conv_cuda_piece *piece;
    int first, end; // entries
    uint64_t from;  // of its first byte in the part's output
};

struct conv_cuda_encoding {
    struct conv_device_context *device;
    struct conv_device_encode *items;
    struct conv_file_memory *files; // of the caller, or NULL
    struct conv_cuda_encoding_entry *entries;
    int count; // number of entries
    struct conv_cuda_encoding_fetch fetches[CONV_CUDA_ENCODING_AHEAD];
    int fetch_first, fetch_count;
    const struct conv_cuda_encoding_fetch *copying; // what the threads copy from
};

// A part that has been queued.
struct conv_cuda_encoding_part {
    int index;      // of its stream
    int first, end; // entries
    size_t output;  // of the chunks in the part's memory
};

static inline struct conv_image conv_cuda_encoding_shape(const conv_image *view)
{
    return (struct conv_image){
        .width = view->width,
        .height = view->height,
        .channels = view->channels,
        .depth = view->sample == CONV_SAMPLE_U16 ? 16 : 8,
        .alpha = view->has_alpha && view->channels > 1,
    };
}

// Waits for a part and downloads its chunks piece by piece. The last pieces are under way on
// return.
enum conv_status conv_cuda_encoding_fetch_part(struct conv_cuda_encoding *encoding,
                                               const struct conv_cuda_encoding_part *queued,
                                               struct conv_err *err);

// Waits for the piece that was queued first, and makes its files.
enum conv_status conv_cuda_encoding_end_fetch(struct conv_cuda_encoding *encoding,
                                              struct conv_err *err);

#endif
