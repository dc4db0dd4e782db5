// SPDX-License-Identifier: MIT
// Which samples a block of a TMA kernel processes. The kernels are persistent: the grid has one
// block per processor, and each block takes groups of tiles from a work counter in global memory
// until none is left (persistent threads: Aila and Laine, "Understanding the efficiency of ray
// traversal on GPUs", 2009).
//
// A launch is numbered in tiles of at most TILE_WIDTH x TILE_HEIGHT samples, plane by plane. Tiles
// below one another form a work tile, the contents of one stage of the pipeline (tma_pipeline.cuh).
// Consumer warps divide a work tile into microtiles, numbered row by row; a row of them is a band.
#pragma once

#include "kernels/common/bulk.cuh"
#include "kernels/stencil/cuda/stencil_device.cuh"

#define HELPER_WARPS 4       // scheduler, producer, border warp, an idle one: one warpgroup
#define MAX_STAGES 4         // work tiles in shared memory
#define QUEUE_TILES 4        // work tiles by which the scheduler is ahead of the producer
#define SMALL_PLANE_TILES 24 // average tiles of a plane up to which a group may be a whole plane
#define MAX_GROUP_TILES 6    // tiles of a group where planes are larger
#define FEW_PLANES 8         // planes whose descriptions fit into kernel parameters

// Compile-time shape of the tiles of a TMA kernel, with the values of most kernels. The traits of a
// kernel derive from it, redefine what differs, and add:
//   typedef ... Sample;  uint8_t or uint16_t
//   TAP_ROWS             rows of the filter, at most
//   CONSUMERS            warps that compute: 16 or 12
//   SEGMENT              bytes of a row of a microtile
//   STORE                bytes of a store, to which rows of dst have to be aligned
//   WARP_MICROTILES      microtiles that a consumer warp takes at a time
struct tile_traits {
    static constexpr int TILE_WIDTH = 1024; // samples, at most
    static constexpr int TILE_HEIGHT = 16;
    static constexpr int HALO = 16; // bytes left and right of a row: bulk copies are aligned to 16
    static constexpr int MICROTILE_ROWS = 8;
    // Rows of a stage are an odd multiple of 16 bytes apart, of 32 where samples have 16 bits and
    // lanes load 8 bytes each: rows that are loaded together lie in different banks.
    static constexpr bool ODD_PITCH = false;
    static constexpr int STAGES_FOR_LARGE_PLANES = MAX_STAGES;
    // Tiles of a column that are numbered one after the other, where a warp that filters the same
    // columns of all of them keeps what it needs of the rows above, so that a stage does not hold
    // the first SKIPPED_ROWS of those. 0: each work tile is filtered on its own.
    static constexpr int COLUMN_TILES = 0, SKIPPED_ROWS = 0;
};

template <typename Traits> constexpr int sample_bytes = (int)sizeof(typename Traits::Sample);
template <typename Traits> constexpr int halo_samples = Traits::HALO / sample_bytes<Traits>;
// Borders wider than 2 columns are written a word at a time.
template <typename Traits> constexpr bool borders_by_words = Traits::TAP_ROWS > 5;
template <typename Traits> constexpr int block_threads = (Traits::CONSUMERS + HELPER_WARPS) * WARP;

// A launch, for the scheduler, the producer and the border warp. Part of the parameters of every
// TMA kernel.
struct tile_schedule {
    const struct conv_stencil_plane *planes; // in device memory
    int32_t count;
    uint32_t tiles;        // of the launch
    uint32_t group_tiles;  // tiles that the work counter hands out at a time
    uint32_t merged_tiles; // tiles below one another in a work tile, unless planes are one wide
    int32_t stages;
    uint32_t full_groups; // groups of group_tiles; each later one has last_group_tiles
    uint32_t last_group_tiles;
    uint32_t *work_counter, *finished_blocks; // in device memory, 0 before and after the launch
    uint32_t stage_bytes;
    int32_t border;
    float border_value;
    int32_t channels;                          // of a pixel: 1, or more in interleaved images
    int32_t radius;                            // columns of the filter left of its centre
    struct conv_stencil_plane few[FEW_PLANES]; // the planes, if there are no more than that
};

// The contents of a stage: rows of a plane, with the samples around them that the filter reads.
struct work_tile {
    const uint8_t *src; // of the plane
    uint8_t *dst;       // of the work tile's first sample
    int64_t src_stride;
    int32_t dst_stride;                // rows are shorter than 2^31 bytes
    int32_t plane_width, plane_height; // samples
    int32_t x, y, columns, rows;       // samples; rows 0: end of the launch
    int32_t stored; // bytes to store of a row, including what may be overwritten after the plane's
    int32_t pitch;  // bytes from a row in the stage to the next
    int32_t segments, microtiles; // in a band; in all bands
    uint32_t reciprocal;          // of segments, see band_of
    bool bulk;                    // rows are aligned as bulk copies require
    bool whole;                   // rows are so close that one bulk copy takes them all
    bool aligned;                 // rows of dst are aligned to STORE
    bool by_columns;              // COLUMN_TILES: a warp takes all microtiles of a column, or none
    bool follows;                 // COLUMN_TILES: the block's previous work tile is the one above
};

// Of the rows that the filter reads, those at the top that are not in the stage.
template <typename Traits> __device__ inline int skipped_rows(const struct work_tile &tile)
{
    return Traits::COLUMN_TILES && tile.follows ? Traits::SKIPPED_ROWS : 0;
}

// The row of the plane that the stage begins with, and the rows in the stage.
template <typename Traits> __device__ inline int stage_top(const struct work_tile &tile)
{
    return tile.y - Traits::TAP_ROWS / 2 + skipped_rows<Traits>(tile);
}

template <typename Traits> __device__ inline int stage_rows(const struct work_tile &tile)
{
    return tile.rows + Traits::TAP_ROWS - 1 - skipped_rows<Traits>(tile);
}

// Bytes from a row of `bytes` in a stage to the next.
template <typename Traits> __host__ __device__ inline int32_t pitch_of(int32_t bytes)
{
    int32_t pitch = (bytes + 15) / 16 * 16 + 2 * Traits::HALO;
    return Traits::ODD_PITCH ? pitch | 16 * sample_bytes<Traits> : pitch;
}

// The band of a microtile: microtile / segments. Exact, because microtiles times segments stays
// below 65536.
__device__ inline int band_of(const struct work_tile &tile, int microtile)
{
    return (int)((uint32_t)microtile * tile.reciprocal >> 16);
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

// The plane that the scheduler is in.
struct cursor {
    struct conv_stencil_plane plane;
    int index;
    uint32_t end; // first tile of the next plane
    bool alike;   // the last plane was found where it would be if all planes had equally many tiles
};

// Moves the cursor to the plane of a tile if it is one of the 32 from `first` on, all lanes of a
// warp together. first_tile ascends strictly.
__device__ inline bool seek_from(struct cursor *cursor, const struct tile_schedule &schedule,
                                 uint32_t number, int first)
{
    int lane = (int)threadIdx.x % WARP;
    uint32_t start = first + lane < schedule.count ? schedule.planes[first + lane].cuda.first_tile
                                                   : schedule.tiles;
    uint32_t reached = __ballot_sync(0xffffffffu, start <= number);
    if (reached == 0 || reached == 0xffffffffu)
        return false;
    int last = __popc(reached) - 1;
    cursor->index = first + last;
    cursor->end = __shfl_sync(0xffffffffu, start, last + 1);
    return true;
}

// Moves the cursor to the plane of any tile: each step divides the candidates by 32.
__device__ inline void seek_all(struct cursor *cursor, const struct tile_schedule &schedule,
                                uint32_t number)
{
    int lane = (int)threadIdx.x % WARP;
    int first = 0, count = schedule.count; // the plane is one of first ... first + count - 1
    while (count >= WARP) {
        int step = (count + WARP - 1) / WARP;
        int probe = lane * step;
        bool reached = probe < count && schedule.planes[first + probe].cuda.first_tile <= number;
        int last = __popc(__ballot_sync(0xffffffffu, reached)) - 1;
        first += last * step;
        count = min(step, count - last * step);
    }
    seek_from(cursor, schedule, number, first);
}

// Moves the cursor to the plane of a tile. A read of the table takes a microsecond when memory is
// busy. Therefore few planes are kernel parameters; others are first looked for after the last one
// and, for images of equal size, in proportion to the tile's number.
__device__ inline void seek(struct cursor *cursor, const struct tile_schedule &schedule,
                            uint32_t number)
{
    if (schedule.count <= FEW_PLANES) {
        int i = 0;
        while (i + 1 < schedule.count && schedule.few[i + 1].cuda.first_tile <= number)
            i++;
        cursor->plane = schedule.few[i];
        cursor->end = i + 1 < schedule.count ? schedule.few[i + 1].cuda.first_tile : schedule.tiles;
        return;
    }
    int guess =
        max((int)((uint64_t)number * (uint32_t)schedule.count / schedule.tiles) - WARP / 2, 0);
    if (!seek_from(cursor, schedule, number, cursor->alike ? guess : cursor->index)) {
        cursor->alike = !cursor->alike;
        if (!seek_from(cursor, schedule, number, cursor->alike ? guess : cursor->index))
            seek_all(cursor, schedule, number);
    }
    cursor->plane = schedule.planes[cursor->index];
}

__device__ inline bool is_aligned(const void *data, int64_t stride, int bytes)
{
    return ((uintptr_t)data | (uintptr_t)stride) % bytes == 0;
}

// Sets *tile to the work tile that begins with tile `number` and ends before tile `end`; returns
// how many tiles it takes. In planes of one column of tiles these are as many as a stage holds.
// `first`: the block's previous work tile is not the one above.
template <typename Traits>
__device__ inline uint32_t next_tile(struct work_tile *tile, const struct cursor &cursor,
                                     const struct tile_schedule &schedule, uint32_t number,
                                     uint32_t end, bool first)
{
    const struct conv_stencil_plane &plane = cursor.plane;
    uint32_t index = number - plane.cuda.first_tile;
    int across = (plane.width - 1) / Traits::TILE_WIDTH + 1;
    // Columns of about equal width, in multiples of 64 samples; not for wide planes, where the gain
    // is small.
    int width = across < 8 ? ((plane.width - 1) / across + 64) / 64 * 64 : Traits::TILE_WIDTH;
    // Tiles are numbered down a column for merged_tiles or COLUMN_TILES rows, then in the next
    // column.
    uint32_t numbered = Traits::COLUMN_TILES ? Traits::COLUMN_TILES : schedule.merged_tiles;
    uint32_t block = numbered * (uint32_t)across, above = index / block * numbered;
    uint32_t down = ((uint32_t)plane.height - 1) / Traits::TILE_HEIGHT + 1;
    uint32_t high = min(numbered, down - above), rest = index % block;
    int column = (int)(rest / high), row = (int)(above + rest % high);
    tile->x = column * width;
    tile->y = row * Traits::TILE_HEIGHT;
    tile->columns = min(width, plane.width - tile->x);
    int bytes = tile->columns * sample_bytes<Traits>;
    tile->segments = (bytes - 1) / Traits::SEGMENT + 1;
    // Whole sectors of 32 bytes are stored at twice the rate of partial ones.
    tile->stored = bytes;
    if (tile->x + tile->columns == plane.width)
        tile->stored += min((int32_t)plane.dst_spare, tile->segments * Traits::SEGMENT - bytes);
    tile->pitch = pitch_of<Traits>(tile->segments * Traits::SEGMENT);
    tile->bulk = is_aligned(plane.src, plane.src_stride, 16);
    // If one copy reads all rows, only the bytes between them remain for the border warp: those
    // that patch_columns, or patch_wide, writes left and right of the image.
    int between = borders_by_words<Traits>
                      ? schedule.radius * sample_bytes<Traits> + 3 + Traits::HALO
                      : 2 * schedule.radius * sample_bytes<Traits>;
    tile->whole = tile->bulk && across == 1 && schedule.border != CONV_BORDER_CONSTANT &&
                  plane.src_stride >= plane.width * sample_bytes<Traits> + between &&
                  plane.src_stride <= tile->pitch && !Traits::ODD_PITCH;
    if (tile->whole)
        tile->pitch = (int32_t)plane.src_stride;
    uint32_t tiles = min(high - rest % high, end - number);
    if (Traits::COLUMN_TILES)
        tiles = min(tiles, schedule.merged_tiles);
    if (across == 1) {
        uint32_t most = ((schedule.stage_bytes - 2 * Traits::HALO) / (uint32_t)tile->pitch -
                         (Traits::TAP_ROWS - 1)) /
                        Traits::TILE_HEIGHT;
        if (Traits::COLUMN_TILES)
            most -= most % schedule.merged_tiles;
        tiles = min(most, min(end, cursor.end) - number);
    }
    if constexpr (Traits::COLUMN_TILES > 0) {
        // Not where more than a tenth of the warps would have no column.
        int columns = (plane.width * sample_bytes<Traits> - 1) / Traits::SEGMENT + 1;
        tile->by_columns = 10 * columns >= 9 * across * Traits::CONSUMERS;
        bool below = across == 1 ? index > 0 : rest % high > 0;
        tile->follows = tile->by_columns && below && !first;
    }
    tile->rows = min((int)tiles * Traits::TILE_HEIGHT, plane.height - tile->y);
    tile->microtiles = ((tile->rows - 1) / Traits::MICROTILE_ROWS + 1) * tile->segments;
    tile->reciprocal = 65535 / (uint32_t)tile->segments + 1;
    tile->src = plane.src;
    tile->dst = plane.dst + tile->y * plane.dst_stride + tile->x * sample_bytes<Traits>;
    tile->src_stride = plane.src_stride;
    tile->dst_stride = (int32_t)plane.dst_stride;
    tile->plane_width = plane.width;
    tile->plane_height = plane.height;
    tile->aligned = is_aligned(plane.dst, plane.dst_stride, Traits::STORE);
    return tiles;
}

// Takes the next group from the work counter; the first gridDim.x groups are not counted. The same
// for all lanes of the warp.
__device__ inline uint32_t take_group(const struct tile_schedule &schedule)
{
    uint32_t group = 0;
    if (threadIdx.x % WARP == 0)
        group = atomicAdd(schedule.work_counter, 1u);
    return __shfl_sync(0xffffffffu, group, 0);
}

// The last block to finish resets both counters for the next launch.
__device__ inline void reset_work_counter(const struct tile_schedule &schedule)
{
    if (threadIdx.x % WARP != 0)
        return;
    __threadfence(); // a block's last read of work_counter precedes its count as finished
    if (atomicAdd(schedule.finished_blocks, 1u) == gridDim.x - 1)
        *schedule.work_counter = *schedule.finished_blocks = 0;
}

// Calls queue(tile) for every work tile of this block and finally with one without rows, all lanes
// of a warp together. Block b begins with group b.
template <typename Traits, typename Queue>
__device__ inline void schedule_tiles(const struct tile_schedule &schedule, Queue queue)
{
    struct cursor cursor = {};
    struct work_tile tile;
    for (uint32_t group = blockIdx.x;; group = gridDim.x + take_group(schedule)) {
        uint32_t full = min(group, schedule.full_groups);
        uint32_t number = full * schedule.group_tiles + (group - full) * schedule.last_group_tiles;
        if (number >= schedule.tiles)
            break;
        uint32_t end = min(number + (group < schedule.full_groups ? schedule.group_tiles
                                                                  : schedule.last_group_tiles),
                           schedule.tiles);
        for (bool first = true; number < end; first = false) {
            if (number >= cursor.end)
                seek(&cursor, schedule, number);
            number += next_tile<Traits>(&tile, cursor, schedule, number, end, first);
            queue(tile);
        }
    }
    start_next_kernel(); // if called earlier, its waiting blocks would displace other streams'
                         // kernels
    reset_work_counter(schedule);
    tile.rows = 0;
    queue(tile);
}

#endif

// --- borders -------------------------------------------------------------------------------------

// The border warp's part of a TMA kernel. It completes a work tile in shared memory: rows that bulk
// copies cannot read, constant rows, and the columns beyond the edge of the image. Rows beyond the
// edge are copied as the border defines. Consumer warps therefore never test for a border.

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

// The columns of the plane in a work tile, from first_column to before end_column, in samples:
// including those of the halo that are in the plane.
template <typename Traits> __device__ inline int first_column(const struct work_tile &tile)
{
    return max(tile.x - halo_samples<Traits>, 0);
}

template <typename Traits> __device__ inline int end_column(const struct work_tile &tile)
{
    return min(tile.x + tile.columns + halo_samples<Traits>, tile.plane_width);
}

// The row of the plane whose copy a row of the stage is; -1: the constant.
template <typename Traits>
__device__ inline int source_row(const struct work_tile &tile, const struct tile_schedule &schedule,
                                 int row)
{
    return conv_border_index((enum conv_border)schedule.border, stage_top<Traits>(tile) + row,
                             tile.plane_height);
}

// The aligned word at `words`; bytes from `end` on are not read.
__device__ inline uint32_t load_word(const uint32_t *words, const uint8_t *end)
{
    const uint8_t *from = (const uint8_t *)words;
    if (from + 4 <= end)
        return *words;
    uint32_t word = 0;
    for (int b = 0; from + b < end; b++)
        word |= (uint32_t)from[b] << 8 * b;
    return word;
}

// Loads a work tile whose rows are not aligned to 16 bytes: each word of the stage is combined from
// two aligned ones. Only words that contain a sample of the row are read, and no byte after it.
template <typename Traits>
__device__ inline void load_unaligned(uint8_t *samples, const struct work_tile &tile,
                                      const struct tile_schedule &schedule)
{
    int lane = (int)threadIdx.x % WARP;
    int from = first_column<Traits>(tile),
        bytes = (end_column<Traits>(tile) - from) * sample_bytes<Traits>;
    uint8_t *to = samples + Traits::HALO + (from - tile.x) * sample_bytes<Traits>;
    for (int row = 0; row < stage_rows<Traits>(tile); row++) {
        int y = source_row<Traits>(tile, schedule, row);
        if (y < 0)
            continue;
        const uint8_t *line = tile.src + y * tile.src_stride + from * sample_bytes<Traits>;
        uint32_t skip = (uint32_t)((uintptr_t)line % 4);
        const uint32_t *words = (const uint32_t *)(line - skip);
#pragma unroll 4
        for (int i = lane; i * 4 < bytes; i += WARP) {
            uint32_t low = load_word(words + i, line + bytes), high = low;
            if (skip && i * 4 + 4 - (int)skip < bytes)
                high = load_word(words + i + 1, line + bytes);
            *(uint32_t *)(to + row * tile.pitch + i * 4) = __funnelshift_r(low, high, skip * 8);
        }
    }
}

// Fills the rows of a constant border: those above and below the image.
template <typename Traits>
__device__ inline void fill_rows(uint8_t *samples, const struct work_tile &tile,
                                 const struct tile_schedule &schedule)
{
    int lane = (int)threadIdx.x % WARP;
    uint32_t word =
        (uint32_t)schedule.border_value * (sample_bytes<Traits> == 1 ? 0x01010101u : 0x00010001u);
    int top = stage_top<Traits>(tile), rows = stage_rows<Traits>(tile);
    int first = max(-top, 0), end = max(min(rows, tile.plane_height - top), 0);
    for (int k = 0; k < rows - (end - first); k++) {
        uint8_t *row = samples + (k < first ? k : end + k - first) * tile.pitch;
        for (int i = lane * 4; i < tile.pitch; i += WARP * 4)
            *(uint32_t *)(row + i) = word;
    }
}

// Fills the columns left and right of the image, one lane per row. The samples that they repeat are
// in the stage, or are read from the plane.
template <typename Traits>
__device__ inline void patch_columns(uint8_t *samples, const struct work_tile &tile,
                                     const struct tile_schedule &schedule)
{
    typedef typename Traits::Sample Sample;
    int lane = (int)threadIdx.x % WARP;
    int left = max(schedule.radius - tile.x, 0);
    int right = max(tile.x + tile.columns + schedule.radius - tile.plane_width, 0);
    int rows = stage_rows<Traits>(tile);
    int from = first_column<Traits>(tile), end = end_column<Traits>(tile);
    int step = WARP * tile.pitch / sample_bytes<Traits>; // samples from a lane's row to its next
    Sample *first = (Sample *)(samples + lane * tile.pitch + Traits::HALO) - tile.x;
    for (int k = 0; k < left + right; k++) {
        int x = k < left ? k - left : tile.plane_width + k - left;
        int sx = conv_border_sample((enum conv_border)schedule.border, x, tile.plane_width,
                                    schedule.channels);
        Sample *line = first;
        if (sx < 0 || (sx >= from && sx < end)) {
#pragma unroll 4
            for (int row = lane; row < rows; row += WARP, line += step)
                line[x] = sx < 0 ? (Sample)schedule.border_value : line[sx];
        } else {
            for (int row = lane; row < rows; row += WARP, line += step) {
                int sy = source_row<Traits>(tile, schedule, row);
                line[x] = ((const Sample *)(tile.src + sy * tile.src_stride))[sx];
            }
        }
    }
}

// Like patch_columns, for the columns from `first` to before `end`, a word at a time.
template <typename Traits>
__device__ inline void patch_words(uint8_t *samples, const struct work_tile &tile,
                                   const struct tile_schedule &schedule, int first, int end)
{
    int lane = (int)threadIdx.x % WARP;
    int rows = stage_rows<Traits>(tile);
    int from = first_column<Traits>(tile), stop = end_column<Traits>(tile);
    uint8_t *line = samples + Traits::HALO - tile.x;
    for (int x = first; x < end; x += 4) {
        int at[4];
        bool here = true;
        for (int k = 0; k < 4; k++) {
            at[k] = conv_border_sample((enum conv_border)schedule.border, x + k, tile.plane_width,
                                       schedule.channels);
            here = here && at[k] >= from && at[k] < stop;
        }
        for (int row = lane; row < rows; row += WARP) {
            uint8_t *to = line + row * tile.pitch;
            int y = here ? 0 : source_row<Traits>(tile, schedule, row);
            uint32_t word = 0;
            for (int k = 0; k < 4; k++) {
                uint32_t sample = (uint32_t)schedule.border_value;
                if (here)
                    sample = to[at[k]];
                else if (at[k] >= 0 && y >= 0)
                    sample = tile.src[y * tile.src_stride + at[k]];
                word |= sample << 8 * k;
            }
            *(uint32_t *)(to + x) = word;
        }
    }
}

// Like patch_columns, for one sample that is repeated, that at the edge or the constant: 16 bytes
// at a time to the left, words to the right.
template <typename Traits>
__device__ inline void patch_repeated(uint8_t *samples, const struct work_tile &tile,
                                      const struct tile_schedule &schedule, bool left, bool right)
{
    typedef typename Traits::Sample Sample;
    int lane = (int)threadIdx.x % WARP;
    int rows = stage_rows<Traits>(tile), border = schedule.radius * sample_bytes<Traits>;
    int end = tile.plane_width * sample_bytes<Traits>,
        inside = end % 4; // image bytes of the word at the edge
    uint32_t edge = (1u << 8 * inside) - 1,
             times = sample_bytes<Traits> == 1 ? 0x01010101u : 0x00010001u,
             constant = (uint32_t)schedule.border_value * times;
    bool repeats = schedule.border != CONV_BORDER_CONSTANT;
    uint8_t *line = samples + Traits::HALO - tile.x * sample_bytes<Traits>;
#pragma unroll 4
    for (int row = lane; row < rows; row += WARP) {
        uint8_t *to = line + row * tile.pitch;
        if (left) {
            uint32_t word = repeats ? *(const Sample *)to * times : constant;
            for (int x = -16; x >= -Traits::HALO; x -= 16)
                *(uint4 *)(to + x) = make_uint4(word, word, word, word);
        }
        if (right) {
            uint32_t word =
                repeats ? *(const Sample *)(to + end - sample_bytes<Traits>)*times : constant;
            uint32_t *words = (uint32_t *)(to + end - inside);
            if (inside)
                words[0] = (words[0] & edge) | (word & ~edge);
            for (int i = inside != 0; i < (inside + border + 3) / 4; i++)
                words[i] = word;
        }
    }
}

// Like patch_columns, for borders wider than 2 columns.
template <typename Traits>
__device__ inline void patch_wide(uint8_t *samples, const struct work_tile &tile,
                                  const struct tile_schedule &schedule)
{
    int last = tile.x + tile.columns + schedule.radius;
    bool left = tile.x < schedule.radius;
    bool right = last > tile.plane_width;
    if (schedule.border == CONV_BORDER_CONSTANT ||
        (schedule.border == CONV_BORDER_REPLICATE && schedule.channels == 1)) {
        patch_repeated<Traits>(samples, tile, schedule, left, right);
    } else if (sample_bytes<Traits> == 2) {
        patch_columns<Traits>(samples, tile, schedule);
    } else {
        if (left)
            patch_words<Traits>(samples, tile, schedule, -(schedule.radius + 3) / 4 * 4, 0);
        if (right)
            patch_words<Traits>(samples, tile, schedule, tile.plane_width / 4 * 4, last);
    }
}

#endif
