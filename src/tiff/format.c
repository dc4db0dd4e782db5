// SPDX-License-Identifier: MIT
// TIFF as a row of the table of formats, and its encoder. libtiff compresses strips; the directory
// after them is written by metadata.c.
#include <stdio.h>
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
    size_t size = (size_t)bytes, skipped = tiff->at < tiff->start ? tiff->start - tiff->at : 0;
    size_t at = tiff->at + skipped - tiff->start;
    tiff->at += size;
    if (tiff->closed || size <= skipped) // the header, for which there is another
        return bytes;
    size -= skipped;
    struct conv_buffer *file = tiff->file;
    if (at + size > file->capacity) {
        size_t grown = file->capacity + file->capacity / 2;
        size_t least = at + size + CONV_LIBTIFF_LEAST_ROOM;
        grown = grown > tiff->most ? tiff->most : grown;
        if (!conv_buffer_reserve(file, grown > least ? grown : least)) {
            tiff->failed = tiff->fault.no_memory = true;
            return -1;
        }
    }
    memcpy(file->data + at, (const uint8_t *)from + skipped, size);
    if (at + size > file->size)
        file->size = at + size;
    return bytes;
}

static toff_t seek(thandle_t handle, toff_t offset, int whence)
{
    struct conv_libtiff *tiff = handle;
    size_t end = tiff->file ? tiff->start + tiff->file->size : tiff->size;
    tiff->at = (size_t)offset + (whence == SEEK_SET ? 0 : whence == SEEK_CUR ? tiff->at : end);
    return tiff->at;
}

static toff_t size_of(thandle_t handle)
{
    struct conv_libtiff *tiff = handle;
    return tiff->file ? tiff->start + tiff->file->size : tiff->size;
}

static int close_file(thandle_t)
{
    return 0;
}

static int map(thandle_t handle, void **base, toff_t *size)
{
    struct conv_libtiff *tiff = handle;
    if (tiff->file)
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

#define MOST_CHANNELS CONV_IMAGE_MAX_CHANNELS

// scratch: rows as they are in the file, or to be written; row: planes of a row, or the directory;
// file: strips.
struct own {
    struct conv_codec codec;
    struct conv_libtiff writer; // of a file, open between its first and its last rows
    uint8_t head[CONV_TIFF_HEADER];
    int extra; // what a fourth channel, or a second one, is
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
    return (shape->height + strip_rows(shape) - 1) / strip_rows(shape);
}

// LZW expands noise by half, the others by less than 1/64.
static size_t most_bytes(const struct conv_image *shape, int compression)
{
    size_t bytes = conv_interleave_bytes(shape) * (size_t)shape->height;
    return bytes + bytes / (compression == COMPRESSION_LZW ? 2 : 64) +
           (size_t)strip_count(shape) * 64 + CONV_LIBTIFF_LEAST_ROOM;
}

static size_t encode_bytes(const struct conv_codec_config *, const struct conv_image *shape,
                           const struct conv_metadata *metadata)
{
    size_t strip = conv_interleave_bytes(shape) * (size_t)strip_rows(shape);
    return most_bytes(shape, choose_compression(metadata)) + 4 * strip + CONV_LIBTIFF_MOST_STATE +
           (size_t)strip_count(shape) * 48;
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
    uint64_t value[12], depths[MOST_CHANNELS], formats[MOST_CHANNELS];
};

static void add_entry(struct directory *directory, unsigned tag, unsigned type, int value)
{
    uint64_t *at = &directory->value[directory->count];
    *at = (uint64_t)value;
    directory->entry[directory->count++] =
        (struct conv_tiff_entry){(uint16_t)tag, (uint16_t)type, 1, at};
}

static void describe(struct directory *directory, const struct conv_image *shape, int compression)
{
    int predicts = predictor(shape, compression);
    *directory = (struct directory){0};
    add_entry(directory, TIFFTAG_IMAGEWIDTH, CONV_TIFF_LONG, shape->width);
    add_entry(directory, TIFFTAG_IMAGELENGTH, CONV_TIFF_LONG, shape->height);
    add_entry(directory, TIFFTAG_BITSPERSAMPLE, CONV_TIFF_SHORT, shape->depth);
    add_entry(directory, TIFFTAG_COMPRESSION, CONV_TIFF_SHORT, compression);
    add_entry(directory, TIFFTAG_PHOTOMETRIC, CONV_TIFF_SHORT,
              shape->channels < 3 ? PHOTOMETRIC_MINISBLACK : PHOTOMETRIC_RGB);
    add_entry(directory, TIFFTAG_SAMPLESPERPIXEL, CONV_TIFF_SHORT, shape->channels);
    add_entry(directory, TIFFTAG_ROWSPERSTRIP, CONV_TIFF_LONG, strip_rows(shape));
    add_entry(directory, TIFFTAG_PLANARCONFIG, CONV_TIFF_SHORT, PLANARCONFIG_CONTIG);
    add_entry(directory, TIFFTAG_SAMPLEFORMAT, CONV_TIFF_SHORT,
              shape->depth == 32 ? SAMPLEFORMAT_IEEEFP : SAMPLEFORMAT_UINT);
    if (predicts != PREDICTOR_NONE)
        add_entry(directory, TIFFTAG_PREDICTOR, CONV_TIFF_SHORT, predicts);
}

static bool write_strips(struct conv_codec *codec, struct conv_libtiff *tiff,
                         const struct conv_image *src, int from, int to)
{
    int rows = strip_rows(src);
    for (int y = from; y < to; y += rows) {
        int count = to - y < rows ? to - y : rows;
        tiff->fault.cancelled = conv_cancel_is_asked(codec->config.stop);
        if (tiff->fault.cancelled)
            return false;
        for (int i = 0; i < count; i++)
            put_samples(codec->scratch.data + (size_t)i * conv_interleave_bytes(src), src, y + i);
        if (TIFFWriteEncodedStrip(tiff->tif, (uint32_t)(y / rows), codec->scratch.data,
                                  (tmsize_t)(conv_interleave_bytes(src) * (size_t)count)) < 0 ||
            tiff->failed)
            return false;
    }
    return true;
}

// Appends the directory to the strips. False: out of memory.
static bool end_file(struct conv_codec *codec, struct conv_libtiff *tiff,
                     const struct conv_image *src, struct directory *directory,
                     const struct conv_metadata *metadata)
{
    uint64_t *offsets = NULL, *sizes = NULL;
    uint32_t strips = (uint32_t)strip_count(src), channels = (uint32_t)src->channels;
    struct conv_buffer *file = &codec->file;
    TIFFGetField(tiff->tif, TIFFTAG_STRIPOFFSETS, &offsets);
    TIFFGetField(tiff->tif, TIFFTAG_STRIPBYTECOUNTS, &sizes);
    if (src->channels % 2 == 0)
        add_entry(directory, TIFFTAG_EXTRASAMPLES, CONV_TIFF_SHORT, ((struct own *)codec)->extra);
    for (size_t i = 0; i < directory->count; i++) { // one value per channel
        struct conv_tiff_entry *entry = &directory->entry[i];
        bool depth = entry->tag == TIFFTAG_BITSPERSAMPLE;
        uint64_t *values = depth ? directory->depths : directory->formats;
        if (!depth && entry->tag != TIFFTAG_SAMPLEFORMAT)
            continue;
        for (uint32_t c = 0; c < channels; c++)
            values[c] = directory->value[i];
        entry->count = channels;
        entry->values = values;
    }
    directory->entry[directory->count++] =
        (struct conv_tiff_entry){TIFFTAG_STRIPOFFSETS, CONV_TIFF_LONG, strips, offsets};
    directory->entry[directory->count++] =
        (struct conv_tiff_entry){TIFFTAG_STRIPBYTECOUNTS, CONV_TIFF_LONG, strips, sizes};
    if ((tiff->start + file->size) % 2 != 0 && !conv_buffer_append(file, (const uint8_t *)"", 1))
        return false;
    size_t at = tiff->start + file->size;
    conv_tiff_write_header(((struct own *)codec)->head, at, metadata);
    return conv_tiff_write_directory(&codec->row, at, directory->entry, directory->count, metadata);
}

static enum conv_status write_rows(struct conv_codec *codec, const struct conv_image *src,
                                   int compression, const struct conv_metadata *metadata, int from,
                                   int to, struct conv_err *err)
{
    struct conv_libtiff *tiff = &((struct own *)codec)->writer;
    struct directory directory;
    describe(&directory, src, compression);
    for (size_t i = 0; !tiff->failed && from == 0 && i < directory.count; i++)
        TIFFSetField(tiff->tif, directory.entry[i].tag, (int)directory.value[i]);
    if (tiff->failed || !write_strips(codec, tiff, src, from, to))
        return conv_format_write_failure(&tiff->fault, err);
    if (to == src->height && !end_file(codec, tiff, src, &directory, metadata))
        return conv_err_set(err, CONV_ERR_MEMORY, "out of memory");
    return CONV_OK;
}

static enum conv_status encode(struct conv_codec *codec, const struct conv_image *src,
                               const struct conv_metadata *metadata, int from, int to,
                               struct conv_encoded *file, struct conv_err *err)
{
    bool carried = metadata && metadata->bytes.size > 0, last = to == src->height;
    int compression = choose_compression(metadata);
    size_t strip = conv_interleave_bytes(src) * (size_t)strip_rows(src);
    size_t front = carried ? metadata->front : CONV_TIFF_HEADER;
    struct conv_libtiff *tiff = &((struct own *)codec)->writer;
    ((struct own *)codec)->extra =
        metadata && metadata->kept.unknown ? EXTRASAMPLE_UNSPECIFIED : EXTRASAMPLE_UNASSALPHA;
    if (!conv_buffer_reserve(&codec->scratch, strip))
        return conv_err_set(err, CONV_ERR_MEMORY, "out of memory");
    if (from == 0) {
        conv_libtiff_close(tiff); // of an image that failed
        *tiff = (struct conv_libtiff){
            .file = &codec->file, .start = front, .most = most_bytes(src, compression)};
        codec->file.size = 0;
        // libtiff spoils floats that it predicts for the other byte order; they lie alike in both.
        bool big = carried && metadata->bytes.data[0] == 'M' &&
                   predictor(src, compression) != PREDICTOR_FLOATINGPOINT;
        conv_libtiff_open(tiff, big ? "wb" : "wl",
                          4 * strip + CONV_LIBTIFF_MOST_STATE + (size_t)strip_count(src) * 16);
    } else { // the strips so far have been taken
        tiff->start += codec->file.size;
        codec->file.size = 0;
    }
    codec->row.size = 0;
    enum conv_status status =
        write_rows(codec, src, compression, carried ? metadata : NULL, from, to, err);
    if (status || last)
        conv_libtiff_close(tiff);
    if (status)
        return status;
    // The header states where the directory is, so the last part replaces it.
    struct conv_encoded made = {
        .part =
            {[2] = {codec->file.data, codec->file.size}, [3] = {codec->row.data, codec->row.size}},
        .size = codec->file.size + codec->row.size};
    if (from == 0) {
        made.part[0].data = ((struct own *)codec)->head;
        made.part[0].size = CONV_TIFF_HEADER;
        made.part[1].data = carried ? metadata->bytes.data + CONV_TIFF_HEADER : NULL;
        made.part[1].size = front - CONV_TIFF_HEADER;
        made.size += front;
    } else if (last) {
        made.head = ((struct own *)codec)->head;
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

static void end_own(struct conv_codec *codec) // also of an image that failed
{
    conv_libtiff_close(&((struct own *)codec)->writer);
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
    .close = end_own,
    .trim = end_own,
    .decode_bytes = conv_tiff_decode_bytes,
    .encode_bytes = encode_bytes,
    .decode = conv_tiff_decode,
    .encode = encode,
    .decodes_bands = decodes_bands,
    .encodes_bands = encodes_bands,
};
