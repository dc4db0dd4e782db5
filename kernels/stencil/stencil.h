// SPDX-License-Identifier: MIT
// THE table of stencil kernels. A variant is a row: its name, where it runs, what it needs and what
// it can do. All rows give the same bytes as the reference, which is the last row of the CPU and
// fits everything. A new idea is a new file and a new row; nothing else changes.
#ifndef CONV_KERNELS_STENCIL_STENCIL_H
#define CONV_KERNELS_STENCIL_STENCIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "filter/filter.h"
#include "kernels/common/host_device.h"

#ifdef __cplusplus
extern "C" {
#endif

// A filter made ready for arithmetic at one depth.
//   exact: out = clamp(round_half_even((sum icoef * p + bias) / divisor), 0, max)
//   real:  acc = fbias; for each tap, row by row, whose fcoef is not 0: acc = fmaf(fcoef, p, acc);
//          out = clamp(rintf(acc), 0, max)          (this order, in float32, on every machine)
struct conv_stencil {
    int width, height; // taps; the centre is at (width / 2, height / 2)
    int depth;         // 8 or 16
    int max;           // 255 or 65535
    enum conv_border border;
    int border_value;      // a sample at this depth, for CONV_BORDER_CONSTANT
    bool exact;            // coefficients, scale and offset are integers
    bool fits_int32;       // exact, and no sum (with bias and rounding) leaves 32 bits on any image
    int64_t divisor;       // exact: > 0 (a negative scale has turned the signs of the rest)
    int64_t bias;          // exact: offset in samples times divisor
    float fbias;           // real: offset in samples
    const void *d_stencil; // CUDA: the filter in device memory (conv_cuda_upload,
                           // kernels/stencil/cuda/cuda_variants.h)
    int32_t icoef[CONV_FILTER_MAX_TAPS]; // exact, row by row
    float fcoef[CONV_FILTER_MAX_TAPS];   // real: (float)(coef / scale), row by row
};

// One plane's way through a kernel. src and dst never overlap and are in the memory of the place
// where the kernel runs. CUDA: where all rows of src begin at multiples of 16 bytes, those behind a
// row up to the next multiple may be read, and have no effect. This struct is read by CUDA kernels
// as it stands.
struct conv_stencil_plane {
    const uint8_t *src;
    uint8_t *dst;
    int64_t src_stride, dst_stride; // bytes, multiples of the sample size
    int32_t width, height;          // samples, at least 1
    uint32_t first_tile;            // CUDA: index of this plane's first block in the launch
    uint32_t dst_spare;             // bytes behind each row of dst that may be overwritten
    // CUDA: of a launch's first plane, in device memory: how blocks share out the work. 0 before
    // the launch, and after it.
    uint32_t tickets, finished;
    const uint8_t *alpha; // premultiplied colours of a chain: the filtered alpha, laid out as dst
};

// All planes of one launch; they have the stencil's depth and any mix of sizes.
struct conv_stencil_batch {
    const struct conv_stencil_plane *planes; // readable by the host
    struct conv_stencil_plane *d_planes;     // CUDA: the same table in device memory
    int count;
    uint32_t tiles; // CUDA: blocks in the launch (conv_stencil_tiles)
    void *scratch;  // CPU: conv_variant.scratch() bytes, 64-byte aligned
    void *stream;   // CUDA: the cudaStream_t
};

// Filters every plane. Returns CONV_OK, or CONV_ERR_DEVICE if a launch failed. CPU rows are done on
// return; CUDA rows have only queued the work.
typedef enum conv_status (*conv_stencil_fn)(const struct conv_stencil *stencil,
                                            const struct conv_stencil_batch *batch);

enum conv_where { CONV_ON_CPU, CONV_ON_CUDA };

struct conv_variant {
    const char *name;    // "<cpu|cuda>_<method>"
    const char *summary; // what this rung adds
    enum conv_where where;
    unsigned needs; // CPU: bits of enum conv_cpu_feature; CUDA: least compute capability, 75 = 7.5
    bool (*fits)(const struct conv_stencil *stencil);                 // NULL: every stencil
    size_t (*scratch)(const struct conv_stencil *stencil, int width); // CPU; NULL: none
    int tile_width, tile_height; // CUDA: samples a block writes
    conv_stencil_fn run;
};

// The rows, best first, CPU and CUDA mixed; *count is set.
const struct conv_variant *const *conv_stencil_variants(int *count);

// True if `have` (CPU feature bits, or compute capability) covers the row's needs and it fits.
bool conv_stencil_can(const struct conv_variant *variant, const struct conv_stencil *stencil,
                      unsigned have);

// The row to use: the first one at `where` whose needs are within `have` (CPU feature bits, or
// compute capability) and that fits; with `name` that one only. NULL if there is none.
const struct conv_variant *conv_stencil_pick(const struct conv_stencil *stencil,
                                             enum conv_where where, unsigned have,
                                             const char *name);

// Rows for benchmarks and tests alone, which conv_stencil_pick never takes.
struct conv_stencil_extra {
    const struct conv_variant *variant;
    // The row of the table that this is with another block shape; NULL: a rung of its own, below
    // all CUDA rows of the table.
    const struct conv_variant *of;
    // True: what batches call a plane is an image stored as RGBRGB..., `width` its samples, three
    // a pixel.
    bool interleaved;
};

const struct conv_stencil_extra *conv_stencil_extras(int *count);

// Analyses a checked filter for images of `depth` bits; border_value is in 8-bit units.
void conv_stencil_init(struct conv_stencil *stencil, const struct conv_filter *filter, int depth,
                       enum conv_border border, int border_value);

// True if the coefficients of an exact stencil are integers column[j] * row[i]; fills `height` and
// `width` of them.
bool conv_stencil_factors(const struct conv_stencil *stencil, int32_t *column, int32_t *row);

// Fills first_tile of each plane for this row's tile size and returns the blocks of the launch.
uint32_t conv_stencil_tiles(const struct conv_variant *variant, struct conv_stencil_plane *planes,
                            int count);

// Where the sample at coordinate x (any value) of a line of n samples comes from: 0 to n-1, or -1
// for the constant border.
CONV_HOST_DEVICE static inline int conv_stencil_border(enum conv_border border, int x, int n)
{
    if (x >= 0 && x < n)
        return x;
    switch (border) {
    case CONV_BORDER_REPLICATE:
        return x < 0 ? 0 : n - 1;
    case CONV_BORDER_WRAP:
        x %= n;
        return x < 0 ? x + n : x;
    case CONV_BORDER_REFLECT: // period 2n, the edge sample is repeated
        x %= 2 * n;
        if (x < 0)
            x += 2 * n;
        return x < n ? x : 2 * n - 1 - x;
    case CONV_BORDER_REFLECT101: // period 2n - 2, the edge sample is not repeated
        if (n == 1)
            return 0;
        x %= 2 * n - 2;
        if (x < 0)
            x += 2 * n - 2;
        return x < n ? x : 2 * n - 2 - x;
    case CONV_BORDER_CONSTANT:
        break;
    }
    return -1;
}

#ifdef __cplusplus
}
#endif

#endif
