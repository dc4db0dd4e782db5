// SPDX-License-Identifier: MIT
// How samples come to the warps of tensor.cu that work: the ring of stages in shared memory and
// the three warps that fill it, scout, producer and patcher.
#ifndef CONV_KERNELS_CUDA_PIECES_CUH
#define CONV_KERNELS_CUDA_PIECES_CUH

#include "kernels/cuda/bulk.cuh"
#include "kernels/cuda/device.cuh"

#define TILE_WIDTH 1024 // samples of a row, at most
#define TILE_HEIGHT 16
#define MERGE 2      // tiles below one another that make a piece, at full width
#define MAX_STAGES 6 // pieces in shared memory: 36 KB each, all that a processor has
#define QUEUE 4      // pieces that the scout is ahead
#define HELPERS 3    // scout, producer, patcher

#define SEGMENT 16 // samples of a row that one row of the matrix A makes
#define BAND 8     // rows that a worker makes at a time
#define HALO 16    // bytes that a stage holds left and right of a row: the grain of bulk copies
#define MAX_WIDTH 17
#define MAX_HEIGHT 9
#define MAX_COMMON 24 // tiles that a block takes at a time if they are a plane,
#define MAX_GROUP 6   // and if planes are larger
#define FEW_PLANES 8

struct filter {
    const struct conv_stencil_plane *planes;
    int32_t count;
    uint32_t tiles;
    uint32_t group; // tiles that a block takes at a time
    int32_t stages;
    uint32_t stage_bytes;
    int32_t border, border_value;
    int32_t radius;              // columns
    int32_t start;               // of a sum: SUM_START + bias
    float scale, offset;         // sample = (2^23 + N) * scale + offset, rounded half-even
    int8_t coef[MAX_HEIGHT][64]; // tap 0 of a row lies at 24 - radius: zeros around
    struct conv_stencil_plane few[FEW_PLANES]; // planes, if there are no more
};

// What a stage of the ring holds: rows of a plane, with what the filter needs around them.
struct piece {
    const uint8_t *src; // of the plane
    uint8_t *dst;       // of the piece's first sample
    int64_t src_stride, dst_stride;
    int32_t plane_width, plane_height;
    int32_t x, y, columns, rows; // rows 0: no more pieces
    int32_t stored;              // columns, and what may be written behind the plane's last
    int32_t pitch;               // from a row in the stage to the next
    int32_t segments, units;     // in a band of rows; in all
    uint32_t reciprocal;         // of segments
    bool bulk;                   // rows lie as bulk copies ask for
    bool whole;                  // and so close that one copy takes them all
    bool words;                  // rows of dst are aligned to words
};

struct ring {
    uint64_t landed[MAX_STAGES], ready[MAX_STAGES], empty[MAX_STAGES];
    uint64_t cut[QUEUE], taken[QUEUE];
    struct piece pieces[MAX_STAGES], queue[QUEUE];
    int8_t coef[MAX_HEIGHT][64];
};
#define RING_BYTES ((sizeof(struct ring) + 127) / 128 * 128)

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

// --- scout: cuts the launch into pieces, ahead of the producer -----------------------------------

struct cursor {
    struct conv_stencil_plane plane;
    int index;
    uint32_t end; // first tile of the next plane
    bool alike;   // planes were found where they would be if all had the same tiles
};

// Looks for the plane of a tile among 32 from `first` on. first_tile ascends strictly.
__device__ inline bool seek_from(struct cursor *cursor, const struct filter &f, uint32_t tile,
                                 int first)
{
    int lane = (int)threadIdx.x % WARP;
    uint32_t start = first + lane < f.count ? f.planes[first + lane].first_tile : f.tiles;
    uint32_t reached = __ballot_sync(0xffffffffu, start <= tile);
    if (reached == 0 || reached == 0xffffffffu)
        return false;
    int last = __popc(reached) - 1;
    cursor->index = first + last;
    cursor->end = __shfl_sync(0xffffffffu, start, last + 1);
    return true;
}

// The cursor's plane, for any tile: 32 times less far at each step.
__device__ inline void seek_all(struct cursor *cursor, const struct filter &f, uint32_t tile)
{
    int lane = (int)threadIdx.x % WARP;
    int first = 0, count = f.count; // the plane is one of first ... first + count - 1
    while (count >= WARP) {
        int step = (count + WARP - 1) / WARP;
        int probe = lane * step;
        bool reached = probe < count && f.planes[first + probe].first_tile <= tile;
        int last = __popc(__ballot_sync(0xffffffffu, reached)) - 1;
        first += last * step;
        count = min(step, count - last * step);
    }
    seek_from(cursor, f, tile, first);
}

// Moves the cursor on to the plane of a tile. Every look into the table costs a microsecond when
// memory is busy, so few planes come with the launch and others are looked for where they should
// be: near the last one, or, where all pictures are alike, at their share of the tiles.
__device__ inline void seek(struct cursor *cursor, const struct filter &f, uint32_t tile)
{
    if (f.count <= FEW_PLANES) {
        int i = 0;
        while (i + 1 < f.count && f.few[i + 1].first_tile <= tile)
            i++;
        cursor->plane = f.few[i];
        cursor->end = i + 1 < f.count ? f.few[i + 1].first_tile : f.tiles;
        return;
    }
    int guess = max((int)((uint64_t)tile * (uint32_t)f.count / f.tiles) - WARP / 2, 0);
    if (!seek_from(cursor, f, tile, cursor->alike ? guess : cursor->index)) {
        cursor->alike = !cursor->alike;
        if (!seek_from(cursor, f, tile, cursor->alike ? guess : cursor->index))
            seek_all(cursor, f, tile);
    }
    cursor->plane = f.planes[cursor->index];
}

__device__ inline bool is_aligned(const void *data, int64_t stride, int bytes)
{
    return ((uintptr_t)data | (uintptr_t)stride) % bytes == 0;
}

// Cuts the piece that begins with `tile` and ends before `end`; returns its tiles. Planes of one
// column of tiles give pieces of several, as many as a stage holds.
template <int ROWS>
__device__ inline uint32_t cut_piece(struct piece *piece, const struct cursor &cursor,
                                     const struct filter &f, uint32_t tile, uint32_t end)
{
    const struct conv_stencil_plane &plane = cursor.plane;
    uint32_t index = tile - plane.first_tile;
    int across = (plane.width - 1) / TILE_WIDTH + 1;
    // Columns of equal width, where it is cheap: in multiples of 64 samples.
    int width = across < 8 ? ((plane.width - 1) / across + 64) / 64 * 64 : TILE_WIDTH;
    // MERGE tiles below one another follow each other, then the next column's.
    uint32_t block = MERGE * (uint32_t)across, above = index / block * MERGE;
    uint32_t down = ((uint32_t)plane.height - 1) / TILE_HEIGHT + 1;
    uint32_t high = min((uint32_t)MERGE, down - above), rest = index % block;
    int column = (int)(rest / high), row = (int)(above + rest % high);
    piece->x = column * width;
    piece->y = row * TILE_HEIGHT;
    piece->columns = min(width, plane.width - piece->x);
    piece->segments = (piece->columns - 1) / SEGMENT + 1;
    // Memory takes whole sectors of 32 bytes at twice the rate of parts of them.
    piece->stored = piece->columns;
    if (piece->x + piece->columns == plane.width)
        piece->stored += min((int32_t)plane.dst_spare, piece->segments * SEGMENT - piece->columns);
    piece->pitch = piece->segments * SEGMENT + 2 * HALO;
    piece->bulk = is_aligned(plane.src, plane.src_stride, 16);
    // Between the rows there must be room for the columns left and right of the picture.
    piece->whole = piece->bulk && across == 1 && f.border != CONV_BORDER_CONSTANT &&
                   plane.src_stride >= plane.width + 2 * f.radius &&
                   plane.src_stride <= piece->pitch;
    if (piece->whole)
        piece->pitch = (int32_t)plane.src_stride;
    uint32_t tiles = min(high - rest % high, end - tile);
    if (across == 1) {
        uint32_t room =
            ((f.stage_bytes - 2 * HALO) / (uint32_t)piece->pitch - (ROWS - 1)) / TILE_HEIGHT;
        tiles = min(room, min(end, cursor.end) - tile);
    }
    piece->rows = min((int)tiles * TILE_HEIGHT, plane.height - piece->y);
    piece->units = ((piece->rows - 1) / BAND + 1) * piece->segments;
    piece->reciprocal = 65535 / (uint32_t)piece->segments + 1;
    piece->src = plane.src;
    piece->dst = plane.dst + piece->y * plane.dst_stride + piece->x;
    piece->src_stride = plane.src_stride;
    piece->dst_stride = plane.dst_stride;
    piece->plane_width = plane.width;
    piece->plane_height = plane.height;
    piece->words = is_aligned(plane.dst, plane.dst_stride, 4);
    return tiles;
}

__device__ inline void queue_piece(struct ring *ring, struct place *place,
                                   const struct piece &piece)
{
    barrier_wait(&ring->taken[place->stage], place->parity);
    if (threadIdx.x % WARP == 0) {
        ring->queue[place->stage] = piece;
        barrier_arrive(&ring->cut[place->stage]);
    }
    advance(place, QUEUE);
}

template <int ROWS> __device__ inline void scout(struct ring *ring, const struct filter &f)
{
    struct place place = {0, 1};
    struct cursor cursor;
    cursor.end = 0;
    cursor.index = 0;
    cursor.alike = false;
    struct piece piece;
    // Blocks take groups of tiles in turn, and of what does not go round an equal share at last.
    uint32_t step = gridDim.x * f.group, round_end = f.tiles / step * step;
    uint32_t share = (f.tiles - round_end + gridDim.x - 1) / gridDim.x;
    uint32_t first = blockIdx.x * f.group;
    for (bool last = false; !last; first += step) {
        uint32_t end = first + f.group;
        if (first >= round_end) {
            last = true;
            first = round_end + blockIdx.x * share;
            end = min(first + share, f.tiles);
        }
        for (uint32_t tile = first; tile < end;) {
            if (tile >= cursor.end)
                seek(&cursor, f, tile);
            tile += cut_piece<ROWS>(&piece, cursor, f, tile, end);
            queue_piece(ring, &place, piece);
        }
    }
    piece.rows = 0;
    queue_piece(ring, &place, piece);
}

// --- producer: has the rows of pieces copied -----------------------------------------------------

// The columns of the plane that a piece's rows hold, halo included, where they exist.
__device__ inline int first_column(const struct piece &piece)
{
    return max(piece.x - HALO, 0);
}

__device__ inline int end_column(const struct piece &piece)
{
    return min(piece.x + piece.columns + HALO, piece.plane_width);
}

// The plane's row behind a row of the stage; -1: constant.
template <int ROWS>
__device__ inline int source_row(const struct piece &piece, const struct filter &f, int row)
{
    return conv_stencil_border((enum conv_border)f.border, piece.y - ROWS / 2 + row,
                               piece.plane_height);
}

// The stage is free; its rows are copied. One lane takes the
// rows that lie below one another, in a loop of its own: a copy is one instruction of a warp, and
// lanes with a copy each would have to take turns, at a high price. A row's copy may take bytes
// behind the picture along, up to the next multiple of 16: they never leave what rows are aligned
// to.
template <int ROWS>
__device__ inline void copy_piece(struct ring *ring, uint8_t *samples, int stage,
                                  const struct piece &piece, const struct filter &f)
{
    int lane = (int)threadIdx.x % WARP;
    uint64_t *landed = &ring->landed[stage];
    int from = first_column(piece);
    uint32_t bytes = (uint32_t)((end_column(piece) - from + 15) / 16 * 16);
    int rows = piece.rows + ROWS - 1, top = piece.y - ROWS / 2;
    int first = max(-top, 0), end = min(rows, piece.plane_height - top); // rows of the picture
    int outside = f.border != CONV_BORDER_CONSTANT ? rows - (end - first) : 0;
    int copies = piece.bulk ? end - first + outside : 0;
    if (lane == 0) {
        ring->pieces[stage] = piece;
        uint32_t between = piece.whole ? (uint32_t)((end - first - 1) * piece.pitch) : 0;
        uint32_t lines = piece.whole ? (uint32_t)(1 + outside) : (uint32_t)copies;
        barrier_arrive_expect(landed, lines * bytes + between);
    }
    __syncwarp();
    if (!copies)
        return;
    fence_for_bulk();
    uint32_t to = shared_address(samples + HALO + from - piece.x);
    uint32_t barrier = uniform(shared_address(landed));
    uint64_t line = __cvta_generic_to_global(piece.src) + (uint64_t)from;
    uint64_t row = uniform(line + (uint64_t)((top + first) * piece.src_stride));
    uint64_t stride = uniform((uint64_t)piece.src_stride);
    uint32_t at = uniform(to + (uint32_t)(first * piece.pitch));
    uint32_t pitch = uniform((uint32_t)piece.pitch);
    bytes = uniform(bytes);
    int count = (int)uniform((uint32_t)(end - first));
    uint32_t size = bytes;
    if (uniform((uint32_t)piece.whole)) {
        size += (uint32_t)(count - 1) * pitch;
        count = 1;
    }
    if (elect()) {
#pragma unroll 4
        for (int i = 0; i < count; i++) {
            bulk_copy(at, row, size, barrier);
            at += pitch;
            row += stride;
        }
    }
    __syncwarp();
    if (lane < outside) {
        int i = lane < first ? lane : end + lane - first;
        bulk_copy(to + (uint32_t)(i * piece.pitch),
                  line + (uint64_t)(source_row<ROWS>(piece, f, i) * piece.src_stride), bytes,
                  barrier);
    }
}

template <int ROWS>
__device__ inline void produce(struct ring *ring, uint8_t *stages, const struct filter &f)
{
    struct place place = {0, 1}; // a barrier nobody has arrived at lets waiters for parity 1 pass
    struct place next = {0, 0};
    for (;;) {
        barrier_wait(&ring->cut[next.stage], next.parity);
        struct piece piece = ring->queue[next.stage];
        __syncwarp();
        if (threadIdx.x % WARP == 0)
            barrier_arrive(&ring->taken[next.stage]);
        advance(&next, QUEUE);
        barrier_wait(&ring->empty[place.stage], place.parity);
        if (piece.rows == 0)
            break;
        copy_piece<ROWS>(ring, stages + place.stage * f.stage_bytes, place.stage, piece, f);
        advance(&place, f.stages);
    }
    if (threadIdx.x % WARP == 0) {
        ring->pieces[place.stage].rows = 0;
        barrier_arrive(&ring->landed[place.stage]);
    }
}

// --- patcher: makes the border, so that workers never see one ------------------------------------

// A plane that bulk copies cannot read: words put together from aligned ones. A word is read only
// if it holds a sample of the row.
template <int ROWS>
__device__ inline void load_piece(uint8_t *samples, const struct piece &piece,
                                  const struct filter &f)
{
    int lane = (int)threadIdx.x % WARP;
    int from = first_column(piece), count = end_column(piece) - from;
    uint8_t *to = samples + HALO + from - piece.x;
    for (int row = 0; row < piece.rows + ROWS - 1; row++) {
        int y = source_row<ROWS>(piece, f, row);
        if (y < 0)
            continue;
        const uint8_t *line = piece.src + y * piece.src_stride + from;
        uint32_t skip = (uint32_t)((uintptr_t)line % 4);
        const uint32_t *words = (const uint32_t *)(line - skip);
#pragma unroll 4
        for (int i = lane; i * 4 < count; i += WARP) {
            uint32_t low = words[i], high = low;
            if (skip && i * 4 + 4 - (int)skip < count)
                high = words[i + 1];
            *(uint32_t *)(to + row * piece.pitch + i * 4) = __funnelshift_r(low, high, skip * 8);
        }
    }
}

// Rows of a constant border.
template <int ROWS>
__device__ inline void fill_rows(uint8_t *samples, const struct piece &piece,
                                 const struct filter &f)
{
    int lane = (int)threadIdx.x % WARP;
    for (int row = 0; row < piece.rows + ROWS - 1; row++)
        if (source_row<ROWS>(piece, f, row) < 0)
            for (int i = lane * 4; i < piece.pitch; i += WARP * 4)
                *(uint32_t *)(samples + row * piece.pitch + i) =
                    (uint32_t)f.border_value * 0x01010101u;
}

// Columns left and right of the picture. What they repeat is mostly in the stage already.
template <int ROWS>
__device__ inline void patch_columns(uint8_t *samples, const struct piece &piece,
                                     const struct filter &f)
{
    int lane = (int)threadIdx.x % WARP;
    int left = max(f.radius - piece.x, 0);
    int right = max(piece.x + piece.columns + f.radius - piece.plane_width, 0);
    int rows = piece.rows + ROWS - 1, from = first_column(piece), end = end_column(piece);
    for (int k = 0; k < left + right; k++) {
        int x = k < left ? k - left : piece.plane_width + k - left;
        int sx = conv_stencil_border((enum conv_border)f.border, x, piece.plane_width);
        uint8_t *line = samples + lane * piece.pitch + HALO - piece.x;
        if (sx >= from && sx < end) {
#pragma unroll 4
            for (int row = lane; row < rows; row += WARP, line += WARP * piece.pitch)
                line[x] = line[sx];
        } else {
            for (int row = lane; row < rows; row += WARP, line += WARP * piece.pitch) {
                int sy = sx < 0 ? -1 : source_row<ROWS>(piece, f, row);
                line[x] = sy < 0 ? (uint8_t)f.border_value : piece.src[sy * piece.src_stride + sx];
            }
        }
    }
}

template <int ROWS>
__device__ inline void patch(struct ring *ring, uint8_t *stages, const struct filter &f)
{
    struct place place = {0, 0};
    for (;;) {
        barrier_wait(&ring->landed[place.stage], place.parity);
        struct piece piece = ring->pieces[place.stage];
        uint8_t *samples = stages + place.stage * f.stage_bytes;
        if (piece.rows) {
            if (!piece.bulk)
                load_piece<ROWS>(samples, piece, f);
            if (f.border == CONV_BORDER_CONSTANT)
                fill_rows<ROWS>(samples, piece, f);
            __syncwarp(); // columns repeat what other lanes have loaded
            patch_columns<ROWS>(samples, piece, f);
        }
        barrier_arrive(&ring->ready[place.stage]); // every lane, for what it has written
        if (!piece.rows)
            return;
        advance(&place, f.stages);
    }
}

#endif

#endif
