// SPDX-License-Identifier: MIT
// For few images: warps take bands of 32 rows of an image, and pass the last row of a band to the
// warp of the next band through memory.
#ifndef CONV_PNG_CUDA_UNFILTER_BANDS_CUH
#define CONV_PNG_CUDA_UNFILTER_BANDS_CUH

#include "png/cuda/unfilter_wave.cuh"

#define MOST_PENDING 3 // steps that a load may take

// Passes on a word of the last row of a band, with the number of the next band in the upper half.
// Since one store writes both, no fence is needed: the reader waits until the number is that of its
// own band.
__device__ __forceinline__ void give_word(uint64_t *to, uint32_t word, uint32_t band)
{
    uint64_t value = (uint64_t)band << 32 | word;
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"((uint64_t)to), "l"(value) : "memory");
}

__device__ __forceinline__ uint64_t look_at_word(const uint64_t *from)
{
    uint64_t value;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];"
                 : "=l"(value)
                 : "l"((uint64_t)from)
                 : "memory");
    return value;
}

// Reads what is above lane 0's step, which may not be there yet.
template <int COUNT>
__device__ __forceinline__ void look_above(uint64_t *seen, const uint64_t *handed, uint32_t step)
{
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        seen[i] = look_at_word(handed + step * COUNT + i);
}

// Waits until what look_above() read is there. This ends: a running warp has begun the previous
// band, and waits for earlier bands only.
template <int CHANNELS, int WORDS>
__device__ __forceinline__ void wait_above(struct strip<CHANNELS, WORDS> *above, uint64_t *seen,
                                           const uint64_t *handed, uint32_t band, uint32_t step)
{
    const int COUNT = CHANNELS * WORDS;
    for (;;) {
        bool there = true;
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            above->planes[i / WORDS].words[i % WORDS] = (uint32_t)seen[i];
            there &= (uint32_t)(seen[i] >> 32) == band;
        }
        if (there)
            return;
        look_above<COUNT>(seen, handed, step);
    }
}

// Loads chunk `chunk` of the row of lane `from`. Called by all lanes.
template <int COUNT>
__device__ __forceinline__ void load_chunk(uint32_t *rings, const struct conv_decode_image &image,
                                           uint32_t y, uint32_t from, uint32_t chunk)
{
    typedef struct ring<COUNT> ring;
    const uint32_t end = (uint32_t)conv_decode_result_at(image.rows_bytes) / 4;
    uint32_t word = first_word(image, y + from) + chunk * (ring::STEPS * COUNT) + threadIdx.x;
    uint32_t to = from * ring::STRIDE + chunk % 2 * ring::SLOT + threadIdx.x;
    if (threadIdx.x < ring::WORDS && word < end)
        __pipeline_memcpy_async(rings + to, (const uint32_t *)image.d_rows + word, 4);
}

template <int CHANNELS, int SAMPLE, int WORDS>
__device__ inline void unfilter_band(const struct conv_decode_image &image, uint32_t *rings,
                                     uint64_t *handed, uint32_t band)
{
    const int COUNT = CHANNELS * WORDS;
    const uint32_t STEPS = ring<COUNT>::STEPS, RUN = runs<CHANNELS, WORDS>::STEPS;
    const int PENDING = STEPS <= MOST_PENDING ? STEPS - 1 : MOST_PENDING;
    const uint32_t lane = threadIdx.x, y = band * WARP,
                   rows = min((uint32_t)image.height - y, (uint32_t)WARP);
    const uint32_t steps = ((uint32_t)image.width * SAMPLE + 4 * WORDS - 1) / (4 * WORDS);
    const uint32_t chunks = (steps + STEPS - 1) / STEPS, whole = (steps + RUN - 1) / RUN * RUN;
    uint32_t *own = rings + lane * ring<COUNT>::STRIDE;
    uint32_t *all_runs = rings + WARP * ring<COUNT>::STRIDE;
    uint32_t left[pixel<CHANNELS, SAMPLE>::PAIRS], above_left[pixel<CHANNELS, SAMPLE>::PAIRS];
    struct strip<CHANNELS, WORDS> last = {}, first = {
    };
    struct place place = {};
    uint64_t seen[COUNT];
    place.y = y + lane;
    __syncwarp(); // no lane reads the rings any more
    for (uint32_t from = 0; from < rows; from++)
        for (uint32_t chunk = 0; chunk < min(chunks, 2u); chunk++)
            load_chunk<COUNT>(rings, image, y, from, chunk);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    if (lane == 0 && band > 0)
        look_above<COUNT>(seen, handed, 0);
    for (uint32_t now = 0; now < whole + WARP - 1; now++) {
        __pipeline_wait_prior(PENDING);
        __syncwarp();
        // Lanes that begin a chunk have used up the previous one: its slot is free.
        for (uint32_t from = now % STEPS; from < rows && from < now; from += STEPS)
            if ((now - from) / STEPS + 1 < chunks)
                load_chunk<COUNT>(rings, image, y, from, (now - from) / STEPS + 1);
        __pipeline_commit();
        if (lane == 0 && band > 0 && now < steps) {
            wait_above(&first, seen, handed, band, now);
            if (now + 1 < steps)
                look_above<COUNT>(seen, handed, now + 1);
        }
        struct strip<CHANNELS, WORDS> above = take_above(last, first);
        if (now >= lane && place.step < steps && lane < rows) {
            do_step<CHANNELS, SAMPLE, WORDS>(&place, own, &last, above, image, left, above_left,
                                             all_runs + lane * runs<CHANNELS, WORDS>::STRIDE);
            if (lane == WARP - 1)
#pragma unroll
                for (int i = 0; i < COUNT; i++)
                    give_word(handed + place.step * COUNT + i,
                              last.planes[i / WORDS].words[i % WORDS], band + 1);
            place.step++;
            if (++place.inner == STEPS) {
                place.inner = 0;
                place.slot ^= 1;
            }
        }
        write_runs<CHANNELS, SAMPLE, WORDS>(all_runs, image, y, now, 0);
    }
}

#endif
