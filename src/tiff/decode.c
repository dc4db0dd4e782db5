// SPDX-License-Identifier: MIT
// Decodes TIFF: what kind of image a file holds, whether its data can be enough, and rows in bands
// of strips or tiles.
#include <tiffio.h>

#include "base/parallel.h"
#include "tiff/tiff.h"

#define PALETTE 256
#define LINEAR_RAW 34892 // of DNG

#define LIST_BYTES ((size_t)32) // of libtiff, for each strip or tile: where it is, and its size

// Of the other values of a directory, which libtiff reads, in a large file.
#define MOST_VALUES ((size_t)4 << 20)

// Larger strips are decoded row by row, which needs no memory of their size.
#define MOST_STRIP ((size_t)4 << 20)

// Decoded bytes per byte of a file. A code of LZW takes at least 9 bits and stands for 4096 bytes
// at most, and deflate is at 1032. A block of Zstandard that repeats a byte is at 32768. (One bit
// of CCITT stands for a row of any length.)
#define MOST_EXPANSION 4096
#define MOST_OTHER_EXPANSION 65536

// Larger tiles than this are not larger than their image. Small images have tiles of usual size.
#define MOST_TILE_SIDE 8192u

// --- the image of a file -------------------------------------------------------------------------

// How the samples of a file are stored.
struct layout {
    uint32_t width, height;
    uint16_t samples, bits, format, photometric, planar, compression;
    bool alpha, associated, unknown;
    bool tiled;
    uint32_t tile_width, rows; // of a tile; of a tile or a strip
    size_t row_bytes;          // of one of `parts` in the band
    int parts;                 // of a row: 1, or one per sample
    int band_rows;             // that are decoded together
    size_t tile_bytes;         // of a tile
    uint32_t count;            // of strips or tiles
};

static enum conv_status refuse(struct conv_err *err, const char *what, const char *hint)
{
    return conv_err_unsupported(err, "%s%s%s", what, hint ? ": " : "", hint ? hint : "");
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
        return conv_err_unsupported(err, "TIFF of unusual colours (%d); only gray and RGB are read",
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
        return conv_err_format(err, "bad header: %d samples per pixel", layout->samples);
    if (layout->samples > colors + !palette)
        return conv_err_unsupported(
            err, "TIFF of %d channels; only gray and RGB, both also with alpha, are read",
            layout->samples);
    if (real ? bits != 32 || palette || layout->photometric == PHOTOMETRIC_MINISWHITE
             : !whole || (bits != 8 && bits != 16 && !small) || (palette && bits == 16))
        return conv_err_unsupported(err,
                                    "TIFF of %d-bit %s samples; only those of 8 and 16 bits, gray "
                                    "of 1, 2 and 4, and float32 are read",
                                    bits,
                                    real    ? layout->photometric == PHOTOMETRIC_MINISWHITE
                                                  ? "inverted floating-point"
                                                  : "floating-point"
                                    : whole ? "unsigned"
                                            : "signed or complex");
    if (small && layout->samples > 1)
        return conv_err_unsupported(err, "TIFF of %d-bit samples in %d channels", bits,
                                    layout->samples);
    return CONV_OK;
}

static enum conv_status check_kind(TIFF *tif, const struct layout *layout, struct conv_err *err)
{
    uint32_t subfile = 0;
    const void *version;
    if (!TIFFIsCODECConfigured(layout->compression) ||
        layout->compression == COMPRESSION_OJPEG) // which it decodes with guesses
        return conv_err_unsupported(
            err,
            "TIFF of compression %d, which is not read: vips copy INPUT OUTPUT.png converts it",
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
    layout->unknown =
        !layout->associated && (extra_count != 1 || extra[0] == EXTRASAMPLE_UNSPECIFIED);
}

// libtiff takes indices without a palette for gray.
static bool lacks_palette(const struct conv_libtiff *tiff, const struct layout *layout)
{
    struct conv_exif_tag tag;
    return layout->photometric != PHOTOMETRIC_PALETTE &&
           conv_exif_find(tiff->data, tiff->size, TIFFTAG_PHOTOMETRIC, &tag) && tag.size == 2 &&
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
        uint64_t row = ((uint64_t)across * samples * layout->bits + 7) / 8;
        rows = layout->rows;
        if (across == 0 || rows == 0 || across % 16 != 0 || rows % 16 != 0 ||
            (across > MOST_TILE_SIDE && across - 15 > width) ||
            (rows > MOST_TILE_SIDE && rows - 15 > layout->height) || rows > INT32_MAX / row)
            return conv_err_format(err, "bad header: tiles of %u x %u pixels", (unsigned)across,
                                   (unsigned)rows);
        width = (width + across - 1) / across * across;
        layout->tile_bytes = (size_t)(row * rows);
    } else {
        TIFFGetFieldDefaulted(tif, TIFFTAG_ROWSPERSTRIP, &layout->rows);
        if (layout->rows == 0)
            return conv_err_format(err, "bad header: strips of 0 rows");
        rows = layout->rows < layout->height ? layout->rows : layout->height;
    }
    layout->row_bytes = (size_t)((width * samples * layout->bits + 7) / 8);
    bool apart = separate && layout->compression != COMPRESSION_NONE; // rows of all planes in turn
    if (!layout->tiled && !apart && layout->row_bytes * rows > MOST_STRIP)
        rows = 1;
    layout->band_rows = (int)rows;
    layout->count = layout->tiled ? TIFFNumberOfTiles(tif) : TIFFNumberOfStrips(tif);
    return CONV_OK;
}

static enum conv_status read_layout(struct conv_libtiff *tiff, struct layout *layout,
                                    struct conv_err *err)
{
    *layout = (struct layout){0};
    if (tiff->tif)
        read_tags(tiff->tif, layout);
    if (tiff->failed && layout->compression != COMPRESSION_OJPEG)
        return conv_format_read_failure(&tiff->fault, tiff->size, err);
    if (layout->width == 0 || layout->height == 0 || layout->width > INT32_MAX ||
        layout->height > INT32_MAX)
        return conv_err_format(err, "bad header: %u x %u pixels", (unsigned)layout->width,
                               (unsigned)layout->height);
    if (lacks_palette(tiff, layout))
        return conv_err_format(err, "damaged: no palette");
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
    return 4 * size + CONV_LIBTIFF_MOST_STATE;
}

static void open_for_reading(struct conv_libtiff *tiff, const uint8_t *data, size_t size,
                             size_t most)
{
    *tiff = (struct conv_libtiff){.data = data, .size = size};
    conv_libtiff_open(tiff, "rO", most); // the lists of strips are read when they are needed
}

enum conv_status conv_tiff_probe(const uint8_t *data, size_t size, struct conv_image_header *header,
                                 struct conv_err *err)
{
    struct conv_libtiff tiff;
    struct layout layout;
    enum conv_status status = conv_format_check_head(&conv_tiff_format, data, size, err);
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
                 .count = layout.count,
                 .compression = layout.compression,
                 .unknown = layout.unknown},
    };
    conv_libtiff_close(&tiff);
    return status;
}

// The strips or tiles are in the file, and do not overlap as far as their sizes say.
static enum conv_status check_strips(struct conv_libtiff *tiff, const struct layout *layout,
                                     struct conv_err *err)
{
    uint64_t sum = 0, pixels = (uint64_t)layout->width * layout->height;
    if (layout->count == 0)
        return conv_err_format(err, "damaged: no image data");
    for (uint32_t i = 0; i < layout->count; i++) {
        int bad = 0;
        uint64_t at = TIFFGetStrileOffsetWithErr(tiff->tif, i, &bad);
        uint64_t bytes = bad ? 0 : TIFFGetStrileByteCountWithErr(tiff->tif, i, &bad);
        if (bad || tiff->failed)
            return conv_format_read_failure(&tiff->fault, tiff->size, err);
        if (at > tiff->size || bytes > tiff->size - at)
            return conv_err_format(err, "truncated: ends too early, after %zu bytes", tiff->size);
        if (bytes == 0)
            return conv_err_format(err, "damaged: a part of the image is missing");
        sum += bytes;
        if (sum > tiff->size)
            return conv_err_format(err, "damaged: parts of the image overlap");
    }
    bool other = layout->compression != COMPRESSION_NONE &&
                 layout->compression != COMPRESSION_LZW &&
                 layout->compression != COMPRESSION_PACKBITS &&
                 layout->compression != COMPRESSION_ADOBE_DEFLATE;
    uint64_t most = other ? MOST_OTHER_EXPANSION : MOST_EXPANSION;
    bool little = layout->tiled ? layout->tile_bytes / most > sum / layout->count
                                : pixels / 8 * layout->samples * layout->bits / most > sum;
    if (little && layout->bits > 1)
        return conv_err_format(err, "damaged: too little image data (%llu B) for %u x %u pixels",
                               (unsigned long long)sum, (unsigned)layout->width,
                               (unsigned)layout->height);
    return CONV_OK;
}

enum conv_status conv_tiff_check_size(const uint8_t *data, size_t size,
                                      const struct conv_image_header *, struct conv_err *err)
{
    struct conv_libtiff tiff;
    struct layout layout;
    open_for_reading(&tiff, data, size, most_directory(size));
    enum conv_status status = read_layout(&tiff, &layout, err);
    if (!status)
        status = check_strips(&tiff, &layout, err);
    conv_libtiff_close(&tiff);
    return status;
}

// --- decoding ------------------------------------------------------------------------------------

struct reader {
    struct conv_libtiff tiff;
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
    if (layout->bits < 8)
        unpack_bits(row->plane[0].data, from, row->width, layout->bits);
    for (int c = 0; c < layout->samples && layout->bits >= 8; c++)
        conv_tiff_copy(row->plane[c].data, bytes,
                       from + (size_t)c * (layout->parts > 1 ? part : bytes),
                       layout->parts > 1 ? bytes : bytes * layout->samples, row->width, bytes);
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
                return conv_err_cancelled(err);
            if (!read_band(reader, (uint32_t)y))
                return conv_format_read_failure(&reader->tiff.fault, reader->tiff.size, err);
            i = 0;
        }
        for (int c = 0; dst && c < one->channels; c++)
            row.plane[c].data = conv_image_row(dst, c, y);
        unpack_row(reader, i, &row);
        if (rows)
            rows->put(rows->context, y, &row);
    }
    return CONV_OK;
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
    if (reader->layout.width != (uint32_t)one.width ||
        reader->layout.height != (uint32_t)header->shape.height ||
        (reader->layout.photometric == PHOTOMETRIC_PALETTE && !read_palette(reader)))
        return conv_err_format(err, "damaged: contradicts its header");
    if (!conv_buffer_reserve(&codec->scratch, header->tiff.band_bytes + header->tiff.tile_bytes) ||
        (rows && !conv_buffer_reserve(&codec->row, conv_image_bytes(&one))))
        return conv_err_memory(err, "out of memory");
    if (rows)
        conv_image_lay_out(&one, &one, codec->row.data);
    reader->band = codec->scratch.data;
    reader->tile = codec->scratch.data + header->tiff.band_bytes;
    reader->tiff.decoding = true;
    return read_rows(reader, dst, &one, rows, err);
}

enum conv_status conv_tiff_decode(struct conv_codec *codec, const uint8_t *data, size_t size,
                                  const struct conv_image_header *header,
                                  const struct conv_image *dst, const struct conv_rows *rows,
                                  struct conv_err *err)
{
    struct reader reader = {.header = header, .stop = codec->config.stop};
    open_for_reading(&reader.tiff, data, size,
                     most_directory(size) + header->tiff.band_bytes + header->tiff.tile_bytes);
    enum conv_status status = decode_open(codec, &reader, dst, rows, err);
    conv_libtiff_close(&reader.tiff);
    return status;
}

size_t conv_tiff_decode_bytes(const struct conv_image_header *header, size_t size)
{
    struct conv_image row = header->shape;
    row.height = 1;
    size_t values = size / 8 < MOST_VALUES ? size / 8 : MOST_VALUES;
    return 2 * header->tiff.band_bytes + 2 * header->tiff.tile_bytes + values +
           header->tiff.count * LIST_BYTES + CONV_LIBTIFF_MOST_STATE + conv_image_bytes(&row);
}
