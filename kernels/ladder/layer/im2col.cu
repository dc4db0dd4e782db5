// SPDX-License-Identifier: MIT
// The layer as a product of matrices: a first kernel writes the samples of each output's taps as a
// column of a matrix ("im2col"), a second one multiplies the weights by it, tile by tile. The
// matrix has as many times the size of the input as a kernel has taps, and is written and read once
// in addition.
#include "kernels/ladder/layer/ladder.cuh"

#define THREADS 256
#define SIDE 16                        // of tiles of all three matrices
#define SCRATCH ((size_t)256 << 20)    // of the columns of some images
#define MOST_SCRATCH ((size_t)1 << 30) // of one image

// Row k, column p of image b's matrix is tap k of output p.
static __global__ void unroll(struct ladder ladder, int64_t first, int images, float *columns)
{
    int positions = ladder.out_height * ladder.out_width;
    int taps = ladder.channels * ladder.kernel_height * ladder.kernel_width;
    int64_t count = (int64_t)images * taps * positions;
    for (int64_t t = (int64_t)blockIdx.x * THREADS + threadIdx.x; t < count;
         t += (int64_t)gridDim.x * THREADS) {
        int p = (int)(t % positions), k = (int)(t / positions % taps);
        int64_t b = t / positions / taps;
        int v = k % ladder.kernel_width, u = k / ladder.kernel_width % ladder.kernel_height;
        int c = k / ladder.kernel_width / ladder.kernel_height;
        columns[t] = ladder.x[(first + b) * ladder.image + c * ladder.plane +
                              (p / ladder.out_width * ladder.stride + u) * ladder.row +
                              p % ladder.out_width * ladder.stride + v];
    }
}

// Blocks of 16 x 16 outputs of an image, rows are maps. Both factors go through shared memory in
// tiles of 16 x 16, in the order of the taps. Taps beyond the last are not added: 0 * 0 would turn
// a sum of -0 into +0.
static __global__ void multiply(struct ladder ladder, int64_t first, const float *columns)
{
    __shared__ float a[SIDE][SIDE];
    __shared__ float b[SIDE][SIDE];
    int x = (int)threadIdx.x, y = (int)threadIdx.y;
    int p = (int)blockIdx.x * SIDE + x, m = (int)blockIdx.y * SIDE + y;
    int positions = ladder.out_height * ladder.out_width;
    int taps = ladder.channels * ladder.kernel_height * ladder.kernel_width;
    columns += (int64_t)blockIdx.z * taps * positions;
    float sum = m < ladder.maps ? ladder.bias[m] : 0;
    for (int k = 0; k < taps; k += SIDE) {
        if (m < ladder.maps && k + x < taps)
            a[y][x] = ladder.weights[(int64_t)m * taps + k + x];
        if (p < positions && k + y < taps)
            b[y][x] = columns[(int64_t)(k + y) * positions + p];
        __syncthreads();
        int end = min(SIDE, taps - k);
        if (p < positions && m < ladder.maps)
            for (int i = 0; i < end; i++)
                sum = fmaf(a[y][i], b[i][x], sum);
        __syncthreads();
    }
    if (p < positions && m < ladder.maps)
        ladder_store(ladder, first + blockIdx.z, m, p / ladder.out_width, p % ladder.out_width,
                     sum);
}

static size_t image_bytes(const struct conv_layer *layer, const struct conv_layer_shape *shape)
{
    return ladder_taps(layer) * (size_t)conv_layer_out_height(layer, shape->height) *
           (size_t)conv_layer_out_width(layer, shape->width) * sizeof(float);
}

// The matrices of this many images exist at the same time.
static int images_of(const struct conv_layer_plan *plan)
{
    size_t images = SCRATCH / image_bytes(&plan->layer, &plan->shape) + 1;
    if (plan->shape.images > 0 && images > (size_t)plan->shape.images)
        images = (size_t)plan->shape.images;
    return images < 65535 ? (int)images : 65535;
}

static bool can_im2col(const struct conv_layer *layer, const struct conv_layer_shape *shape)
{
    return ladder_can(layer, shape) && image_bytes(layer, shape) > 0 &&
           image_bytes(layer, shape) <= MOST_SCRATCH;
}

static bool plan_im2col(struct conv_layer_plan *plan)
{
    if (!ladder_plan<can_im2col>(plan))
        return false;
    plan->scratch = (size_t)images_of(plan) * image_bytes(&plan->layer, &plan->shape);
    return true;
}

static enum conv_status run_im2col(const struct conv_layer_plan *plan,
                                   const struct conv_layer_batch *batch)
{
    struct ladder ladder = ladder_of(plan, batch, SIDE);
    cudaStream_t stream = (cudaStream_t)batch->stream;
    int positions = ladder.out_height * ladder.out_width, most = images_of(plan);
    float *columns = (float *)batch->scratch;
    for (int64_t first = 0; first < batch->images; first += most) {
        int images = (int)(batch->images - first < most ? batch->images - first : most);
        int64_t blocks = (int64_t)images * (int64_t)ladder_taps(&plan->layer) * positions / THREADS;
        unroll<<<(int)(blocks < 65535 ? blocks + 1 : 65535), THREADS, 0, stream>>>(ladder, first,
                                                                                   images, columns);
        dim3 grid((unsigned)((positions - 1) / SIDE + 1), (unsigned)((ladder.maps - 1) / SIDE + 1),
                  (unsigned)images);
        multiply<<<grid, dim3(SIDE, SIDE), 0, stream>>>(ladder, first, columns);
        if (ladder_status())
            return CONV_ERR_DEVICE;
    }
    return CONV_OK;
}

LADDER_VARIANT(im2col, "columns of taps in memory, then a product of matrices by tiles", EXACT, 0,
               plan_im2col, 7, run_im2col);
