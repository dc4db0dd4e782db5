// SPDX-License-Identifier: MIT
// The host's half of the JPEG encoder: cuts a batch into chunks, divides scratch memory and
// enqueues the kernels. Nothing here depends on the content of the images.
#include "jpeg/cuda/jpeg_encode.cuh"
#include "kernels/common/scratch.cuh"

#define SIDE_MOST 65500 // libjpeg-turbo's limit
#define CHUNKS_MOST 0x7fffffffu

// --- plan ----------------------------------------------------------------------------------------

static bool is_encodable(const struct conv_jpeg_encode_image *image)
{
    int h = image->h, v = image->v;
    bool sampling = (h == 1 && v == 1) || (h == 2 && v == 1) || (h == 2 && v == 2);
    if (image->width < 1 || image->height < 1 || image->width > SIDE_MOST ||
        image->height > SIDE_MOST)
        return false;
    return image->components == 1 ? h == 1 && v == 1 : image->components == 3 && sampling;
}

static uint32_t mcus_of(int pixels, int factor)
{
    return (uint32_t)(pixels + 8 * factor - 1) / (uint32_t)(8 * factor);
}

size_t conv_cuda_jpeg_encode_bound(const struct conv_jpeg_encode_image *image)
{
    if (!is_encodable(image))
        return 0;
    uint64_t mcus = (uint64_t)mcus_of(image->width, image->h) * mcus_of(image->height, image->v);
    uint64_t bytes = mcus * (uint64_t)mcu_blocks(*image) * BLOCK_BYTES_MOST + 2; // EOI
    bytes = round_up(bytes, CONV_ENCODE_ALIGN);
    return bytes > (uint64_t)1 << 31 ? 0 : (size_t)bytes;
}

static bool plan_image(struct conv_encode_plan *plan, struct conv_jpeg_encode_image *image)
{
    size_t bound = conv_cuda_jpeg_encode_bound(image);
    if (bound == 0)
        return false;
    image->mcus_across = mcus_of(image->width, image->h);
    image->mcus = image->mcus_across * mcus_of(image->height, image->v);
    image->first_chunk = plan->blocks;
    image->chunks = (image->mcus + chunk_mcus(*image) - 1) / chunk_mcus(*image);
    image->bits_at = plan->bits_bytes / sizeof(uint32_t);
    plan->blocks += image->chunks; // each addend is below 2^24
    plan->bits_bytes += (uint64_t)image->chunks * chunk_room(*image) * sizeof(uint32_t);
    plan->output_bytes += bound;
    return plan->blocks <= CHUNKS_MOST;
}

// Places the arrays from the address `at` on; returns the address after them.
static uintptr_t divide(struct jpeg_scratch *scratch, const struct conv_encode_plan *plan,
                        uintptr_t at)
{
    take(&scratch->chunks, &at, plan->blocks);
    take(&scratch->data, &at, (uint64_t)plan->count);
    take(&scratch->bits, &at, plan->bits_bytes / sizeof(uint32_t));
    return at;
}

enum conv_status conv_cuda_jpeg_encode_plan(struct conv_encode_plan *plan, void *images, int count)
{
    struct jpeg_scratch scratch;
    *plan = {};
    plan->count = count;
    for (int i = 0; i < count; i++)
        if (!plan_image(plan, (struct conv_jpeg_encode_image *)images + i))
            return CONV_ERR_UNSUPPORTED;
    plan->scratch_bytes = divide(&scratch, plan, 0);
    return CONV_OK;
}

// --- run -----------------------------------------------------------------------------------------

enum conv_status conv_cuda_jpeg_encode(const struct conv_encode_batch *batch)
{
    struct jpeg_scratch scratch = {};
    scratch.images = (const struct conv_jpeg_encode_image *)batch->d_images;
    scratch.count = batch->plan.count;
    scratch.all_chunks = batch->plan.blocks;
    (void)divide(&scratch, &batch->plan, (uintptr_t)batch->d_scratch);
    cudaStream_t stream = (cudaStream_t)batch->stream;
    conv_jpeg_encode_blocks(scratch, stream);
    conv_encode_mark(batch, "blocks");
    conv_jpeg_encode_place_bits(scratch, stream);
    conv_encode_mark(batch, "place_bits");
    conv_jpeg_encode_count(scratch, stream);
    conv_encode_mark(batch, "count");
    conv_jpeg_encode_place_stuffed(scratch, stream);
    conv_encode_mark(batch, "place_stuffed");
    conv_jpeg_encode_place(scratch, batch->results, stream);
    conv_encode_mark(batch, "place");
    conv_jpeg_encode_write(scratch, batch->output, stream);
    conv_encode_mark(batch, "write");
    return cudaPeekAtLastError() == cudaSuccess ? CONV_OK : CONV_ERR_DEVICE;
}
