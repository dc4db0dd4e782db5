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
    int shift;          // samples from x to the first strip, unless it is at a multiple of 16 bytes
    int flip;           // STRIP - 1 if the strips are mirrored: the last one comes first; else 0
    int chunks;         // of 16 bytes of a row
    int skipped, bytes; // of a row: before, and of, its bulk copy; 0: there are no bulk copies
    bool fills;         // samples outside come from those inside, or are constant: fill_outside
};

// Kinds of borders for which the compiler has kernels of their own: replicate, reflect and
// reflect101, the others.
enum borders { REPLICATED, MIRRORED, OTHERS };

template <enum borders BORDERS>
__device__ static inline enum conv_border border_of(const struct decimated_filter &f)
{
    return BORDERS == REPLICATED ? CONV_BORDER_REPLICATE : (enum conv_border)f.border;
}

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

// Whether the samples of a chunk, of which two are at `first` and `last`, come in reverse order.
template <typename Sample>
__device__ static inline bool is_mirrored(enum conv_border border, int first, int last)
{
    return border != CONV_BORDER_WRAP && first - last == 16 / (int)sizeof(Sample) - 1;
}

template <typename Sample> __device__ static inline uint4 repeat_sample(Sample value)
{
    uint32_t word = value * (sizeof(Sample) == 1 ? 0x01010101u : 0x00010001u);
    return make_uint4(word, word, word, word);
}

// The chunk's samples, each by itself.
template <typename Sample, enum borders BORDERS>
__device__ static inline void load_chunk(uint4 *to, int x, int row,
                                         const struct conv_stencil_plane &plane,
                                         const struct decimated_filter &f)
{
    constexpr int COUNT = 16 / (int)sizeof(Sample);
    constexpr int IN_WORD = 4 / sizeof(Sample), WORDS = 2; // loaded at once: their latency counts
    const enum conv_border border = border_of<BORDERS>(f);
    const Sample *from = (const Sample *)(plane.src + row * plane.src_stride);
    int near = conv_border_index(border, x, plane.width);
    bool mirrored =
        is_mirrored<Sample>(border, near, conv_border_index(border, x + COUNT - 1, plane.width));
#pragma unroll 1
    for (int first = 0; first < 4; first += WORDS) {
        uint32_t words[WORDS] = {};
#pragma unroll
        for (int k = 0; k < WORDS * IN_WORD; k++) {
            int i = first * IN_WORD + k;
            int column = mirrored ? near - i : conv_border_index(border, x + i, plane.width);
            uint32_t sample = (uint32_t)f.border_value;
            if (column >= 0)
                sample = from[column];
            words[k / IN_WORD] |= sample << 8 * (int)sizeof(Sample) * (k % IN_WORD);
        }
#pragma unroll
        for (int w = 0; w < WORDS; w++)
            ((uint32_t *)to)[first + w] = words[w];
    }
}

// Asks for a chunk, unless fill_outside fills it.
template <typename Sample, enum borders BORDERS>
__device__ static inline void ask_chunk(uint4 *to, int x, int row, const struct part &part,
                                        const struct conv_stencil_plane &plane,
                                        const struct decimated_filter &f)
{
    constexpr int COUNT = 16 / (int)sizeof(Sample);
    const enum conv_border border = border_of<BORDERS>(f);
    bool outside = row < 0 || x < 0 || x >= plane.width;
    if (outside && border == CONV_BORDER_CONSTANT)
        *to = repeat_sample((Sample)f.border_value);
    if (outside && (part.fills || border == CONV_BORDER_CONSTANT))
        return;
    int first = conv_border_index(border, x, plane.width);
    int last = conv_border_index(border, x + COUNT - 1, plane.width);
    bool together = part.fills || (first >= 0 && last - first == COUNT - 1);
    const uint8_t *from = plane.src + row * plane.src_stride + first * (int)sizeof(Sample);
    if (together && (uintptr_t)from % 16 == 0)
        __pipeline_memcpy_async(to, from, 16);
    else if (together && (uintptr_t)from % 4 == 0)
        for (int w = 0; w < 4; w++)
            __pipeline_memcpy_async((uint32_t *)to + w, from + 4 * w, 4);
    else
        load_chunk<Sample, BORDERS>(to, x, row, plane, f);
}

// Asks for the rows of a stage from y on. Each warp has some of them copied by the bulk copy
// engine.
template <typename Sample, int ROWS, enum borders BORDERS>
__device__ static inline void ask(uint8_t *stage, uint64_t *full, int y, const struct part &part,
                                  const struct conv_stencil_plane &plane,
                                  const struct decimated_filter &f)
{
    auto row_of = [&](int row) {
        return conv_border_index(border_of<BORDERS>(f), y + row, plane.height);
    };
    if (y < part.end && !part.bytes) {
        take_chunks<ROWS>(part, [&](int row, int chunk) {
            ask_chunk<Sample, BORDERS>((uint4 *)(stage + row * f.pitch) + chunk,
                                       part.x + chunk * (16 / (int)sizeof(Sample)), row_of(row),
                                       part, plane, f);
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

// 4 * WORDS bytes at any address.
template <int WORDS> __device__ static inline void load_any(uint32_t *to, const uint8_t *from)
{
    uint32_t skip = (uint32_t)((uintptr_t)from % 4);
    const uint32_t *words = (const uint32_t *)(from - skip);
#pragma unroll
    for (int k = 0; k < WORDS; k++)
        to[k] = __funnelshift_r(words[k], words[k + 1], 8 * skip);
}

// Fills the samples of a stage that are outside the plane.
template <typename Sample, int ROWS, enum borders BORDERS>
__device__ static inline void fill_outside(uint8_t *stage, const struct part &part, int width,
                                           const struct decimated_filter &f)
{
    constexpr int COUNT = 16 / (int)sizeof(Sample);
    const enum conv_border border = border_of<BORDERS>(f);
    int left = min(max(-part.x, 0) / COUNT, part.chunks);
    int inside = min(max(width - part.x, 0) / COUNT, part.chunks);
    int outside = left + part.chunks - max(inside, left);
    bool repeats = border == CONV_BORDER_REPLICATE || border == CONV_BORDER_CONSTANT;
    for (int i = (int)threadIdx.x; i < ROWS * outside; i += REDUCE_THREADS) {
        int row = i / outside, chunk = i - row * outside;
        chunk += chunk < left ? 0 : max(inside, left) - left;
        int x = part.x + chunk * COUNT, near = conv_border_index(border, x, width);
        int far = conv_border_index(border, x + COUNT - 1, width);
        bool mirrored = is_mirrored<Sample>(border, near, far);
        Sample *samples = (Sample *)(stage + row * f.pitch) - part.x;
        if (repeats && (x < 0 || x >= width)) {
            Sample value = near < 0 ? (Sample)f.border_value : samples[near];
            *(uint4 *)(samples + x) = repeat_sample(value);
            continue;
        }
        if (BORDERS == MIRRORED && mirrored && (x + COUNT <= 0 || x >= width)) {
            uint32_t words[4], order = COUNT == 16 ? 0x0123 : 0x1032;
            load_any<4>(words, (const uint8_t *)(samples + near - COUNT + 1));
            *(uint4 *)(samples + x) =
                make_uint4(__byte_perm(words[3], 0, order), __byte_perm(words[2], 0, order),
                           __byte_perm(words[1], 0, order), __byte_perm(words[0], 0, order));
            continue;
        }
        for (int k = 0; k < COUNT; k++) {
            int from = mirrored ? near - k : conv_border_index(border, x + k, width);
            if (x + k < 0 || x + k >= width)
                samples[x + k] = from < 0 ? (Sample)f.border_value : samples[from];
        }
    }
}

// Where the part's samples are. A part outside the plane has those that the border mirrors, in the
// order in which they lie there: weights are the same from left to right and from right to left.
// Else sets whether fill_outside can fill the samples that are outside, and what a bulk copy
// brings: a row's samples, or those inside.
template <typename Sample, enum borders BORDERS>
__device__ static inline void place_columns(struct part *part,
                                            const struct conv_stencil_plane &plane,
                                            const struct decimated_filter &f)
{
    constexpr int COUNT = 16 / (int)sizeof(Sample);
    const enum conv_border border = border_of<BORDERS>(f);
    int pixels = (part->strips * STRIP + 3) * f.step; // the first one has no weight
    part->x = part->strip * STRIP * f.step;
    part->shift = part->flip = 0;
    int near = conv_border_index(border, part->x + 1, plane.width);
    int far = conv_border_index(border, part->x + pixels - 1, plane.width);
    bool aligned = has_words<uint4>(plane.src, plane.src_stride);
    bool elsewhere = BORDERS == MIRRORED && aligned && abs(far - near) == pixels - 2 &&
                     near != part->x + 1 && min(near, far) > 0;
    if (elsewhere) {
        part->shift = (min(near, far) - 1) % COUNT;
        part->x = min(near, far) - 1 - part->shift;
        part->flip = near > far ? STRIP - 1 : 0;
    }
    part->chunks = (part->shift + pixels - 1) / COUNT + 1;
    int width = plane.width, end = part->x + part->chunks * COUNT;
    int first = max(part->x, 0), last = min(end, width); // inside
    bool mirrors = (part->x >= 0 || last == width || -part->x < last) &&
                   (end <= width || first == 0 || 2 * width - 1 - end >= first);
    if (border == CONV_BORDER_WRAP)
        mirrors = last - first == width;
    part->fills = elsewhere || (aligned && first < last && border != CONV_BORDER_CONSTANT &&
                                (border == CONV_BORDER_REPLICATE || mirrors));
    part->skipped = part->bytes = 0;
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    // With constant samples where all rows are inside; else chunks are written one by one.
    bool constant = border == CONV_BORDER_CONSTANT;
    bool rows = !constant || (part->y >= 0 && part->end <= plane.height - 8 * ROW_GROUPS);
    if (aligned && rows && first < last &&
        (last - first == end - part->x || part->fills || constant)) {
        part->fills = part->fills || constant;
        part->skipped = (first - part->x) * (int)sizeof(Sample);
        part->bytes = ((last - first) * (int)sizeof(Sample) + 15) & -16;
    }
#endif
}
