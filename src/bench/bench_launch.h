// SPDX-License-Identifier: MIT
// One kernel variant with a chain of filters and memory of its own, launched again and again, each
// time with cold caches. On the kernels' plain API: neither engine nor run is involved.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "bench/bench_place.h"
#include "filter/filter.h"
#include "kernels/stencil/stencil.h"

// What the kernels do.
struct conv_bench_chain {
    const struct conv_filter *filters;
    int count;
    enum conv_border border;
    int border_value; // 8-bit units
    int depth;
};

// A plane at `offset` in the memory that source and result have; rows as conv_image_stride says.
struct conv_bench_plane {
    size_t offset;
    int width, height;
};

struct conv_bench_launch { // starts as {0}
    const struct conv_variant *variant;
    const struct conv_bench_place_ops *ops;
    struct conv_bench_place *place;
    int filter_count, plane_count;
    struct conv_stencil *stencils;     // one per filter
    struct conv_stencil_plan *plans;   // one per filter
    struct conv_stencil_plane *tables; // plane_count per filter
    uint32_t tiles[CONV_FILTER_MAX_CHAIN];
    uint8_t *buffers[2]; // at the variant's place; filters read one and write the other, in turn
    size_t bytes;        // placed in each
    size_t capacity;     // of each
    uint8_t *scratch;    // CPU: of the kernels, scratch_bytes per thread. CUDA: the filters
    size_t scratch_bytes;
    uint8_t *d_tables, *d_cells; // CUDA: as `tables`, and scratch memory after them
    size_t table_bytes, cell_bytes;
    int threads; // CPU
    int filter;  // that conv_bench_launch_share is at
};

// CONV_ERR_USAGE if the variant cannot do the chain on this machine or at this depth,
// CONV_ERR_DEVICE, CONV_ERR_MEMORY. `number`: threads, or CUDA's ordinal; `have`: see
// conv_place_offers.
enum conv_status conv_bench_launch_open(struct conv_bench_launch *launch,
                                        const struct conv_variant *variant,
                                        const struct conv_bench_chain *chain, int number,
                                        unsigned have, struct conv_err *err);
void conv_bench_launch_close(struct conv_bench_launch *launch); // never opened is fine

// Copies `bytes` bytes of source, which hold `count` planes, to the variant's memory.
enum conv_status conv_bench_launch_place(struct conv_bench_launch *launch,
                                         const struct conv_bench_plane *planes, int count,
                                         const uint8_t *source, size_t bytes, struct conv_err *err);

// Runs the chain once. *ns is the time of its launches. With two filters or more the first run
// overwrites the source: later ones take as long but have another result.
enum conv_status conv_bench_launch_run(struct conv_bench_launch *launch, uint64_t *ns,
                                       struct conv_err *err);

// The same on the CPU, with all threads, which share the rows of each plane.
enum conv_status conv_bench_launch_share(struct conv_bench_launch *launch, struct conv_err *err);

// The yardstick: copies one buffer to the other. The result of a run is lost.
enum conv_status conv_bench_launch_copy(struct conv_bench_launch *launch, uint64_t *ns,
                                        struct conv_err *err);

// The first `size` bytes of the last run's result, which is laid out as the source.
enum conv_status conv_bench_launch_read(const struct conv_bench_launch *launch, uint8_t *result,
                                        size_t size, struct conv_err *err);
