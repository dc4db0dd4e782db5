// SPDX-License-Identifier: MIT
// What the files of the library's CUDA device share: cuda_api.c (device, memory, events),
// cuda_api_parts.c (streams for parts of a batch), _decode.c, _encode.c (with cuda_api_encoding.c),
// _copy.c, _filter.c, _pixels.c, and _tables.c (tables of planes in device memory).
#ifndef CONV_API_CUDA_API_INTERNAL_H
#define CONV_API_CUDA_API_INTERNAL_H

#include <cuda_runtime_api.h>
#include <stdbool.h>

#include "api/api_device.h"
#include "api/api_memory.h"
#include "api/api_workers.h"
#include "engine/cuda_device.h"
#include "engine/cuda_internal.h"
#include "engine/cuda_memory.h"
#include "kernels/layout/layout.h"

// --- parts of a batch ----------------------------------------------------------------------------

// A batch is cut into parts, each on a stream of its own, so that the copies of one part, the
// kernels of another and the host's work on a third overlap. More streams than 8 share the device's
// queues and wait for each other.
#define CONV_CUDA_API_PARTS 8

struct conv_cuda_api_part {
    cudaStream_t cuda;
    cudaEvent_t done; // of the last part on this stream
    bool busy;        // `done` has been recorded and not been waited for
    // Device memory from the pool, for the duration of a call.
    uint8_t *d_memory;
    size_t bytes;
    struct conv_cuda_mapped answers; // written by kernels
};

// Pinned memory between pageable memory and the device.
#define CONV_CUDA_API_PIECES 4
#define CONV_CUDA_API_PIECE_BYTES ((size_t)32 << 20)

struct conv_cuda_api_piece {
    struct conv_cuda_mapped staging; // grows for larger files
    cudaEvent_t copied;
    bool busy; // `copied` has been recorded and not been waited for
    bool held; // what was downloaded has not been read
};

// --- memory of filters ---------------------------------------------------------------------------

// Device memory for planes between kernels, one block for all filters of the device: a stream that
// uses it waits until the last use is over.
struct conv_cuda_api_scratch {
    struct conv_cuda_memory memory;
    cudaEvent_t used;
};

struct conv_api_device {
    int ordinal;
    struct conv_api_host host;
    size_t memory;     // of the device, bytes
    cudaEvent_t order; // what the caller's stream holds when a function is called
    struct conv_cuda_api_part parts[CONV_CUDA_API_PARTS];
    struct conv_cuda_api_piece pieces[CONV_CUDA_API_PIECES];
    int next_piece;
    struct conv_cuda_api_scratch scratch;
};

// --- cuda_api.c ----------------------------------------------------------------------------------

// Makes the device current until conv_cuda_api_leave, which restores the caller's.
enum conv_status conv_cuda_api_enter(const struct conv_api_device *device, int *previous,
                                     struct conv_err *err);
void conv_cuda_api_leave(const struct conv_api_device *device, int previous);

// An event for the order of work only.
enum conv_status conv_cuda_api_event(cudaEvent_t *event, struct conv_err *err);

// At least `bytes` of scratch memory for work that is queued on `stream` until
// conv_cuda_api_scratch_used. Waits for the device only when it grows.
enum conv_status conv_cuda_api_scratch(struct conv_api_device *device, size_t bytes,
                                       cudaStream_t stream, uint8_t **d_memory,
                                       struct conv_err *err);
enum conv_status conv_cuda_api_scratch_used(struct conv_api_device *device, cudaStream_t stream,
                                            struct conv_err *err);

// A view in the form of layout.h.
struct conv_layout_view conv_cuda_api_layout(const conv_image *view);
// A view of planes as conv_image_lay_out has them, from `memory` on.
struct conv_layout_view conv_cuda_api_planes(uint8_t *memory, int width, int height, int channels,
                                             int depth, bool alpha);
// True if rows of the view's planes begin at multiples of 16 bytes; with `whole` also if they end
// there.
bool conv_cuda_api_is_aligned(const conv_image *view, bool whole);

enum conv_status conv_cuda_api_copy_layouts(const struct conv_layout_copy *copies, int count,
                                            cudaStream_t stream, struct conv_err *err);

// --- cuda_api_parts.c ----------------------------------------------------------------------------

// Bytes of samples that a part of a batch of `samples` bytes should have: at least `least`, unless
// the device is small. Parts take about `factor` times as much device memory.
size_t conv_cuda_api_part_bytes(const struct conv_api_device *device, uint64_t samples,
                                size_t least, int factor);

// Notes the work queued on `stream`: parts that are started wait for it.
enum conv_status conv_cuda_api_start(struct conv_api_device *device, cudaStream_t stream,
                                     struct conv_err *err);
// Readies a part that is not busy, with `bytes` of device memory and `answer_bytes` of answers.
// CONV_ERR_MEMORY: busy parts hold the rest, or there is too little.
enum conv_status conv_cuda_api_part_open(struct conv_api_device *device,
                                         struct conv_cuda_api_part *part, size_t bytes,
                                         size_t answer_bytes, struct conv_err *err);
enum conv_status conv_cuda_api_part_queued(struct conv_cuda_api_part *part, struct conv_err *err);
enum conv_status conv_cuda_api_part_wait(struct conv_cuda_api_part *part, struct conv_err *err);
// Waits for all parts and pieces, also after a failure, and gives back their device memory.
enum conv_status conv_cuda_api_finish(struct conv_api_device *device, struct conv_err *err);
void conv_cuda_api_parts_close(struct conv_api_device *device);

// Pinned memory of at least `bytes`, whose last copy is over. Its user may set `held`, for two
// pieces at most, until it has read the downloaded bytes.
enum conv_status conv_cuda_api_piece_open(struct conv_api_device *device, size_t bytes,
                                          struct conv_cuda_api_piece **piece, struct conv_err *err);
// Notes that a copy from or to the piece has been queued on `stream`.
enum conv_status conv_cuda_api_piece_queued(struct conv_cuda_api_piece *piece, cudaStream_t stream,
                                            struct conv_err *err);
enum conv_status conv_cuda_api_piece_wait(struct conv_cuda_api_piece *piece, struct conv_err *err);

// --- cuda_api_tables.c ---------------------------------------------------------------------------

// Tables of planes in device memory. A table that equals an earlier one is not uploaded again.
#define CONV_CUDA_API_TABLES 64

struct conv_cuda_api_table {
    uint8_t *h_data; // pinned
    uint8_t *d_data;
    size_t capacity, bytes;
    bool large;       // has memory of its own
    cudaEvent_t used; // by the last work that reads it
    bool on_default;  // that work is on the default stream
};

// Starts as {0}.
struct conv_cuda_api_tables {
    struct conv_cuda_api_table table[CONV_CUDA_API_TABLES];
    int count, next;
    uint8_t *h_block, *d_block; // of small tables
};

// The table in device memory, for work that is queued on `stream` until conv_cuda_api_table_used.
// Kernels leave it as it was. Waits only if CONV_CUDA_API_TABLES others are in use.
enum conv_status conv_cuda_api_table(struct conv_cuda_api_tables *tables, const void *content,
                                     size_t bytes, cudaStream_t stream,
                                     struct conv_cuda_api_table **table, struct conv_err *err);
enum conv_status conv_cuda_api_table_used(struct conv_cuda_api_table *table, cudaStream_t stream,
                                          struct conv_err *err);
void conv_cuda_api_tables_free(struct conv_cuda_api_tables *tables);

// --- cuda_api_pixels.c ---------------------------------------------------------------------------

// The plans of a chain for images stored as RGBRGB..., of `channels` samples per pixel.
struct conv_cuda_api_pixels;

// Makes the plans. *pixels is NULL if the chain's kernels for 8-bit samples do not support such
// images. `variant`: the forced kernel, or NULL.
enum conv_status conv_cuda_api_pixels_open(struct conv_cuda_api_pixels **pixels,
                                           const struct conv_backend *backend, const char *variant,
                                           int channels, struct conv_err *err);
void conv_cuda_api_pixels_close(struct conv_cuda_api_pixels *pixels);
const struct conv_stencil_plan *conv_cuda_api_pixels_plan(const struct conv_cuda_api_pixels *pixels,
                                                          int op);
// True if the view is stored as RGBRGB... and its rows begin at multiples of 16 bytes.
bool conv_cuda_api_pixels_fit(const conv_image *view);

// --- rows of the device's table ------------------------------------------------------------------

enum conv_status conv_cuda_api_copy_bytes(struct conv_api_device *device, void *result,
                                          conv_memory result_memory, const void *source,
                                          conv_memory source_memory, size_t bytes, void *stream,
                                          struct conv_err *err);
enum conv_status conv_cuda_api_copy(struct conv_api_device *device, const conv_image *results,
                                    const conv_image *sources, int count, void *stream,
                                    struct conv_err *err);
enum conv_status conv_cuda_api_decode(struct conv_api_device *device, struct conv_api_decode *items,
                                      int count, void *stream, struct conv_err *err);
enum conv_status conv_cuda_api_encode(struct conv_api_device *device, struct conv_api_encode *items,
                                      int count, struct conv_api_file_memory *files, void *stream,
                                      struct conv_err *err);
enum conv_status conv_cuda_api_filter_open(struct conv_api_device *device,
                                           struct conv_api_filter **filter,
                                           const struct conv_backend_config *config,
                                           struct conv_err *err);
void conv_cuda_api_filter_close(struct conv_api_filter *filter);
const char *conv_cuda_api_filter_kernel(const struct conv_api_filter *filter, int index, int depth);
enum conv_status conv_cuda_api_filter_run(struct conv_api_filter *filter, const conv_image *results,
                                          const conv_image *sources, int count, void *stream,
                                          struct conv_err *err);

#endif
