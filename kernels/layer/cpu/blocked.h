// SPDX-License-Identifier: MIT
// The method of all fast CPU variants. A block of output rows is computed from a copy of its input
// in scratch, made by blocked_image.h: padded, converted to float32, and arranged so that the
// samples which a vector of adjacent outputs needs for one tap are adjacent, too. Then
// blocked_tile.h computes a few vectors of a few maps at a time in registers, each output in the
// order c, u, v.
#pragma once

#include "kernels/layer/layer.h"

#define CONV_LAYER_BLOCKED_SPAN 24    // vectors of outputs that are computed before the next ones
#define CONV_LAYER_BLOCKED_LINES 4096 // samples of rows that are padded before they are copied

// The copy in scratch has for each channel of a group of the layer, for each row modulo stride_y
// ("row phase"), several copies of the input rows that begin at different columns; element j of a
// row belongs to output column j. With v the distance of a tap column from the first one:
//   One copy for each tap column, with as many columns as the output: sample j * stride_x + v. The
//     rows adjoin, so vectors continue from one output row to the next and none is partly unused.
//   Or one for each column modulo stride_x, with more columns: a tap is read from copy
//     v % stride_x, v / stride_x elements further on. A vector belongs to one output row.
// With many channels a block is computed from some of them at a time; meanwhile dst holds its sums.
// Of a 1x1 kernel without strides and padding a plane is one row ("flat"), which tiles may read
// without a copy ("direct"), except for the last vector, which would read after the plane.
struct conv_layer_blocked {
    bool adjoining;     // the first of these
    bool flat;          // a plane is one row
    bool direct;        // planes that adjoin are not copied
    int height, width;  // of the output planes
    int rows, columns;  // of a block of outputs that is copied, at most
    int direct_columns; // of one that is not
    int channels;       // of a block's copy, at most
    int row_phases, copies, pitch;
    ptrdiff_t phase_size, copy_size, channel_size; // floats from one to the next
    ptrdiff_t lines;     // where scratch for padded rows of the input begins, in floats
    int maps;            // of a group
    int sets, most_maps; // sets of a group's maps, which tiles compute; the maps of the largest
    int short_sets;      // the last ones, with a map less
    bool across;         // vectors are of different maps; the last set may have fewer
    int packed_maps;     // of a group, as packed
    ptrdiff_t results;   // across: where the sums of a block's outputs begin, in floats
    double kept;         // the share of the rows of taps that do not meet only padding
    size_t weights;      // where packed ones begin, in floats: after the taps of a channel
};

_Static_assert(sizeof(struct conv_layer_blocked) <=
                   sizeof(((struct conv_layer_plan *)0)->constants),
               "fits a plan");

static inline const struct conv_layer_blocked *
conv_layer_blocked_of(const struct conv_layer_plan *plan)
{
    return (const struct conv_layer_blocked *)(const void *)plan->constants;
}

// The maps of a group before set s.
static inline int conv_layer_blocked_first(const struct conv_layer_blocked *blocked, int s)
{
    int fewer = s - (blocked->sets - blocked->short_sets);
    int first = s * blocked->most_maps - (fewer > 0 ? fewer : 0);
    return first < blocked->maps ? first : blocked->maps;
}

// `lanes`: float32 in a vector; `most_maps`: of a tile; `outputs`: of one of two vectors across
// maps. False if there are too many channels.
bool conv_layer_blocked_plan(struct conv_layer_plan *plan, int lanes, int most_maps, int outputs);

// The taps of an axis of which one of some adjacent outputs reads samples of a plane and not only
// padding; all if there are none. The first tap of output j reads sample j * stride - pad.
struct conv_taps {
    int first, end;
};

static inline struct conv_taps conv_taps_inside(int first_output, int outputs, int stride, int pad,
                                                int size, int dilation, int taps)
{
    int from = first_output * stride - pad, to = from + (outputs - 1) * stride;
    int first = to < 0 ? (-to + dilation - 1) / dilation : 0;
    int end = from < size ? (size - 1 - from) / dilation + 1 : 0;
    end = end < taps ? end : taps;
    return first < end ? (struct conv_taps){first, end} : (struct conv_taps){0, taps};
}

struct conv_layer_tap_list {
    int64_t may_skip; // those that meet only padding, unless the sum without them is -0
    struct conv_layer_tap {
        int32_t samples, weights; // where they begin; the latter in taps
    } taps[];
};

// Packs the taps; then for each set of each group the bias of its maps and, for each tap c, u, v,
// the weights of its maps.
void conv_layer_blocked_pack(const struct conv_layer_plan *plan);

// The CPU variants of layer.h's table, besides the reference.
extern const struct conv_layer_variant conv_cpu_layer_portable, conv_cpu_layer_group_portable;
#if defined __x86_64__
extern const struct conv_layer_variant conv_cpu_layer_avx2, conv_cpu_layer_group_avx2;
extern const struct conv_layer_variant conv_cpu_layer_avx512, conv_cpu_layer_group_avx512;
#elif defined __aarch64__
extern const struct conv_layer_variant conv_cpu_layer_neon, conv_cpu_layer_group_neon;
#endif
