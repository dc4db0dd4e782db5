// SPDX-License-Identifier: MIT
// What the files share that work on images in the memory of a CUDA device: cuda_context.c (device,
// memory, events), cuda_parts.c (streams for parts of a batch), cuda_png_decode.c,
// cuda_png_encode.c cuda_copy.c, cuda_filter.c, and
// cuda_tables.c (tables of planes in device memory).
#ifndef CONV_ENGINE_CUDA_CONTEXT_H
#define CONV_ENGINE_CUDA_CONTEXT_H

#include <cuda_runtime_api.h>
#include <stdbool.h>

#include "engine/cuda_internal.h"
#include "kernels/layout/layout.h"

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

// --- cuda_context.c ------------------------------------------------------------------------------

// Makes the device current until conv_cuda_context_leave, which restores the caller's.
enum conv_status conv_cuda_context_enter(struct conv_device_context *device, int *previous,
                                         struct conv_err *err);
void conv_cuda_context_leave(struct conv_device_context *device, int previous);

// An event for the order of work only.
enum conv_status conv_cuda_context_event(cudaEvent_t *event, struct conv_err *err);

// At least `bytes` of scratch memory for work that is queued on `stream` until
// conv_cuda_context_scratch_used. Waits for the device only when it grows.
enum conv_status conv_cuda_context_scratch(struct conv_device_context *device, size_t bytes,
                                           cudaStream_t stream, uint8_t **d_memory,
                                           struct conv_err *err);
enum conv_status conv_cuda_context_scratch_used(struct conv_device_context *device,
                                                cudaStream_t stream, struct conv_err *err);

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

// --- cuda_parts.c ----------------------------------------------------------------------------

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

// --- cuda_tables.c ---------------------------------------------------------------------------

// Tables of planes in device memory. A table that equals an earlier one is not uploaded again.
#define CONV_CUDA_TABLES 64

struct conv_cuda_table {
    uint8_t *h_data; // pinned
    uint8_t *d_data;
    size_t capacity, bytes;
    bool large;       // has memory of its own
    cudaEvent_t used; // by the last work that reads it
    bool on_default;  // that work is on the default stream
};

// Starts as {0}.
struct conv_cuda_table_cache {
    struct conv_cuda_table table[CONV_CUDA_TABLES];
    int count, next;
    uint8_t *h_block, *d_block; // of small tables
};

// The table in device memory, for work that is queued on `stream` until conv_cuda_table_used.
// Kernels leave it as it was. Waits only if CONV_CUDA_TABLES others are in use.
enum conv_status conv_cuda_table_get(struct conv_cuda_table_cache *tables, const void *content,
                                     size_t bytes, cudaStream_t stream,
                                     struct conv_cuda_table **table, struct conv_err *err);
enum conv_status conv_cuda_table_used(struct conv_cuda_table *table, cudaStream_t stream,
                                      struct conv_err *err);
void conv_cuda_table_free(struct conv_cuda_table_cache *tables);

// --- cuda_filter.c -------------------------------------------------------------------------------

// What a backend needs for images in the memory of `device`. CONV_ERR_MEMORY, CONV_ERR_DEVICE.
enum conv_status conv_cuda_views_open(struct conv_cuda_views **views,
                                      const struct conv_backend *backend,
                                      const struct conv_backend_config *config,
                                      struct conv_err *err);
void conv_cuda_views_close(struct conv_cuda_views *views); // NULL is fine

// --- rows of the device's table ------------------------------------------------------------------

extern const struct conv_tensor_ops conv_cuda_tensors; // cuda_tensor.c
enum conv_status conv_cuda_context_open(struct conv_device_context *device, struct conv_err *err);
void conv_cuda_context_close(struct conv_device_context *device);
enum conv_status conv_cuda_context_synchronise(struct conv_device_context *device,
                                               struct conv_err *err);
enum conv_status conv_cuda_context_allocate(struct conv_device_context *device, size_t bytes,
                                            void **data, struct conv_err *err);
void conv_cuda_context_release(struct conv_device_context *device, void *data);
enum conv_status conv_cuda_context_record_event(struct conv_device_context *device, void **event,
                                                void *stream, struct conv_err *err);
enum conv_status conv_cuda_context_wait_event(struct conv_device_context *device, void *event,
                                              void *stream, struct conv_err *err);
void conv_cuda_context_destroy_event(struct conv_device_context *device, void *event);
enum conv_status conv_cuda_context_wait_stream(struct conv_device_context *device, void *stream,
                                               struct conv_err *err);
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

#endif
