// SPDX-License-Identifier: MIT
// Reverses the row filters and splits rows into planes. With many images each warp unfilters one
// image, and a lane that has finished a row continues with the row 32 further down. With few images
// several warps share an image, in bands of 32 rows.
#include <cuda_runtime_api.h>

#include "kernels/common/place.h"
#include "png/cuda/launches.cuh"
#include "png/cuda/unfilter.cuh"

// --- bands ---------------------------------------------------------------------------------------

// For few images: warps take bands of 32 rows of an image, and pass the last row of a band to the
// warp of the next band through memory.

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

// --- launches ------------------------------------------------------------------------------------

// Reverses the row filters and splits rows into planes. With many images each warp unfilters one
// image, and a lane that has finished a row continues with the row 32 further down. With few images
// several warps share an image, in bands of 32 rows.

// Up to this many images per SM are unfiltered in bands. On 132 SMs, 528 photographs take 1.42 ms
// in bands and 1.78 with a warp each; 1,008 take 2.54 and 2.32.
#define BANDS_PER_SM 4
#define MOST_BAND_WARPS 16 // per SM, of one launch
// From this compute capability on, filters are reversed while images are inflated. In bands only if
// an image has this many bytes: icons of 64 KiB take longer so.
#define LEAST_BESIDE 90
#define LEAST_BYTES_BESIDE (256u << 10)

// What a lane loads next.
struct loading {
    uint32_t y, chunk, word; // row, chunk of the row, and word of the image's rows
    uint32_t slot, held;     // the next slot of the ring; slots that are occupied
};

// Loads a chunk for each lane that has a free slot; called by all lanes. After the row's end this
// reads words of the next row, or of the slack after the last one.
template <int COUNT>
__device__ __forceinline__ void load_chunks(uint32_t *rings, struct loading *loading,
                                            const struct conv_decode_image &image, uint32_t chunks)
{
    typedef struct ring<COUNT> ring;
    const uint32_t lane = threadIdx.x, end = (uint32_t)conv_decode_result_at(image.rows_bytes) / 4;
    const uint32_t *rows = (const uint32_t *)image.d_rows;
    bool asks = loading->held < 2 && loading->y < (uint32_t)image.height;
    uint32_t at = lane * ring::STRIDE + loading->slot * ring::SLOT;
    for (uint32_t asking = __ballot_sync(ALL_LANES, asks); asking; asking &= asking - 1) {
        int from = __ffs((int)asking) - 1;
        uint32_t word = __shfl_sync(ALL_LANES, loading->word, from) + lane;
        uint32_t to = __shfl_sync(ALL_LANES, at, from) + lane;
        if (lane < ring::WORDS && word < end)
            __pipeline_memcpy_async(rings + to, rows + word, 4);
    }
    if (!asks)
        return;
    loading->slot ^= 1;
    loading->held++;
    loading->word += ring::STEPS * COUNT;
    if (++loading->chunk == chunks) {
        loading->chunk = 0;
        loading->y += WARP;
        loading->word = first_word(image, loading->y);
    }
}

// Moves to the next step, and frees the slot after its last one.
template <int COUNT>
__device__ __forceinline__ void leave_step(struct place *place, struct loading *loading,
                                           uint32_t steps)
{
    bool ends = ++place->step == steps;
    if (++place->inner == ring<COUNT>::STEPS || ends) {
        place->inner = 0;
        place->slot ^= 1;
        loading->held--;
    }
}

// Reads what is above lane 0's step from the plane; lane 31 has written it a round ago.
template <int CHANNELS, int WORDS>
__device__ __forceinline__ void read_above(struct strip<CHANNELS, WORDS> *above,
                                           const struct conv_decode_image &image, uint32_t y,
                                           uint32_t step)
{
#pragma unroll
    for (int c = 0; c < CHANNELS; c++)
        above->planes[c] =
            ((struct step_words<WORDS> *)(image.d_plane[c] + (y - 1) * image.stride))[step];
}

template <int CHANNELS, int SAMPLE, int WORDS>
__device__ inline void unfilter_image(const struct conv_decode_image &image, uint32_t *rings)
{
    const int COUNT = CHANNELS * WORDS;
    const uint32_t RUN = runs<CHANNELS, WORDS>::STEPS;
    const uint32_t lane = threadIdx.x, height = (uint32_t)image.height;
    const uint32_t steps = ((uint32_t)image.width * SAMPLE + 4 * WORDS - 1) / (4 * WORDS);
    const uint32_t chunks = (steps + ring<COUNT>::STEPS - 1) / ring<COUNT>::STEPS;
    // Steps from one round of rows to the next: whole runs, and at least as many as lane 31 needs
    // to write a row before lane 0 reads it.
    const uint32_t period = (max(steps, (uint32_t)WARP + RUN) + RUN - 1) / RUN * RUN;
    const uint32_t total = (height + WARP - 1) / WARP * period + WARP - 1;
    uint32_t *own = rings + lane * ring<COUNT>::STRIDE;
    uint32_t *all_runs = rings + WARP * ring<COUNT>::STRIDE;
    uint32_t left[pixel<CHANNELS, SAMPLE>::PAIRS], above_left[pixel<CHANNELS, SAMPLE>::PAIRS];
    struct strip<CHANNELS, WORDS> last = {}, first = {
    };
    struct loading loading = {lane, 0, first_word(image, lane), 0, 0};
    struct place place = {};
    uint32_t turn = 0, top_turn = 0, top_y = 0; // step of the period; the same of lane 0, its row
    place.y = lane;
    // Rounds whose rows are loaded during one: it and the next one, of which a lane holds two
    // chunks when it has finished its row; two rows if they have one chunk each.
    const uint32_t loaded = chunks == 1 ? 3 : 2;
    if (!wait_ready(image, loaded * WARP))
        return;
    for (int slot = 0; slot < 2; slot++)
        load_chunks<COUNT>(rings, &loading, image, chunks);
    __pipeline_commit();
    for (uint32_t now = 0; now < total; now++) {
        if (top_turn == 0 && !wait_ready(image, top_y + loaded * WARP))
            return;
        __pipeline_wait_prior(0);
        __syncwarp();
        load_chunks<COUNT>(rings, &loading, image, chunks);
        __pipeline_commit();
        struct strip<CHANNELS, WORDS> above = take_above(last, first);
        if (lane == 0) {
            bool ends = turn + 1 == period;
            uint32_t y = ends ? place.y + WARP : place.y, step = ends ? 0 : turn + 1;
            if (y > 0 && y < height && step < steps)
                read_above(&first, image, y, step);
        }
        if (now >= lane) {
            if (place.y < height && turn < steps) {
                do_step<CHANNELS, SAMPLE, WORDS>(&place, own, &last, above, image, left, above_left,
                                                 all_runs + lane * runs<CHANNELS, WORDS>::STRIDE);
                leave_step<COUNT>(&place, &loading, steps);
            }
            if (++turn == period) {
                turn = place.step = 0;
                place.y += WARP;
            }
        }
        write_runs<CHANNELS, SAMPLE, WORDS>(all_runs, image, top_y, top_turn, period);
        if (++top_turn == period) {
            top_turn = 0;
            top_y += WARP;
        }
    }
}

// --- launches ------------------------------------------------------------------------------------

template <int CHANNELS, int SAMPLE, int WORDS>
__device__ inline void unfilter_any(const struct conv_decode_image &image, uint32_t *rings)
{
    if (WORDS == WIDE) {
        unfilter_image<CHANNELS, SAMPLE, WORDS>(image, rings);
        return;
    }
    uint32_t *taken = (uint32_t *)(image.d_rows + conv_decode_bands_at(image.rows_bytes));
    uint32_t bands = ((uint32_t)image.height + WARP - 1) / WARP;
    for (;;) {
        uint32_t band = threadIdx.x == 0 ? atomicAdd(taken, 1u) : 0;
        band = __shfl_sync(ALL_LANES, band, 0);
        if (band >= bands || !wait_ready(image, (band + 1) * WARP))
            return;
        unfilter_band<CHANNELS, SAMPLE, WORDS>(image, rings, (uint64_t *)(taken + 2), band);
    }
}

template <int WORDS>
static __global__ void __launch_bounds__(WARP) unfilter(const struct conv_decode_image *images)
{
    extern __shared__ uint4 memory[];
    uint32_t *rings = (uint32_t *)memory;
    struct conv_decode_image image = images[images[gridDim.x - 1 - blockIdx.x].turn];
    switch (2 * image.channels + image.depth / 16) {
    case 2:
        unfilter_any<1, 1, WORDS>(image, rings);
        break;
    case 3:
        unfilter_any<1, 2, WORDS>(image, rings);
        break;
    case 4:
        unfilter_any<2, 1, WORDS>(image, rings);
        break;
    case 5:
        unfilter_any<2, 2, WORDS>(image, rings);
        break;
    case 6:
        unfilter_any<3, 1, WORDS>(image, rings);
        break;
    case 7:
        unfilter_any<3, 2, WORDS>(image, rings);
        break;
    case 8:
        unfilter_any<4, 1, WORDS>(image, rings);
        break;
    case 9:
        unfilter_any<4, 2, WORDS>(image, rings);
        break;
    }
    wait_for_inflate();
}

template <int WORDS> static size_t ring_bytes(int channels)
{
    const uint32_t words[] = {LANE_WORDS<1, WORDS>, LANE_WORDS<2, WORDS>, LANE_WORDS<3, WORDS>,
                              LANE_WORDS<4, WORDS>};
    return WARP * words[channels - 1] * sizeof(uint32_t);
}

// The images' grid and, for each, its number of warps. `beside`: the blocks may start while the
// preceding launch, which inflates, is running (programmatic dependent launch).
template <int WORDS>
static enum conv_status launch(const struct conv_decode_batch *batch, int warps, bool beside)
{
    size_t bytes = 0;
    for (int i = 0; i < batch->count; i++) {
        size_t own = ring_bytes<WORDS>(batch->images[i].channels);
        bytes = own > bytes ? own : bytes;
    }
    dim3 grid((unsigned)batch->count, (unsigned)warps);
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {grid,       dim3(WARP),      bytes, (cudaStream_t)batch->stream,
                                 &attribute, beside ? 1u : 0u};
    (void)cudaLaunchKernelEx(&config, unfilter<WORDS>, batch->d_images);
    return cudaPeekAtLastError() == cudaSuccess ? CONV_OK : CONV_ERR_DEVICE;
}

static int most_bands(const struct conv_decode_batch *batch)
{
    int most = 1;
    for (int i = 0; i < batch->count; i++) {
        int bands = (batch->images[i].height - 1) / WARP + 1;
        most = bands > most ? bands : most;
    }
    return most;
}

static uint32_t most_bytes(const struct conv_decode_batch *batch)
{
    uint32_t most = 0;
    for (int i = 0; i < batch->count; i++)
        most = batch->images[i].rows_bytes > most ? batch->images[i].rows_bytes : most;
    return most;
}

enum conv_status conv_cuda_unfilter(const struct conv_decode_batch *batch)
{
    int device, processors, major, minor;
    bool split;
    if (cudaGetDevice(&device) ||
        cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device) ||
        cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) ||
        cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) ||
        conv_cuda_split_is_used(batch, &split))
        return CONV_ERR_DEVICE;
    int at_once = batch->at_once ? batch->at_once : batch->count;
    // After a split inflate all rows are ready at once.
    bool beside = conv_cuda_code_capability(10 * major + minor) >= LEAST_BESIDE && !split &&
                  conv_decode_is_alone(batch);
    if (at_once > BANDS_PER_SM * processors)
        return launch<WIDE>(batch, 1, beside);
    beside &= most_bytes(batch) >= LEAST_BYTES_BESIDE;
    int bands = most_bands(batch), most = MOST_BAND_WARPS * processors / batch->count;
    return launch<NARROW>(batch, bands < most ? bands : most > 0 ? most : 1, beside);
}
