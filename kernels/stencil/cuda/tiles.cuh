// SPDX-License-Identifier: MIT
// How a launch of many planes is cut into pieces for the rows that bring samples through a ring in
// shared memory (ring.cuh): what a piece is, and the scout, the warp that cuts them.
#ifndef CONV_KERNELS_STENCIL_CUDA_TILES_CUH
#define CONV_KERNELS_STENCIL_CUDA_TILES_CUH

#include "kernels/stencil/cuda/bulk.cuh"
#include "kernels/stencil/cuda/stencil_device.cuh"

#define HELPERS 4     // warps that bring samples: scout, producer, patcher, and one that is idle
#define MAX_STAGES 4  // pieces in shared memory
#define QUEUE 4       // pieces that the scout is ahead
#define MAX_COMMON 24 // tiles that a ticket is good for if they are a plane,
#define MAX_GROUP 6   // and if planes are larger
#define FEW_PLANES 8

// Compile-time shape of the tiles of a TMA kernel, and what most kernels have in common. The traits
// of a kernel derive from it, redefine what differs, and add:
//   typedef ... Sample;  uint8_t or uint16_t
//   TAP_ROWS             rows of the filter, at most
//   CONSUMERS            warps that compute, 16 or 12
//   SEGMENT              bytes of a row in a microtile: what a lane or a warp computes at a time
//   JOB                  microtiles that a consumer warp takes at a time
//   STORE                bytes of a store, to which rows of dst have to be aligned
struct tile_traits {
    static constexpr int TILE_WIDTH = 1024; // samples, at most
    static constexpr int TILE_HEIGHT = 16;
    static constexpr int HALO = 16; // bytes left and right of a row: bulk copies are aligned to 16
    static constexpr int MICROTILE_ROWS = 8;
    // Rows of a stage are an odd number of 16 bytes apart, so that 8 of them lie in different
    // banks.
    static constexpr bool ODD_PITCH = false;
    static constexpr int STAGES_FOR_LARGE_PLANES = MAX_STAGES;
};

template <typename Traits> constexpr int sample_bytes = (int)sizeof(typename Traits::Sample);
template <typename Traits> constexpr int halo_samples = Traits::HALO / sample_bytes<Traits>;
// Borders of more than 2 columns are written by words.
template <typename Traits> constexpr bool borders_by_words = Traits::TAP_ROWS > 5;
template <typename Traits> constexpr int block_threads = (Traits::CONSUMERS + HELPERS) * WARP;

// What the ring needs to know of a launch.
struct supply {
    const struct conv_stencil_plane *planes;
    int32_t count;
    uint32_t tiles;
    uint32_t group; // tiles that a ticket is good for
    uint32_t merge; // tiles below one another that make a piece, at full width
    int32_t stages;
    uint32_t groups; // tickets of so many; those behind are good for `last` tiles
    uint32_t last;
    uint32_t *tickets, *finished; // of the launch's first plane
    uint32_t stage_bytes;
    int32_t border, border_value;
    int32_t radius;                            // columns
    struct conv_stencil_plane few[FEW_PLANES]; // planes, if there are no more
};

// What a stage of the ring holds: rows of a plane, with what the filter needs around them.
struct piece {
    const uint8_t *src; // of the plane
    uint8_t *dst;       // of the piece's first sample
    int64_t src_stride;
    int32_t dst_stride;                // rows are shorter than 2^31 bytes
    int32_t plane_width, plane_height; // samples
    int32_t x, y, columns, rows;       // samples; rows 0: no more pieces
    int32_t stored;          // bytes of a row, with what may be written behind the plane's last
    int32_t pitch;           // bytes from a row in the stage to the next
    int32_t segments, units; // in a band of rows; in all
    uint32_t reciprocal;     // of segments
    bool bulk;               // rows lie as bulk copies ask for
    bool whole;              // and so close that one copy takes them all
    bool aligned;            // rows of dst are, to STORE
};

// Bytes between rows of `bytes` in a stage.
template <typename Traits> __host__ __device__ inline int32_t pitch_of(int32_t bytes)
{
    int32_t pitch = (bytes + 15) / 16 * 16 + 2 * Traits::HALO;
    return Traits::ODD_PITCH ? pitch | 16 : pitch;
}

// The band that a unit is in. Exact, as units times segments stay below 65536.
__device__ inline int band_of(const struct piece &piece, int unit)
{
    return (int)((uint32_t)unit * piece.reciprocal >> 16);
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

struct cursor {
    struct conv_stencil_plane plane;
    int index;
    uint32_t end; // first tile of the next plane
    bool alike;   // planes were found where they would be if all had the same tiles
};

// Looks for the plane of a tile among 32 from `first` on. first_tile ascends strictly.
__device__ inline bool seek_from(struct cursor *cursor, const struct supply &s, uint32_t tile,
                                 int first)
{
    int lane = (int)threadIdx.x % WARP;
    uint32_t start = first + lane < s.count ? s.planes[first + lane].first_tile : s.tiles;
    uint32_t reached = __ballot_sync(0xffffffffu, start <= tile);
    if (reached == 0 || reached == 0xffffffffu)
        return false;
    int last = __popc(reached) - 1;
    cursor->index = first + last;
    cursor->end = __shfl_sync(0xffffffffu, start, last + 1);
    return true;
}

// The cursor's plane, for any tile: 32 times less far at each step.
__device__ inline void seek_all(struct cursor *cursor, const struct supply &s, uint32_t tile)
{
    int lane = (int)threadIdx.x % WARP;
    int first = 0, count = s.count; // the plane is one of first ... first + count - 1
    while (count >= WARP) {
        int step = (count + WARP - 1) / WARP;
        int probe = lane * step;
        bool reached = probe < count && s.planes[first + probe].first_tile <= tile;
        int last = __popc(__ballot_sync(0xffffffffu, reached)) - 1;
        first += last * step;
        count = min(step, count - last * step);
    }
    seek_from(cursor, s, tile, first);
}

// Moves the cursor on to the plane of a tile. Every look into the table costs a microsecond when
// memory is busy, so few planes come with the launch and others are looked for where they should
// be: near the last one, or, where all images are alike, at their share of the tiles.
__device__ inline void seek(struct cursor *cursor, const struct supply &s, uint32_t tile)
{
    if (s.count <= FEW_PLANES) {
        int i = 0;
        while (i + 1 < s.count && s.few[i + 1].first_tile <= tile)
            i++;
        cursor->plane = s.few[i];
        cursor->end = i + 1 < s.count ? s.few[i + 1].first_tile : s.tiles;
        return;
    }
    int guess = max((int)((uint64_t)tile * (uint32_t)s.count / s.tiles) - WARP / 2, 0);
    if (!seek_from(cursor, s, tile, cursor->alike ? guess : cursor->index)) {
        cursor->alike = !cursor->alike;
        if (!seek_from(cursor, s, tile, cursor->alike ? guess : cursor->index))
            seek_all(cursor, s, tile);
    }
    cursor->plane = s.planes[cursor->index];
}

__device__ inline bool is_aligned(const void *data, int64_t stride, int bytes)
{
    return ((uintptr_t)data | (uintptr_t)stride) % bytes == 0;
}

// Cuts the piece that begins with `tile` and ends before `end`; returns its tiles. Planes of one
// column of tiles give pieces of several, as many as a stage holds.
template <typename Traits>
__device__ inline uint32_t cut_piece(struct piece *piece, const struct cursor &cursor,
                                     const struct supply &s, uint32_t tile, uint32_t end)
{
    const struct conv_stencil_plane &plane = cursor.plane;
    uint32_t index = tile - plane.first_tile;
    int across = (plane.width - 1) / Traits::TILE_WIDTH + 1;
    // Columns of equal width, where it is cheap: in multiples of 64 samples.
    int width = across < 8 ? ((plane.width - 1) / across + 64) / 64 * 64 : Traits::TILE_WIDTH;
    // `merge` tiles below one another follow each other, then the next column's.
    uint32_t block = s.merge * (uint32_t)across, above = index / block * s.merge;
    uint32_t down = ((uint32_t)plane.height - 1) / Traits::TILE_HEIGHT + 1;
    uint32_t high = min(s.merge, down - above), rest = index % block;
    int column = (int)(rest / high), row = (int)(above + rest % high);
    piece->x = column * width;
    piece->y = row * Traits::TILE_HEIGHT;
    piece->columns = min(width, plane.width - piece->x);
    int bytes = piece->columns * sample_bytes<Traits>;
    piece->segments = (bytes - 1) / Traits::SEGMENT + 1;
    // Memory takes whole sectors of 32 bytes at twice the rate of parts of them.
    piece->stored = bytes;
    if (piece->x + piece->columns == plane.width)
        piece->stored += min((int32_t)plane.dst_spare, piece->segments * Traits::SEGMENT - bytes);
    piece->pitch = pitch_of<Traits>(piece->segments * Traits::SEGMENT);
    piece->bulk = is_aligned(plane.src, plane.src_stride, 16);
    // Between the rows there must be room for the columns left and right of the image, or for
    // what patch_wide writes.
    int between = borders_by_words<Traits> ? s.radius * sample_bytes<Traits> + 3 + Traits::HALO
                                           : 2 * s.radius * sample_bytes<Traits>;
    piece->whole = piece->bulk && across == 1 && s.border != CONV_BORDER_CONSTANT &&
                   plane.src_stride >= plane.width * sample_bytes<Traits> + between &&
                   plane.src_stride <= piece->pitch && !Traits::ODD_PITCH;
    if (piece->whole)
        piece->pitch = (int32_t)plane.src_stride;
    uint32_t tiles = min(high - rest % high, end - tile);
    if (across == 1) {
        uint32_t room =
            ((s.stage_bytes - 2 * Traits::HALO) / (uint32_t)piece->pitch - (Traits::TAP_ROWS - 1)) /
            Traits::TILE_HEIGHT;
        tiles = min(room, min(end, cursor.end) - tile);
    }
    piece->rows = min((int)tiles * Traits::TILE_HEIGHT, plane.height - piece->y);
    piece->units = ((piece->rows - 1) / Traits::MICROTILE_ROWS + 1) * piece->segments;
    piece->reciprocal = 65535 / (uint32_t)piece->segments + 1;
    piece->src = plane.src;
    piece->dst = plane.dst + piece->y * plane.dst_stride + piece->x * sample_bytes<Traits>;
    piece->src_stride = plane.src_stride;
    piece->dst_stride = (int32_t)plane.dst_stride;
    piece->plane_width = plane.width;
    piece->plane_height = plane.height;
    piece->aligned = is_aligned(plane.dst, plane.dst_stride, Traits::STORE);
    return tiles;
}

// The number of the next tiles that nobody has yet, of those that are not a block's first. The same
// for all lanes.
__device__ inline uint32_t take_ticket(const struct supply &s)
{
    uint32_t ticket = 0;
    if (threadIdx.x % WARP == 0)
        ticket = atomicAdd(s.tickets, 1u);
    return __shfl_sync(0xffffffffu, ticket, 0);
}

// The last block to find none left leaves them as they were.
__device__ inline void put_tickets_back(const struct supply &s)
{
    if (threadIdx.x % WARP != 0)
        return;
    __threadfence(); // others' tickets were taken before they are counted as finished
    if (atomicAdd(s.finished, 1u) == gridDim.x - 1)
        *s.tickets = *s.finished = 0;
}

// Calls queue(piece) for every piece of this block, and once more with one of no rows.
template <typename Traits, typename Queue>
__device__ inline void cut_pieces(const struct supply &s, Queue queue)
{
    struct cursor cursor = {};
    struct piece piece;
    for (uint32_t ticket = blockIdx.x;; ticket = gridDim.x + take_ticket(s)) {
        uint32_t groups = min(ticket, s.groups);
        uint32_t first = groups * s.group + (ticket - groups) * s.last;
        if (first >= s.tiles)
            break;
        uint32_t end = min(first + (ticket < s.groups ? s.group : s.last), s.tiles);
        for (uint32_t tile = first; tile < end;) {
            if (tile >= cursor.end)
                seek(&cursor, s, tile);
            tile += cut_piece<Traits>(&piece, cursor, s, tile, end);
            queue(piece);
        }
    }
    put_tickets_back(s);
    piece.rows = 0;
    queue(piece);
}

#endif

#endif
