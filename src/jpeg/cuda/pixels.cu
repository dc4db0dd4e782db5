// SPDX-License-Identifier: MIT
// From the planes of the components to R'G'B': chroma is enlarged as by libjpeg-turbo's smooth
// upsampling, and converted with its 16 bits of fraction.
#include "jpeg/cuda/decode.cuh"

// Blocks per processor, as many as registers allow without spilling.
#define PIXEL_BLOCKS 3

// A component's plane.
struct plane {
    const uint8_t *samples;
    uint32_t stride;
    uint32_t width, height; // without padding
    uint32_t wider, taller; // factors of the enlargement
};

__device__ inline struct plane find_plane(const struct conv_jpeg_decode_image &image, int component,
                                          uint32_t most_h, uint32_t most_v)
{
    const struct jpeg_plan &plan = plan_of(image);
    uint32_t h = image.h[component], v = image.v[component], before = 0;
    for (int c = 0; c < component; c++)
        before += (uint32_t)(image.h[c] * image.v[c]);
    struct plane plane;
    plane.samples = plan.samples + (size_t)plan.mcus * before * CONV_JPEG_BLOCK;
    plane.stride = 8 * plan.mcus_x * h;
    plane.width = ((uint32_t)image.width * h + most_h - 1) / most_h;
    plane.height = ((uint32_t)image.height * v + most_v - 1) / most_v;
    plane.wider = most_h / h;
    plane.taller = most_v / v;
    return plane;
}

// Sixteen samples of a row, enlarged.
struct span {
    uint32_t sample[PIXEL_WIDTH];
};

// Eight bytes that are 8-byte aligned.
__device__ __forceinline__ void load_bytes(uint32_t *to, const uint8_t *from)
{
    uint2 words = *(const uint2 *)from;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        to[i] = words.x >> 8 * i & 0xff;
        to[4 + i] = words.y >> 8 * i & 0xff;
    }
}

__device__ __forceinline__ void load_row(uint32_t (&to)[PIXEL_WIDTH], const struct plane &plane,
                                         uint32_t x, uint32_t y)
{
    const uint8_t *from = plane.samples + (size_t)y * plane.stride + x;
    load_bytes(to, from);
    load_bytes(to + 8, from + 8);
}

// Samples x - 1 to x + 8 of a row. Those at the borders are repeated outside; what follows the
// first one outside has no effect.
__device__ __forceinline__ void load_half_row(uint32_t (&to)[10], const struct plane &plane,
                                              uint32_t x, uint32_t y)
{
    const uint8_t *row = plane.samples + (size_t)y * plane.stride;
    to[0] = row[x ? x - 1 : 0];
    load_bytes(to + 1, row + x);
    to[9] = row[min(x + 8, plane.width - 1)];
    if (x + 8 > plane.width) {
#pragma unroll
        for (uint32_t i = 2; i < 9; i++)
            to[i] = x + i - 1 == plane.width ? to[i - 1] : to[i];
    }
}

// The rows that lines between two rows are mixed of, 3 to 1. `y` is of the enlarged plane.
__device__ __forceinline__ void find_rows(uint32_t *near, uint32_t *far, const struct plane &plane,
                                          uint32_t y)
{
    *near = y / 2;
    *far = y % 2 ? min(*near + 1, plane.height - 1) : *near ? *near - 1 : 0;
}

// Pixels x to x + 15 of row y; x is a multiple of 16. libjpeg-turbo mixes neighbours in the
// proportion 3 to 1 where the enlargement is by two, in rows of more than two samples where it is
// in width; it repeats samples otherwise.
__device__ inline void enlarge(struct span *to, const struct plane &plane, uint32_t x, uint32_t y)
{
    bool smooth = plane.width > 2;
    uint32_t near = y, far = y;
    if (plane.wider == 1 && plane.taller == 1) {
        load_row(to->sample, plane, x, y);
    } else if (plane.wider == 1 && plane.taller == 2) {
        uint32_t other[PIXEL_WIDTH], bias = y % 2 ? 2 : 1;
        find_rows(&near, &far, plane, y);
        load_row(to->sample, plane, x, near);
        load_row(other, plane, x, far);
#pragma unroll
        for (int i = 0; i < PIXEL_WIDTH; i++)
            to->sample[i] = (3 * to->sample[i] + other[i] + bias) >> 2;
    } else if (plane.wider == 2 && plane.taller <= 2 && smooth) {
        // Of one row, sums of 4 with the biases 1 and 2; of two rows, of 16 with 8 and 7.
        uint32_t sums[10], shift = 2, left = 1, right = 2;
        if (plane.taller == 1) {
            load_half_row(sums, plane, x / 2, y);
        } else {
            uint32_t other[10];
            find_rows(&near, &far, plane, y);
            load_half_row(sums, plane, x / 2, near);
            load_half_row(other, plane, x / 2, far);
#pragma unroll
            for (int i = 0; i < 10; i++)
                sums[i] = 3 * sums[i] + other[i];
            shift = 4;
            left = 8;
            right = 7;
        }
#pragma unroll
        for (int i = 0; i < PIXEL_WIDTH / 2; i++) {
            to->sample[2 * i] = (3 * sums[i + 1] + sums[i] + left) >> shift;
            to->sample[2 * i + 1] = (3 * sums[i + 1] + sums[i + 2] + right) >> shift;
        }
    } else {
        const uint8_t *row = plane.samples + (size_t)(y / plane.taller) * plane.stride;
#pragma unroll
        for (uint32_t i = 0; i < PIXEL_WIDTH; i++)
            to->sample[i] = row[min((x + i) / plane.wider, plane.width - 1)];
    }
}

// Four samples, clamped to 8 bits.
__device__ __forceinline__ uint32_t pack(int32_t a, int32_t b, int32_t c, int32_t d)
{
    uint32_t high, all;
    asm("cvt.pack.sat.u8.s32.b32 %0, %1, %2, %3;" : "=r"(high) : "r"(d), "r"(c), "r"(0));
    asm("cvt.pack.sat.u8.s32.b32 %0, %1, %2, %3;" : "=r"(all) : "r"(b), "r"(a), "r"(high));
    return all;
}

// Stores sixteen pixels from (x, y) on of a plane.
__device__ __forceinline__ void store(const struct conv_jpeg_decode_image &image, int plane,
                                      uint32_t x, uint32_t y, const int32_t (&samples)[PIXEL_WIDTH])
{
    uint32_t words[PIXEL_WIDTH / 4];
#pragma unroll
    for (int i = 0; i < PIXEL_WIDTH / 4; i++)
        words[i] = pack(samples[4 * i], samples[4 * i + 1], samples[4 * i + 2], samples[4 * i + 3]);
    uint8_t *row = image.d_plane[plane] + (int64_t)y * image.stride;
    if (image.column == 1) {
        *(uint4 *)(row + x) = make_uint4(words[0], words[1], words[2], words[3]);
        return;
    }
#pragma unroll
    for (uint32_t i = 0; i < PIXEL_WIDTH; i++)
        if (x + i < (uint32_t)image.width)
            row[(int64_t)(x + i) * image.column] = (uint8_t)(words[i / 4] >> 8 * (i % 4));
}

// The luma of BT.601, rounded half to even.
__device__ __forceinline__ int32_t weigh(int32_t r, int32_t g, int32_t b)
{
    int32_t sum = 299 * min(max(r, 0), 255) + 587 * min(max(g, 0), 255) + 114 * min(max(b, 0), 255);
    int32_t quotient = sum / 1000, rest = 2 * (sum - 1000 * quotient);
    return quotient + (rest > 1000 || (rest == 1000 && quotient % 2));
}

// ITU-R BT.601 as in JFIF, the factors times 2^16.
__device__ inline void store_colors(const struct conv_jpeg_decode_image &image, uint32_t x,
                                    uint32_t y, const struct span &luma, const struct span &blue,
                                    const struct span &red)
{
    int32_t r[PIXEL_WIDTH], g[PIXEL_WIDTH], b[PIXEL_WIDTH];
#pragma unroll
    for (int i = 0; i < PIXEL_WIDTH; i++) {
        int32_t l = (int32_t)luma.sample[i], u = (int32_t)blue.sample[i] - 128;
        int32_t v = (int32_t)red.sample[i] - 128;
        r[i] = l + ((91881 * v + 32768) >> 16);
        g[i] = l + ((-22554 * u - 46802 * v + 32768) >> 16);
        b[i] = l + ((116130 * u + 32768) >> 16);
    }
    if (image.weighed) {
#pragma unroll
        for (int i = 0; i < PIXEL_WIDTH; i++)
            r[i] = weigh(r[i], g[i], b[i]);
        store(image, 0, x, y, r);
        return;
    }
    store(image, 0, x, y, r);
    store(image, 1, x, y, g);
    store(image, 2, x, y, b);
}

static __global__ void __launch_bounds__(PIXEL_THREADS, PIXEL_BLOCKS)
    jpeg_pixels(const struct conv_jpeg_decode_image *images, uint32_t count, uint32_t *d_status)
{
    struct jpeg_place place = find_place(images, count, WORK_PIXELS);
    const struct conv_jpeg_decode_image &image = *place.image;
    const struct jpeg_plan &plan = plan_of(image);
    if (place.index == 0 && threadIdx.x == 0)
        d_status[place.number] = plan.result->code;
    if (plan.result->code != CONV_JPEG_DECODED)
        return;
    uint32_t most_h = 1, most_v = 1;
    for (int c = 0; c < image.components; c++) {
        most_h = max(most_h, (uint32_t)image.h[c]);
        most_v = max(most_v, (uint32_t)image.v[c]);
    }
    uint32_t wide = ((uint32_t)image.width + PIXEL_WIDTH - 1) / PIXEL_WIDTH;
    struct plane planes[CONV_JPEG_COMPONENTS];
#pragma unroll
    for (int c = 0; c < CONV_JPEG_COMPONENTS; c++)
        planes[c] = find_plane(image, image.components == 1 ? 0 : c, most_h, most_v);
    for (uint32_t step = 0; step < PIXEL_STEPS; step++) {
        uint32_t unit = place.index * PIXEL_UNITS + step * PIXEL_THREADS + threadIdx.x;
        uint32_t x = unit % wide * PIXEL_WIDTH, y = unit / wide;
        if (y >= (uint32_t)image.height)
            break;
        struct span luma, blue, red;
        enlarge(&luma, planes[0], x, y);
        if (image.components == 1 || image.gray) {
            store(image, 0, x, y, *(const int32_t(*)[PIXEL_WIDTH])luma.sample);
            continue;
        }
        enlarge(&blue, planes[1], x, y);
        enlarge(&red, planes[2], x, y);
        store_colors(image, x, y, luma, blue, red);
    }
}

void conv_jpeg_launch_pixels(const struct conv_jpeg_decode_batch *batch, uint32_t blocks)
{
    jpeg_pixels<<<blocks, PIXEL_THREADS, 0, (cudaStream_t)batch->stream>>>(
        batch->d_images, (uint32_t)batch->count, batch->d_status);
}
