// SPDX-License-Identifier: MIT
// Copies between image layouts: the kernel and its launches. A lane reads a unit of a row and
// writes it in the other layout (layout_unit.cuh). It holds the unit's samples by channel, so that
// every way of reading can be combined with every way of writing. Interleaved and unaligned rows
// pass through shared memory: global memory is accessed in aligned 16-byte words except at the ends
// of rows (layout_unit.cuh).
#include "kernels/layout/cuda/layout_unit.cuh"

#define MOST_JOBS 24 // in the parameters of a launch, 4 KB at most
#define WARPS 4      // of a block
#define OPAQUE_CHANNEL 255

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

// --- the kernel ----------------------------------------------------------------------------------

// Selects channels with constant indices only, since a variable index would put them into memory.
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
