// SPDX-License-Identifier: MIT
// TIFF as a row of the table of formats, and its encoder. libtiff compresses strips; the directory
// after them is written by metadata.c.
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tiffio.h>

#include "base/parallel.h"
#include "image/interleave.h"
#include "tiff/tiff.h"

// --- a file in memory ----------------------------------------------------------------------------
// libtiff's file in memory, with handlers of its own: nothing is printed, and no thread sees the
// messages of another. What libtiff guesses or repairs is an error here.

__attribute__((format(printf, 2, 0))) static void
keep_message(struct conv_libtiff *tiff, const char *format, va_list arguments)
{
    if (tiff->failed)
        return;
    tiff->failed = true;
    vsnprintf(tiff->fault.text, sizeof tiff->fault.text, format, arguments);
    tiff->fault.truncated = strstr(format, "Can not read TIFF directory");
    tiff->fault.no_memory |= !strstr(format, "beyond") && // a limit of ours
                             (strstr(format, "ut of memory") || strstr(format, "No space"));
}

__attribute__((format(printf, 4, 0))) static int on_error(TIFF *, void *user, const char *,
                                                          const char *format, va_list arguments)
{
    keep_message(user, format, arguments);
    return 1;
}

// In a directory libtiff warns of unknown tags and others that it ignores; what it assumes instead
// of what is there, or missing, is damage. While it decodes, all but one warning are of damage.
__attribute__((format(printf, 4, 0))) static int on_warning(TIFF *, void *user, const char *,
                                                            const char *format, va_list arguments)
{
    static const char *const damage[] = {"Bogus", "Wrong", "missing", "ssum"};
    struct conv_libtiff *tiff = user;
    bool bad = tiff->decoding && !strstr(format, "Old-style LZW");
    for (size_t i = 0; i < sizeof damage / sizeof damage[0] && !tiff->decoding; i++)
        bad = bad || strstr(format, damage[i]);
    if (bad)
        keep_message(tiff, format, arguments);
    return 1;
}

static tmsize_t read_bytes(thandle_t handle, void *to, tmsize_t bytes)
{
    struct conv_libtiff *tiff = handle;
    size_t left = tiff->at < tiff->size ? tiff->size - tiff->at : 0;
    size_t take = (size_t)bytes < left ? (size_t)bytes : left;
    if (take > 0)
        memcpy(to, tiff->data + tiff->at, take);
    tiff->at += take;
    return (tmsize_t)take;
}

static tmsize_t write_bytes(thandle_t handle, void *from, tmsize_t bytes)
{
    struct conv_libtiff *tiff = handle;
    size_t at = tiff->at;
    tiff->at += (size_t)bytes;
    if (tiff->closed || at < CONV_TIFF_HEADER) // header and directory are made elsewhere
        return bytes;
    if (tiff->at - CONV_TIFF_HEADER > tiff->room)
        return -1;
    memcpy(tiff->strip + at - CONV_TIFF_HEADER, from, (size_t)bytes);
    tiff->size = tiff->at > tiff->size ? tiff->at : tiff->size;
    return bytes;
}

static toff_t seek(thandle_t handle, toff_t offset, int whence)
{
    struct conv_libtiff *tiff = handle;
    tiff->at = (size_t)offset + (whence == SEEK_SET   ? 0
                                 : whence == SEEK_CUR ? tiff->at
                                                      : tiff->size);
    return tiff->at;
}

static toff_t size_of(thandle_t handle)
{
    return ((struct conv_libtiff *)handle)->size;
}

static int close_file(thandle_t)
{
    return 0;
}

static int map(thandle_t handle, void **base, toff_t *size)
{
    struct conv_libtiff *tiff = handle;
    if (!tiff->data)
        return 0;
    *base = (void *)(uintptr_t)tiff->data; // only read
    *size = tiff->size;
    return 1;
}

static void unmap(thandle_t, void *, toff_t)
{
}

void conv_libtiff_open(struct conv_libtiff *tiff, const char *mode, size_t most)
{
    TIFFOpenOptions *options = TIFFOpenOptionsAlloc();
    if (options) {
        TIFFOpenOptionsSetMaxSingleMemAlloc(options, (tmsize_t)most);
        TIFFOpenOptionsSetErrorHandlerExtR(options, on_error, tiff);
        TIFFOpenOptionsSetWarningHandlerExtR(options, on_warning, tiff);
        tiff->tif = TIFFClientOpenExt("", mode, tiff, read_bytes, write_bytes, seek, close_file,
                                      size_of, map, unmap, options);
        TIFFOpenOptionsFree(options);
    }
    if (tiff->tif || tiff->failed)
        return;
    tiff->failed = true;
    tiff->fault.no_memory = !options;
    snprintf(tiff->fault.text, sizeof tiff->fault.text, "bad header");
}

void conv_libtiff_close(struct conv_libtiff *tiff)
{
    tiff->closed = true;
    if (tiff->tif)
        TIFFClose(tiff->tif);
    tiff->tif = NULL;
}

// --- the codec -----------------------------------------------------------------------------------

// Decoders hold one strip at a time.
#define STRIP_BYTES ((size_t)256 << 10)

#define LEAST_ROOM ((size_t)4096) // for the compressed strip, besides its share

// scratch: rows as they are in the file; row: planes of a row, or the directory; file: strips.
struct own {
    struct conv_codec codec;
    uint8_t head[CONV_TIFF_HEADER];
    struct conv_buffer places; // uint64_t: the offsets of all strips, then their sizes
    uint64_t end;              // of the file so far
};

// --- encoding ------------------------------------------------------------------------------------

// Lossless ones that libtiff always has, as the input; else deflate.
static int choose_compression(const struct conv_metadata *metadata)
{
    int kept = metadata ? metadata->kept.compression : 0;
    switch (kept) {
    case COMPRESSION_NONE:
    case COMPRESSION_LZW:
    case COMPRESSION_PACKBITS:
        return kept;
    default:
        return TIFFIsCODECConfigured(COMPRESSION_ADOBE_DEFLATE) ? COMPRESSION_ADOBE_DEFLATE
                                                                : COMPRESSION_LZW;
    }
}

static void keep(const uint8_t *, size_t, const struct conv_image_header *header,
                 struct conv_kept *kept)
{
    kept->compression = header->tiff.compression;
    kept->unknown = header->tiff.unknown;
}

static int strip_rows(const struct conv_image *shape)
{
    size_t rows = STRIP_BYTES / conv_interleave_bytes(shape);
    return rows < 1 ? 1 : rows < (size_t)shape->height ? (int)rows : shape->height;
}

static int strip_count(const struct conv_image *shape)
{
    return (shape->height - 1) / strip_rows(shape) + 1;
}

// For a strip that is compressed. LZW expands noise by half, PackBits a row by up to a third and a
// byte, the others by less than 1/64.
static size_t strip_room(const struct conv_image *shape, int compression)
{
    size_t rows = (size_t)strip_rows(shape), bytes = conv_interleave_bytes(shape) * rows;
    bool much = compression == COMPRESSION_LZW || compression == COMPRESSION_PACKBITS;
    return bytes + bytes / (much ? 2 : 64) + rows + LEAST_ROOM;
}

// Of a thread that compresses strips.
static size_t thread_bytes(const struct conv_image *shape)
{
    return 4 * conv_interleave_bytes(shape) * (size_t)strip_rows(shape) + CONV_LIBTIFF_MOST_STATE +
           (size_t)strip_count(shape) * 16;
}

static size_t encode_bytes(const struct conv_codec_config *, const struct conv_image *shape,
                           const struct conv_metadata *metadata)
{
    size_t room = strip_room(shape, choose_compression(metadata)) + 32;
    return (size_t)strip_count(shape) * room + thread_bytes(shape);
}

static void put_samples(uint8_t *dst, const struct conv_image *src, int y)
{
    size_t bytes = (size_t)(src->depth / 8), step = bytes * (size_t)src->channels;
    for (int c = 0; c < src->channels; c++)
        conv_tiff_copy(dst + (size_t)c * bytes, step, conv_image_row(src, c, y), bytes, src->width,
                       bytes);
}

static int predictor(const struct conv_image *shape, int compression)
{
    if (compression != COMPRESSION_LZW && compression != COMPRESSION_ADOBE_DEFLATE)
        return PREDICTOR_NONE;
    return shape->depth == 32 ? PREDICTOR_FLOATINGPOINT : PREDICTOR_HORIZONTAL;
}

// The entries of the image's directory but those of the strips' places, and their values.
struct directory {
    struct conv_tiff_entry entry[13];
    size_t count;
    uint64_t value[11][CONV_IMAGE_MAX_CHANNELS];
};

static void add_entry(struct directory *directory, unsigned tag, unsigned type, int count,
                      int value)
{
    uint64_t *values = directory->value[directory->count];
    for (int i = 0; i < count; i++)
        values[i] = (uint64_t)value;
    directory->entry[directory->count++] =
        (struct conv_tiff_entry){(uint16_t)tag, (uint16_t)type, (uint32_t)count, values};
}

static void describe(struct directory *directory, const struct conv_image *shape, int compression)
{
    int predicts = predictor(shape, compression), channels = shape->channels;
    *directory = (struct directory){0};
    add_entry(directory, TIFFTAG_IMAGEWIDTH, CONV_TIFF_LONG, 1, shape->width);
    add_entry(directory, TIFFTAG_IMAGELENGTH, CONV_TIFF_LONG, 1, shape->height);
    add_entry(directory, TIFFTAG_BITSPERSAMPLE, CONV_TIFF_SHORT, channels, shape->depth);
    add_entry(directory, TIFFTAG_COMPRESSION, CONV_TIFF_SHORT, 1, compression);
    add_entry(directory, TIFFTAG_PHOTOMETRIC, CONV_TIFF_SHORT, 1,
              channels < 3 ? PHOTOMETRIC_MINISBLACK : PHOTOMETRIC_RGB);
    add_entry(directory, TIFFTAG_SAMPLESPERPIXEL, CONV_TIFF_SHORT, 1, channels);
    add_entry(directory, TIFFTAG_ROWSPERSTRIP, CONV_TIFF_LONG, 1, strip_rows(shape));
    add_entry(directory, TIFFTAG_PLANARCONFIG, CONV_TIFF_SHORT, 1, PLANARCONFIG_CONTIG);
    add_entry(directory, TIFFTAG_SAMPLEFORMAT, CONV_TIFF_SHORT, channels,
              shape->depth == 32 ? SAMPLEFORMAT_IEEEFP : SAMPLEFORMAT_UINT);
    if (predicts != PREDICTOR_NONE)
        add_entry(directory, TIFFTAG_PREDICTOR, CONV_TIFF_SHORT, 1, predicts);
}

// Strips that several threads compress, each for itself, into equal parts of codec->file.
struct work {
    struct conv_codec *codec;
    const struct conv_image *src;
    const struct directory *directory;
    const char *mode; // of libtiff's files
    size_t room;      // of a part
    uint64_t *sizes;  // of the strips
    int first, end;
    atomic_int next;
    atomic_bool failed;
    struct conv_format_fault fault; // of the first thread that failed
};

static bool compress(const struct work *work, struct conv_libtiff *tiff, uint8_t *samples, int i)
{
    const struct conv_image *src = work->src;
    size_t row = conv_interleave_bytes(src);
    int rows = strip_rows(src), y = i * rows,
        count = src->height - y < rows ? src->height - y : rows;
    tiff->fault.cancelled = conv_cancel_is_asked(work->codec->config.stop);
    if (tiff->fault.cancelled)
        return false;
    for (int k = 0; k < count; k++)
        put_samples(samples + (size_t)k * row, src, y + k);
    tiff->strip = work->codec->file.data + (size_t)(i - work->first) * work->room;
    tiff->at = tiff->size = CONV_TIFF_HEADER;
    bool done = TIFFWriteEncodedStrip(tiff->tif, (uint32_t)i, samples,
                                      (tmsize_t)(row * (size_t)count)) >= 0;
    work->sizes[i] = tiff->size - CONV_TIFF_HEADER;
    return done && !tiff->failed;
}

static void work_on(void *context)
{
    struct work *work = context;
    struct conv_libtiff tiff = {.room = work->room};
    uint8_t *samples = malloc(conv_interleave_bytes(work->src) * (size_t)strip_rows(work->src));
    conv_libtiff_open(&tiff, work->mode, thread_bytes(work->src));
    for (size_t i = 0; !tiff.failed && i < work->directory->count; i++)
        TIFFSetField(tiff.tif, work->directory->entry[i].tag, (int)work->directory->value[i][0]);
    bool good = samples && !tiff.failed;
    tiff.fault.no_memory |= !samples;
    for (int i;
         good && !atomic_load(&work->failed) && (i = atomic_fetch_add(&work->next, 1)) < work->end;)
        good = compress(work, &tiff, samples, i);
    if (!good && !atomic_exchange(&work->failed, true))
        work->fault = tiff.fault;
    conv_libtiff_close(&tiff);
    free(samples);
}

// Makes *places, and the content of codec->file, of strips that were compressed.
static void join_strips(const struct work *work, uint64_t *offsets)
{
    struct own *own = (struct own *)work->codec;
    struct conv_buffer *file = &own->codec.file;
    file->size = 0;
    for (int i = work->first; i < work->end; i++) {
        size_t size = (size_t)work->sizes[i];
        memmove(file->data + file->size, file->data + (size_t)(i - work->first) * work->room, size);
        offsets[i] = own->end + file->size;
        file->size += size;
    }
}

// Makes the directory that follows the strips. `extra`: what the channel after the colours is.
// False: out of memory.
static bool end_file(struct own *own, const struct conv_image *src, struct directory *directory,
                     int extra, const struct conv_metadata *metadata)
{
    uint32_t strips = (uint32_t)strip_count(src);
    const uint64_t *places = (const uint64_t *)(const void *)own->places.data;
    struct conv_buffer *file = &own->codec.file;
    if (src->channels % 2 == 0)
        add_entry(directory, TIFFTAG_EXTRASAMPLES, CONV_TIFF_SHORT, 1, extra);
    directory->entry[directory->count++] =
        (struct conv_tiff_entry){TIFFTAG_STRIPOFFSETS, CONV_TIFF_LONG, strips, places};
    directory->entry[directory->count++] =
        (struct conv_tiff_entry){TIFFTAG_STRIPBYTECOUNTS, CONV_TIFF_LONG, strips, places + strips};
    if (own->end % 2 != 0 && !conv_buffer_append(file, (const uint8_t *)"", 1))
        return false;
    size_t at = (size_t)(own->end + own->end % 2);
    conv_tiff_write_header(own->head, at, metadata);
    return conv_tiff_write_directory(&own->codec.row, at, directory->entry, directory->count,
                                     metadata);
}

static enum conv_status encode(struct conv_codec *codec, const struct conv_image *src,
                               const struct conv_metadata *metadata, int from, int to,
                               struct conv_encoded *file, struct conv_err *err)
{
    bool carried = metadata && metadata->bytes.size > 0, last = to == src->height;
    int compression = choose_compression(metadata), rows = strip_rows(src);
    size_t front = carried ? metadata->front : CONV_TIFF_HEADER, strips = (size_t)strip_count(src);
    struct own *own = (struct own *)codec;
    struct directory directory;
    describe(&directory, src, compression);
    // libtiff spoils floats that it predicts for the other byte order; they lie alike in both.
    bool big = carried && metadata->bytes.data[0] == 'M' &&
               predictor(src, compression) != PREDICTOR_FLOATINGPOINT;
    struct work work = {.codec = codec,
                        .src = src,
                        .directory = &directory,
                        .mode = big ? "wb" : "wl",
                        .room = strip_room(src, compression),
                        .first = from / rows,
                        .end = (to - 1) / rows + 1};
    size_t count = (size_t)(work.end - work.first);
    if (!conv_buffer_reserve(&codec->file, count * work.room) ||
        !conv_buffer_reserve(&own->places, strips * 2 * sizeof(uint64_t)))
        return conv_err_memory(err, "out of memory");
    uint64_t *places = (uint64_t *)(void *)own->places.data;
    work.sizes = places + strips;
    atomic_init(&work.next, work.first);
    atomic_init(&work.failed, false);
    conv_parallel_run(count > 1 ? codec->config.parallel : NULL, thread_bytes(src), work_on, &work);
    if (work.failed)
        return conv_format_write_failure(&work.fault, err);
    own->end = from == 0 ? front : own->end;
    join_strips(&work, places);
    own->end += codec->file.size;
    codec->row.size = 0;
    int extra =
        metadata && metadata->kept.unknown ? EXTRASAMPLE_UNSPECIFIED : EXTRASAMPLE_UNASSALPHA;
    if (last && !end_file(own, src, &directory, extra, carried ? metadata : NULL))
        return conv_err_memory(err, "out of memory");
    if (own->end + codec->row.size >= UINT32_MAX) // with the directory, and a byte before it
        return conv_err_unsupported(err, "cannot be encoded: more than 4 GiB");
    // The header states where the directory is, so the last part replaces it.
    struct conv_encoded made = {
        .part =
            {[2] = {codec->file.data, codec->file.size}, [3] = {codec->row.data, codec->row.size}},
        .size = codec->file.size + codec->row.size};
    if (from == 0) {
        made.part[0].data = own->head;
        made.part[0].size = CONV_TIFF_HEADER;
        made.part[1].data = carried ? metadata->bytes.data + CONV_TIFF_HEADER : NULL;
        made.part[1].size = front - CONV_TIFF_HEADER;
        made.size += front;
    } else if (last) {
        made.head = own->head;
        made.head_size = CONV_TIFF_HEADER;
    }
    *file = made;
    return CONV_OK;
}

static void decodes_bands(struct conv_image_header *header, size_t size, struct conv_bands *bands)
{
    *bands = (struct conv_bands){.bytes = conv_tiff_decode_bytes(header, size)};
}

static void encodes_bands(const struct conv_codec *codec, const struct conv_image *shape,
                          const struct conv_metadata *metadata, int rows, struct conv_bands *bands)
{
    struct conv_image part = *shape;
    part.height = rows;
    *bands = (struct conv_bands){.unit = strip_rows(shape)};
    if (rows > 0)
        bands->bytes =
            encode_bytes(&codec->config, &part, metadata) + (size_t)strip_count(shape) * 48;
}

// --- the row -------------------------------------------------------------------------------------

static void close_own(struct conv_codec *codec)
{
    conv_buffer_free(&((struct own *)codec)->places);
}

const struct conv_format conv_tiff_format = {
    .name = "TIFF",
    .patterns = {"*.tif", "*.tiff"},
    .extension = ".tif",
    .most_depth = 32,
    .most_side = INT32_MAX,
    .head_bytes = CONV_TIFF_HEADER,
    .kinds = {"TIFF"},
    .probe = conv_tiff_probe,
    .check_size = conv_tiff_check_size,
    .orientation = conv_exif_orientation,
    .is_animated = conv_tiff_has_pages,
    .has_pages = true,
    .extent = conv_exif_extent,
    .take_common = conv_tiff_take_common,
    .put_common = conv_tiff_put_common,
    .keep = keep,
    .codec_bytes = sizeof(struct own),
    .close = close_own,
    .decode_bytes = conv_tiff_decode_bytes,
    .encode_bytes = encode_bytes,
    .decode = conv_tiff_decode,
    .encode = encode,
    .decodes_bands = decodes_bands,
    .encodes_bands = encodes_bands,
};
