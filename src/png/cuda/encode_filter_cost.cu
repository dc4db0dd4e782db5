// SPDX-License-Identifier: MIT
// The cost of each of the five filters for each row, by which encode_filter.cu chooses one per row.
// All five are added up at once from the planes, 16 bytes per lane; the output is five sums per
// row.
#include "png/cuda/bytes.cuh"
#include "png/cuda/encode_internal.cuh"

#define WARPS 8
#define GROUP 16 // bytes that a lane takes at a time

// Adds the costs of the bytes from `offset` on, of which `n` belong to the row. Those after the row
// are cleared in all operands and so add nothing. `left` is 8 bits for each byte of a sample.
template <bool CUT>
__device__ inline void add_costs(uint32_t cost[PNG_FILTERS], const uint4 &x, uint32_t x_before,
                                 const uint4 &b, uint32_t b_before, uint32_t left, int n)
{
    uint32_t xs[5] = {x_before, x.x, x.y, x.z, x.w}, bs[5] = {b_before, b.x, b.y, b.z, b.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int rest = n - 4 * i;
        uint32_t mask = !CUT || rest >= 4 ? ~0u : rest > 0 ? (1u << 8 * rest) - 1 : 0;
        add_costs(cost, xs[i + 1] & mask, shift_in(xs[i], xs[i + 1], left) & mask, bs[i + 1] & mask,
                  shift_in(bs[i], bs[i + 1], left) & mask);
    }
}

__device__ inline uint32_t sum_lanes(uint32_t value)
{
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    return __reduce_add_sync(ALL_LANES, value);
#else
    for (int step = WARP / 2; step > 0; step /= 2)
        value += __shfl_xor_sync(ALL_LANES, value, step);
    return value;
#endif
}

// One span of an image, by a warp: lanes take its groups plane after plane. Sums of rows longer
// than 16 MiB may wrap, which can only choose another filter.
__device__ inline void add_span(uint32_t *costs, const struct conv_encode_image &image,
                                uint32_t span)
{
    uint32_t lane = threadIdx.x % WARP, y = span, begin = 0;
    if (image.spans > 1) {
        y = span / image.spans;
        begin = span % image.spans * SPAN_BYTES;
    }
    uint32_t bytes = (uint32_t)image.width * (uint32_t)(image.depth / 8);
    uint32_t groups = (min(bytes - begin, (uint32_t)SPAN_BYTES) + GROUP - 1) / GROUP;
    uint32_t left = (uint32_t)image.depth;
    int64_t row = (int64_t)y * image.stride;

    uint32_t cost[PNG_FILTERS] = {0};
    for (uint32_t i = lane; i < groups * (uint32_t)image.channels; i += WARP) {
        uint32_t plane = i / groups, offset = begin + (i - plane * groups) * GROUP;
        const uint8_t *p = image.plane[plane] + row + offset;
        const uint8_t *above = p - image.stride;
        uint4 x = *(const uint4 *)p, b = {0, 0, 0, 0};
        uint32_t x_before = 0, b_before = 0;
        if (offset > 0)
            x_before = *(const uint32_t *)(p - 4);
        if (y > 0) {
            b = *(const uint4 *)above;
            if (offset > 0)
                b_before = *(const uint32_t *)(above - 4);
        }
        if (bytes - offset >= GROUP)
            add_costs<false>(cost, x, x_before, b, b_before, left, GROUP);
        else
            add_costs<true>(cost, x, x_before, b, b_before, left, (int)(bytes - offset));
    }
#pragma unroll
    for (int f = 0; f < PNG_FILTERS; f++) {
        cost[f] = sum_lanes(cost[f]);
        if (lane == (uint32_t)f)
            atomicAdd(&costs[((uint64_t)image.first_row + y) * PNG_FILTERS + f], cost[f]);
    }
}

// 8 warps per block, each with `each` spans one after another.
static __global__ void __launch_bounds__(WARPS *WARP)
    filter_cost(const struct encode_scratch scratch, uint32_t spans, uint32_t each)
{
    uint32_t first = (blockIdx.x * WARPS + threadIdx.x / WARP) * each;
    if (first >= spans)
        return;
    const struct conv_encode_image *images = scratch.images;
    int at = find_last(scratch.count, first, [&](int i) { return images[i].first_span; });
    uint32_t begin = images[at].first_span;
    uint32_t end = begin + images[at].spans * (uint32_t)images[at].height;
    for (uint32_t span = first; span < min(first + each, spans); span++) {
        if (span == end) {
            at++;
            begin = end;
            end += images[at].spans * (uint32_t)images[at].height;
        }
        add_span(scratch.costs, images[at], span - begin);
    }
}

// Several spans per warp share the search for their image, if there are enough for all processors.
#define MANY_SPANS 65536
#define SPANS_EACH 4

void conv_encode_filter_cost(const struct encode_scratch &scratch, uint32_t spans,
                             cudaStream_t stream)
{
    uint32_t each = spans >= MANY_SPANS ? SPANS_EACH : 1, of_block = WARPS * each;
    filter_cost<<<(spans + of_block - 1) / of_block, WARPS * WARP, 0, stream>>>(scratch, spans,
                                                                                each);
}
