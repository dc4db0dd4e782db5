// SPDX-License-Identifier: MIT
// What the files of the CUDA backend share: cuda.c (its row of engine.h, chains of filters);
//   cuda_group.c                           groups of the run: their filters
//   cuda_group_coders.c, cuda_group_formats.c  their files; formats that the device codes
//   cuda_api_parts.c                       calls of the library: views, streams and pinned memory
//   cuda_api_decode.c, cuda_api_encode.c  its files
//   cuda_api_copy.c, cuda_api_filter.c    its images
//   cuda_tensor.c                           layers and banks
#pragma once

#include <cuda_runtime_api.h>
#include <stdbool.h>

#include "engine/chain.h"
#include "engine/cuda_device.h"
#include "jpeg/cuda/cuda_jpeg.h"
#include "kernels/layout/layout.h"
#include "kernels/stencil/stencil.h"
#include "png/cuda/cuda_png.h"

struct conv_cuda_views; // cuda_api_filter.c

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
    unsigned alpha_kept; // as in the configuration
    struct conv_chain_op chain[];
};

// Device memory of one stream's coders. Each part grows with its largest group.
enum conv_cuda_coder_part {
    CONV_CUDA_CODER_STREAMS,     // and the tables, which are uploaded together with them
    CONV_CUDA_CODER_PASSTHROUGH, // planes that are not filtered
    CONV_CUDA_CODER_SCRATCH,     // of all coders, one after the other
    CONV_CUDA_CODER_OUTPUT,      // encoded data
    CONV_CUDA_CODER_TABLES,      // of several groups that run together
    CONV_CUDA_CODER_PARTS
};

// The images that one coder decodes, or encodes, for a group and for those that run with it.
struct conv_cuda_batch {
    int count;
    uint8_t *h_entries; // its table, as uploaded
    const uint8_t *d_entries;
    uint8_t *d_scratch;
    uint32_t *status; // to decode: a word per image, 0 if it is decoded; written by kernels
    int at_once;      // images that the device decodes at the same time, of all streams; 0: unknown
    // To encode.
    struct conv_encode_plan plan;
    uint8_t *d_output;
    struct conv_encode_result *places; // written by kernels
};

struct conv_cuda_coder {
    struct conv_cuda_memory part[CONV_CUDA_CODER_PARTS];
    struct conv_cuda_mapped answers; // of kernels: places and status words of all batches
    struct conv_cuda_mapped tables;  // of several groups, as uploaded
    struct conv_cuda_batch decode[CONV_DEVICE_CODERS], encode[CONV_DEVICE_CODERS];
    bool is_device_coded; // the last group
};

// The events of a run.
enum conv_cuda_mark { MARK_START, MARK_COPIED_IN, MARK_FILTERED, MARK_COPIED_OUT, MARK_COUNT };

struct conv_stream {
    struct conv_backend *backend;
    cudaStream_t cuda;
    cudaEvent_t marks[MARK_COUNT];
    struct conv_cuda_clock clock;
    struct conv_cuda_memory buffer[2]; // the first also takes the group's tables
    struct conv_cuda_memory cells;     // scratch of filters, one after the other
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

// --- cuda_group.c: see struct conv_device_ops ----------------------------------------------------

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
    // Images by the coder that decodes or encodes them.
    int decodes[CONV_DEVICE_CODERS], encodes[CONV_DEVICE_CODERS];
};

// Adds a group.
void conv_cuda_extent_add(struct conv_cuda_extent *extent, const struct conv_group *group);

// Host and device addresses of the coders' tables.
struct conv_cuda_tables {
    uint8_t *h_data;
    const uint8_t *d_data;
};

// --- cuda_group_formats.c ------------------------------------------------------------------------

// An image that is to be decoded or encoded.
struct conv_cuda_coded {
    const struct conv_group_image *image;
    const uint8_t *h_stream, *d_stream; // to be decoded
    uint8_t *d_plane[CONV_IMAGE_MAX_CHANNELS];
    int64_t stride; // bytes from a row to the next
};

// The coder of a format. {0} if the format is not in the build.
struct conv_cuda_coder_ops {
    size_t decode_entry, encode_entry; // bytes of an image's entry in its tables

    // Most bytes of scratch memory that decoding takes; 0: the device cannot decode it.
    size_t (*takes_stream)(const struct conv_image_header *header, size_t most_bytes);
    size_t (*encoded_bytes)(const struct conv_image *shape,
                            const struct conv_device_encoding *encoding);

    // Fill an image's entry; put_stream returns the bytes of scratch memory that decoding takes.
    size_t (*put_stream)(void *entry, const struct conv_cuda_coded *coded);
    void (*put_planes)(void *entry, const struct conv_cuda_coded *coded);

    // With the scratch memory known, and before it is.
    void (*plan_decoding)(void *images, int count, uint8_t *d_scratch);
    enum conv_status (*plan_encoding)(struct conv_encode_plan *plan, void *images, int count);

    // Enqueue the batch. stream->backend may be NULL. After a failure cudaGetLastError has the
    // cause.
    enum conv_status (*decode)(struct conv_stream *stream, const struct conv_cuda_batch *batch);
    enum conv_status (*encode)(const struct conv_encode_batch *batch);
};

extern const struct conv_cuda_coder_ops conv_cuda_coders[CONV_DEVICE_CODERS];

// See struct conv_device_ops. Any thread.
bool conv_cuda_coder_takes_stream(enum conv_device_coder coder,
                                  const struct conv_image_header *header, size_t most_bytes);
size_t conv_cuda_coder_encoded_bytes(const struct conv_image *shape,
                                     const struct conv_device_encoding *encoding);
// Enqueues the encoding of a planned batch.
enum conv_status conv_cuda_coder_run(enum conv_device_coder coder, cudaStream_t stream,
                                     const struct conv_cuda_batch *batch, struct conv_err *err);

// --- cuda_group_coders.c -------------------------------------------------------------------------

// Bytes of the coders' tables: of groups, and at most per image.
size_t conv_cuda_coder_table_bytes(const struct conv_cuda_extent *all);
size_t conv_cuda_coder_most_table_bytes(void);

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
                                             const struct conv_cuda_extent *all,
                                             const struct conv_cuda_tables *tables,
                                             struct conv_err *err);

// Enqueue decoding after the upload; enqueue encoding after the filters.
enum conv_status conv_cuda_coder_decode(struct conv_stream *stream, struct conv_err *err);
enum conv_status conv_cuda_coder_encode(struct conv_stream *stream, struct conv_err *err);

// After the groups' kernels: note which images the device could not decode; enqueue the download of
// all encoded data. CONV_ERR_MEMORY if that is more than a group has room for.
void conv_cuda_coder_note_decoded(const struct conv_cuda_coder *coder, struct conv_group *group);
enum conv_status conv_cuda_coder_copy_encoded(struct conv_stream *stream, struct conv_group *group,
                                              struct conv_err *err);

// --- parts of a batch ----------------------------------------------------------------------------

// A batch is cut into parts, each on a stream of its own, so that the copies of one part, the
// kernels of another and the host's work on a third overlap. More streams than 8 share the device's
// queues and wait for each other.
#define CONV_CUDA_PARTS 8

struct conv_cuda_part {
    cudaStream_t cuda;
    cudaEvent_t done; // of the last part on this stream
    bool busy;        // `done` has been recorded and not been waited for
    // Device memory from the pool, for the duration of a call.
    uint8_t *d_memory;
    size_t bytes;
    struct conv_cuda_mapped answers; // written by kernels
};

// Pinned memory between pageable memory and the device.
#define CONV_CUDA_PIECES 4
#define CONV_CUDA_PIECE_BYTES ((size_t)32 << 20)

struct conv_cuda_piece {
    struct conv_cuda_mapped staging; // grows for larger files
    cudaEvent_t copied;
    bool busy; // `copied` has been recorded and not been waited for
    bool held; // what was downloaded has not been read
};

// --- memory of filters ---------------------------------------------------------------------------

// Device memory for planes between kernels, one block for all filters of the device: a stream that
// uses it waits until the last use is over.
struct conv_cuda_context_scratch {
    struct conv_cuda_memory memory;
    cudaEvent_t used;
};

struct conv_device_own {
    size_t memory;     // of the device, bytes
    cudaEvent_t order; // what the caller's stream holds when a function is called
    struct conv_cuda_part parts[CONV_CUDA_PARTS];
    struct conv_cuda_piece pieces[CONV_CUDA_PIECES];
    int next_piece;
    struct conv_cuda_context_scratch scratch;
};

// --- cuda_api_parts.c ---------------------------------------------------------------------------

// A view in the form of layout.h.
struct conv_layout_view conv_cuda_view_layout(const conv_image *view);
// A view of planes as conv_image_lay_out has them, from `memory` on.
struct conv_layout_view conv_cuda_view_planes(uint8_t *memory, int width, int height, int channels,
                                              int depth, bool alpha);
// True if rows of the view's planes begin at multiples of 16 bytes; with `whole` also if they end
// there.
bool conv_cuda_view_is_aligned(const conv_image *view, bool whole);

// Copies between views, which are queued several at a time: as many as one launch takes (layout.h).
// Starts with its stream alone; flush queues what is left.
#define CONV_CUDA_COPIES 24

struct conv_cuda_copies {
    cudaStream_t stream;
    int count;
    struct conv_layout_copy list[CONV_CUDA_COPIES];
};
enum conv_status conv_cuda_copies_add(struct conv_cuda_copies *copies,
                                      const struct conv_layout_copy *copy, struct conv_err *err);
enum conv_status conv_cuda_copies_flush(struct conv_cuda_copies *copies, struct conv_err *err);

// `bytes` up to where the next block of a part's memory may begin.
static inline size_t conv_cuda_part_align(size_t bytes)
{
    return conv_image_align(bytes, 256);
}

// Bytes of samples that a part of a batch of `samples` bytes should have: at least `least`, unless
// the device is small. Parts take about `factor` times as much device memory.
size_t conv_cuda_part_bytes(const struct conv_device_context *device, uint64_t samples,
                            size_t least, int factor);

// Notes the work queued on `stream`: parts that are started wait for it.
enum conv_status conv_cuda_parts_start(struct conv_device_context *device, cudaStream_t stream,
                                       struct conv_err *err);
// Readies a part that is not busy, with `bytes` of device memory and `answer_bytes` of answers.
// CONV_ERR_MEMORY: busy parts hold the rest, or there is too little.
enum conv_status conv_cuda_part_open(struct conv_device_context *device,
                                     struct conv_cuda_part *part, size_t bytes, size_t answer_bytes,
                                     struct conv_err *err);
enum conv_status conv_cuda_part_queued(struct conv_cuda_part *part, struct conv_err *err);
enum conv_status conv_cuda_part_wait(struct conv_cuda_part *part, struct conv_err *err);
// Waits for all parts and pieces, also after a failure, and gives back their device memory.
enum conv_status conv_cuda_parts_finish(struct conv_device_context *device, struct conv_err *err);
void conv_cuda_parts_close(struct conv_device_context *device);

// Pinned memory of at least `bytes`, whose last copy is over. A piece that was downloaded
// is `held` until its user has read it and clears that; two are held at most.
enum conv_status conv_cuda_piece_open(struct conv_device_context *device, size_t bytes,
                                      struct conv_cuda_piece **piece, struct conv_err *err);
// Queues a copy of the piece's first `bytes` to the device, or from it; then the piece is held.
enum conv_status conv_cuda_piece_upload(struct conv_cuda_piece *piece, uint8_t *d_data,
                                        size_t bytes, cudaStream_t stream, struct conv_err *err);
enum conv_status conv_cuda_piece_download(struct conv_cuda_piece *piece, const uint8_t *d_data,
                                          size_t bytes, cudaStream_t stream, struct conv_err *err);
enum conv_status conv_cuda_piece_wait(struct conv_cuda_piece *piece, struct conv_err *err);

// --- cuda_api_filter.c --------------------------------------------------------------------------

// What a backend needs for images in the memory of `device`. CONV_ERR_MEMORY, CONV_ERR_DEVICE.
enum conv_status conv_cuda_views_open(struct conv_cuda_views **views,
                                      const struct conv_backend *backend,
                                      const struct conv_backend_config *config,
                                      struct conv_err *err);
void conv_cuda_views_close(struct conv_cuda_views *views); // NULL is fine

// --- rows of the device's table ------------------------------------------------------------------

extern const struct conv_tensor_ops conv_cuda_tensors; // cuda_tensor.c
enum conv_status conv_cuda_context_copy_bytes(struct conv_device_context *device, void *result,
                                              conv_memory result_memory, const void *source,
                                              conv_memory source_memory, size_t bytes, void *stream,
                                              struct conv_err *err);
enum conv_status conv_cuda_context_copy(struct conv_device_context *device,
                                        const conv_image *results, const conv_image *sources,
                                        int count, void *stream, struct conv_err *err);
enum conv_status conv_cuda_context_decode(struct conv_device_context *device,
                                          struct conv_device_decode *items, int count, void *stream,
                                          struct conv_err *err);
enum conv_status conv_cuda_context_encode(struct conv_device_context *device,
                                          struct conv_device_encode *items, int count,
                                          struct conv_file_memory *files, void *stream,
                                          struct conv_err *err);
enum conv_status conv_cuda_filter_run(struct conv_backend *filter, const conv_image *results,
                                      const conv_image *sources, int count, void *stream,
                                      struct conv_err *err);
