// SPDX-License-Identifier: MIT
// The host's half of decoding: the supported images, the memory that they need, and the launches.
#include "jpeg/cuda/decode.cuh"
#include "kernels/common/scratch.cuh"

#define MOST_SIDE 65500
#define MOST_STREAM (1u << 28) // 32 bits count its bits
// A coefficient takes at most 31 bits, so a block less than this. The slack is for the rest of a
// file, because callers may know only its size.
#define MOST_BLOCK_BYTES 256
#define STREAM_SLACK (64 << 10)

static uint32_t divide_up(uint32_t a, uint32_t b)
{
    return (a + b - 1) / b;
}

static void find_sampling(const struct conv_jpeg_decode_image *image, uint32_t *most_h,
                          uint32_t *most_v, uint32_t *blocks)
{
    *most_h = *most_v = *blocks = 0;
    for (int c = 0; c < image->components; c++) {
        *most_h = image->h[c] > *most_h ? image->h[c] : *most_h;
        *most_v = image->v[c] > *most_v ? image->v[c] : *most_v;
        *blocks += (uint32_t)image->h[c] * image->v[c];
    }
}

static void count_blocks(struct jpeg_plan *plan, const struct conv_jpeg_decode_image *image)
{
    uint32_t most_h, most_v;
    find_sampling(image, &most_h, &most_v, &plan->mcu_blocks);
    plan->subs = divide_up(image->stream_bytes, SUB_BYTES);
    plan->mcus_x = divide_up((uint32_t)image->width, 8 * most_h);
    plan->mcus = plan->mcus_x * divide_up((uint32_t)image->height, 8 * most_v);
    plan->blocks = plan->mcus * plan->mcu_blocks;
}

bool conv_cuda_jpeg_decode_takes(const struct conv_jpeg_decode_image *image)
{
    uint32_t most_h, most_v, blocks;
    if (image->width < 1 || image->height < 1 || image->width > MOST_SIDE ||
        image->height > MOST_SIDE || (image->components != 1 && image->components != 3) ||
        image->segments < 1 || image->stream_bytes >= MOST_STREAM)
        return false;
    find_sampling(image, &most_h, &most_v, &blocks);
    for (int c = 0; c < image->components; c++)
        if (image->h[c] < 1 || image->v[c] < 1 || most_h % image->h[c] || most_v % image->v[c])
            return false;
    if (most_h > 4 || most_v > 4 || blocks > (image->components == 1 ? 1 : CONV_JPEG_MOST_BLOCKS))
        return false;
    struct jpeg_plan plan = {};
    count_blocks(&plan, image);
    return image->stream_bytes <= (uint64_t)plan.blocks * MOST_BLOCK_BYTES +
                                      (uint64_t)image->segments * sizeof(uint32_t) + STREAM_SLACK;
}

// --- memory --------------------------------------------------------------------------------------

// Blocks of threads that an image has in each launch.
static void count_work(uint32_t work[WORKS], const struct conv_jpeg_decode_image *image,
                       const struct jpeg_plan *plan)
{
    uint32_t units = divide_up((uint32_t)image->width, PIXEL_WIDTH) * (uint32_t)image->height;
    work[WORK_CHUNKS] = divide_up(plan->subs, CHUNK_SUBS);
    work[WORK_TILES] = divide_up(plan->mcus, TILE_MCUS);
    work[WORK_IDCT] = divide_up(plan->blocks, IDCT_BLOCKS);
    work[WORK_PIXELS] = divide_up(units, PIXEL_UNITS);
}

// The results and the coefficients of all images come first, so that one call clears them.
static size_t result_bytes(void)
{
    return round_up(sizeof(struct jpeg_result), SCRATCH_ALIGN);
}

static size_t coefficient_bytes(const struct jpeg_plan *plan)
{
    return round_up((size_t)plan->blocks * CONV_JPEG_BLOCK * sizeof(int16_t), SCRATCH_ALIGN);
}

// The rest of an image's memory begins at the address *at, which is moved after it.
static void place_rest(struct jpeg_plan *plan, const uint32_t work[WORKS], uintptr_t *at)
{
    take(&plan->dc, at, plan->blocks);
    take(&plan->tiles, at, (size_t)work[WORK_TILES] * CONV_JPEG_COMPONENTS);
    take(&plan->samples, at, (size_t)plan->blocks * CONV_JPEG_BLOCK + PIXEL_WIDTH);
    take(&plan->states, at, plan->subs);
    take(&plan->chunks, at, work[WORK_CHUNKS]);
}

size_t conv_cuda_jpeg_decode_scratch(const struct conv_jpeg_decode_image *image)
{
    struct jpeg_plan plan = {};
    uint32_t work[WORKS];
    uintptr_t at = 0;
    count_blocks(&plan, image);
    count_work(work, image, &plan);
    place_rest(&plan, work, &at);
    return result_bytes() + coefficient_bytes(&plan) + at;
}

void conv_cuda_jpeg_decode_plan(void *table, int count, uint8_t *d_scratch)
{
    struct conv_jpeg_decode_image *images = (struct conv_jpeg_decode_image *)table;
    uint32_t first[WORKS] = {};
    uint8_t *results = d_scratch, *coefficients = results + (size_t)count * result_bytes();
    uintptr_t rest = (uintptr_t)coefficients;
    for (int i = 0; i < count; i++) {
        struct jpeg_plan *plan = (struct jpeg_plan *)images[i].plan;
        count_blocks(plan, &images[i]);
        rest += coefficient_bytes(plan);
    }
    for (int i = 0; i < count; i++) {
        struct jpeg_plan *plan = (struct jpeg_plan *)images[i].plan;
        uint32_t work[WORKS];
        count_work(work, &images[i], plan);
        for (int w = 0; w < WORKS; w++) {
            plan->first[w] = first[w];
            first[w] += work[w];
        }
        plan->result = (struct jpeg_result *)results;
        plan->coefficients = (int16_t *)coefficients;
        results += result_bytes();
        coefficients += coefficient_bytes(plan);
        place_rest(plan, work, &rest);
    }
}

// --- run -----------------------------------------------------------------------------------------

enum conv_status conv_cuda_jpeg_decode(const struct conv_jpeg_decode_batch *batch)
{
    const struct conv_jpeg_decode_image *last = &batch->images[batch->count - 1];
    const struct jpeg_plan &plan = plan_of(*last);
    uint32_t work[WORKS];
    count_work(work, last, &plan);
    for (int w = 0; w < WORKS; w++)
        work[w] += plan.first[w];
    size_t cleared = (size_t)((uint8_t *)plan.coefficients - (uint8_t *)batch->d_scratch) +
                     coefficient_bytes(&plan);
    if (cudaMemsetAsync(batch->d_scratch, 0, cleared, (cudaStream_t)batch->stream) != cudaSuccess)
        return CONV_ERR_DEVICE;
    conv_jpeg_launch_sync(batch, work[WORK_CHUNKS]);
    conv_jpeg_launch_link(batch);
    conv_jpeg_launch_write(batch, work[WORK_CHUNKS]);
    conv_jpeg_launch_dc(batch, work[WORK_TILES]);
    conv_jpeg_launch_idct(batch, work[WORK_IDCT]);
    conv_jpeg_launch_pixels(batch, work[WORK_PIXELS]);
    return cudaPeekAtLastError() == cudaSuccess ? CONV_OK : CONV_ERR_DEVICE;
}
