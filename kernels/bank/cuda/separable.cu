// SPDX-License-Identifier: MIT
// Separable filters on a CUDA device: one launch computes all lines into device memory, a second
// one the columns and the magnitudes. A line is written and read once per group that uses it,
// mostly from the second-level cache: for Gabor filters that costs less than recomputing lines per
// tile.
#include <cuda_runtime.h>

#include "kernels/bank/bank_kernels.h"

#define WARP 32
#define LINE_THREADS 128
#define LINE_OUTPUTS (LINE_THREADS * 4) // of a block; they are in one row
#define LINE_GROUP 4                    // lines that a thread computes together
#define MAX_SIDE CONV_SEPARABLE_MAX_SIDE

#define COLUMN_WARPS 8
#define COLUMN_ROWS 4           // outputs per thread, downwards
#define COLUMN_WIDTH (WARP * 4) // of a block, in samples
#define COLUMN_HEIGHT (COLUMN_WARPS * COLUMN_ROWS)

static __host__ __device__ int64_t pitch_of(int out_width)
{
    return (out_width + 31) / 32 * 32;
}

struct lines_task {
    const float *src;
    int64_t src_row, src_image;
    int rows; // of each image
    int out_width, width, lines;
    const float *weights;
    float *dst; // [images][lines][rows][pitch]
};

// Block: one row of one image, LINE_OUTPUTS outputs, all lines. Shared memory: the samples of the
// row and the weights of LINE_GROUP lines side by side, so that a thread reads both as float4.
static __global__ void __launch_bounds__(LINE_THREADS) compute_lines(struct lines_task task)
{
    __shared__ float4 samples4[(LINE_OUTPUTS + MAX_SIDE + 5) / 4];
    __shared__ float4 weights[MAX_SIDE];
    float *samples = (float *)samples4;
    int left = (int)blockIdx.x * LINE_OUTPUTS, row = (int)blockIdx.y;
    const float *src = task.src + (int64_t)blockIdx.z * task.src_image + row * task.src_row + left;
    int present = task.out_width - left + task.width - 1;
    for (int i = (int)threadIdx.x; i < LINE_OUTPUTS + MAX_SIDE + 1; i += LINE_THREADS)
        samples[i] = i < present ? src[i] : 0;
    int64_t pitch = pitch_of(task.out_width);
    int x = left + (int)threadIdx.x * 4;
    for (int first = 0; first < task.lines; first += LINE_GROUP) {
        __syncthreads(); // the samples have arrived; the last group's weights are no longer read
        for (int i = (int)threadIdx.x; i < task.width * LINE_GROUP; i += LINE_THREADS) {
            int k = i % LINE_GROUP, v = i / LINE_GROUP;
            ((float *)weights)[i] =
                first + k < task.lines ? task.weights[(first + k) * task.width + v] : 0;
        }
        __syncthreads();
        if (x >= task.out_width)
            continue;
        float sum[LINE_GROUP][4] = {};
        float4 low = samples4[threadIdx.x];
        int v = 0;
        for (; v < task.width; v += 4) {
            float4 high = samples4[threadIdx.x + v / 4 + 1];
            float window[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
            for (int j = 0; j < 4; j++) {
                if (v + j >= task.width)
                    break;
                float4 w = weights[v + j];
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    sum[0][i] = fmaf(w.x, window[i + j], sum[0][i]);
                    sum[1][i] = fmaf(w.y, window[i + j], sum[1][i]);
                    sum[2][i] = fmaf(w.z, window[i + j], sum[2][i]);
                    sum[3][i] = fmaf(w.w, window[i + j], sum[3][i]);
                }
            }
            low = high;
        }
#pragma unroll
        for (int k = 0; k < LINE_GROUP; k++) {
            if (first + k >= task.lines)
                break;
            float *dst = task.dst +
                         (((int64_t)blockIdx.z * task.lines + first + k) * task.rows + row) * pitch;
            *(float4 *)(dst + x) = make_float4(sum[k][0], sum[k][1], sum[k][2], sum[k][3]);
        }
    }
}

struct columns_task {
    const float *lines; // [images][line_count][rows][pitch]
    int line_count, rows;
    int height, groups;
    int out_height, out_width;
    const int32_t *line_of;
    const float *columns;
    float *dst;
    int64_t dst_map, dst_image;
};

template <int PARTS> static __device__ float finish(const float *response)
{
    if (PARTS == 1)
        return response[0];
    return __fsqrt_rn(fmaf(response[PARTS - 1], response[PARTS - 1], response[0] * response[0]));
}

// Block: COLUMN_WIDTH x COLUMN_HEIGHT outputs of one group of one image; thread: 4 neighbours in
// COLUMN_ROWS rows. Row y of the lines belongs to tap y - r of output row r, so that ascending y is
// ascending u for every output. Shared memory: the group's column weights.
template <int TERMS, int PARTS>
static __global__ void __launch_bounds__(WARP *COLUMN_WARPS)
    compute_columns(struct columns_task task)
{
    __shared__ float weights[MAX_SIDE * TERMS * PARTS];
    int group = (int)blockIdx.z % task.groups, image = (int)blockIdx.z / task.groups;
    int thread = (int)threadIdx.y * WARP + (int)threadIdx.x;
    int taps = task.height * TERMS * PARTS;
    for (int i = thread; i < taps; i += WARP * COLUMN_WARPS)
        weights[i] = task.columns[(int64_t)group * taps + i];
    __syncthreads();
    int x = (int)blockIdx.x * COLUMN_WIDTH + (int)threadIdx.x * 4;
    int top = (int)blockIdx.y * COLUMN_HEIGHT + (int)threadIdx.y * COLUMN_ROWS;
    if (x >= task.out_width || top >= task.out_height)
        return;
    int64_t pitch = pitch_of(task.out_width);
    const float *line[TERMS];
#pragma unroll
    for (int t = 0; t < TERMS; t++)
        line[t] =
            task.lines +
            (((int64_t)image * task.line_count + task.line_of[group * TERMS + t]) * task.rows +
             top) *
                pitch +
            x;
    float sum[COLUMN_ROWS][4][PARTS] = {};
    int last = min(task.height + COLUMN_ROWS - 1, task.rows - top);
    for (int y = 0; y < last; y++) {
#pragma unroll
        for (int t = 0; t < TERMS; t++) {
            float4 four = *(const float4 *)(line[t] + y * pitch);
            float sample[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
            for (int r = 0; r < COLUMN_ROWS; r++) {
                int u = y - r;
                if (u < 0 || u >= task.height)
                    continue;
#pragma unroll
                for (int p = 0; p < PARTS; p++) {
                    float weight = weights[(u * TERMS + t) * PARTS + p];
#pragma unroll
                    for (int i = 0; i < 4; i++)
                        sum[r][i][p] = fmaf(weight, sample[i], sum[r][i][p]);
                }
            }
        }
    }
    float *dst = task.dst + image * task.dst_image + group * task.dst_map;
    bool aligned = (task.out_width | task.dst_map | task.dst_image) % 4 == 0;
#pragma unroll
    for (int r = 0; r < COLUMN_ROWS; r++) {
        if (top + r >= task.out_height)
            break;
        float *to = dst + (int64_t)(top + r) * task.out_width + x;
        if (aligned) {
            __stcs((float4 *)to, make_float4(finish<PARTS>(sum[r][0]), finish<PARTS>(sum[r][1]),
                                             finish<PARTS>(sum[r][2]), finish<PARTS>(sum[r][3])));
        } else {
#pragma unroll
            for (int i = 0; i < 4; i++)
                if (x + i < task.out_width)
                    to[i] = finish<PARTS>(sum[r][i]);
        }
    }
}

size_t conv_cuda_separable_scratch(const struct conv_separable *filters, int out_height,
                                   int out_width, int64_t images)
{
    size_t rows = (size_t)(out_height + filters->height - 1);
    return (size_t)images * (size_t)filters->lines * rows * (size_t)pitch_of(out_width);
}

typedef void (*columns_fn)(struct columns_task task);

static columns_fn choose_columns(const struct conv_separable *filters)
{
    static const columns_fn functions[CONV_SEPARABLE_MAX_TERMS][2] = {
        {compute_columns<1, 1>, compute_columns<1, 2>},
        {compute_columns<2, 1>, compute_columns<2, 2>},
        {compute_columns<3, 1>, compute_columns<3, 2>},
    };
    return functions[filters->terms - 1][filters->parts - 1];
}

// Filters the images of one launch: the grid's third dimension is limited to 65,535 blocks.
static enum conv_status run_chunk(const struct conv_separable *filters,
                                  const struct conv_separable_batch *batch, int64_t first,
                                  int64_t images)
{
    cudaStream_t stream = (cudaStream_t)batch->stream;
    struct lines_task lines = {};
    lines.src = batch->src + first * batch->src_image;
    lines.src_row = batch->src_row;
    lines.src_image = batch->src_image;
    lines.rows = batch->out_height + filters->height - 1;
    lines.out_width = batch->out_width;
    lines.width = filters->width;
    lines.lines = filters->lines;
    lines.weights = filters->rows;
    lines.dst = batch->scratch;
    dim3 line_grid((unsigned)((batch->out_width - 1) / LINE_OUTPUTS + 1), (unsigned)lines.rows,
                   (unsigned)images);
    compute_lines<<<line_grid, LINE_THREADS, 0, stream>>>(lines);
    struct columns_task columns = {};
    columns.lines = batch->scratch;
    columns.line_count = filters->lines;
    columns.rows = lines.rows;
    columns.height = filters->height;
    columns.groups = filters->groups;
    columns.out_height = batch->out_height;
    columns.out_width = batch->out_width;
    columns.line_of = filters->line_of;
    columns.columns = filters->columns;
    columns.dst = batch->dst + first * batch->dst_image;
    columns.dst_map = batch->dst_map;
    columns.dst_image = batch->dst_image;
    dim3 column_grid((unsigned)((batch->out_width - 1) / COLUMN_WIDTH + 1),
                     (unsigned)((batch->out_height - 1) / COLUMN_HEIGHT + 1),
                     (unsigned)(images * filters->groups));
    columns_fn function = choose_columns(filters);
    dim3 block(WARP, COLUMN_WARPS);
    function<<<column_grid, block, 0, stream>>>(columns);
    return cudaPeekAtLastError() == cudaSuccess ? CONV_OK : CONV_ERR_DEVICE;
}

enum conv_status conv_cuda_separable_run(const struct conv_separable *filters,
                                         const struct conv_separable_batch *batch)
{
    int64_t most = 65535 / filters->groups;
    if (batch->out_height + filters->height - 1 > 65535) // rows are the grid's second dimension
        return CONV_ERR_DEVICE;
    enum conv_status status = CONV_OK;
    for (int64_t first = 0; first < batch->images && !status; first += most)
        status = run_chunk(filters, batch, first,
                           batch->images - first < most ? batch->images - first : most);
    return status;
}
