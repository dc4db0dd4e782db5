// SPDX-License-Identifier: MIT
// How blocks that reduce (decimated_reduce.cuh) load an image: a stage of rows after the other into
// a ring in shared memory, by bulk copies where addresses and borders allow it, else by 16 bytes,
// by words or sample by sample.
#pragma once

#include "kernels/common/bulk.cuh"
#include "kernels/stencil/cuda/decimated.cuh"

#define REDUCE_THREADS 256 // of a block: one warp or more for each strip
#define MOST_STAGES 3      // of rows that a block has in shared memory or has asked for

// A block's part of a plane: strips side by side, whose samples it loads together.
struct part {
    int x, y, end;      // pixels; rows up to `end` are multiplied
    int first, last;    // coarse rows to store
    int row;            // its number, from top to bottom
    int strip, strips;  // the first one, and how many
    int chunks;         // of 16 bytes of a row
    int skipped, bytes; // of a row: before, and of, its bulk copy; 0: there are no bulk copies
    bool aligned;       // addresses of chunks are multiples of 16
    bool repeats;       // the border repeats samples, too
};

// Calls take(row, chunk) for each chunk of a stage that the thread loads.
template <int ROWS, typename Take>
__device__ static inline void take_chunks(const struct part &part, const Take &take)
{
    int row = (int)threadIdx.x / part.chunks, chunk = (int)threadIdx.x - row * part.chunks;
    int down = REDUCE_THREADS / part.chunks, across = REDUCE_THREADS - down * part.chunks;
    while (row < ROWS) {
        take(row, chunk);
        row += down;
        chunk += across;
        if (chunk >= part.chunks)
            chunk -= part.chunks, row++;
    }
}

// The chunk's samples, each by itself. row: -1 for constant ones.
template <typename Sample>
__device__ static inline void load_chunk(uint4 *to, int x, int row,
                                         const struct conv_stencil_plane &plane,
                                         const struct decimated_filter &f)
{
    constexpr int IN_WORD = 4 / sizeof(Sample), WORDS = 2; // loaded at once: their latency counts
    const Sample *from = (const Sample *)(plane.src + row * plane.src_stride);
#pragma unroll 1
    for (int first = 0; first < 4; first += WORDS) {
        uint32_t words[WORDS] = {};
#pragma unroll
        for (int k = 0; k < WORDS * IN_WORD; k++) {
            int column =
                conv_border_index((enum conv_border)f.border, x + first * IN_WORD + k, plane.width);
            uint32_t sample = (uint32_t)f.border_value;
            if (column >= 0 && row >= 0)
                sample = from[column];
            words[k / IN_WORD] |= sample << 8 * (int)sizeof(Sample) * (k % IN_WORD);
        }
#pragma unroll
        for (int w = 0; w < WORDS; w++)
            ((uint32_t *)to)[first + w] = words[w];
    }
}

// Asks for a chunk. Where the border repeats samples, those outside are at first the nearest chunk:
// see repeat_samples.
template <typename Sample>
__device__ static inline void ask_chunk(uint4 *to, int x, int row, const struct part &part,
                                        const struct conv_stencil_plane &plane,
                                        const struct decimated_filter &f)
{
    constexpr int COUNT = 16 / (int)sizeof(Sample);
    bool inside = row >= 0 && x >= 0 && x + COUNT <= plane.width;
    if (part.repeats)
        x = min(max(x, 0), (plane.width - 1) & -COUNT);
    const uint8_t *from = plane.src + row * plane.src_stride + x * (int)sizeof(Sample);
    if (part.repeats || (part.aligned && inside))
        __pipeline_memcpy_async(to, from, 16);
    else if (inside && has_words<uint32_t>(plane.src, plane.src_stride))
        for (int w = 0; w < 4; w++)
            __pipeline_memcpy_async((uint32_t *)to + w, from + 4 * w, 4);
    else
        load_chunk<Sample>(to, x, row, plane, f);
}

// Asks for the rows of a stage from y on. Each warp has some of them copied by the bulk copy
// engine.
template <typename Sample, int ROWS>
__device__ static inline void ask(uint8_t *stage, uint64_t *full, int y, const struct part &part,
                                  const struct conv_stencil_plane &plane,
                                  const struct decimated_filter &f)
{
    auto row_of = [&](int row) {
        return conv_border_index((enum conv_border)f.border, y + row, plane.height);
    };
    if (y < part.end && !part.bytes) {
        take_chunks<ROWS>(part, [&](int row, int chunk) {
            ask_chunk<Sample>((uint4 *)(stage + row * f.pitch) + chunk,
                              part.x + chunk * (16 / (int)sizeof(Sample)), row_of(row), part, plane,
                              f);
        });
    }
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    if (y < part.end && part.bytes) {
        constexpr int COUNT = ROWS * WARP / REDUCE_THREADS; // of a warp
        int first = (int)uniform(threadIdx.x / WARP) * COUNT;
        uint32_t bytes = uniform((uint32_t)part.bytes), barrier = uniform(shared_address(full));
        uint32_t to = uniform(shared_address(stage + first * f.pitch + part.skipped));
        uint64_t from = uniform(
            __cvta_generic_to_global(plane.src + part.x * (int)sizeof(Sample) + part.skipped));
        uint64_t stride = uniform((uint64_t)plane.src_stride);
        uint32_t inside = uniform((uint32_t)(y >= 0 && y + ROWS <= plane.height));
        uint64_t row = uniform(from + (uint64_t)(y + first) * stride);
        fence_for_bulk();
        if (elect())
            barrier_arrive_expect(full, COUNT * bytes);
        if (inside) {
#pragma unroll
            for (int k = 0; k < COUNT; k++, row += stride, to += (uint32_t)f.pitch)
                if (elect())
                    bulk_copy(to, row, bytes, barrier);
        } else {
#pragma unroll 1
            for (int k = 0; k < COUNT; k++, to += (uint32_t)f.pitch) {
                row = uniform(from + (uint64_t)row_of(first + k) * stride);
                if (elect())
                    bulk_copy(to, row, bytes, barrier);
            }
        }
    }
#endif
    __pipeline_commit();
}

// Until the samples of a stage are there that this thread asked for, with bulk copies all of them.
__device__ static inline void wait_for(uint64_t *full, uint32_t parity, bool bulk, int stages)
{
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    if (bulk)
        barrier_wait(full, parity);
#endif
    if (stages == 2)
        __pipeline_wait_prior(0);
    else
        __pipeline_wait_prior(MOST_STAGES - 2);
}

// Puts repeated samples in the place of those outside. The sample is in the same chunk, or in the
// row where a bulk copy brought it.
template <typename Sample, int ROWS>
__device__ static inline void repeat_samples(uint8_t *stage, const struct part &part, int width,
                                             int pitch)
{
    constexpr int COUNT = 16 / (int)sizeof(Sample);
    int left = max(-part.x, 0) / COUNT, inside = min(max(width - part.x, 0) / COUNT, part.chunks);
    int outside = left + part.chunks - inside;
    for (int i = (int)threadIdx.x; i < ROWS * outside; i += REDUCE_THREADS) {
        int row = i / outside, chunk = i - row * outside;
        chunk += chunk < left ? 0 : inside - left;
        int x = part.x + chunk * COUNT, last = x < 0 ? 0 : width - 1;
        Sample *samples = (Sample *)(stage + row * pitch) + chunk * COUNT;
        Sample value = samples[part.bytes ? last - x : last % COUNT];
        uint32_t word = value * (sizeof(Sample) == 1 ? 0x01010101u : 0x00010001u);
        if (x < 0 || x >= width)
            *(uint4 *)samples = make_uint4(word, word, word, word);
        else
            for (int k = last + 1 - x; k < COUNT; k++)
                samples[k] = value;
    }
}

// A bulk copy brings a row's samples, or all that are not repeated.
template <typename Sample>
__device__ static inline void set_bulk(struct part *part, const struct conv_stencil_plane &plane,
                                       const struct decimated_filter &f)
{
    part->skipped = part->bytes = 0;
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    int size = (int)sizeof(Sample), from = max(-part->x * size, 0);
    int to = min(part->chunks * 16, ((plane.width * size + 15) & -16) - part->x * size);
    bool whole = part->x >= 0 && part->x * size + part->chunks * 16 <= plane.width * size;
    bool rows = f.border != CONV_BORDER_CONSTANT ||
                (part->y >= 0 && part->end <= plane.height - 8 * ROW_GROUPS);
    if (part->aligned && rows && (whole || part->repeats) && from < to) {
        part->skipped = from;
        part->bytes = to - from;
    }
#endif
}
