// SPDX-License-Identifier: MIT
// The host's half of the PNG encoder: cuts a batch into work, divides scratch memory and enqueues
// the kernels. Nothing here depends on the content of the images.
#include "kernels/common/scratch.cuh"
#include "png/cuda/bytes.cuh"
#include "png/cuda/encode_internal.cuh"

#define CHUNK_MOST 0x7fffffffu // a PNG chunk's data
#define ROWS_MOST 0x7fffffffu

// Blocks of about equal size, so that none is tiny.
static void cut_stream(uint64_t bytes, uint32_t *block_bytes, uint32_t *blocks)
{
    uint64_t least = (bytes + BLOCK_MOST - 1) / BLOCK_MOST;
    *block_bytes = (uint32_t)round_up((bytes + least - 1) / least, WINDOW);
    *blocks = (uint32_t)((bytes + *block_bytes - 1) / *block_bytes);
}

// A block is not much longer than its bytes, since a Huffman code costs no more than any other for
// the same tokens: 254 literals of 8 bits, two of 9, and 13 for each of the other 30 symbols, of
// which a run takes one, 5 extra bits and a distance of at most 6 for at least 4 bytes. That is
// 1/1024 at most, to which the limit of 14 bits adds less than such an uneven code saves. Four
// times that is reserved, plus the header.
static uint64_t bound_bytes(uint64_t bytes, uint64_t blocks)
{
    return FRAME_BYTES + bytes + bytes / 256 + blocks * (HEADER_MOST / 8 + 4) + 1;
}

static uint64_t scanline_bytes(int width, int height, int channels, int depth)
{
    uint64_t row = (uint64_t)width * (uint64_t)(channels * (depth / 8)) + 1;
    return row > CHUNK_MOST ? UINT64_MAX : row * (uint64_t)height;
}

size_t conv_cuda_encode_bound(int width, int height, int channels, int depth)
{
    uint64_t bytes = scanline_bytes(width, height, channels, depth);
    if (bytes > CHUNK_MOST)
        return 0;
    uint32_t block_bytes, blocks;
    cut_stream(bytes, &block_bytes, &blocks);
    uint64_t bound = bound_bytes(bytes, blocks);
    return bound > CHUNK_MOST ? 0 : (size_t)round_up(bound, CONV_ENCODE_ALIGN);
}

// --- plan ----------------------------------------------------------------------------------------

static bool plan_image(struct conv_encode_plan *plan, struct conv_encode_image *image)
{
    size_t bound =
        conv_cuda_encode_bound(image->width, image->height, image->channels, image->depth);
    if (bound == 0)
        return false;
    uint64_t bytes = stream_bytes(*image);
    cut_stream(bytes, &image->block_bytes, &image->blocks);
    uint64_t plane_row = (uint64_t)image->width * (uint64_t)(image->depth / 8);
    image->spans = (uint32_t)((plane_row + SPAN_BYTES - 1) / SPAN_BYTES);
    image->first_block = plan->blocks;
    image->first_span = plan->spans;
    image->first_row = plan->rows;
    image->stream_at = plan->stream_bytes;
    image->bits_at = plan->bits_bytes;
    uint64_t spans = plan->spans + (uint64_t)image->spans * (uint64_t)image->height;
    uint64_t blocks = (uint64_t)plan->blocks + image->blocks;
    if (spans > ROWS_MOST || blocks > ROWS_MOST)
        return false;
    plan->blocks = (uint32_t)blocks;
    plan->spans = (uint32_t)spans;
    plan->rows += (uint32_t)image->height; // not more than spans
    plan->stream_bytes += round_up(bytes, WINDOW);
    plan->bits_bytes += (uint64_t)image->blocks * CHUNKS * chunk_room(image->block_bytes);
    plan->output_bytes += bound;
    return true;
}

// Places the arrays from the address `at` on; returns the address after them.
static uintptr_t divide(struct encode_scratch *scratch, const struct conv_encode_plan *plan,
                        uintptr_t at)
{
    take(&scratch->costs, &at, (uint64_t)plan->rows * PNG_FILTERS);
    take(&scratch->blocks, &at, plan->blocks);
    take(&scratch->sizes, &at, (uint64_t)plan->count);
    take(&scratch->streams, &at, plan->stream_bytes);
    uint8_t *bits;
    take(&bits, &at, plan->bits_bytes);
    scratch->bits = (uint32_t *)bits;
    return at;
}

enum conv_status conv_cuda_encode_plan(struct conv_encode_plan *plan, void *images, int count)
{
    struct encode_scratch scratch;
    *plan = {};
    plan->count = count;
    for (int i = 0; i < count; i++)
        if (!plan_image(plan, (struct conv_encode_image *)images + i))
            return CONV_ERR_UNSUPPORTED;
    plan->scratch_bytes = divide(&scratch, plan, 0);
    return CONV_OK;
}

// --- run -----------------------------------------------------------------------------------------

enum conv_status conv_cuda_encode(const struct conv_encode_batch *batch)
{
    const struct conv_encode_plan *plan = &batch->plan;
    struct encode_scratch scratch = {};
    cudaStream_t stream = (cudaStream_t)batch->stream;
    scratch.images = (const struct conv_encode_image *)batch->d_images;
    scratch.count = plan->count;
    (void)divide(&scratch, plan, (uintptr_t)batch->d_scratch);
    size_t cost_bytes = (size_t)plan->rows * PNG_FILTERS * sizeof(uint32_t);
    if (cudaMemsetAsync(scratch.costs, 0, cost_bytes, stream) != cudaSuccess)
        return CONV_ERR_DEVICE;
    conv_encode_filter_cost(scratch, plan->spans, stream);
    conv_encode_mark(batch, "filter_cost");
    conv_encode_filter(scratch, plan->blocks, stream);
    conv_encode_mark(batch, "filter");
    conv_encode_codes(scratch, plan->blocks, stream);
    conv_encode_mark(batch, "codes");
    conv_encode_pack(scratch, plan->blocks, stream);
    conv_encode_mark(batch, "pack");
    conv_encode_layout(scratch, stream);
    conv_encode_mark(batch, "layout");
    conv_encode_place(scratch, batch->results, stream);
    conv_encode_mark(batch, "place");
    conv_encode_assemble(scratch, plan->blocks, batch->output, stream);
    conv_encode_mark(batch, "assemble");
    return cudaPeekAtLastError() == cudaSuccess ? CONV_OK : CONV_ERR_DEVICE;
}
