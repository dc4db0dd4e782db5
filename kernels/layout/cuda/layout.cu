// SPDX-License-Identifier: MIT
// Copies between image layouts. A lane takes a unit of a row: as many pixels as fit into 16 bytes
// of a channel. It holds the unit's samples by channel, so that every way of reading can be
// combined with every way of writing. Interleaved and unaligned rows pass through shared memory:
// global memory is accessed in aligned 16-byte words but for the ends of rows (layout_run.cuh).
#include "kernels/layout/cuda/layout_run.cuh"
#include "kernels/layout/layout.h"

#define MOST_JOBS 24 // in the parameters of a launch, 4 KB at most
#define WARPS 4      // of a block
#define CHANNELS CONV_LAYOUT_MAX_CHANNELS
#define OPAQUE_CHANNEL 255

// How the samples of a view are accessed.
enum access {
    ACCESS_PLANES,  // units of planes, aligned
    ACCESS_RUNS,    // rows of planes at any address
    ACCESS_PACKED,  // channels of a pixel one after another, pixels without gaps
    ACCESS_STRIDED, // sample by sample
};

struct job_view {
    uint8_t *channel[CHANNELS];
    int64_t row, column;
    uint8_t channels, access;
    bool padded;
};

// A warp takes tiles of 32 units: of one row, or of several where rows are shorter.
struct job {
    struct job_view dst, src;
    int32_t width, height;
    uint32_t units; // per row
    uint32_t rows;  // per tile
    uint32_t across, first_tile;
    uint8_t from[CHANNELS]; // the source's channel of each of the destination's
    bool same_channels;     // from[c] == c
};

struct jobs {
    struct job job[MOST_JOBS];
    int32_t count;
    uint32_t tiles;
};
static_assert(sizeof(struct jobs) <= 4096, "they are kernel parameters");

// --- samples of a unit ---------------------------------------------------------------------------

template <int SRC, int DST> struct unit {
    static constexpr int PIXELS = 16 / (SRC > DST ? SRC : DST);
    static constexpr int SRC_WORDS = PIXELS * SRC / 4, DST_WORDS = PIXELS * DST / 4;
};

// What a lane works on.
struct place {
    int row;      // of the tile
    int64_t x, y; // first pixel of the unit
    int pixels;   // of the unit within the image; 0: none
    int64_t first_x, first_y;
    int rows, run_pixels; // of the whole tile
    int unit;             // in the tile's row
};

template <int BYTES> __device__ inline uint32_t get_sample(const uint32_t *words, int i)
{
    if (BYTES == 4)
        return words[i];
    return words[i * BYTES / 4] >> (8 * (i * BYTES % 4)) & (BYTES == 1 ? 0xffu : 0xffffu);
}

// The words were 0.
template <int BYTES> __device__ inline void put_sample(uint32_t *words, int i, uint32_t value)
{
    words[i * BYTES / 4] |= value << (8 * (i * BYTES % 4));
}

template <int BYTES> __device__ inline uint32_t load_sample(const uint8_t *at)
{
    return BYTES == 1 ? *at : BYTES == 2 ? *(const uint16_t *)at : *(const uint32_t *)at;
}

template <int BYTES> __device__ inline void store_sample(uint8_t *at, uint32_t value)
{
    if (BYTES == 1)
        *at = (uint8_t)value;
    else if (BYTES == 2)
        *(uint16_t *)at = (uint16_t)value;
    else
        *(uint32_t *)at = value;
}

template <int SRC, int DST> __device__ inline uint32_t convert_sample(uint32_t value)
{
    if (DST == 4 && SRC < 4)
        return __float_as_uint((float)value);
    if (SRC == 2 && DST == 1)
        return (value + 128) / 257;
    return SRC == 1 && DST == 2 ? value * 257 : value;
}

// Words of a unit of one channel from those of a packed unit, and back: sample i of channel c is
// sample i * COUNT + c there. All indices are constants once the loops are unrolled.
template <int BYTES, int COUNT, int WORDS>
__device__ inline void split_channel(uint32_t *channel, const uint32_t *packed, int c)
{
#pragma unroll
    for (int w = 0; w < WORDS; w++) {
        int i = w * 4 / BYTES * COUNT + c; // the word's first sample
        if (BYTES == 4) {
            channel[w] = packed[i];
        } else if (BYTES == 2) {
            int j = i + COUNT;
            channel[w] = __byte_perm(packed[i / 2], packed[j / 2],
                                     (i % 2 ? 0x32 : 0x10) | (j % 2 ? 0x7600 : 0x5400));
        } else {
            int j = i + COUNT, k = j + COUNT, l = k + COUNT;
            uint32_t low = __byte_perm(packed[i / 4], packed[j / 4], i % 4 | (4 + j % 4) << 4);
            uint32_t high = __byte_perm(packed[k / 4], packed[l / 4], k % 4 | (4 + l % 4) << 4);
            channel[w] = __byte_perm(low, high, 0x5410);
        }
    }
}

template <int BYTES, int COUNT, int WORDS>
__device__ inline void join_channels(uint32_t *packed, const uint32_t (*channels)[WORDS])
{
#pragma unroll
    for (int w = 0; w < WORDS * COUNT; w++) {
        uint32_t part[4]; // the word that holds each sample of the packed word
        int at[4];        // the sample's place in it
#pragma unroll
        for (int i = 0; i < 4 / BYTES; i++) {
            int sample = w * 4 / BYTES + i, c = sample % COUNT, in_channel = sample / COUNT;
            part[i] = channels[c][in_channel * BYTES / 4];
            at[i] = in_channel * BYTES % 4;
        }
        if (BYTES == 4) {
            packed[w] = part[0];
        } else if (BYTES == 2) {
            packed[w] =
                __byte_perm(part[0], part[1], (at[0] ? 0x32 : 0x10) | (at[1] ? 0x7600 : 0x5400));
        } else {
            uint32_t low = __byte_perm(part[0], part[1], at[0] | (4 + at[1]) << 4);
            uint32_t high = __byte_perm(part[2], part[3], at[2] | (4 + at[3]) << 4);
            packed[w] = __byte_perm(low, high, 0x5410);
        }
    }
}

// --- reading -------------------------------------------------------------------------------------

template <int BYTES, int WORDS>
__device__ inline void load_samples(uint32_t *words, const struct job_view &view, int c,
                                    const struct place &place)
{
    const uint8_t *from = view.channel[c] + place.y * view.row + place.x * view.column;
#pragma unroll
    for (int w = 0; w < WORDS; w++)
        words[w] = 0;
#pragma unroll
    for (int i = 0; i < WORDS * 4 / BYTES; i++)
        if (i < place.pixels)
            put_sample<BYTES>(words, i, load_sample<BYTES>(from + i * view.column));
}

template <int BYTES, int WORDS>
__device__ inline void load_plane(uint32_t *words, const struct job_view &view, int c,
                                  const struct place &place)
{
    if (place.pixels == WORDS * 4 / BYTES || (place.pixels > 0 && view.padded))
        load_words<WORDS>(words, view.channel[c] + place.y * view.row + place.x * BYTES);
    else
        load_samples<BYTES, WORDS>(words, view, c, place);
}

template <int BYTES, int WORDS>
__device__ inline void load_run(uint32_t *words, const struct job_view &view, int c,
                                const struct place &place, uint8_t *shared)
{
    const uint8_t *from =
        view.channel[c] + place.first_y * view.row + place.first_x * (int64_t)BYTES;
    int pitch = run_in<2>(shared, from, view.row, place.rows, place.run_pixels * BYTES);
    __syncwarp();
    if (place.pixels > 0)
        read_run<WORDS>(words, shared + place.row * pitch,
                        run_phase(from + place.row * view.row) + place.unit * WORDS * 4);
    __syncwarp();
}

template <int BYTES, int WORDS, int COUNT>
__device__ inline void load_packed(uint32_t (*channels)[WORDS], const struct job_view &view,
                                   const struct place &place, uint8_t *shared)
{
    const uint8_t *from =
        view.channel[0] + place.first_y * view.row + place.first_x * (int64_t)(BYTES * COUNT);
    int pitch =
        run_in<COUNT + 1>(shared, from, view.row, place.rows, place.run_pixels * BYTES * COUNT);
    __syncwarp();
    if (place.pixels > 0) {
        uint32_t packed[WORDS * COUNT];
        read_run<WORDS * COUNT>(packed, shared + place.row * pitch,
                                run_phase(from + place.row * view.row) +
                                    place.unit * WORDS * COUNT * 4);
#pragma unroll
        for (int c = 0; c < COUNT; c++)
            split_channel<BYTES, COUNT, WORDS>(channels[c], packed, c);
    }
    __syncwarp();
}

template <int BYTES, int WORDS>
__device__ inline void load_unit(uint32_t (*channels)[WORDS], const struct job_view &view,
                                 const struct place &place, uint8_t *shared)
{
    if (view.access == ACCESS_PACKED) {
        if (view.channels == 2)
            load_packed<BYTES, WORDS, 2>(channels, view, place, shared);
        else if (view.channels == 3)
            load_packed<BYTES, WORDS, 3>(channels, view, place, shared);
        else
            load_packed<BYTES, WORDS, 4>(channels, view, place, shared);
        return;
    }
#pragma unroll
    for (int c = 0; c < CHANNELS; c++) {
        if (c >= view.channels)
            break;
        if (view.access == ACCESS_PLANES)
            load_plane<BYTES, WORDS>(channels[c], view, c, place);
        else if (view.access == ACCESS_RUNS)
            load_run<BYTES, WORDS>(channels[c], view, c, place, shared);
        else
            load_samples<BYTES, WORDS>(channels[c], view, c, place);
    }
}

// --- writing -------------------------------------------------------------------------------------

template <int BYTES, int WORDS>
__device__ inline void store_samples(const struct job_view &view, int c, const struct place &place,
                                     const uint32_t *words)
{
    uint8_t *to = view.channel[c] + place.y * view.row + place.x * view.column;
#pragma unroll
    for (int i = 0; i < WORDS * 4 / BYTES; i++)
        if (i < place.pixels)
            store_sample<BYTES>(to + i * view.column, get_sample<BYTES>(words, i));
}

template <int BYTES, int WORDS>
__device__ inline void store_plane(const struct job_view &view, int c, const struct place &place,
                                   const uint32_t *words)
{
    if (place.pixels == WORDS * 4 / BYTES || (place.pixels > 0 && view.padded))
        store_words<WORDS>(view.channel[c] + place.y * view.row + place.x * BYTES, words);
    else
        store_samples<BYTES, WORDS>(view, c, place, words);
}

template <int BYTES, int WORDS>
__device__ inline void store_run(const struct job_view &view, int c, const struct place &place,
                                 const uint32_t *words, uint8_t *shared, int units)
{
    int pitch = (units * WORDS * 4 + 15) / 16 * 16;
    if (place.pixels > 0)
        store_words<WORDS>(shared + place.row * pitch + place.unit * WORDS * 4, words);
    __syncwarp();
    run_out<2>(view.channel[c] + place.first_y * view.row + place.first_x * (int64_t)BYTES,
               view.row, shared, pitch, place.rows, place.run_pixels * BYTES);
    __syncwarp();
}

template <int BYTES, int WORDS, int COUNT>
__device__ inline void store_packed(const struct job_view &view, const struct place &place,
                                    const uint32_t (*channels)[WORDS], uint8_t *shared, int units)
{
    int pitch = (units * WORDS * COUNT * 4 + 15) / 16 * 16;
    if (place.pixels > 0) {
        uint32_t packed[WORDS * COUNT];
        join_channels<BYTES, COUNT, WORDS>(packed, channels);
        uint8_t *to = shared + place.row * pitch + place.unit * WORDS * COUNT * 4;
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            store_words<WORDS>(to + i * WORDS * 4, packed + i * WORDS);
    }
    __syncwarp();
    run_out<COUNT + 1>(view.channel[0] + place.first_y * view.row +
                           place.first_x * (int64_t)(BYTES * COUNT),
                       view.row, shared, pitch, place.rows, place.run_pixels * BYTES * COUNT);
}

template <int BYTES, int WORDS>
__device__ inline void store_unit(const struct job_view &view, const struct place &place,
                                  const uint32_t (*channels)[WORDS], uint8_t *shared, int units)
{
    if (view.access == ACCESS_PACKED) {
        if (view.channels == 2)
            store_packed<BYTES, WORDS, 2>(view, place, channels, shared, units);
        else if (view.channels == 3)
            store_packed<BYTES, WORDS, 3>(view, place, channels, shared, units);
        else
            store_packed<BYTES, WORDS, 4>(view, place, channels, shared, units);
        return;
    }
#pragma unroll
    for (int c = 0; c < CHANNELS; c++) {
        if (c >= view.channels)
            break;
        if (view.access == ACCESS_PLANES)
            store_plane<BYTES, WORDS>(view, c, place, channels[c]);
        else if (view.access == ACCESS_RUNS)
            store_run<BYTES, WORDS>(view, c, place, channels[c], shared, units);
        else
            store_samples<BYTES, WORDS>(view, c, place, channels[c]);
    }
}

// --- the kernel ----------------------------------------------------------------------------------

// Channels selected without an index that is not constant, which would put them into memory.
// `Unit` is a parameter since clang 14 does not parse unit<SRC, DST>:: in the bounds.
template <int SRC, int DST, typename Unit = unit<SRC, DST>>
__device__ inline void convert_unit(uint32_t (*dst)[Unit::DST_WORDS],
                                    const uint32_t (*src)[Unit::SRC_WORDS], const struct job &job)
{
#pragma unroll
    for (int c = 0; c < CHANNELS; c++) {
        uint32_t chosen[Unit::SRC_WORDS];
        int from = job.same_channels ? c : job.from[c];
#pragma unroll
        for (int w = 0; w < Unit::SRC_WORDS; w++)
            chosen[w] = job.same_channels ? src[c][w]
                        : from == 0       ? src[0][w]
                        : from == 1       ? src[1][w]
                        : from == 2       ? src[2][w]
                        : from == 3       ? src[3][w]
                                          : ~0u;
#pragma unroll
        for (int w = 0; w < Unit::DST_WORDS; w++)
            dst[c][w] = 0;
#pragma unroll
        for (int i = 0; i < Unit::PIXELS; i++)
            put_sample<DST>(dst[c], i, convert_sample<SRC, DST>(get_sample<SRC>(chosen, i)));
    }
}

__device__ inline struct place find_place(const struct job &job, uint32_t tile, int unit_pixels)
{
    uint32_t lane = threadIdx.x % WARP;
    uint32_t down = tile / job.across, across = tile % job.across;
    uint32_t row = job.rows == 1 ? 0 : lane / job.units;
    uint32_t unit = job.rows == 1 ? lane : lane % job.units;
    uint32_t first_unit = across * WARP;
    struct place place;
    place.row = (int)row;
    place.unit = (int)unit;
    place.first_x = (int64_t)first_unit * unit_pixels;
    place.first_y = (int64_t)down * job.rows;
    place.x = place.first_x + (int64_t)unit * unit_pixels;
    place.y = place.first_y + row;
    place.rows = (int)min((int64_t)job.rows, job.height - place.first_y);
    place.run_pixels = (int)min((int64_t)(WARP * unit_pixels), job.width - place.first_x);
    bool inside = (int)row < place.rows && first_unit + unit < job.units;
    place.pixels = inside ? (int)min((int64_t)unit_pixels, job.width - place.x) : 0;
    return place;
}

// A warp per tile; warps do not wait for each other.
template <int SRC, int DST>
static __global__ void __launch_bounds__(WARPS *WARP)
    copy_layout(const __grid_constant__ struct jobs jobs)
{
    typedef unit<SRC, DST> Unit;
    __shared__ uint4 memory[WARPS][RUN_MEMORY / 16];
    uint32_t tile = blockIdx.x * WARPS + threadIdx.x / WARP;
    if (tile >= jobs.tiles)
        return;
    int at = 0;
    while (at + 1 < jobs.count && jobs.job[at + 1].first_tile <= tile)
        at++;
    const struct job &job = jobs.job[at];
    uint8_t *shared = (uint8_t *)memory[threadIdx.x / WARP];
    struct place place = find_place(job, tile - job.first_tile, Unit::PIXELS);
    int units = (int)min(job.units, (uint32_t)WARP);

    uint32_t src[CHANNELS][Unit::SRC_WORDS] = {}, dst[CHANNELS][Unit::DST_WORDS];
    load_unit<SRC, Unit::SRC_WORDS>(src, job.src, place, shared);
    convert_unit<SRC, DST>(dst, src, job);
    store_unit<DST, Unit::DST_WORDS>(job.dst, place, dst, shared, units);
}

// --- host ----------------------------------------------------------------------------------------

static bool are_aligned(const struct conv_layout_view *view, int bytes)
{
    uintptr_t all = (uintptr_t)view->row;
    for (int c = 0; c < view->channels; c++)
        all |= (uintptr_t)view->channel[c];
    return all % (uintptr_t)bytes == 0;
}

static bool are_packed(const struct conv_layout_view *view)
{
    bool packed =
        view->channels > 1 && view->column == (int64_t)view->channels * view->sample_bytes;
    for (int c = 1; c < view->channels; c++)
        packed = packed && view->channel[c] == view->channel[c - 1] + view->sample_bytes;
    return packed;
}

static void fill_view(struct job_view *job, const struct conv_layout_view *view, int unit_bytes)
{
    for (int c = 0; c < view->channels; c++)
        job->channel[c] = view->channel[c];
    job->row = view->row;
    job->column = view->column;
    job->channels = (uint8_t)view->channels;
    job->padded = view->padded;
    if (are_packed(view))
        job->access = ACCESS_PACKED;
    else if (view->column != view->sample_bytes)
        job->access = ACCESS_STRIDED;
    else
        job->access = are_aligned(view, unit_bytes) ? ACCESS_PLANES : ACCESS_RUNS;
}

static void fill_channels(struct job *job, const struct conv_layout_copy *copy)
{
    const struct conv_layout_view *dst = &copy->dst, *src = &copy->src;
    int dst_colors = dst->channels - dst->alpha, src_colors = src->channels - src->alpha;
    job->same_channels = dst->channels <= src->channels && dst_colors == src_colors;
    for (int c = 0; c < dst_colors; c++)
        job->from[c] = (uint8_t)(src_colors == 1 ? 0 : c);
    if (dst->alpha)
        job->from[dst_colors] = src->alpha ? (uint8_t)src_colors : OPAQUE_CHANNEL;
}

// False if the launch has no room for the image's tiles.
template <int SRC, int DST>
static bool add_job(struct jobs *jobs, const struct conv_layout_copy *copy)
{
    typedef unit<SRC, DST> Unit;
    struct job job = {};
    fill_view(&job.src, &copy->src, Unit::SRC_WORDS * 4);
    fill_view(&job.dst, &copy->dst, Unit::DST_WORDS * 4);
    fill_channels(&job, copy);
    job.width = copy->width;
    job.height = copy->height;
    job.units = ((uint32_t)copy->width - 1) / Unit::PIXELS + 1;
    job.rows = job.units < WARP ? WARP / job.units : 1;
    job.across = (job.units - 1) / WARP + 1;
    job.first_tile = jobs->tiles;
    uint64_t tiles = (uint64_t)(((uint32_t)copy->height - 1) / job.rows + 1) * job.across;
    if (jobs->count == MOST_JOBS || jobs->tiles + tiles > INT32_MAX)
        return false;
    jobs->tiles += (uint32_t)tiles;
    jobs->job[jobs->count++] = job;
    return true;
}

template <int SRC, int DST> static void launch(struct jobs *jobs, cudaStream_t stream)
{
    if (jobs->count > 0)
        copy_layout<SRC, DST><<<(jobs->tiles - 1) / WARPS + 1, WARPS * WARP, 0, stream>>>(*jobs);
    jobs->count = 0;
    jobs->tiles = 0;
}

// All copies from samples of SRC bytes to samples of DST bytes.
template <int SRC, int DST>
static void copy_all(const struct conv_layout_copy *copies, int count, cudaStream_t stream)
{
    struct jobs jobs;
    jobs.count = 0;
    jobs.tiles = 0;
    for (int i = 0; i < count; i++) {
        const struct conv_layout_copy *copy = &copies[i];
        if (copy->src.sample_bytes != SRC || copy->dst.sample_bytes != DST)
            continue;
        if (!add_job<SRC, DST>(&jobs, copy)) {
            launch<SRC, DST>(&jobs, stream);
            add_job<SRC, DST>(&jobs, copy);
        }
    }
    launch<SRC, DST>(&jobs, stream);
}

enum conv_status conv_cuda_layout_copy(const struct conv_layout_copy *copies, int count,
                                       void *stream)
{
    cudaStream_t cuda = (cudaStream_t)stream;
    copy_all<1, 1>(copies, count, cuda);
    copy_all<2, 2>(copies, count, cuda);
    copy_all<4, 4>(copies, count, cuda);
    copy_all<1, 2>(copies, count, cuda);
    copy_all<2, 1>(copies, count, cuda);
    copy_all<1, 4>(copies, count, cuda);
    copy_all<2, 4>(copies, count, cuda);
    return cudaPeekAtLastError() == cudaSuccess ? CONV_OK : CONV_ERR_DEVICE;
}
