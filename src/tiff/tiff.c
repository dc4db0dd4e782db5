// SPDX-License-Identifier: MIT
// TIFF as a row of the table of formats: the only file that uses libtiff. Files are opened in
// memory with handlers of their own, so that nothing is printed and no thread sees the messages of
// another; what libtiff guesses or repairs is an error here.
#include "tiff/tiff.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tiffio.h>

#include "base/parallel.h"

#define PALETTE 256
#define LINEAR_RAW 34892 // of DNG

// Larger strips are decoded row by row, which needs no memory of their size.
#define MOST_STRIP ((size_t)4 << 20)

// Strips that are written. Decoders hold one at a time.
#define STRIP_BYTES ((size_t)256 << 10)

// Least bytes by which the output buffer grows.
#define LEAST_ROOM ((size_t)1 << 16)

// Largest block that libtiff allocates besides those for samples and lists: the tables of LZW have
// 144 KiB.
#define MOST_STATE ((size_t)256 << 10)

// Decoded bytes per byte of a file. A code of LZW takes at least 9 bits and stands for 4096 bytes
// at most, and deflate is at 1032; one bit of CCITT stands for a row of any length.
#define MOST_EXPANSION 4096

// Larger tiles than this are not larger than their image. Small images have tiles of usual size.
#define MOST_TILE_SIDE 8192u

struct conv_codec {
    struct conv_codec_config config;
    struct conv_buffer band; // rows as they are in the file, or to be written
    struct conv_buffer row;  // planes of a row
    struct conv_buffer file; // strips, then the directory
    size_t strips;           // bytes of `file`
    uint8_t head[CONV_TIFF_HEADER];
};

// --- libtiff -------------------------------------------------------------------------------------

// A file that libtiff has open, and what it has said.
struct tiff {
    TIFF *tif;
    const uint8_t *data; // that is read
    size_t size, at;
    bool decoding;            // the directory has been read
    bool failed;              // `fault` says why
    bool closed;              // what libtiff still writes is not wanted
    struct conv_buffer *file; // that is written, from `start` on
    size_t start, most;
    struct conv_format_fault fault;
};

static void keep_message(struct tiff *tiff, const char *format, va_list arguments)
{
    if (tiff->failed)
        return;
    tiff->failed = true;
    vsnprintf(tiff->fault.text, sizeof tiff->fault.text, format, arguments);
    tiff->fault.truncated = strstr(format, "Can not read TIFF directory");
    tiff->fault.no_memory |= !strstr(format, "beyond") && // a limit of ours
                             (strstr(format, "ut of memory") || strstr(format, "No space"));
}

static int on_error(TIFF *tif, void *user, const char *module, const char *format,
                    va_list arguments)
{
    (void)tif;
    (void)module;
    keep_message(user, format, arguments);
    return 1;
}

// In a directory libtiff warns of unknown tags and others that it ignores; what it assumes instead
// of what is there, or missing, is damage. While it decodes, all but one warning are of damage.
static int on_warning(TIFF *tif, void *user, const char *module, const char *format,
                      va_list arguments)
{
    static const char *const damage[] = {"Bogus", "Wrong", "missing", "ssum"};
    struct tiff *tiff = user;
    bool bad = tiff->decoding && !strstr(format, "Old-style LZW");
    (void)tif;
    (void)module;
    for (size_t i = 0; i < sizeof damage / sizeof damage[0] && !tiff->decoding; i++)
        bad = bad || strstr(format, damage[i]);
    if (bad)
        keep_message(tiff, format, arguments);
    return 1;
}

static tmsize_t read_bytes(thandle_t handle, void *to, tmsize_t bytes)
{
    struct tiff *tiff = handle;
    size_t left = tiff->at < tiff->size ? tiff->size - tiff->at : 0;
    size_t take = (size_t)bytes < left ? (size_t)bytes : left;
    if (take > 0)
        memcpy(to, tiff->data + tiff->at, take);
    tiff->at += take;
    return (tmsize_t)take;
}

static tmsize_t write_bytes(thandle_t handle, void *from, tmsize_t bytes)
{
    struct tiff *tiff = handle;
    size_t size = (size_t)bytes, skipped = tiff->at < tiff->start ? tiff->start - tiff->at : 0;
    size_t at = tiff->at + skipped - tiff->start;
    tiff->at += size;
    if (tiff->closed || size <= skipped) // the header, for which there is another
        return bytes;
    size -= skipped;
    struct conv_buffer *file = tiff->file;
    if (at + size > file->capacity) {
        size_t grown = file->capacity + file->capacity / 2;
        size_t least = at + size + LEAST_ROOM;
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
    struct tiff *tiff = handle;
    size_t end = tiff->file ? tiff->start + tiff->file->size : tiff->size;
    tiff->at = (size_t)offset + (whence == SEEK_SET ? 0 : whence == SEEK_CUR ? tiff->at : end);
    return tiff->at;
}

static toff_t size_of(thandle_t handle)
{
    struct tiff *tiff = handle;
    return tiff->file ? tiff->start + tiff->file->size : tiff->size;
}

static int close_file(thandle_t handle)
{
    (void)handle;
    return 0;
}

static int map(thandle_t handle, void **base, toff_t *size)
{
    struct tiff *tiff = handle;
    if (tiff->file)
        return 0;
    *base = (void *)(uintptr_t)tiff->data; // only read
    *size = tiff->size;
    return 1;
}

static void unmap(thandle_t handle, void *base, toff_t size)
{
    (void)handle;
    (void)base;
    (void)size;
}

// `most`: bytes that libtiff may allocate at once. Sets tiff->failed unless it is open.
static void open_tiff(struct tiff *tiff, const char *mode, size_t most)
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

static void close_tiff(struct tiff *tiff)
{
    tiff->closed = true;
    if (tiff->tif)
        TIFFClose(tiff->tif);
    tiff->tif = NULL;
}

// --- the image of a file -------------------------------------------------------------------------

// How the samples of a file are stored.
struct layout {
    uint32_t width, height;
    uint16_t samples, bits, format, photometric, planar, compression;
    bool alpha, associated;
    bool tiled;
    uint32_t tile_width, rows; // of a tile; of a tile or a strip
    size_t row_bytes;          // of one of `parts` in the band
    int parts;                 // of a row: 1, or one per sample
    int band_rows;             // that are decoded together
    size_t tile_bytes;         // of a tile
};

static enum conv_status refuse(struct conv_err *err, const char *what, const char *hint)
{
    return conv_err_set(err, CONV_ERR_UNSUPPORTED, "%s%s%s", what, hint ? ": " : "",
                        hint ? hint : "");
}

// Only gray, RGB and palettes are read.
static enum conv_status check_colors(const struct layout *layout, struct conv_err *err)
{
    static const char vips[] = "vips icc_transform INPUT OUTPUT.tif srgb converts it";
    bool jpeg = layout->compression == COMPRESSION_JPEG;
    switch (layout->photometric) {
    case PHOTOMETRIC_MINISWHITE:
    case PHOTOMETRIC_MINISBLACK:
    case PHOTOMETRIC_RGB:
    case PHOTOMETRIC_PALETTE:
        return CONV_OK;
    case PHOTOMETRIC_YCBCR:
        return jpeg ? CONV_OK
                    : refuse(err, "TIFF of YCbCr; only gray, RGB and palettes are read",
                             "vips copy INPUT OUTPUT.png converts it");
    case PHOTOMETRIC_SEPARATED:
        return refuse(err, "CMYK TIFF (four channels for print); only gray and RGB are read", vips);
    case PHOTOMETRIC_CIELAB:
    case PHOTOMETRIC_ICCLAB:
    case PHOTOMETRIC_ITULAB:
        return refuse(err, "TIFF of CIELAB colours; only gray and RGB are read", vips);
    case PHOTOMETRIC_CFA:
    case LINEAR_RAW:
        return refuse(err, "raw data of a camera", "darktable-cli INPUT OUTPUT.tif develops them");
    default:
        return conv_err_set(err, CONV_ERR_UNSUPPORTED,
                            "TIFF of unusual colours (%d); only gray and RGB are read",
                            layout->photometric);
    }
}

static enum conv_status check_samples(const struct layout *layout, struct conv_err *err)
{
    int bits = layout->bits,
        colors = layout->photometric == PHOTOMETRIC_RGB || layout->photometric == PHOTOMETRIC_YCBCR
                     ? 3
                     : 1;
    bool palette = layout->photometric == PHOTOMETRIC_PALETTE;
    bool real = layout->format == SAMPLEFORMAT_IEEEFP;
    bool whole = layout->format == SAMPLEFORMAT_UINT || layout->format == SAMPLEFORMAT_VOID;
    bool small = bits == 1 || bits == 2 || bits == 4;
    if (layout->samples < colors)
        return conv_err_set(err, CONV_ERR_FORMAT, "bad header: %d samples per pixel",
                            layout->samples);
    if (layout->samples > colors + !palette)
        return conv_err_set(
            err, CONV_ERR_UNSUPPORTED,
            "TIFF of %d channels; only gray and RGB, both also with alpha, are read",
            layout->samples);
    if (real || !whole || (bits != 8 && bits != 16 && !small) || (palette && bits == 16))
        return conv_err_set(
            err, CONV_ERR_UNSUPPORTED,
            "TIFF of %d-bit %s samples; only those of 8 and 16 bits and gray of 1, 2 and 4 are "
            "read",
            bits,
            real    ? "floating-point"
            : whole ? "unsigned"
                    : "signed or complex");
    if (small && layout->samples > 1)
        return conv_err_set(err, CONV_ERR_UNSUPPORTED, "TIFF of %d-bit samples in %d channels",
                            bits, layout->samples);
    return CONV_OK;
}

static enum conv_status check_kind(TIFF *tif, const struct layout *layout, struct conv_err *err)
{
    uint32_t subfile = 0;
    const void *version;
    if (!TIFFIsCODECConfigured(layout->compression) ||
        layout->compression == COMPRESSION_OJPEG) // which it decodes with guesses
        return conv_err_set(err, CONV_ERR_UNSUPPORTED,
                            "TIFF of compression %d, which is not read: vips copy INPUT OUTPUT.png "
                            "converts it",
                            layout->compression);
    uint16_t count = 0;
    if (TIFFGetField(tif, TIFFTAG_DNGVERSION, &version) ||
        (TIFFGetField(tif, TIFFTAG_SUBFILETYPE, &subfile) && subfile & FILETYPE_REDUCEDIMAGE &&
         TIFFGetField(tif, TIFFTAG_SUBIFD, &count, &version)))
        return refuse(err, "raw data of a camera", "darktable-cli INPUT OUTPUT.tif develops them");
    return CONV_OK;
}

static void read_tags(TIFF *tif, struct layout *layout)
{
    uint16_t extra_count = 0, *extra = NULL;
    layout->format = SAMPLEFORMAT_UINT;
    layout->samples = layout->bits = layout->planar = 1;
    TIFFGetField(tif, TIFFTAG_IMAGEWIDTH, &layout->width);
    TIFFGetField(tif, TIFFTAG_IMAGELENGTH, &layout->height);
    TIFFGetFieldDefaulted(tif, TIFFTAG_SAMPLESPERPIXEL, &layout->samples);
    TIFFGetFieldDefaulted(tif, TIFFTAG_BITSPERSAMPLE, &layout->bits);
    TIFFGetFieldDefaulted(tif, TIFFTAG_SAMPLEFORMAT, &layout->format);
    TIFFGetFieldDefaulted(tif, TIFFTAG_PLANARCONFIG, &layout->planar);
    TIFFGetFieldDefaulted(tif, TIFFTAG_COMPRESSION, &layout->compression);
    if (!TIFFGetField(tif, TIFFTAG_PHOTOMETRIC, &layout->photometric))
        layout->photometric = UINT16_MAX;
    if (TIFFGetField(tif, TIFFTAG_EXTRASAMPLES, &extra_count, &extra) && extra_count == 1)
        layout->associated = extra[0] == EXTRASAMPLE_ASSOCALPHA;
}

// libtiff takes indices without a palette for gray.
static bool lacks_palette(const struct tiff *tiff, const struct layout *layout)
{
    struct conv_exif_tag tag;
    return layout->photometric != PHOTOMETRIC_PALETTE &&
           conv_exif_find(tiff->data, tiff->size, 0, TIFFTAG_PHOTOMETRIC, &tag) && tag.size == 2 &&
           tag.value[tag.little ? 0 : 1] == PHOTOMETRIC_PALETTE;
}

// After the tags have been checked.
static enum conv_status find_bands(TIFF *tif, struct layout *layout, struct conv_err *err)
{
    bool separate = layout->planar == PLANARCONFIG_SEPARATE && layout->samples > 1;
    layout->parts = separate ? layout->samples : 1;
    layout->tiled = TIFFIsTiled(tif);
    size_t samples = separate ? 1 : layout->samples;
    uint64_t width = layout->width, rows = layout->height;
    // With libdeflate libtiff takes a strip that is too long, and its last samples stay unset.
    if (layout->compression == COMPRESSION_ADOBE_DEFLATE ||
        layout->compression == COMPRESSION_DEFLATE)
        TIFFSetField(tif, TIFFTAG_DEFLATE_SUBCODEC, DEFLATE_SUBCODEC_ZLIB);
    if (layout->photometric == PHOTOMETRIC_YCBCR) // RGB, of full size
        TIFFSetField(tif, TIFFTAG_JPEGCOLORMODE, JPEGCOLORMODE_RGB);
    if (layout->tiled) {
        uint32_t across = 0;
        TIFFGetField(tif, TIFFTAG_TILEWIDTH, &across);
        TIFFGetField(tif, TIFFTAG_TILELENGTH, &layout->rows);
        layout->tile_width = across;
        if (across == 0 || layout->rows == 0 || across % 16 != 0 || layout->rows % 16 != 0 ||
            (across > MOST_TILE_SIDE && across - 15 > layout->width) ||
            (layout->rows > MOST_TILE_SIDE && layout->rows - 15 > layout->height))
            return conv_err_set(err, CONV_ERR_FORMAT, "bad header: tiles of %u x %u pixels",
                                (unsigned)across, (unsigned)layout->rows);
        width = (width + across - 1) / across * across;
        rows = layout->rows;
        uint64_t row = ((uint64_t)across * samples * layout->bits + 7) / 8;
        if (row * rows > SIZE_MAX / 64)
            return conv_err_set(err, CONV_ERR_FORMAT, "bad header: tiles of %u x %u pixels",
                                (unsigned)across, (unsigned)layout->rows);
        layout->tile_bytes = (size_t)(row * rows);
    } else {
        TIFFGetFieldDefaulted(tif, TIFFTAG_ROWSPERSTRIP, &layout->rows);
        if (layout->rows == 0)
            return conv_err_set(err, CONV_ERR_FORMAT, "bad header: strips of 0 rows");
        rows = layout->rows < layout->height ? layout->rows : layout->height;
    }
    layout->row_bytes = (size_t)((width * samples * layout->bits + 7) / 8);
    if (!layout->tiled && !separate && layout->row_bytes * rows > MOST_STRIP)
        rows = 1;
    layout->band_rows = (int)rows;
    return CONV_OK;
}

static enum conv_status read_layout(struct tiff *tiff, struct layout *layout, struct conv_err *err)
{
    *layout = (struct layout){0};
    if (tiff->tif)
        read_tags(tiff->tif, layout);
    if (tiff->failed && layout->compression != COMPRESSION_OJPEG)
        return conv_format_read_failure(&tiff->fault, tiff->size, err);
    if (layout->width == 0 || layout->height == 0 || layout->width > INT32_MAX ||
        layout->height > INT32_MAX)
        return conv_err_set(err, CONV_ERR_FORMAT, "bad header: %u x %u pixels",
                            (unsigned)layout->width, (unsigned)layout->height);
    if (lacks_palette(tiff, layout))
        return conv_err_set(err, CONV_ERR_FORMAT, "damaged: no palette");
    enum conv_status status = check_kind(tiff->tif, layout, err);
    if (!status)
        status = check_colors(layout, err);
    if (!status)
        status = check_samples(layout, err);
    layout->alpha = layout->samples == 2 || layout->samples == 4;
    return status ? status : find_bands(tiff->tif, layout, err);
}

// A directory has no value that is longer than its file; libtiff widens numbers of two bytes.
static size_t most_directory(size_t size)
{
    return 4 * size + MOST_STATE;
}

static void open_for_reading(struct tiff *tiff, const uint8_t *data, size_t size, size_t most)
{
    *tiff = (struct tiff){.data = data, .size = size};
    open_tiff(tiff, "rO", most); // the lists of strips are read when they are needed
}

static enum conv_status check_head(const uint8_t *data, size_t size, struct conv_err *err)
{
    if (size == 0)
        return conv_err_set(err, CONV_ERR_FORMAT, "empty file");
    const char *format = conv_format_of_bytes(data, size);
    if (!format || strcmp(format, "TIFF") != 0)
        return conv_format_refuse("TIFF", data, size, err);
    if (size < CONV_TIFF_HEADER)
        return conv_err_set(err, CONV_ERR_FORMAT, "truncated: ends inside the header");
    return CONV_OK;
}

static enum conv_status probe(const uint8_t *data, size_t size, struct conv_image_header *header,
                              struct conv_err *err)
{
    struct tiff tiff;
    struct layout layout;
    enum conv_status status = check_head(data, size, err);
    if (status)
        return status;
    open_for_reading(&tiff, data, size, most_directory(size));
    status = read_layout(&tiff, &layout, err);
    bool palette = layout.photometric == PHOTOMETRIC_PALETTE;
    *header = (struct conv_image_header){
        .shape = {.width = (int)layout.width,
                  .height = (int)layout.height,
                  .channels = palette ? 3 : layout.samples,
                  .depth = layout.bits < 8 ? 8 : layout.bits,
                  .alpha = layout.alpha},
        .tiff = {.band_bytes = layout.row_bytes * (size_t)layout.parts * (size_t)layout.band_rows,
                 .tile_bytes = layout.tile_bytes,
                 .compression = layout.compression},
    };
    close_tiff(&tiff);
    return status;
}

// The strips or tiles are in the file, and do not overlap as far as their sizes say.
static enum conv_status check_strips(struct tiff *tiff, const struct layout *layout,
                                     struct conv_err *err)
{
    uint64_t sum = 0, pixels = (uint64_t)layout->width * layout->height;
    uint32_t count = layout->tiled ? TIFFNumberOfTiles(tiff->tif) : TIFFNumberOfStrips(tiff->tif);
    for (uint32_t i = 0; i < count; i++) {
        int bad = 0;
        uint64_t at = TIFFGetStrileOffsetWithErr(tiff->tif, i, &bad);
        uint64_t bytes = bad ? 0 : TIFFGetStrileByteCountWithErr(tiff->tif, i, &bad);
        if (bad || tiff->failed)
            return conv_format_read_failure(&tiff->fault, tiff->size, err);
        if (at > tiff->size || bytes > tiff->size - at)
            return conv_err_set(err, CONV_ERR_FORMAT, "truncated: ends too early, after %zu bytes",
                                tiff->size);
        if (bytes == 0)
            return conv_err_set(err, CONV_ERR_FORMAT, "damaged: a part of the image is missing");
        sum += bytes;
        if (sum > tiff->size)
            return conv_err_set(err, CONV_ERR_FORMAT, "damaged: parts of the image overlap");
    }
    uint64_t decoded = pixels / 8 * layout->samples * layout->bits;
    if (decoded / MOST_EXPANSION > sum && layout->bits > 1)
        return conv_err_set(
            err, CONV_ERR_FORMAT, "damaged: too little image data (%llu B) for %u x %u pixels",
            (unsigned long long)sum, (unsigned)layout->width, (unsigned)layout->height);
    return CONV_OK;
}

static enum conv_status check_size(const uint8_t *data, size_t size,
                                   const struct conv_image_header *header, struct conv_err *err)
{
    struct tiff tiff;
    struct layout layout;
    (void)header;
    open_for_reading(&tiff, data, size, most_directory(size));
    enum conv_status status = read_layout(&tiff, &layout, err);
    if (!status)
        status = check_strips(&tiff, &layout, err);
    close_tiff(&tiff);
    return status;
}

// Of several directories, those after the first one that are neither a smaller image of the same
// nor pages of their own are masks, which would be lost as well.
static bool has_pages(const uint8_t *data, size_t size)
{
    enum { MOST = 64 }; // directories that are looked at
    uint64_t at = conv_exif_next(data, size, 0);
    for (int i = 0; i < MOST && at; i++) {
        struct conv_exif_tag tag;
        bool found = conv_exif_find(data, size, at, TIFFTAG_SUBFILETYPE, &tag) && tag.size == 4;
        if (!found || !(tag.value[tag.little ? 0 : 3] & FILETYPE_REDUCEDIMAGE))
            return true;
        at = conv_exif_next(data, size, at);
    }
    return at;
}

// --- decoding ------------------------------------------------------------------------------------

struct reader {
    struct tiff tiff;
    struct layout layout;
    const struct conv_image_header *header;
    uint8_t *band, *tile;
    uint8_t palette[3][PALETTE];
    const atomic_int *stop;
};

static bool read_tiles(struct reader *reader, uint32_t y, int part)
{
    const struct layout *layout = &reader->layout;
    size_t row = layout->tile_bytes / layout->rows;
    uint8_t *band = reader->band + (size_t)part * layout->row_bytes * (size_t)layout->band_rows;
    for (uint32_t x = 0; x < layout->width; x += layout->tile_width, band += row) {
        uint32_t tile = TIFFComputeTile(reader->tiff.tif, x, y, 0, (uint16_t)part);
        if (TIFFReadEncodedTile(reader->tiff.tif, tile, reader->tile,
                                (tmsize_t)layout->tile_bytes) != (tmsize_t)layout->tile_bytes)
            return false;
        for (size_t i = 0; i < layout->rows; i++)
            memcpy(band + i * layout->row_bytes, reader->tile + i * row, row);
        if (layout->width - x <= layout->tile_width)
            break;
    }
    return true;
}

// Fills the band from row y on.
static bool read_band(struct reader *reader, uint32_t y)
{
    const struct layout *layout = &reader->layout;
    TIFF *tif = reader->tiff.tif;
    uint32_t left = layout->height - y, all = (uint32_t)layout->band_rows;
    size_t bytes = layout->row_bytes * (left < all ? left : all);
    for (int part = 0; part < layout->parts; part++) {
        uint8_t *band = reader->band + (size_t)part * layout->row_bytes * all;
        bool done;
        if (layout->tiled)
            done = read_tiles(reader, y, part);
        else if (all == 1 && layout->rows > 1)
            done = TIFFReadScanline(tif, band, y, (uint16_t)part) == 1;
        else
            done = TIFFReadEncodedStrip(tif, TIFFComputeStrip(tif, y, (uint16_t)part), band,
                                        (tmsize_t)bytes) == (tmsize_t)bytes;
        if (!done || reader->tiff.failed)
            return false;
    }
    return true;
}

static void unpack_bits(uint8_t *dst, const uint8_t *src, int width, int bits)
{
    unsigned mask = (1u << bits) - 1;
    int per_byte = 8 / bits;
    for (int x = 0; x < width; x++)
        dst[x] = (uint8_t)(src[x / per_byte] >> (8 - bits - x % per_byte * bits) & mask);
}

// One sample of each pixel, `step` samples apart.
static void take_samples(uint8_t *dst, const uint8_t *src, int width, int step, int bits)
{
    size_t s = (size_t)step;
    if (bits < 8) {
        unpack_bits(dst, src, width, bits);
    } else if (bits == 8) {
        for (int x = 0; x < width; x++)
            dst[x] = src[(size_t)x * s];
    } else if (bits == 16) {
        for (int x = 0; x < width; x++)
            memcpy(dst + 2 * (size_t)x, src + 2 * (size_t)x * s, 2);
    } else {
        for (int x = 0; x < width; x++)
            memcpy(dst + 4 * (size_t)x, src + 4 * (size_t)x * s, 4);
    }
}

// Gray of few bits to 8, white that is 0 to black that is 0, palettes to colours.
static void finish_gray(const struct reader *reader, const struct conv_image *row)
{
    const struct layout *layout = &reader->layout;
    uint8_t *first = row->plane[0].data;
    bool inverted = layout->photometric == PHOTOMETRIC_MINISWHITE;
    if (layout->photometric == PHOTOMETRIC_PALETTE) {
        for (int x = 0; x < row->width; x++) {
            uint8_t index = first[x];
            for (int c = 0; c < 3; c++)
                row->plane[c].data[x] = reader->palette[c][index];
        }
    } else if (layout->bits <= 8 && (layout->bits < 8 || inverted)) {
        unsigned scale = 255 / ((1u << layout->bits) - 1), flip = inverted ? 255 : 0;
        for (int x = 0; x < row->width; x++)
            first[x] = (uint8_t)((first[x] * scale) ^ flip);
    } else if (inverted) {
        uint16_t *samples = (uint16_t *)(void *)first;
        for (int x = 0; x < row->width; x++)
            samples[x] = (uint16_t)~samples[x];
    }
}

static unsigned divide(unsigned sample, unsigned alpha, unsigned most)
{
    unsigned value = alpha ? (unsigned)(((uint64_t)sample * most + alpha / 2) / alpha) : 0;
    return value < most ? value : most;
}

// Colours that were multiplied by alpha.
static void divide_colors(const struct conv_image *row)
{
    const uint8_t *alpha = row->plane[row->channels - 1].data;
    for (int c = 0; c < row->channels - 1; c++) {
        uint8_t *plane = row->plane[c].data;
        for (int x = 0; x < row->width; x++) {
            if (row->depth == 8) {
                plane[x] = (uint8_t)divide(plane[x], alpha[x], 255);
            } else if (row->depth == 16) {
                uint16_t *sample = (uint16_t *)(void *)plane + x;
                *sample =
                    (uint16_t)divide(*sample, ((const uint16_t *)(const void *)alpha)[x], 65535);
            } else {
                float *sample = (float *)(void *)plane + x;
                float by = ((const float *)(const void *)alpha)[x];
                *sample = by > 0 ? *sample / by : 0;
            }
        }
    }
}

// Row `i` of the band.
static void unpack_row(const struct reader *reader, int i, const struct conv_image *row)
{
    const struct layout *layout = &reader->layout;
    size_t part = layout->row_bytes * (size_t)layout->band_rows;
    size_t bytes = layout->bits / 8;
    const uint8_t *from = reader->band + (size_t)i * layout->row_bytes;
    for (int c = 0; c < layout->samples; c++)
        take_samples(row->plane[c].data, from + (size_t)c * (layout->parts > 1 ? part : bytes),
                     row->width, layout->parts > 1 ? 1 : layout->samples, layout->bits);
    if (layout->samples <= 2)
        finish_gray(reader, row);
    if (layout->alpha && layout->associated)
        divide_colors(row);
}

// Old files have 8 bits of each colour instead of 16.
static bool read_palette(struct reader *reader)
{
    uint16_t *map[3];
    int count = 1 << reader->layout.bits;
    if (!TIFFGetField(reader->tiff.tif, TIFFTAG_COLORMAP, &map[0], &map[1], &map[2]))
        return false;
    unsigned all = 0;
    for (int c = 0; c < 3; c++)
        for (int i = 0; i < count; i++)
            all |= map[c][i];
    for (int c = 0; c < 3; c++)
        for (int i = 0; i < count; i++)
            reader->palette[c][i] = (uint8_t)(all > 255 ? map[c][i] >> 8 : map[c][i]);
    return true;
}

static enum conv_status fail(struct reader *reader, struct conv_err *err)
{
    return conv_format_read_failure(&reader->tiff.fault, reader->tiff.size, err);
}

static enum conv_status read_rows(struct reader *reader, const struct conv_image *dst,
                                  const struct conv_image *one, const struct conv_rows *rows,
                                  struct conv_err *err)
{
    const struct layout *layout = &reader->layout;
    int height = (int)layout->height, i = 0;
    for (int y = 0; y < height; y++, i++) {
        struct conv_image row = *one;
        if (y % layout->band_rows == 0) {
            if (conv_cancel_is_asked(reader->stop))
                return conv_err_set(err, CONV_ERR_CANCELLED, CONV_CANCEL_TEXT);
            if (!read_band(reader, (uint32_t)y))
                return fail(reader, err);
            i = 0;
        }
        for (int c = 0; dst && c < one->channels; c++)
            row.plane[c].data = dst->plane[c].data + y * dst->plane[c].stride;
        unpack_row(reader, i, &row);
        if (rows)
            rows->put(rows->context, y, &row);
    }
    return CONV_OK;
}

static bool same_image(const struct reader *reader)
{
    const struct layout *layout = &reader->layout;
    const struct conv_image *shape = &reader->header->shape;
    return layout->width == (uint32_t)shape->width && layout->height == (uint32_t)shape->height;
}

static enum conv_status decode_open(struct conv_codec *codec, struct reader *reader,
                                    const struct conv_image *dst, const struct conv_rows *rows,
                                    struct conv_err *err)
{
    const struct conv_image_header *header = reader->header;
    struct conv_image one = header->shape;
    one.height = 1;
    enum conv_status status = read_layout(&reader->tiff, &reader->layout, err);
    if (status)
        return status;
    if (!same_image(reader) ||
        (reader->layout.photometric == PHOTOMETRIC_PALETTE && !read_palette(reader)))
        return conv_err_set(err, CONV_ERR_FORMAT, "damaged: contradicts its header");
    if (!conv_buffer_reserve(&codec->band, header->tiff.band_bytes + header->tiff.tile_bytes) ||
        (rows && !conv_buffer_reserve(&codec->row, conv_image_bytes(&one))))
        return conv_err_set(err, CONV_ERR_MEMORY, "out of memory");
    if (rows)
        conv_image_lay_out(&one, &one, codec->row.data);
    reader->band = codec->band.data;
    reader->tile = codec->band.data + header->tiff.band_bytes;
    reader->tiff.decoding = true;
    return read_rows(reader, dst, &one, rows, err);
}

static enum conv_status decode_to(struct conv_codec *codec, const uint8_t *data, size_t size,
                                  const struct conv_image_header *header,
                                  const struct conv_image *dst, const struct conv_rows *rows,
                                  struct conv_err *err)
{
    struct reader reader = {.header = header, .stop = codec->config.stop};
    open_for_reading(&reader.tiff, data, size,
                     most_directory(size) + header->tiff.band_bytes + header->tiff.tile_bytes);
    enum conv_status status = decode_open(codec, &reader, dst, rows, err);
    close_tiff(&reader.tiff);
    return status;
}

static enum conv_status decode(struct conv_codec *codec, const uint8_t *data, size_t size,
                               const struct conv_image_header *header, const struct conv_image *dst,
                               struct conv_err *err)
{
    return decode_to(codec, data, size, header, dst, NULL, err);
}

static enum conv_status decode_rows(struct conv_codec *codec, const uint8_t *data, size_t size,
                                    const struct conv_image_header *header,
                                    const struct conv_rows *rows, struct conv_err *err)
{
    return decode_to(codec, data, size, header, NULL, rows, err);
}

static size_t decode_bytes(const struct conv_image_header *header, size_t size)
{
    struct conv_image row = header->shape;
    row.height = 1;
    return 2 * header->tiff.band_bytes + 2 * header->tiff.tile_bytes + size / 8 + MOST_STATE +
           conv_image_bytes(&row);
}

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

static void keep(const uint8_t *data, size_t size, const struct conv_image_header *header,
                 struct conv_kept *kept)
{
    (void)data;
    (void)size;
    kept->compression = header->tiff.compression;
}

static size_t row_bytes(const struct conv_image *shape)
{
    return (size_t)shape->width * (size_t)shape->channels * (size_t)(shape->depth / 8);
}

static int strip_rows(const struct conv_image *shape)
{
    size_t rows = STRIP_BYTES / row_bytes(shape);
    return rows < 1 ? 1 : rows < (size_t)shape->height ? (int)rows : shape->height;
}

static int strip_count(const struct conv_image *shape)
{
    return (shape->height + strip_rows(shape) - 1) / strip_rows(shape);
}

// LZW expands noise by half, the others by less than 1/64.
static size_t most_bytes(const struct conv_image *shape, int compression)
{
    size_t bytes = row_bytes(shape) * (size_t)shape->height;
    return bytes + bytes / (compression == COMPRESSION_LZW ? 2 : 64) +
           (size_t)strip_count(shape) * 64 + LEAST_ROOM;
}

static size_t encode_bytes(const struct conv_codec_config *config, const struct conv_image *shape,
                           const struct conv_metadata *metadata)
{
    (void)config;
    size_t strip = row_bytes(shape) * (size_t)strip_rows(shape);
    return most_bytes(shape, choose_compression(metadata)) + 4 * strip + MOST_STATE +
           (size_t)strip_count(shape) * 48;
}

static void put_samples(uint8_t *dst, const struct conv_image *src, int y)
{
    size_t bytes = (size_t)(src->depth / 8), step = bytes * (size_t)src->channels;
    for (int c = 0; c < src->channels; c++) {
        const uint8_t *from = src->plane[c].data + y * src->plane[c].stride;
        uint8_t *to = dst + (size_t)c * bytes;
        for (int x = 0; x < src->width; x++, to += step)
            if (bytes == 1)
                *to = from[x];
            else if (bytes == 2)
                memcpy(to, from + 2 * (size_t)x, 2);
            else
                memcpy(to, from + 4 * (size_t)x, 4);
    }
}

static int predictor(const struct conv_image *shape, int compression)
{
    if (compression != COMPRESSION_LZW && compression != COMPRESSION_ADOBE_DEFLATE)
        return PREDICTOR_NONE;
    return shape->depth == 32 ? PREDICTOR_FLOATINGPOINT : PREDICTOR_HORIZONTAL;
}

static void set_tags(TIFF *tif, const struct conv_image *shape, int compression)
{
    uint16_t alpha = EXTRASAMPLE_UNASSALPHA;
    TIFFSetField(tif, TIFFTAG_IMAGEWIDTH, shape->width);
    TIFFSetField(tif, TIFFTAG_IMAGELENGTH, shape->height);
    TIFFSetField(tif, TIFFTAG_BITSPERSAMPLE, shape->depth);
    TIFFSetField(tif, TIFFTAG_SAMPLESPERPIXEL, shape->channels);
    TIFFSetField(tif, TIFFTAG_COMPRESSION, compression);
    TIFFSetField(tif, TIFFTAG_PHOTOMETRIC,
                 shape->channels < 3 ? PHOTOMETRIC_MINISBLACK : PHOTOMETRIC_RGB);
    TIFFSetField(tif, TIFFTAG_PLANARCONFIG, PLANARCONFIG_CONTIG);
    TIFFSetField(tif, TIFFTAG_ROWSPERSTRIP, strip_rows(shape));
    if (shape->channels % 2 == 0)
        TIFFSetField(tif, TIFFTAG_EXTRASAMPLES, 1, &alpha);
    if (shape->depth == 32)
        TIFFSetField(tif, TIFFTAG_SAMPLEFORMAT, SAMPLEFORMAT_IEEEFP);
    if (predictor(shape, compression) != PREDICTOR_NONE)
        TIFFSetField(tif, TIFFTAG_PREDICTOR, predictor(shape, compression));
}

static bool write_strips(struct conv_codec *codec, struct tiff *tiff, const struct conv_image *src)
{
    int rows = strip_rows(src);
    for (int y = 0; y < src->height; y += rows) {
        int count = src->height - y < rows ? src->height - y : rows;
        tiff->fault.cancelled = conv_cancel_is_asked(codec->config.stop);
        if (tiff->fault.cancelled)
            return false;
        for (int i = 0; i < count; i++)
            put_samples(codec->band.data + (size_t)i * row_bytes(src), src, y + i);
        if (TIFFWriteEncodedStrip(tiff->tif, (uint32_t)(y / rows), codec->band.data,
                                  (tmsize_t)(row_bytes(src) * (size_t)count)) < 0 ||
            tiff->failed)
            return false;
    }
    return true;
}

// Appends the directory to the strips. False: out of memory.
static bool end_file(struct conv_codec *codec, struct tiff *tiff, const struct conv_image *src,
                     int compression, const struct conv_metadata *metadata)
{
    uint64_t *offsets = NULL, *sizes = NULL;
    uint32_t strips = (uint32_t)strip_count(src);
    const uint64_t depth = (uint64_t)src->depth, depths[] = {depth, depth, depth, depth};
    const uint64_t format = src->depth == 32 ? SAMPLEFORMAT_IEEEFP : SAMPLEFORMAT_UINT;
    const uint64_t formats[] = {format, format, format, format};
    const uint64_t alpha = EXTRASAMPLE_UNASSALPHA, method = (uint64_t)compression;
    const uint64_t width = (uint64_t)src->width, height = (uint64_t)src->height;
    const uint64_t channels = (uint64_t)src->channels, rows = (uint64_t)strip_rows(src);
    const uint64_t photometric = channels < 3 ? PHOTOMETRIC_MINISBLACK : PHOTOMETRIC_RGB;
    const uint64_t predicted = (uint64_t)predictor(src, compression), planar = PLANARCONFIG_CONTIG;
    TIFFGetField(tiff->tif, TIFFTAG_STRIPOFFSETS, &offsets);
    TIFFGetField(tiff->tif, TIFFTAG_STRIPBYTECOUNTS, &sizes);
    struct conv_tiff_entry entries[16] = {
        {TIFFTAG_IMAGEWIDTH, CONV_TIFF_LONG, 1, &width},
        {TIFFTAG_IMAGELENGTH, CONV_TIFF_LONG, 1, &height},
        {TIFFTAG_BITSPERSAMPLE, CONV_TIFF_SHORT, (uint32_t)channels, depths},
        {TIFFTAG_COMPRESSION, CONV_TIFF_SHORT, 1, &method},
        {TIFFTAG_PHOTOMETRIC, CONV_TIFF_SHORT, 1, &photometric},
        {TIFFTAG_STRIPOFFSETS, CONV_TIFF_LONG, strips, offsets},
        {TIFFTAG_SAMPLESPERPIXEL, CONV_TIFF_SHORT, 1, &channels},
        {TIFFTAG_ROWSPERSTRIP, CONV_TIFF_LONG, 1, &rows},
        {TIFFTAG_STRIPBYTECOUNTS, CONV_TIFF_LONG, strips, sizes},
        {TIFFTAG_PLANARCONFIG, CONV_TIFF_SHORT, 1, &planar},
        {TIFFTAG_SAMPLEFORMAT, CONV_TIFF_SHORT, (uint32_t)channels, formats},
    };
    size_t count = 11;
    if (predicted != PREDICTOR_NONE)
        entries[count++] =
            (struct conv_tiff_entry){TIFFTAG_PREDICTOR, CONV_TIFF_SHORT, 1, &predicted};
    if (channels % 2 == 0)
        entries[count++] =
            (struct conv_tiff_entry){TIFFTAG_EXTRASAMPLES, CONV_TIFF_SHORT, 1, &alpha};
    struct conv_buffer *file = &codec->file;
    if (file->size % 2 != 0 && !conv_buffer_append(file, (const uint8_t *)"", 1))
        return false;
    size_t at = tiff->start + file->size;
    conv_tiff_write_header(codec->head, at, metadata);
    return conv_tiff_write_directory(&codec->row, at, entries, count, metadata);
}

static enum conv_status encode_open(struct conv_codec *codec, struct tiff *tiff,
                                    const struct conv_image *src, int compression,
                                    const struct conv_metadata *metadata, struct conv_err *err)
{
    if (!tiff->failed)
        set_tags(tiff->tif, src, compression);
    if (tiff->failed || !write_strips(codec, tiff, src))
        return conv_format_write_failure(&tiff->fault, err);
    if (!end_file(codec, tiff, src, compression, metadata))
        return conv_err_set(err, CONV_ERR_MEMORY, "out of memory");
    return CONV_OK;
}

static enum conv_status encode(struct conv_codec *codec, const struct conv_image *src,
                               const struct conv_metadata *metadata, struct conv_encoded *file,
                               struct conv_err *err)
{
    bool carried = metadata && metadata->size > 0;
    int compression = choose_compression(metadata);
    size_t strip = row_bytes(src) * (size_t)strip_rows(src);
    size_t front = carried ? metadata->front : CONV_TIFF_HEADER;
    struct tiff tiff = {.file = &codec->file, .start = front, .most = most_bytes(src, compression)};
    codec->file.size = 0;
    if (!conv_buffer_reserve(&codec->band, strip))
        return conv_err_set(err, CONV_ERR_MEMORY, "out of memory");
    open_tiff(&tiff, carried && metadata->data[0] == 'M' ? "wb" : "wl",
              4 * strip + MOST_STATE + (size_t)strip_count(src) * 16);
    enum conv_status status =
        encode_open(codec, &tiff, src, compression, carried ? metadata : NULL, err);
    close_tiff(&tiff);
    if (status)
        return status;
    *file = (struct conv_encoded){
        .part = {{codec->head, CONV_TIFF_HEADER},
                 {carried ? metadata->data + CONV_TIFF_HEADER : NULL, front - CONV_TIFF_HEADER},
                 {codec->file.data, codec->file.size},
                 {codec->row.data, codec->row.size}},
        .size = front + codec->file.size + codec->row.size,
    };
    return CONV_OK;
}

// --- the row -------------------------------------------------------------------------------------

static enum conv_status open_codec(struct conv_codec **out, const struct conv_codec_config *config,
                                   struct conv_err *err)
{
    struct conv_codec *codec = calloc(1, sizeof *codec);
    *out = codec;
    if (!codec)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for the codec");
    codec->config = *config;
    return CONV_OK;
}

static void close_codec(struct conv_codec *codec)
{
    if (!codec)
        return;
    conv_buffer_free(&codec->band);
    conv_buffer_free(&codec->row);
    conv_buffer_free(&codec->file);
    free(codec);
}

static void trim(struct conv_codec *codec)
{
    size_t most = codec->config.keep ? codec->config.keep : SIZE_MAX;
    conv_buffer_trim(&codec->band, most);
    conv_buffer_trim(&codec->row, most);
    conv_buffer_trim(&codec->file, most);
}

const struct conv_format conv_tiff_format = {
    .name = "TIFF",
    .patterns = {"*.tif", "*.tiff"},
    .extension = ".tif",
    .most_depth = 16,
    .most_side = INT32_MAX,
    .head_bytes = CONV_TIFF_HEADER,
    .check_head = check_head,
    .probe = probe,
    .check_size = check_size,
    .orientation = conv_exif_orientation,
    .is_animated = has_pages,
    .has_pages = true,
    .take_common = conv_tiff_take_common,
    .put_common = conv_tiff_put_common,
    .keep = keep,
    .open = open_codec,
    .close = close_codec,
    .trim = trim,
    .decode_bytes = decode_bytes,
    .encode_bytes = encode_bytes,
    .decode = decode,
    .decode_rows = decode_rows,
    .encode = encode,
};
