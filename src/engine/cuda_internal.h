// SPDX-License-Identifier: MIT
// What the files of the CUDA backend share: cuda.c (open, close, staging), cuda_stream.c (running
// groups), cuda_coder.c (its images decoded and encoded there).
#ifndef CONV_ENGINE_CUDA_INTERNAL_H
#define CONV_ENGINE_CUDA_INTERNAL_H

#include <cuda_runtime_api.h>

#include "engine/chain.h"
#include "engine/cuda_device.h"
#include "kernels/stencil/stencil.h"
#include "png/cuda/cuda_encode.h"

struct conv_cuda_views; // cuda_filter.c

struct conv_backend {
    int device;
    uint8_t *d_stencils;    // what the chain's stencils have uploaded
    atomic_int *stop;       // as in the configuration, if this backend has mapped it, else NULL
    const uint32_t *d_stop; // where the device sees it; NULL if it does not
    // Decoding kernels that the driver has loaded: those for whole images, and those for parts.
    atomic_bool has_whole, has_split;
    atomic_size_t
        whole_bytes; // of streams decoded as wholes because those for parts are not loaded
    int together;    // device-coded groups that a stream can run at once
    struct conv_device_context *context; // of the configuration; NULL: groups only
    struct conv_cuda_views *views;       // for images in its memory
    int op_count;
    bool premultiplied;
    struct conv_chain_op chain[];
};

// Device memory of one stream's coders. Each part grows with its largest group.
enum conv_cuda_coder_part {
    CONV_CUDA_CODER_STREAMS,     // as uploaded, and the tables
    CONV_CUDA_CODER_ROWS,        // filtered rows between inflate and unfilter
    CONV_CUDA_CODER_PASSTHROUGH, // planes that are not filtered
    CONV_CUDA_CODER_SCRATCH,     // the encoder's
    CONV_CUDA_CODER_CHUNKS,      // its output
    CONV_CUDA_CODER_TABLES,      // of several groups that run together
    CONV_CUDA_CODER_PARTS
};

struct conv_cuda_coder {
    struct conv_cuda_memory part[CONV_CUDA_CODER_PARTS];
    // Written by kernels: where each image's chunks are, and whether it was decoded.
    struct conv_cuda_mapped answers;
    struct conv_cuda_mapped tables; // of several groups, as uploaded
    size_t decodes, encodes;        // offsets of the groups' tables in those of the coders
    struct conv_encode_plan plan;   // of the groups
    bool is_device_coded;           // the last group
};

// The events of a run.
enum conv_cuda_mark { MARK_START, MARK_COPIED_IN, MARK_FILTERED, MARK_COPIED_OUT, MARK_COUNT };

struct conv_stream {
    struct conv_backend *backend;
    cudaStream_t cuda;
    cudaEvent_t marks[MARK_COUNT];
    struct conv_cuda_clock clock;
    struct conv_cuda_memory buffer[2]; // the first also takes the group's tables
    struct conv_cuda_coder coder;
};

// --- cuda.c --------------------------------------------------------------------------------------

// Uploads what the plans need to *d_memory, which the caller frees, also after a failure.
enum conv_status conv_cuda_plans_upload(uint8_t **d_memory, struct conv_stencil_plan *const *plans,
                                        int count, struct conv_err *err);
// Launches a filter's kernel.
enum conv_status conv_cuda_plan_launch(const struct conv_stencil_plan *plan,
                                       const struct conv_stencil_batch *batch,
                                       struct conv_err *err);

// --- cuda_stream.c: see struct conv_device_ops --------------------------------------------------

size_t conv_cuda_stream_table_bytes(int filter_count, bool codes);
enum conv_status conv_cuda_stream_open(struct conv_backend *backend, struct conv_stream **stream,
                                       size_t bytes, struct conv_err *err);
void conv_cuda_stream_close(struct conv_stream *stream);
enum conv_status conv_cuda_stream_run(struct conv_stream *stream, struct conv_group *group,
                                      struct conv_err *err);

// Groups that run together lie one after the other in device memory: what they have there in total,
// each rounded up to CONV_IMAGE_PLANE_ALIGN. The same, up to a group, is where it begins.
struct conv_cuda_extent {
    int groups, images, planes;
    int together;                // groups that may run at once later
    size_t front, back, streams; // bytes
};

// Adds a group.
void conv_cuda_extent_add(struct conv_cuda_extent *extent, const struct conv_group *group);

// Host and device addresses of the coders' tables.
struct conv_cuda_tables {
    uint8_t *h_data;
    const uint8_t *d_data;
};

// --- cuda_coder.c --------------------------------------------------------------------------------

size_t conv_cuda_coder_table_bytes(void); // per image

// See struct conv_device_ops. Any thread.
bool conv_cuda_coder_takes_stream(const struct conv_image *shape, size_t most_bytes);
size_t conv_cuda_coder_chunks_bytes(const struct conv_image *shape);

// With the device as the current one. {0} is fine.
void conv_cuda_coder_free(struct conv_cuda_coder *coder);

// Before the first operation of a group and of those linked to it, whose extent is `all`: takes
// memory; in_bytes are those of a decoded group's upload. With several groups also memory for
// tables of table_bytes. Then the tables can be written. CONV_ERR_MEMORY, CONV_ERR_DEVICE.
enum conv_status conv_cuda_coder_prepare(struct conv_stream *stream, const struct conv_group *group,
                                         const struct conv_cuda_extent *all, size_t in_bytes,
                                         size_t table_bytes, struct conv_err *err);
enum conv_status conv_cuda_coder_make_tables(struct conv_stream *stream,
                                             const struct conv_group *group,
                                             const struct conv_cuda_extent *all, uint8_t *h_tables,
                                             struct conv_err *err);
uint8_t *conv_cuda_coder_d_in(const struct conv_cuda_coder *coder); // of a decoded group
uint8_t *conv_cuda_coder_d_passthrough(const struct conv_cuda_coder *coder);

// Enqueue decoding after the upload; enqueue encoding after the filters. `count`: images.
enum conv_status conv_cuda_coder_decode(struct conv_stream *stream, const struct conv_group *group,
                                        int count, const struct conv_cuda_tables *tables,
                                        struct conv_err *err);
enum conv_status conv_cuda_coder_encode(struct conv_stream *stream,
                                        const struct conv_cuda_tables *tables,
                                        struct conv_err *err);

// After the groups' kernels: note which images the device could not decode; enqueue the download of
// all chunks.
void conv_cuda_coder_note_decoded(const struct conv_cuda_coder *coder, struct conv_group *group,
                                  int count);
enum conv_status conv_cuda_coder_copy_chunks(struct conv_stream *stream, struct conv_group *group,
                                             struct conv_err *err);

#endif
