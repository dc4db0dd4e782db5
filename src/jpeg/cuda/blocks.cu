// SPDX-License-Identifier: MIT
// From coefficients to samples: sums of the DC differences, and the inverse DCT.
#include "jpeg/cuda/decode.cuh"

// --- DC coefficients -----------------------------------------------------------------------------

// Prefix sums run over the whole image. jpeg_idct subtracts those at the start of a segment.

// The sum of the values of the threads before this one; *all: of all threads. Sums wrap: a DC
// coefficient that large is found by jpeg_idct.
__device__ inline uint32_t scan_sums(uint32_t own, uint32_t *all)
{
    __shared__ uint32_t warps[DC_THREADS / WARP];
    uint32_t lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, sum = own, before = 0;
    for (uint32_t step = 1; step < WARP; step *= 2) {
        uint32_t add = __shfl_up_sync(ALL_LANES, sum, step);
        sum += lane >= step ? add : 0;
    }
    __syncthreads(); // the last use of warps[] is over
    if (lane == WARP - 1)
        warps[warp] = sum;
    __syncthreads();
    *all = 0;
    for (uint32_t w = 0; w < DC_THREADS / WARP; w++) {
        before += w < warp ? warps[w] : 0;
        *all += warps[w];
    }
    return before + sum - own;
}

// Makes the sums of tiles those before each tile.
__device__ inline void scan_tiles(int32_t *tiles, uint32_t count)
{
    for (int c = 0; c < CONV_JPEG_COMPONENTS; c++) {
        uint32_t before = 0, all;
        for (uint32_t at = 0; at < count; at += DC_THREADS, before += all) {
            uint32_t tile = at + threadIdx.x;
            int32_t *place = &tiles[CONV_JPEG_COMPONENTS * tile + c];
            uint32_t own = tile < count ? look_at((const uint32_t *)place) : 0;
            uint32_t sum = before + scan_sums(own, &all);
            if (tile < count)
                *place = (int32_t)sum;
        }
    }
}

static __global__ void __launch_bounds__(DC_THREADS)
    jpeg_dc(const struct conv_jpeg_decode_image *images, uint32_t count)
{
    __shared__ bool is_last[1];
    struct jpeg_place place = find_place(images, count, WORK_TILES);
    const struct conv_jpeg_decode_image &image = *place.image;
    const struct jpeg_plan &plan = plan_of(image);
    if (has_failed(plan))
        return;
    uint32_t first = place.index * TILE_MCUS + threadIdx.x * DC_MCUS;
    uint32_t end = min(first + DC_MCUS, plan.mcus), of_mcu = 0;
    int32_t *tile = &plan.tiles[CONV_JPEG_COMPONENTS * place.index];
    for (int c = 0; c < image.components; c++) {
        uint32_t blocks = (uint32_t)(image.h[c] * image.v[c]), own = 0, all;
        for (uint32_t mcu = first; mcu < end; mcu++)
            for (uint32_t i = 0; i < blocks; i++)
                own += (uint32_t)plan.dc[mcu * plan.mcu_blocks + of_mcu + i];
        uint32_t sum = scan_sums(own, &all);
        for (uint32_t mcu = first; mcu < end; mcu++)
            for (uint32_t i = 0; i < blocks; i++) {
                int32_t *dc = &plan.dc[mcu * plan.mcu_blocks + of_mcu + i];
                sum += (uint32_t)*dc;
                *dc = (int32_t)sum;
            }
        if (threadIdx.x == 0)
            tile[c] = (int32_t)all;
        of_mcu += blocks;
    }
    uint32_t tiles = (plan.mcus + TILE_MCUS - 1) / TILE_MCUS;
    if (threadIdx.x == 0) {
        __threadfence(); // the sums of this tile come before the count
        is_last[0] = atomicAdd(&plan.result->tiles_done, 1) + 1 == tiles;
        __threadfence();
    }
    __syncthreads();
    if (is_last[0])
        scan_tiles(plan.tiles, tiles);
}

// --- the inverse DCT -----------------------------------------------------------------------------

// Versions of this DCT with vectors of 16 bits saturate where libjpeg's C code wraps. Where the
// squares of a block's coefficients sum up to less than this, and the samples are within 10 bits,
// no intermediate result comes near 16 bits, and all versions agree.
#define MOST_ENERGY 2000000
#define MOST_COEFFICIENT 1414 // its square root

// Where a block of the planes of the components is.
struct block_place {
    uint32_t component;
    uint32_t number, mcu; // in the order of the scan
    uint32_t of_mcu;      // the first block of the component in an MCU
    uint8_t *samples;
    uint32_t stride;
};

// Blocks are numbered by components, and row by row, so that threads of a warp store neighbours.
__device__ __forceinline__ struct block_place find_block(const struct conv_jpeg_decode_image &image,
                                                         uint32_t at)
{
    const struct jpeg_plan &plan = plan_of(image);
    struct block_place place = {};
    uint8_t *plane = plan.samples;
    uint32_t h = image.h[0], v = image.v[0];
    for (uint32_t c = 0; c + 1 < (uint32_t)image.components && at >= plan.mcus * h * v; c++) {
        at -= plan.mcus * h * v;
        plane += (size_t)plan.mcus * h * v * CONV_JPEG_BLOCK;
        place.of_mcu += h * v;
        place.component = c + 1;
        h = image.h[c + 1];
        v = image.v[c + 1];
    }
    uint32_t wide = plan.mcus_x * h, row = at / wide, column = at % wide;
    place.mcu = row / v * plan.mcus_x + column / h;
    place.number = place.mcu * plan.mcu_blocks + place.of_mcu + row % v * h + column % h;
    place.stride = 8 * wide;
    place.samples = plane + (size_t)row * 8 * place.stride + column * 8;
    return place;
}

// The DC coefficient of a block.
__device__ __forceinline__ int32_t find_dc(const struct conv_jpeg_decode_image &image,
                                           const struct block_place &place, uint32_t segment_mcus)
{
    const struct jpeg_plan &plan = plan_of(image);
    const int32_t *tiles = plan.tiles + place.component;
    uint32_t sum = (uint32_t)plan.dc[place.number] +
                   (uint32_t)tiles[place.mcu / TILE_MCUS * CONV_JPEG_COMPONENTS];
    uint32_t start = image.segments > 1 ? place.mcu / segment_mcus * segment_mcus : 0;
    if (start > 0) { // what the segments before have summed up
        uint32_t blocks = (uint32_t)image.h[place.component] * image.v[place.component];
        sum -= (uint32_t)plan.dc[(start - 1) * plan.mcu_blocks + place.of_mcu + blocks - 1] +
               (uint32_t)tiles[(start - 1) / TILE_MCUS * CONV_JPEG_COMPONENTS];
    }
    return (int32_t)sum;
}

// Dequantises a column.
__device__ __forceinline__ void load_column(int32_t (&in)[8], const int16_t *coefficients,
                                            const uint4 &steps)
{
    uint4 packed = *(const uint4 *)coefficients;
    uint32_t pairs[4] = {packed.x, packed.y, packed.z, packed.w};
    uint32_t by[4] = {steps.x, steps.y, steps.z, steps.w};
#pragma unroll
    for (int i = 0; i < 8; i++) {
        int32_t value = i % 2 ? (int32_t)pairs[i / 2] >> 16 : (int32_t)(int16_t)pairs[i / 2];
        in[i] = value * (int32_t)(i % 2 ? by[i / 2] >> 16 : by[i / 2] & 0xffff);
    }
}

// Limits the coefficients of the warp's blocks to the range above. False if one was beyond it.
__device__ __forceinline__ bool limit_energy(int32_t (&in)[8])
{
    int32_t energy = 0;
    bool within = true;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        int32_t value = min(max(in[i], -MOST_COEFFICIENT), MOST_COEFFICIENT);
        within = within && value == in[i];
        in[i] = value;
        energy += value * value;
    }
    for (int other = 1; other < 8; other *= 2)
        energy += __shfl_xor_sync(ALL_LANES, energy, other);
    if (energy < MOST_ENERGY)
        return within;
#pragma unroll
    for (int i = 0; i < 8; i++)
        in[i] = 0;
    return false;
}

// Eight threads transform a block: first each a column, then each a row.
static __global__ void __launch_bounds__(IDCT_THREADS)
    jpeg_idct(const struct conv_jpeg_decode_image *images, uint32_t count)
{
    __shared__ uint4 columns[CONV_JPEG_COMPONENTS * 8]; // of 8 steps of quantisation
    // Rows of 9 words, so that threads of a warp access different banks.
    __shared__ int32_t between[IDCT_THREADS / 8][8 * 9];
    struct jpeg_place place = find_place(images, count, WORK_IDCT);
    const struct conv_jpeg_decode_image &image = *place.image;
    const struct jpeg_plan &plan = plan_of(image);
    const struct conv_jpeg_stream &head = head_of(image);
    if (has_failed(plan))
        return;
    uint16_t *quant = (uint16_t *)columns;
    for (uint32_t i = threadIdx.x; i < (uint32_t)image.components * CONV_JPEG_BLOCK;
         i += blockDim.x)
        quant[i / CONV_JPEG_BLOCK * CONV_JPEG_BLOCK + column_order(i % CONV_JPEG_BLOCK)] =
            head.quant[i / CONV_JPEG_BLOCK][i % CONV_JPEG_BLOCK];
    __syncthreads();
    uint32_t lane = threadIdx.x % 8, segment_mcus = head.segment_mcus;
    int32_t *words = between[threadIdx.x / 8];
    bool in_range = true;
    for (uint32_t step = 0; step < IDCT_STEPS; step++) {
        uint32_t at = place.index * IDCT_BLOCKS + step * (IDCT_THREADS / 8) + threadIdx.x / 8;
        bool used = at < plan.blocks;
        struct block_place block = find_block(image, used ? at : 0);
        int32_t in[8], out[8];
        load_column(in, plan.coefficients + (size_t)block.number * CONV_JPEG_BLOCK + 8 * lane,
                    columns[8 * block.component + lane]);
        if (lane == 0) {
            int32_t dc = find_dc(image, block, segment_mcus);
            int32_t limited = min(max(dc, -MOST_COEFFICIENT), MOST_COEFFICIENT);
            in_range = in_range && dc == limited;
            in[0] = limited * quant[block.component * CONV_JPEG_BLOCK];
        }
        in_range = limit_energy(in) && in_range;
        conv_jpeg_idct(out, in);
        __syncwarp(); // the rows of the step before have been read
#pragma unroll
        for (int i = 0; i < 8; i++)
            words[9 * i + (int)lane] = conv_jpeg_descale(out[i], CONV_JPEG_IDCT_FIRST);
        __syncwarp();
#pragma unroll
        for (int i = 0; i < 8; i++)
            in[i] = words[9 * (int)lane + i];
        conv_jpeg_idct(out, in);
        uint32_t packed[2] = {0, 0};
#pragma unroll
        for (int i = 0; i < 8; i++) {
            int32_t sample = conv_jpeg_descale(out[i], CONV_JPEG_IDCT_SECOND);
            in_range = in_range && sample >= -512 && sample <= 511;
            packed[i / 4] |= (uint32_t)min(max(sample + 128, 0), 255) << 8 * (i % 4);
        }
        if (used)
            *(uint2 *)(block.samples + lane * block.stride) = make_uint2(packed[0], packed[1]);
    }
    if (!in_range)
        fail_image(plan, CONV_JPEG_RANGE);
}

// --- launches ------------------------------------------------------------------------------------

void conv_jpeg_launch_dc(const struct conv_jpeg_decode_batch *batch, uint32_t blocks)
{
    jpeg_dc<<<blocks, DC_THREADS, 0, (cudaStream_t)batch->stream>>>(batch->d_images,
                                                                    (uint32_t)batch->count);
}

void conv_jpeg_launch_idct(const struct conv_jpeg_decode_batch *batch, uint32_t blocks)
{
    jpeg_idct<<<blocks, IDCT_THREADS, 0, (cudaStream_t)batch->stream>>>(batch->d_images,
                                                                        (uint32_t)batch->count);
}
