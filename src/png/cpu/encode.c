// SPDX-License-Identifier: MIT
// The encoder's memory and options, and the choice between its methods.
#include "png/cpu/cpu_png.h"

#include <libdeflate.h>
#include <stdlib.h>
#include <string.h>

#include "base/parallel.h"
#include "png/chunk.h"
#include "png/cpu/deflate.h"
#include "png/cpu/encode_internal.h"

// The effort of each level; none has more of one thing and less of another than a lower level, or
// some images would be larger.
#define LAST_SEARCH_LEVEL 9
static const struct {
    int candidates, skip_shift;
} search_effort[LAST_SEARCH_LEVEL + 1] = {
    [2] = {1, 5}, [3] = {2, 6}, [4] = {2, 7},   [5] = {3, 8},
    [6] = {4, 8}, [7] = {8, 9}, [8] = {16, 10}, [9] = {64, 12},
};

// conv's own writers take 1.3 to 1.7 MB, libdeflate's optimal parsing 9,011,200 bytes besides.
#define OWN_TABLES ((size_t)2 << 20)
#define LIBDEFLATE_TABLES ((size_t)11 << 20)

size_t conv_encode_tables_bytes(int level)
{
    return level <= LAST_SEARCH_LEVEL ? OWN_TABLES : LIBDEFLATE_TABLES;
}

void conv_encode_set_effort(struct conv_encoder *encoder, int level)
{
    level = level < LAST_SEARCH_LEVEL ? level : LAST_SEARCH_LEVEL;
    if (encoder->search)
        conv_deflate_search_set_effort(encoder->search, search_effort[level].candidates,
                                       search_effort[level].skip_shift);
}

static const struct conv_encode_way *way_of(int level)
{
    return level <= 1 ? &conv_encode_stripes : &conv_encode_whole;
}

enum conv_status conv_encode_open(struct conv_encoder **encoder, int level, unsigned features,
                                  size_t max_chunk, struct conv_err *err)
{
    struct conv_encoder *made = calloc(1, sizeof *made);
    *encoder = NULL;
    if (!made)
        return conv_err_memory(err, "out of memory");
    made->level = level;
    made->way = way_of(level);
    made->features = features;
    made->bands_from = CONV_ENCODE_BANDS_FROM;
    made->band_bytes = CONV_ENCODE_BAND;
    made->max_chunk = max_chunk;
    made->functions = conv_filter_rows_choose(features);
    if (level <= 1)
        made->deflate = conv_deflate_open(features);
    else
        made->search = conv_deflate_search_open();
    if (level > LAST_SEARCH_LEVEL)
        made->compressor = libdeflate_alloc_compressor(level);
    if ((!made->deflate && !made->search) || (level > LAST_SEARCH_LEVEL && !made->compressor)) {
        conv_encode_close(made);
        return conv_err_memory(err, "out of memory");
    }
    conv_encode_set_effort(made, level);
    *encoder = made;
    return CONV_OK;
}

void conv_encode_set_stop(struct conv_encoder *encoder, const atomic_int *stop)
{
    encoder->stop = stop;
}

void conv_encode_share(struct conv_encoder *encoder, struct conv_parallel *parallel)
{
    encoder->parallel = parallel;
}

void conv_encode_set_bands(struct conv_encoder *encoder, size_t from, size_t bytes)
{
    encoder->bands_from = from;
    encoder->band_bytes = bytes;
}

void conv_encode_close(struct conv_encoder *encoder)
{
    if (!encoder)
        return;
    conv_deflate_close(encoder->deflate);
    conv_deflate_search_close(encoder->search);
    libdeflate_free_compressor(encoder->compressor);
    conv_buffer_free(&encoder->scratch);
    conv_buffer_free(&encoder->filtered);
    conv_buffer_free(&encoder->tried);
    conv_buffer_free(&encoder->inflated);
    free(encoder->inflate);
    free(encoder);
}

void conv_encode_trim(struct conv_encoder *encoder, size_t keep)
{
    conv_buffer_trim(&encoder->scratch, keep);
    conv_buffer_trim(&encoder->filtered, keep);
    conv_buffer_trim(&encoder->tried, keep);
    conv_buffer_trim(&encoder->inflated, keep);
}

// False if the image is too large.
static bool make_task(struct conv_encode_task *task, const struct conv_image *src)
{
    *task = (struct conv_encode_task){.src = src};
    task->row_bytes = (size_t)src->width * (size_t)src->channels * (size_t)(src->depth / 8) + 1;
    return !__builtin_mul_overflow(task->row_bytes, (size_t)src->height, &task->all_bytes) &&
           task->all_bytes <= SIZE_MAX / 4;
}

size_t conv_encode_room(const struct conv_encoder *encoder, const struct conv_image *shape)
{
    struct conv_encode_task task;
    struct conv_encode_bands bands;
    if (!make_task(&task, shape))
        return SIZE_MAX;
    encoder->way->plan(&bands, encoder, &task);
    return encoder->way->room(encoder, &bands);
}

size_t conv_encode_bytes(int level, const struct conv_image *shape)
{
    struct conv_encode_task task;
    if (!make_task(&task, shape))
        return SIZE_MAX;
    size_t bytes = conv_encode_rows_scratch(shape, false);
    bytes += way_of(level)->filtered_bytes(&task, 0);
    if (level > LAST_SEARCH_LEVEL) // other tables are smaller than what runs leave free for them
        bytes += LIBDEFLATE_TABLES;
    return __builtin_add_overflow(bytes, task.all_bytes, &bytes) ? SIZE_MAX : bytes;
}

enum conv_status conv_encode_image(struct conv_encoder *encoder, struct conv_buffer *file,
                                   const struct conv_image *src,
                                   const struct conv_row_source *source, struct conv_err *err)
{
    struct conv_encode_task task;
    encoder->source = source;
    file->size = 0;
    if (!make_task(&task, src) ||
        !conv_buffer_reserve(&encoder->scratch, conv_encode_rows_scratch(src, source != NULL)))
        return conv_err_memory(err, "out of memory");
    enum conv_status status = encoder->way->encode(encoder, file, &task, err);
    // A cancelled encoder leaves an incomplete file.
    return !status && conv_cancel_is_asked(encoder->stop) ? conv_err_cancelled(err) : status;
}

// --- some rows at a time -------------------------------------------------------------------------

int conv_encode_some_rows(const struct conv_encoder *encoder, const struct conv_image *shape)
{
    struct conv_encode_task task;
    struct conv_encode_bands bands;
    if (!make_task(&task, shape))
        return 0;
    encoder->way->plan(&bands, encoder, &task);
    return bands.count > 1 ? bands.rows : 0;
}

size_t conv_encode_some_bytes(const struct conv_encoder *encoder, const struct conv_image *shape,
                              int rows)
{
    struct conv_encode_task task;
    struct conv_encode_bands bands;
    if (!make_task(&task, shape))
        return SIZE_MAX;
    encoder->way->plan(&bands, encoder, &task);
    bands.count = (rows - 1) / bands.rows + 1;
    return conv_encode_rows_scratch(shape, false) + conv_encode_bands_room(&bands) +
           encoder->way->filtered_bytes(&task, rows) + conv_encode_tables_bytes(encoder->level);
}

enum conv_status conv_encode_some(struct conv_encoder *encoder, struct conv_buffer *file,
                                  const struct conv_image *src, int from, int to,
                                  struct conv_err *err)
{
    struct conv_encode_task task;
    encoder->source = NULL;
    if (!make_task(&task, src) ||
        !conv_buffer_reserve(&encoder->scratch, conv_encode_rows_scratch(src, false)))
        return conv_err_memory(err, "out of memory");
    return encoder->way->some(encoder, file, &task, from, to, err);
}

// --- chunks --------------------------------------------------------------------------------------

// The chunks of encoded files.

// Writes length and CRC of the chunk whose type is at `type` and whose data ends at `end`; returns
// the end of the chunk.
static uint8_t *close_chunk(uint8_t *type, uint8_t *end)
{
    conv_chunk_write_u32(type - 4, (uint32_t)(end - type - 4));
    conv_chunk_write_u32(end, conv_png_crc(0, type, (size_t)(end - type)));
    return end + 4;
}

uint8_t *conv_encode_put_head(uint8_t *at, const struct conv_image *shape)
{
    static const uint8_t start[] = {137, 'P', 'N', 'G', 13,  10,  26,  10,
                                    0,   0,   0,   13,  'I', 'H', 'D', 'R'};
    static const uint8_t color_type[CONV_IMAGE_MAX_CHANNELS + 1] = {0, 0, 4, 2, 6};
    memcpy(at, start, sizeof start);
    conv_chunk_write_u32(at + 16, (uint32_t)shape->width);
    conv_chunk_write_u32(at + 20, (uint32_t)shape->height);
    at[24] = (uint8_t)shape->depth;
    at[25] = color_type[shape->channels];
    memset(at + 26, 0, 3);
    return close_chunk(at + 12, at + 29);
}

const uint8_t conv_encode_tail[CONV_ENCODE_TAIL] = {0,   0,   0,    0,    'I',  'E',
                                                    'N', 'D', 0xae, 0x42, 0x60, 0x82};

uint8_t *conv_encode_put_tail(uint8_t *at)
{
    return (uint8_t *)memcpy(at, conv_encode_tail, CONV_ENCODE_TAIL) + CONV_ENCODE_TAIL;
}

uint8_t *conv_encode_idat_open(struct conv_encode_idat *idat, uint8_t *at)
{
    memcpy(at + 4, "IDAT", 4);
    *idat = (struct conv_encode_idat){.type = at + 4, .summed = at + 4};
    return at + 8;
}

void conv_encode_idat_sum(struct conv_encode_idat *idat, uint8_t *end)
{
    idat->crc = conv_png_crc(idat->crc, idat->summed, (size_t)(end - idat->summed));
    idat->summed = end;
}

uint8_t *conv_encode_idat_close(struct conv_encode_idat *idat, uint8_t *end)
{
    conv_encode_idat_sum(idat, end);
    conv_chunk_write_u32(idat->type - 4, (uint32_t)(end - idat->type - 4));
    conv_chunk_write_u32(end, idat->crc);
    return end + 4;
}

// From the last to the first, since each moves up by the frames of those before it.
uint8_t *conv_encode_split_chunks(uint8_t *at, size_t size, size_t max_chunk)
{
    size_t chunks = size / max_chunk + (size % max_chunk > 0);
    uint8_t *data = at + 8;
    for (size_t i = chunks; i-- > 0;) {
        size_t count = i + 1 < chunks ? max_chunk : size - i * max_chunk;
        uint8_t *type = data + i * (max_chunk + CONV_CHUNK_FRAME) - 4;
        memmove(type + 4, data + i * max_chunk, count);
        memcpy(type, "IDAT", 4);
        close_chunk(type, type + 4 + count);
    }
    return at + size + chunks * CONV_CHUNK_FRAME;
}

size_t conv_encode_frames(size_t stripes)
{
    return CONV_ENCODE_HEAD + CONV_ENCODE_ZLIB_FRAME + CONV_CHUNK_FRAME * (stripes + 2) +
           CONV_BITS_SLACK;
}
