// SPDX-License-Identifier: MIT
// Shared by the files of the encoder, encode*.c.
#pragma once

#include <stdbool.h>

#include "image/image.h"
#include "png/cpu/cpu_png.h"
#include "png/cpu/deflate.h"
#include "png/cpu/filter_rows.h"
#include "png/cpu/inflate.h"

// --- encode_rows.c: filtered rows, made row by row from planes -----------------------------------

// The position in an image and its planes of bytes: its own planes at 8 bits, otherwise the high
// and the low halves of their samples.
struct conv_encode_rows {
    const struct conv_filter_rows *functions;
    const struct conv_image *src;
    const struct conv_row_source *source; // NULL: the planes of src
    uint8_t *fetched[2];                  // from `source`: the planes of the rows y with y % 2 == i
    int planes;
    int next; // the row after the current one
    size_t width;
    const uint8_t *row[CONV_ROW_MAX_PLANES];   // the current row
    const uint8_t *above[CONV_ROW_MAX_PLANES]; // and the one before
    uint8_t *halves[2];                        // of the rows y with y % 2 == i
    uint8_t *residual;                         // `planes` filtered rows
    const uint8_t *zero;                       // a row of zeros: above the first
    bool flat;                                 // conv_encode_rows_choose found small residuals
};

// Scratch bytes for such images, whose rows may come from a source; SIZE_MAX on overflow.
size_t conv_encode_rows_scratch(const struct conv_image *src, bool has_source);

// Prepares for rows 0, 1, 2, ... of src, or of `source` (NULL: none). `scratch`, src and source
// have to live as long as *rows.
void conv_encode_rows_start(struct conv_encode_rows *rows, const struct conv_filter_rows *functions,
                            const struct conv_image *src, const struct conv_row_source *source,
                            uint8_t *scratch);

// Moves to row y. If it does not follow the last one, only CONV_ROW_NONE is right for it.
void conv_encode_rows_next(struct conv_encode_rows *rows, int y);

// The filter whose residuals have the smallest sum as signed numbers: the standard's advice (12.8).
enum conv_row_filter conv_encode_rows_choose(struct conv_encode_rows *rows);

// Writes the filter byte and the filtered row to dst; returns the end.
uint8_t *conv_encode_rows_put(const struct conv_encode_rows *rows, uint8_t *dst,
                              enum conv_row_filter filter);

// True if `n` bytes of each plane's row, from `x` on, equal those above.
bool conv_encode_rows_is_repeated(const struct conv_encode_rows *rows, size_t x, size_t n);

// As conv_encode_rows_put with CONV_ROW_UP, for such a row.
uint8_t *conv_encode_rows_put_repeated(const struct conv_encode_rows *rows, uint8_t *dst);

// --- encode.c ------------------------------------------------------------------------------------

#define CONV_ENCODE_ZLIB_FRAME 6 // two bytes before the data, Adler-32 after it
// The two bytes: deflate, a window of 32 KiB, the fastest effort or the default one.
#define CONV_ENCODE_ZLIB_FASTEST 0x0178
#define CONV_ENCODE_ZLIB_DEFAULT 0x9c78

// Each thread that encodes a large image has one of its own.
struct conv_encoder {
    int level;
    const struct conv_encode_way *way;
    unsigned features;
    size_t max_chunk;
    const atomic_int *stop; // may be NULL
    const struct conv_filter_rows *functions;
    struct conv_deflate *deflate;             // up to level 1
    struct conv_deflate_search *search;       // from level 2 on
    struct libdeflate_compressor *compressor; // levels 10 to 12
    struct conv_buffer scratch;               // conv_encode_rows_scratch
    struct conv_buffer filtered;              // a stripe, or all rows from level 2 on
    struct conv_buffer tried;                 // from level 2 on: a stream or rows that are tried
    struct conv_inflate *inflate;             // levels 10 to 12, for large images; or NULL
    struct conv_buffer inflated;              // the same
    struct conv_encode_rows rows;             // levels 0 and 1
    const struct conv_row_source *source;     // of the current image; NULL: its planes
    struct conv_parallel *parallel;           // may be NULL
    size_t bands_from, band_bytes;            // conv_encode_set_bands
    uint32_t adler;                           // of the rows in the bands so far
};

// The image that is encoded.
struct conv_encode_task {
    const struct conv_image *src;
    size_t row_bytes; // of a filtered row, with its filter byte
    size_t all_bytes; // of all rows
};

// Lets the search work as at this level, from 10 on as at 9.
void conv_encode_set_effort(struct conv_encoder *encoder, int level);

// A growing IDAT, whose CRC is updated while its data is in the cache.
struct conv_encode_idat {
    uint8_t *type;   // address of "IDAT"
    uint8_t *summed; // `crc` covers the bytes before it
    uint32_t crc;
};

// Begins an IDAT at `at`; returns where its data goes.
uint8_t *conv_encode_idat_open(struct conv_encode_idat *idat, uint8_t *at);
void conv_encode_idat_sum(struct conv_encode_idat *idat, uint8_t *end);
// Its data ends at `end`; returns the end of the chunk.
uint8_t *conv_encode_idat_close(struct conv_encode_idat *idat, uint8_t *end);

// Splits the `size` bytes at at + 8 into IDATs that begin at `at`; returns their end.
uint8_t *conv_encode_split_chunks(uint8_t *at, size_t size, size_t max_chunk);

uint8_t *conv_encode_put_tail(uint8_t *at);

// All bytes around the deflate stream, of at most one IDAT per stripe.
size_t conv_encode_frames(size_t stripes);

struct conv_encode_bands;

// --- levels 0 and 1: encode_stripes.c; 2 to 12: encode_whole.c -----------------------------------

struct conv_encode_way {
    // The bands of such an image, without their context, and the capacity of *file that `encode`
    // needs for it; SIZE_MAX if it does not fit.
    void (*plan)(struct conv_encode_bands *bands, const struct conv_encoder *encoder,
                 const struct conv_encode_task *task);
    size_t (*room)(const struct conv_encoder *encoder, const struct conv_encode_bands *bands);
    enum conv_status (*encode)(struct conv_encoder *encoder, struct conv_buffer *file,
                               const struct conv_encode_task *task, struct conv_err *err);
    // As conv_encode_some.
    enum conv_status (*some)(struct conv_encoder *encoder, struct conv_buffer *file,
                             const struct conv_encode_task *task, int from, int to,
                             struct conv_err *err);
    // Bytes of the memory for filtered rows, with those that are tried, of `encode` (`rows` is 0)
    // or of `some` with that many rows.
    size_t (*filtered_bytes)(const struct conv_encode_task *task, int rows);
};

extern const struct conv_encode_way conv_encode_stripes, conv_encode_whole;

// --- encode_bands.c: large images ----------------------------------------------------------------

// A band: rows that are compressed to whole bytes of the zlib stream, so that bands may be
// compressed in any order. The sizes of bands depend on the image only, and so does the file.
struct conv_encode_band {
    int from, to; // rows
    bool last;
    uint32_t adler; // set by put(): of the rows
};

struct conv_encode_bands {
    const struct conv_encode_task *task;
    int rows, count; // rows of a band but the last; 0 bands: the image is too small
    size_t room;     // bytes that the chunks of a band may take
    // Writes the band's IDATs to `at`; returns their end. The first begins with the zlib header.
    uint8_t *(*put)(struct conv_encoder *encoder, const struct conv_encode_bands *bands,
                    struct conv_encode_band *band, uint8_t *at);
    // Prepares an encoder of a thread for put(), with `prepared` bytes; false: out of memory.
    bool (*prepare)(struct conv_encoder *encoder, const struct conv_encode_bands *bands);
    size_t prepared;
    void *context; // for put() and prepare()
};

// Sets rows and count, in multiples of `unit` rows, and the task.
void conv_encode_bands_plan(struct conv_encode_bands *bands, const struct conv_encoder *encoder,
                            const struct conv_encode_task *task, int unit);

// The capacity of *file that conv_encode_bands_run needs; SIZE_MAX if it does not fit.
size_t conv_encode_bands_room(const struct conv_encode_bands *bands);

// Encodes the image into *file on all available threads. encoder->source is asked for rows in their
// order by the calling thread alone.
enum conv_status conv_encode_bands_run(struct conv_encoder *encoder,
                                       const struct conv_encode_bands *bands,
                                       struct conv_buffer *file, struct conv_err *err);

// The same for the bands of the rows from `from` to `to` alone, after those before them: *file gets
// their IDATs.
enum conv_status conv_encode_bands_run_some(struct conv_encoder *encoder,
                                            const struct conv_encode_bands *bands,
                                            struct conv_buffer *file, int from, int to,
                                            struct conv_err *err);

// Bytes of the tables of an open encoder of this level, at most.
size_t conv_encode_tables_bytes(int level);

// Calls each(encoder, context, i) for 0 <= i < count on all available threads, each with its own
// encoder, for which prepare() reserves up to `prepared` bytes. Stops early after
// conv_cancel_is_asked. False: out of memory, nothing was done.
typedef void (*conv_encode_each_fn)(struct conv_encoder *encoder, void *context, int i);
typedef bool (*conv_encode_prepare_fn)(struct conv_encoder *encoder, void *context);
bool conv_encode_each(struct conv_encoder *encoder, conv_encode_prepare_fn prepare, size_t prepared,
                      conv_encode_each_fn each, void *context, int count);

// Ends a band that is not the stream's last block: an empty stored block, to a whole byte.
void conv_encode_end_band(struct conv_bits *out);
