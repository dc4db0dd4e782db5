// SPDX-License-Identifier: MIT
// The host's half of the JPEG encoder: cuts a batch into chunks, divides scratch memory and
// enqueues the kernels. Nothing here depends on the content of the images.
#include "jpeg/cuda/jpeg_encode.cuh"

#define SCRATCH_ALIGN 256
#define SIDE_MOST 65500 // libjpeg-turbo's limit
#define CHUNKS_MOST 0x7fffffffu

static uint64_t round_up(uint64_t value, uint64_t to)
{
    return (value + to - 1) / to * to;
}

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
    bytes = round_up(bytes, CONV_JPEG_ENCODE_ALIGN);
    return bytes > (uint64_t)1 << 31 ? 0 : (size_t)bytes;
}

static bool plan_image(struct conv_jpeg_encode_plan *plan, struct conv_jpeg_encode_image *image)
{
    size_t bound = conv_cuda_jpeg_encode_bound(image);
    if (bound == 0)
        return false;
    image->mcus_across = mcus_of(image->width, image->h);
    image->mcus = image->mcus_across * mcus_of(image->height, image->v);
    image->first_chunk = plan->chunks;
    image->chunks = (image->mcus + chunk_mcus(*image) - 1) / chunk_mcus(*image);
    image->bits_at = plan->words;
    plan->chunks += image->chunks; // each addend is below 2^24
    plan->words += (uint64_t)image->chunks * chunk_room(*image);
    plan->output_bytes += bound;
    return plan->chunks <= CHUNKS_MOST;
}

// Takes `bytes` from the scratch memory; returns their offset.
static size_t take(size_t *used, size_t bytes)
{
    size_t at = *used;
    *used += (size_t)round_up(bytes, SCRATCH_ALIGN);
    return at;
}

struct jpeg_division {
    size_t chunks, data, bits, all;
};

static struct jpeg_division divide(const struct conv_jpeg_encode_plan *plan)
{
    struct jpeg_division d = {};
    d.chunks = take(&d.all, (size_t)plan->chunks * sizeof(struct jpeg_chunk));
    d.data = take(&d.all, (size_t)plan->count * sizeof(struct jpeg_data));
    d.bits = take(&d.all, (size_t)plan->words * sizeof(uint32_t));
    return d;
}

enum conv_status conv_cuda_jpeg_encode_plan(struct conv_jpeg_encode_plan *plan,
                                            struct conv_jpeg_encode_image *images, int count)
{
    *plan = {};
    plan->count = count;
    for (int i = 0; i < count; i++)
        if (!plan_image(plan, &images[i]))
            return CONV_ERR_UNSUPPORTED;
    plan->scratch_bytes = divide(plan).all;
    return CONV_OK;
}

// --- run -----------------------------------------------------------------------------------------

static struct jpeg_scratch find_scratch(const struct conv_jpeg_encode_batch *batch)
{
    struct jpeg_division d = divide(&batch->plan);
    uint8_t *memory = (uint8_t *)batch->d_scratch;
    struct jpeg_scratch scratch = {};
    scratch.images = batch->d_images;
    scratch.count = batch->plan.count;
    scratch.all_chunks = batch->plan.chunks;
    scratch.chunks = (struct jpeg_chunk *)(memory + d.chunks);
    scratch.data = (struct jpeg_data *)(memory + d.data);
    scratch.bits = (uint32_t *)(memory + d.bits);
    return scratch;
}

static void note(const struct conv_jpeg_encode_batch *batch, const char *kernel)
{
    if (batch->mark)
        batch->mark(batch->context, kernel);
}

enum conv_status conv_cuda_jpeg_encode(const struct conv_jpeg_encode_batch *batch)
{
    struct jpeg_scratch scratch = find_scratch(batch);
    cudaStream_t stream = (cudaStream_t)batch->stream;
    conv_jpeg_encode_blocks(scratch, stream);
    note(batch, "blocks");
    conv_jpeg_encode_place_bits(scratch, stream);
    note(batch, "place_bits");
    conv_jpeg_encode_count(scratch, stream);
    note(batch, "count");
    conv_jpeg_encode_place_stuffed(scratch, stream);
    note(batch, "place_stuffed");
    conv_jpeg_encode_place(scratch, batch->results, stream);
    note(batch, "place");
    conv_jpeg_encode_write(scratch, batch->output, stream);
    note(batch, "write");
    return cudaPeekAtLastError() == cudaSuccess ? CONV_OK : CONV_ERR_DEVICE;
}
