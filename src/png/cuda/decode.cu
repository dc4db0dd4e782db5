// SPDX-License-Identifier: MIT
// The host's half of decoding: the supported images, the memory that they need, and the launches of
// the kernels.
#include "png/cuda/cuda_png.h"

#include <cuda_runtime_api.h>

#include "png/cuda/launches.cuh"
#include "png/cuda/split.cuh"

#define SCRATCH_ALIGN 128

// The kernel that reverses the filters cannot be interrupted. This many bytes take it some 10 ms:
// an image of 8192x8192 alone is unfiltered at 26 GB/s.
#define MOST_ROWS_BYTES ((uint64_t)256 << 20)
// A stream that is larger than with stored blocks or the fixed code contains blocks without bytes.
// The slack is for other chunks, because callers may know only the size of the file.
#define STREAM_SLACK ((uint64_t)64 << 10)
// Kernels count the bits of a stream in 32 bits. The count starts at the word that contains the
// first byte, and may exceed the last bit by a match that begins there: 48 bits, with its extra
// bits.
static_assert(8 * (3 + MOST_ROWS_BYTES * 5 / 4 + STREAM_SLACK) + 48 <= UINT32_MAX,
              "the bits of every accepted stream can be counted");
// One warp reverses the filters of 32 rows at a time, which took 25 us on an H200 even for rows of
// one pixel: 0.8 ms for 1,000 rows. Images with more rows than this are left to the CPU, unless the
// rows are so long that inflating them takes longer.
#define MOST_SHORT_ROWS 8192
#define SHORT_ROW_BYTES 256

// A stream is cut into parts if the image's rows have at least LEAST_SPLIT_ROWS bytes and there are
// at least LEAST_PARTS parts. A part has LEAST_PART_BYTES, or more if there would be too many
// parts. zlib's DEFLATE blocks have 16 K symbols, which for photographs is about two parts, so that
// a block of threads decodes one DEFLATE block.
#define LEAST_SPLIT_ROWS (256u << 10)
#define LEAST_PARTS 3
#define LEAST_PART_BYTES 8192
// With at least this many SMs for each image, many blocks of threads per image are faster than one.
// On an H200 both take 3.3 ms for 78 photographs; for 24, many blocks take 1.7 ms and one 3.5.
#define LEAST_SMS_PER_SPLIT 2
#define MOST_GRID_Y 65535
#define SPLIT_LAUNCHES 4

static uint64_t row_bytes(const struct conv_decode_image *image)
{
    return (uint64_t)image->width * (uint64_t)image->channels * (uint64_t)(image->depth / 8);
}

bool conv_cuda_decode_takes(const struct conv_decode_image *image)
{
    if (image->width < 1 || image->height < 1 || image->channels < 1 || image->channels > 4 ||
        (image->depth != 8 && image->depth != 16))
        return false;
    uint64_t row = row_bytes(image), height = (uint64_t)image->height;
    return row + 1 < MOST_ROWS_BYTES / height &&
           (height <= MOST_SHORT_ROWS || row >= SHORT_ROW_BYTES) &&
           image->stream_bytes <= (row + 1) * height * 5 / 4 + STREAM_SLACK;
}

static size_t rows_memory(uint32_t rows_bytes, uint32_t row_bytes)
{
    size_t end =
        conv_decode_bands_at(rows_bytes) + conv_decode_bands_words(row_bytes) * sizeof(uint32_t);
    return (end + SCRATCH_ALIGN - 1) / SCRATCH_ALIGN * SCRATCH_ALIGN;
}

size_t conv_cuda_decode_scratch(const struct conv_decode_image *image)
{
    uint64_t rows = (row_bytes(image) + 1) * (uint64_t)image->height;
    size_t end = rows_memory((uint32_t)rows, (uint32_t)row_bytes(image));
    return rows < LEAST_SPLIT_ROWS ? end : end + conv_cuda_decode_split_bytes(image);
}

size_t conv_cuda_decode_split_bytes(const struct conv_decode_image *image)
{
    return split_layout_of((uint32_t)((row_bytes(image) + 1) * (uint64_t)image->height)).bytes;
}

static void plan_parts(struct conv_decode_image *image)
{
    uint32_t parts = image->stream_bytes / LEAST_PART_BYTES;
    if (image->rows_bytes < LEAST_SPLIT_ROWS || parts < LEAST_PARTS)
        parts = 0;
    if (parts > CONV_SPLIT_MOST_PARTS)
        parts = CONV_SPLIT_MOST_PARTS;
    image->parts = parts;
    image->part_bytes = parts ? (image->stream_bytes + parts - 1) / parts : 0;
    image->d_split = image->d_rows + rows_memory(image->rows_bytes, image->row_bytes);
}

// Shellsort of the turns, with Knuth's gaps.
static void sort_turns(struct conv_decode_image *images, int count)
{
    int gap = 1;
    while (gap < count / 3)
        gap = 3 * gap + 1;
    for (; gap > 0; gap /= 3)
        for (int i = gap; i < count; i++) {
            uint32_t turn = images[i].turn, bytes = images[turn].stream_bytes;
            int at = i;
            for (; at >= gap && images[images[at - gap].turn].stream_bytes < bytes; at -= gap)
                images[at].turn = images[at - gap].turn;
            images[at].turn = turn;
        }
}

void conv_cuda_decode_plan(void *table, int count, uint8_t *d_scratch)
{
    struct conv_decode_image *images = (struct conv_decode_image *)table;
    for (int i = 0; i < count; i++) {
        struct conv_decode_image *image = &images[i];
        image->row_bytes = (uint32_t)row_bytes(image);
        image->rows_bytes = (image->row_bytes + 1) * (uint32_t)image->height;
        image->d_rows = d_scratch;
        image->turn = (uint32_t)i;
        plan_parts(image);
        d_scratch += conv_cuda_decode_scratch(image);
    }
    sort_turns(images, count);
}

uint32_t conv_cuda_split_most_parts(const struct conv_decode_batch *batch)
{
    uint32_t most = 0;
    for (int i = 0; i < batch->count; i++)
        most = batch->images[i].parts > most ? batch->images[i].parts : most;
    return most;
}

uint32_t conv_cuda_split_most_bytes(const struct conv_decode_batch *batch)
{
    uint32_t most = 0;
    for (int i = 0; i < batch->count; i++)
        if (batch->images[i].parts && batch->images[i].rows_bytes > most)
            most = batch->images[i].rows_bytes;
    return most;
}

enum conv_status conv_cuda_split_is_used(const struct conv_decode_batch *batch, bool *used)
{
    int device, processors, at_once = batch->at_once ? batch->at_once : batch->count;
    if (cudaGetDevice(&device) ||
        cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device))
        return CONV_ERR_DEVICE;
    *used = batch->split != CONV_DECODE_SPLIT_NEVER && conv_cuda_split_most_parts(batch) > 0 &&
            batch->count <= MOST_GRID_Y &&
            (batch->split == CONV_DECODE_SPLIT_ALWAYS ||
             (batch->threads == 0 && LEAST_SMS_PER_SPLIT * at_once <= processors));
    return CONV_OK;
}

// Both launches run at the same time, so an event between them would keep them apart.
static enum conv_status inflate_and_unfilter(const struct conv_decode_batch *batch,
                                             const char **name)
{
    enum conv_status status = conv_cuda_inflate(batch, name);
    return status ? status : conv_cuda_unfilter(batch);
}

enum conv_status conv_cuda_decode(const struct conv_decode_batch *batch)
{
    typedef enum conv_status (*launch_fn)(const struct conv_decode_batch *, const char **);
    static const launch_fn launches[] = {conv_cuda_split_find, conv_cuda_split_count,
                                         conv_cuda_split_put, conv_cuda_split_resolve,
                                         inflate_and_unfilter};
    bool split;
    enum conv_status status = conv_cuda_split_is_used(batch, &split);
    for (size_t i = split ? 0 : SPLIT_LAUNCHES; i < sizeof launches / sizeof launches[0]; i++) {
        const char *name = "";
        if (!status)
            status = launches[i](batch, &name);
        if (status)
            return status;
        if (batch->mark)
            batch->mark(batch->context, name);
    }
    return CONV_OK;
}
