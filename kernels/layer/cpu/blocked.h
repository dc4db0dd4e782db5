// SPDX-License-Identifier: MIT
// The method of all fast CPU variants. A block of output rows is computed from a copy of its input
// in scratch, made by blocked_image.h: padded, converted to float32, and arranged so that the
// samples which a vector of adjacent outputs needs for one tap are adjacent, too. Then
// blocked_tile.h computes a few vectors of a few maps at a time in registers, each output in the
// order c, u, v.
#ifndef CONV_KERNELS_LAYER_CPU_BLOCKED_H
#define CONV_KERNELS_LAYER_CPU_BLOCKED_H

#include "kernels/layer/layer.h"

// The copy in scratch has for each channel of a group of the layer, for each row modulo stride_y
// ("row phase"), several copies of the input rows that begin at different columns; element j of a
// row belongs to output column j. With v the distance of a tap column from the first one:
//   One copy for each tap column, with as many columns as the output: sample j * stride_x + v. The
//     rows adjoin, so vectors continue from one output row to the next and none is partly unused.
//   Or one for each column modulo stride_x, with more columns: a tap is read from copy
//     v % stride_x, v / stride_x elements further on. A vector belongs to one output row.
//   Or the latter with vectors that continue from one row to the next, across the columns that are
//     no output. Results are stored in scratch and moved: for layers with few taps and maps, such
//     as depthwise ones, for which a copy costs more than that.
struct conv_layer_blocked {
    bool adjoining;    // the first of these
    bool spaced;       // the last of these
    int height, width; // of the output planes
    int rows, columns; // of a block of outputs, at most
    int row_phases, copies, pitch;
    ptrdiff_t phase_size, copy_size, channel_size; // floats from one to the next
    ptrdiff_t results;   // spaced: where the results of a group's maps begin, in floats
    ptrdiff_t line;      // where scratch for padded input begins, in floats
    int sets, most_maps; // sets of a group's maps, which tiles compute; the maps of the largest
    int short_sets;      // the last ones, with a map less
    // The offset in scratch of a vector for each map, if outputs bypass the caches; otherwise 0.
    size_t kept;
};

_Static_assert(sizeof(struct conv_layer_blocked) <=
                   sizeof(((struct conv_layer_plan *)0)->constants),
               "fits a plan");

static inline const struct conv_layer_blocked *
conv_layer_blocked_of(const struct conv_layer_plan *plan)
{
    return (const struct conv_layer_blocked *)(const void *)plan->constants;
}

// The maps of set s.
static inline int conv_layer_blocked_maps(const struct conv_layer_blocked *blocked, int s)
{
    return blocked->most_maps - (s >= blocked->sets - blocked->short_sets);
}

// `lanes`: float32 in a vector; `most_maps`: of a tile; `streams`: outputs may bypass the caches.
// False if there are too many channels.
bool conv_layer_blocked_plan(struct conv_layer_plan *plan, int lanes, int most_maps, bool streams);
// Packed weights: for each tap c, u, v the offset of its samples in the copy, int32_t; then for
// each set of each group the bias of its maps and, for each tap, the weights of its maps.
void conv_layer_blocked_pack(const struct conv_layer_plan *plan);
// Elements of 4 bytes before the first set.
static inline size_t conv_layer_blocked_offsets(const struct conv_layer *layer)
{
    return (conv_layer_taps(layer) + 15) / 16 * 16;
}

// The CPU variants of layer.h's table, besides the reference.
extern const struct conv_layer_variant conv_cpu_layer_portable;
#if defined __x86_64__
extern const struct conv_layer_variant conv_cpu_layer_avx2;
extern const struct conv_layer_variant conv_cpu_layer_avx512;
#elif defined __aarch64__
extern const struct conv_layer_variant conv_cpu_layer_neon;
#endif

#endif
