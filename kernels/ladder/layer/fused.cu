// SPDX-License-Identifier: MIT
// Like im2col.cu without the first kernel: the tiles of the matrix of columns are made in
// shared memory, from the input, when they are needed.
#include "kernels/ladder/layer/ladder.cuh"

#define SIDE 16 // of tiles of all three matrices

// Blocks of 16 x 16 outputs of an image, rows are maps; like `multiply` of im2col.cu.
static __global__ void fused(struct ladder ladder)
{
    __shared__ float a[SIDE][SIDE];
    __shared__ float b[SIDE][SIDE];
    int x = (int)threadIdx.x, y = (int)threadIdx.y;
    int p = (int)blockIdx.x * SIDE + x, m = (int)blockIdx.y * SIDE + y;
    int positions = ladder.out_height * ladder.out_width;
    int kernel_size = ladder.kernel_height * ladder.kernel_width;
    int taps = ladder.channels * kernel_size;
    int i = p / ladder.out_width, j = p % ladder.out_width;
    const float *corner = ladder.x + i * ladder.stride * ladder.row + j * ladder.stride;
    for (int64_t image = blockIdx.z; image < ladder.images; image += gridDim.z) {
        const float *samples = corner + image * ladder.image;
        float sum = m < ladder.maps ? ladder.bias[m] : 0;
        for (int k = 0; k < taps; k += SIDE) {
            int mine = k + y, c = mine / kernel_size, rest = mine - c * kernel_size;
            int u = rest / ladder.kernel_width, v = rest - u * ladder.kernel_width;
            if (m < ladder.maps && k + x < taps)
                a[y][x] = ladder.weights[(int64_t)m * taps + k + x];
            if (p < positions && mine < taps)
                b[y][x] = samples[c * ladder.plane + u * ladder.row + v];
            __syncthreads();
            int end = min(SIDE, taps - k);
            if (p < positions && m < ladder.maps)
                for (int t = 0; t < end; t++)
                    sum = fmaf(a[y][t], b[t][x], sum);
            __syncthreads();
        }
        if (p < positions && m < ladder.maps)
            ladder_store(ladder, image, m, i, j, sum);
    }
}

static enum conv_status run_fused(const struct conv_layer_plan *plan,
                                  const struct conv_layer_batch *batch)
{
    struct ladder ladder = ladder_of(plan, batch, SIDE);
    int positions = ladder.out_height * ladder.out_width;
    dim3 grid((unsigned)((positions - 1) / SIDE + 1), (unsigned)((ladder.maps - 1) / SIDE + 1),
              (unsigned)(ladder.images < 65535 ? ladder.images : 65535));
    fused<<<grid, dim3(SIDE, SIDE), 0, (cudaStream_t)batch->stream>>>(ladder);
    return ladder_status();
}

LADDER_VARIANT(fused, "as im2col, the columns made where they are multiplied", EXACT, 0,
               ladder_plan<ladder_can>, 8, run_fused);
