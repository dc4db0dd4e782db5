// SPDX-License-Identifier: MIT
// The table of convolution layer kernels. A layer computes, for each image b and map m,
//   y[b][m][i][j] = act(bias[m] + sum over c, u, v of w[m][c][u][v] *
//     x[b][g * C/G + c][i*stride_y + u*dilation_y - top][j*stride_x + v*dilation_x - left])
// where g is the group of map m and c runs over the C/G channels of that group.
// A variant states where it runs, what it needs, which layers it can do and how well it suits them.
// A new idea is a new file and a new entry in layer.c: variants do not refer to each other.
#pragma once

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "filter/filter.h"
#include "kernels/common/place.h"
#include "tensor/element.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CONV_LAYER_MAX_SIDE 63     // of a kernel, in samples
#define CONV_LAYER_MAX_STRIDE 1024 // so that sums of coordinates and strides fit an int
#define CONV_LAYER_MAX_DILATION 1024

enum conv_activation {
    CONV_ACTIVATION_NONE,
    CONV_ACTIVATION_RELU, // x < 0 ? 0 : x, so NaN stays NaN and -0 stays -0
    CONV_ACTIVATION_TANH, // one stated order of operations (conv_layer_tanh)
    CONV_ACTIVATION_ABS,
};

// How far a result may be from the definition. A layer that asks for one may run on a variant that
// delivers it or one above it in this list.
enum conv_precision {
    // The definition's bits: float32, fused multiply-adds in the order c, u, v, starting from the
    // bias (0 without one), then the activation.
    CONV_PRECISION_EXACT,
    // Products of float32 precision in any order, also three TF32 products per product: the error
    // is within the variant's `bound`.
    CONV_PRECISION_FAST,
    CONV_PRECISION_TF32, // operands rounded to TF32
    CONV_PRECISION_FP16, // operands rounded to float16, float32 sums
    CONV_PRECISION_BF16, // operands rounded to bfloat16, float32 sums
};

// Padding that depends on the size of the input, so that an axis of n samples has
// ceil(n / stride) outputs: as many samples as they need, if odd in number the extra one after the
// last sample (ONNX's SAME_UPPER, TensorFlow's SAME) or before the first one (SAME_LOWER).
enum conv_layer_same { CONV_LAYER_PADS_GIVEN, CONV_LAYER_SAME_UPPER, CONV_LAYER_SAME_LOWER };

// Their names, in the order of the enums, with a NULL at the end.
extern const char *const conv_layer_activations[], *const conv_layer_precisions[];

// A layer made ready for arithmetic. Weights and bias are in host memory and outlive it.
struct conv_layer {
    int channels, maps; // C and M, at least 1
    int groups;         // G, at least 1; divides both. Map m reads the channels of group m / (M/G)
    int kernel_height, kernel_width; // 1 to CONV_LAYER_MAX_SIDE, odd or even
    int stride_y, stride_x;          // 1 to CONV_LAYER_MAX_STRIDE
    int dilation_y, dilation_x;      // from one tap to the next, 1 to CONV_LAYER_MAX_DILATION
    // Padding: samples added on each side of every input plane, at least 0. They hold border_value
    // with CONV_BORDER_CONSTANT, else samples of the plane. Padding takes part in the sum: an
    // infinite weight times a padding of 0 is NaN.
    int pad_top, pad_bottom, pad_left, pad_right;
    enum conv_layer_same same; // else the pads are not used: conv_layer_sized sets them
    enum conv_border border;
    float border_value;       // in units of the float32 input
    enum conv_element input;  // U8, F16, BF16 or F32
    float input_divisor;      // U8: x = (float)sample / input_divisor, correctly rounded; 1 or 255
    enum conv_element output; // F32, or F16 or BF16: the float32 result rounded to nearest even
    enum conv_activation activation;
    enum conv_precision precision;
    // Axes of input, weights and result in the order N, H, W, C, without gaps: for libraries
    // (src/engine/) only, no variant does that.
    bool channels_last;
    const float *weights; // [maps][channels / groups][kernel_height][kernel_width]; NULL: see
                          // CONV_LAYER_LATE
    const float *bias;    // [maps], or NULL
};

// Initialises the fields of a layer with one group and adjacent taps, and with adjacent outputs,
// too.
#define CONV_LAYER_STRIDE(n)                                                                       \
    .groups = 1, .stride_y = (n), .stride_x = (n), .dilation_y = 1, .dilation_x = 1
#define CONV_LAYER_DENSE CONV_LAYER_STRIDE(1)

// The input of a launch.
struct conv_layer_shape {
    int64_t images;    // of a typical launch; 0: unknown
    int height, width; // of each input plane, without padding
};

// The samples that the taps of a kernel span, the first and the last one included.
static inline int conv_layer_reach_y(const struct conv_layer *layer)
{
    return (layer->kernel_height - 1) * layer->dilation_y + 1;
}

static inline int conv_layer_reach_x(const struct conv_layer *layer)
{
    return (layer->kernel_width - 1) * layer->dilation_x + 1;
}

// The products that are added for one output.
static inline size_t conv_layer_taps(const struct conv_layer *layer)
{
    return (size_t)(layer->channels / layer->groups) * (size_t)layer->kernel_height *
           (size_t)layer->kernel_width;
}

// Rows and columns of each output plane; 0 where the kernel is larger than the padded input, or the
// result does not fit an int.
static inline int conv_layer_out_height(const struct conv_layer *layer, int height)
{
    if (layer->same)
        return (int)(((int64_t)height + layer->stride_y - 1) / layer->stride_y);
    int64_t room = (int64_t)height + layer->pad_top + layer->pad_bottom - conv_layer_reach_y(layer);
    return room < 0 || room / layer->stride_y >= INT32_MAX ? 0 : (int)(room / layer->stride_y + 1);
}

static inline int conv_layer_out_width(const struct conv_layer *layer, int width)
{
    if (layer->same)
        return (int)(((int64_t)width + layer->stride_x - 1) / layer->stride_x);
    int64_t room = (int64_t)width + layer->pad_left + layer->pad_right - conv_layer_reach_x(layer);
    return room < 0 || room / layer->stride_x >= INT32_MAX ? 0 : (int)(room / layer->stride_x + 1);
}

// One launch: images of the plan's height and width, in the memory of the device where the kernel
// runs; src and dst do not overlap. src begins at a multiple of its element's size and has any
// strides (bytes, non-negative, multiples of that size; rows do not overlap); dst begins at a
// multiple of 16 bytes and holds [images][maps][out height][out width] without gaps. On a CUDA
// device src begins at a multiple of 16 bytes and the bytes from the end of a plane to the next
// multiple of 16 may be read.
struct conv_layer_batch {
    int64_t images;
    const void *src;
    int64_t src_row, src_plane, src_image; // from one row, plane, image to the next
    void *dst;
    // CPU: the output rows to compute of every image, so that threads can share one image. CUDA
    // variants always compute all rows.
    int first_row, rows;
    // CPU: the sets of maps to compute, of the plan's `sets`, likewise; sets = 0: all.
    int first_set, sets;
    void *scratch; // plan->scratch bytes for this run alone, 64-byte aligned (256 on CUDA)
    // For a layer without weights, on a CUDA device: these, and where they are packed.
    const float *weights, *bias;
    void *packed; // plan->packed_bytes, 256-byte aligned
    void *stream; // CUDA: a cudaStream_t
};

// CPU: threads that run at the same time keep their scratch memory this many bytes apart.
// Processors prefetch far ahead of what a thread reads, and so take lines from the core that writes
// them. 1→12 on 70², 5×5, two threads of an EPYC (Zen 5): 0.65 of twice the speed of one if their
// scratch adjoins, 0.70 with 16 KiB in between, 0.80 with 64, 0.95 with 128, 0.97 with 256.
#define CONV_LAYER_SCRATCH_GAP ((size_t)256 << 10)

// A variant made ready for a layer and a shape: everything that does not depend on the data,
// derived once and used by the choice, by packing and by every run. Constant once the weights are
// packed: any number of threads may run it at the same time. May be copied.
struct conv_layer_plan {
    const struct conv_layer_variant *variant;
    // What the variant computes. With `pads` the caller fills a float32 buffer with conv_layer_pad
    // (on CUDA, conv_cuda_layer_pad) before each run: this layer has no pads, and the shape is the
    // padded one.
    struct conv_layer layer; // its weights and bias outlive the plan
    struct conv_layer_shape shape;
    bool pads;
    // On CUDA: the variant computes float32, and the caller rounds that to BF16 after each run with
    // conv_cuda_layer_finish.
    bool rounds;
    void *packed;         // the weights as the variant reads them, in host memory
    size_t packed_bytes;  // 0: none
    const void *d_packed; // CUDA: the same bytes in device memory, 256-byte aligned
    size_t scratch;       // bytes that each run of at most `shape.images` images needs
    int sets;             // CPU: sets of maps that can be computed apart; 0: they cannot
    double reading;       // CPU: a channel for a row of outputs takes that many products' time
    // The variant's own small constants.
    __attribute__((aligned(16))) unsigned char constants[320];
    char tile[24]; // what is computed at a time, for benchmarks; "": nothing to say
};

// What a variant does besides groups = 1, equal strides and adjacent taps of float32 without pads.
enum conv_layer_handles {
    // Padding and 8-bit input; without it, and for 16-bit input, conv_layer_plan.pads says where
    // the input is padded and converted before.
    CONV_LAYER_PADS = 1,
    CONV_LAYER_GROUPS = 2,
    CONV_LAYER_DILATION = 4,
    CONV_LAYER_STRIDES = 8, // which differ
    CONV_LAYER_ANY = 15,
    // Weights that are not known when the plan is made: it depends on sizes alone, `pack` moves
    // weights and biases and adds zeros (0 or -0), and `run` reads them from d_packed alone.
    CONV_LAYER_LATE = 16,
    CONV_LAYER_CHANNELS_LAST = 32,
};

// Scores as in stencil.h: a rank by measured speed among the variants of one place.
#define CONV_LAYER_SCORE_LAST 0
#define CONV_LAYER_SCORE_UNSUITED 1

struct conv_layer_variant {
    const char *name;    // "<cpu|cuda>_layer_<method>"
    const char *summary; // what distinguishes it
    enum conv_place place;
    unsigned needs;                // see conv_place_offers
    enum conv_precision precision; // what it delivers
    // FAST, TF32, FP16: |y - exact real value| <= bound * 2^-24 * (|bias| + sum |w * x|) before the
    // activation, as the tests check; for finite operands, with FP16 for those in float16's normal
    // range. A sum that is NaN by definition is NaN in every precision. 0 for CONV_PRECISION_EXACT.
    float bound;
    unsigned handles; // enum conv_layer_handles
    // Fills in packed_bytes, scratch and constants of a plan, which are 0 before, for its layer and
    // shape. False if the variant cannot do the layer. NULL: it can do every layer, without these.
    bool (*plan)(struct conv_layer_plan *plan);
    // How well it suits the layer of its plan.
    int (*score)(const struct conv_layer_plan *plan);
    // Packs the weights at plan->packed, whose bytes are 0 before. NULL: there are none.
    void (*pack)(const struct conv_layer_plan *plan);
    // Computes the batch. CPU variants are done on return, CUDA variants have only queued the work.
    // CONV_OK, or CONV_ERR_DEVICE if a launch failed; dst is then undefined.
    enum conv_status (*run)(const struct conv_layer_plan *plan,
                            const struct conv_layer_batch *batch);
};

// The definition: it can do everything, has no requirements, and all others are compared with it.
extern const struct conv_layer_variant conv_cpu_layer_reference;

// The layer for inputs of a size, at least 1: with the pads that `same` stands for there.
struct conv_layer conv_layer_sized(const struct conv_layer *layer, int height, int width);

// All variants of this build, CPU and CUDA mixed, in the order of lists and tables; *count is set.
const struct conv_layer_variant *const *conv_layer_variants(int *count);

// Fills *plan for a variant and a layer whose pads are given, without packed weights. False if a
// machine that offers `have` (see conv_place_offers) cannot run it on the layer, or the layer needs
// what the variant does not handle. A dilation between taps that are not there becomes 1. Takes no
// memory.
bool conv_layer_plan_find(struct conv_layer_plan *plan, const struct conv_layer_variant *variant,
                          const struct conv_layer *layer, const struct conv_layer_shape *shape,
                          unsigned have);

// For a variant's `plan`: has the caller pad and convert the input, as it does for variants that do
// not handle that.
void conv_layer_plan_pad(struct conv_layer_plan *plan);

// The same for the variant at `place` with the highest score among those that can run and are
// precise enough (if scores are equal, the first in the table); with `name` for the variant of that
// name, whatever its score. False if there is none.
bool conv_layer_plan_best(struct conv_layer_plan *plan, const struct conv_layer *layer,
                          const struct conv_layer_shape *shape, enum conv_place place,
                          unsigned have, const char *name);

// Packs the weights into `packed`: plan->packed_bytes bytes, 64-byte aligned, which outlive the
// plan; NULL if there are none. For CUDA the caller then copies them to the device and sets
// d_packed.
void conv_layer_plan_pack(struct conv_layer_plan *plan, void *packed);

// Fills dst, [images][channels][padded height][padded width] of float32 without gaps, from src as
// described by the strides in `batch`.
void conv_layer_pad(const struct conv_layer *layer, const struct conv_layer_shape *shape,
                    const struct conv_layer_batch *batch, float *dst);

#ifdef __cplusplus
}
#endif

// --- activations ---------------------------------------------------------------------------------

// The same bits on the CPU and on CUDA devices: every operation below is one IEEE float32
// operation, which both round to nearest even.

// The hyperbolic tangent. Below 0.625 an odd polynomial; above it 1 - 2 / (exp(2|x|) + 1), exp by
// the reduction of Cody and Waite ("Software Manual for the Elementary Functions", 1980) and a
// polynomial. The coefficients are minimax fits in float64, rounded. Within 2 units in the last
// place of the exact value (tests/unit/test_layer.c).
CONV_HOST_DEVICE static inline float conv_layer_tanh(float x)
{
    float a = fabsf(x);
    if (a < 0.625f) {
        float z = x * x;
        float p = -0.006113188806921244f;
        p = fmaf(p, z, 0.021010080352425575f);
        p = fmaf(p, z, -0.053854070603847504f);
        p = fmaf(p, z, 0.13332794606685638f);
        p = fmaf(p, z, -0.333333283662796f);
        return fmaf(p * z, x, x);
    }
    if (a > 9.1f) // the exact value is within half a unit of 1
        return x < 0 ? -1.0f : 1.0f;
    if (!(a <= 9.1f))
        return x; // NaN
    float t = 2 * a;
    float n = rintf(t * 1.4426950216293335f); // 2 to 26
    float r = fmaf(n, -0.693359375f, t);
    r = fmaf(n, 0.00021219444170128554f, r);
    float q = 0.0013941109646111727f;
    q = fmaf(q, r, 0.008363175205886364f);
    q = fmaf(q, r, 0.04166637361049652f);
    q = fmaf(q, r, 0.16666576266288757f);
    q = fmaf(q, r, 0.5f);
    float e = fmaf(q * r, r, r) + 1; // exp(r)
    float y = 1 - 2 / fmaf(e, (float)(1 << (int)n), 1);
    return x < 0 ? -y : y;
}

CONV_HOST_DEVICE static inline float conv_layer_activate(enum conv_activation activation, float x)
{
    switch (activation) {
    case CONV_ACTIVATION_RELU:
        return x < 0 ? 0 : x;
    case CONV_ACTIVATION_TANH:
        return conv_layer_tanh(x);
    case CONV_ACTIVATION_ABS:
        return fabsf(x);
    case CONV_ACTIVATION_NONE:
        break;
    }
    return x;
}

// --- layers as networks have them ----------------------------------------------------------------
// The list networks.txt, which is part of the benchmark; the sweep counts what the choice takes.

struct conv_layer_network {
    char names[64];          // of networks, with + between them
    struct conv_layer layer; // without weights
    int height, width;       // of the input
};

// The layer of the list that begins at `at`; NULL: at its first one. Returns where the next one
// begins, NULL at the end of the list.
const char *conv_layer_networks_next(const char *at, struct conv_layer_network *found);

// Whether the layer is one of a network: one of its names, or "all".
bool conv_layer_networks_has(const struct conv_layer_network *layer, const char *network);
