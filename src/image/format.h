// SPDX-License-Identifier: MIT
// What an image format has to provide so that the pipeline can read and write it, the metadata that
// formats have in common, and which format a file has by its first bytes or its name.
// io/files/formats.h lists the formats that are provided.
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/err.h"
#include "base/parallel.h"
#include "image/image.h"

// --- metadata that formats have in common --------------------------------------------------------

// A longer profile or packet is not carried over, since a small file may hold a compressed one that
// expands far, and a JPEG has room for 255 segments only.
#define CONV_COMMON_MOST ((size_t)16 << 20)

// Starts as {0}. What a file does not have is of size 0.
struct conv_common {
    struct conv_buffer icc;       // an ICC profile
    struct conv_buffer exif;      // a TIFF structure
    struct conv_buffer xmp;       // an XMP packet
    struct conv_buffer photoshop; // image resources, captions (IPTC) among them
    struct conv_buffer comments;  // each ended by NUL
    // Pixels per metre of both axes or, unless `metres`, their ratio; 0: unknown.
    uint32_t density_x, density_y;
    bool metres;
};

void conv_common_free(struct conv_common *common); // also resets it to {0}

// What of the metadata is carried over besides what is dropped in any case.
struct conv_cleaning {
    // Only what changes how the image looks: the profile, and in Exif orientation and colour space.
    bool look;
    // 2 to 8: pixels are turned from this orientation, so that metadata must not state it, and
    // widths are heights from 5 on; else 0 or 1.
    int orientation;
    bool reshaped; // channels, depth or the number of frames are not those that the file has
};

// Cleans what a file has. False: out of memory.
bool conv_common_clean(struct conv_common *common, struct conv_cleaning cleaning);

// Appends a text up to its first NUL, and a NUL. False: out of memory.
bool conv_common_add_comment(struct conv_common *common, const uint8_t *text, size_t size);

// The comment at *at, which is moved after it; NULL after the last one. *at starts as 0.
const char *conv_common_next_comment(const struct conv_common *common, size_t *at);

// True if the profile is for images of `colors` colour channels.
bool conv_common_icc_fits(const struct conv_buffer *icc, int colors);

// --- cleaning ------------------------------------------------------------------------------------

// Metadata are carried over as far as they are understood. What shows the image before it was
// filtered, describes other parts of its file, or cannot be read is dropped; what remains is
// written anew, so that no bytes stay unread. Each function replaces the content of a buffer, which
// becomes empty if nothing remains. False: out of memory.

// exif.c: a TIFF structure of any size, with or without the prefix that it has in JPEG files, which
// may be a TIFF or BigTIFF file, or *exif itself. Standard tags of IFD0, Exif, GPS and
// Interoperability and those of GeoTIFF remain, in their byte order and at most
// CONV_CLEAN_EXIF_MOST bytes, a segment of JPEG.
#define CONV_CLEAN_EXIF_MOST (65535 - 2 - 6)
bool conv_clean_exif(struct conv_buffer *exif, const uint8_t *data, size_t size,
                     struct conv_cleaning cleaning);

// The orientation that a TIFF structure states, with or without that prefix: 1 to 8; 1 if none.
int conv_exif_orientation(const uint8_t *exif, size_t size);

// A tag of a TIFF structure or file as it is stored.
struct conv_exif_tag {
    unsigned type;
    bool little; // numbers have their least significant byte first
    const uint8_t *value;
    size_t size;
};

// Finds a tag in the first directory.
bool conv_exif_find(const uint8_t *data, size_t size, unsigned tag, struct conv_exif_tag *found);

// conv_format.is_animated and extent of a TIFF. Of several directories, those after the first one
// that are neither a smaller image of the same nor pages of their own are masks, which would be
// lost as well.
bool conv_exif_has_pages(const uint8_t *data, size_t size);
bool conv_exif_extent(const uint8_t *data, size_t size, size_t *at, uint64_t *bytes);

// xmp.c: an XMP packet. Images, digests, and what describes further images or parts of the file
// are taken out; orientation and sizes as well if the image is turned. A packet that is not
// well-formed is dropped.
bool conv_clean_xmp(struct conv_buffer *xmp, bool turned);

// photoshop.c: image resources of Photoshop, among them the captions of IPTC.
bool conv_clean_photoshop(struct conv_buffer *photoshop);

// Moves *at from the start of a resource to its end. The resources have been cleaned.
void conv_clean_photoshop_next(const struct conv_buffer *photoshop, size_t *at);

// --- embedded.c ----------------------------------------------------------------------------------

// Whether bytes or text of metadata may hold an image. What may do so is not carried over, since it
// would show the image before it was filtered.

// True if an image file of a common format begins anywhere in the bytes, as it is or written in
// base64 or hexadecimal digits, in lines of 16 digits or more, or in numbers (FF D8, 255,216), or
// if there are 256 such digits without a space, which may be compressed data.
bool conv_embedded_image(const void *bytes, size_t size);

// The same for bytes that are mostly numbers, as those of a colour profile: more of the file must
// be there, and only as it is.
bool conv_embedded_in_tables(const uint8_t *data, size_t size);

// True if there are no control characters other than white space and ESC before NULs at the end.
bool conv_embedded_is_text(const uint8_t *data, size_t size);

// The same for UTF-16, which must also have no surrogate without its other half.
bool conv_embedded_is_utf16(const uint8_t *data, size_t size, bool little);

bool conv_embedded_is_utf8(const uint8_t *data, size_t size);

// --- recognition: for messages, and to find a format's row ---------------------------------------

// "PNG", "JPEG", ... of a file that begins with these bytes; NULL if it is none of the common image
// formats. Most of them conv can neither read nor write.
const char *conv_format_of_bytes(const uint8_t *data, size_t size);

// The same for a file's name, by its extension in upper or lower case.
const char *conv_format_of_name(const char *path);

// The article that a format's name takes: "a" or "an".
const char *conv_format_article(const char *format);

// --- data that all formats share -----------------------------------------------------------------

// What a file says about its image before it is decoded. Plain data that may be copied.
struct conv_image_header {
    struct conv_image
        shape;          // of the decoded image: width, height, channels, depth, alpha; no planes
    bool device_stream; // conv_format.device can take the image data out of this file
    bool lossy;         // the file has lost detail by compression
    // What the caller makes of the decoded image, unless a device does so: it is turned upright
    // from this orientation of Exif (0 and 1: not at all); its colours become gray as by
    // conv_image_weigh.
    int orientation;
    bool weighed;
    // Samples are linear light to the power gamma / 100000 (struct conv_curve). 0: not stated, or
    // overruled by a colour space; then as in sRGB.
    uint32_t gamma;
    union { // what the format's other functions need beside the shape
        struct {
            int bit_depth;  // 1, 2, 4, 8, 16 as in the file
            int color_type; // 0 gray, 2 RGB, 3 palette, 4 gray+alpha, 6 RGBA
            bool interlaced;
            bool transparency; // a tRNS chunk makes an alpha channel
        } png;                 // a palette is decoded to RGB(A), 1, 2 and 4 bits to 8
        struct {
            bool progressive, arithmetic;
            bool luma;     // of a colour file only the luminance is decoded: shape has one channel
            bool streamed; // decoders of our own may decode it
            bool several_scans;     // all coefficients are held at once
            uint32_t blocks;        // of 8 x 8 coefficients in all components
            uint32_t padded_blocks; // the same as libjpeg holds them
            uint8_t components;
            uint8_t h[3], v[3]; // sampling factors; 1 if there is one component
            uint32_t mcus;      // of a scan of all components
            uint32_t segments;  // that restart markers separate in it, at least 1
        } jpeg;
        struct {
            int kind;   // 1 to 7, the digit after P
            int maxval; // of the samples in the file; decoded ones reach 255 or 65535
            size_t at;  // of the first sample
        } pnm;
        struct {
            size_t band_bytes; // of the rows that are decoded together, as they are stored
            size_t tile_bytes; // 0: strips
            uint32_t count;    // of strips or tiles
            uint16_t compression;
            bool unknown; // the channel that counts as alpha does not say what it is
        } tiff;
    };
};

// How an input is encoded, as far as an output of the same format keeps it. {0}: unknown.
struct conv_kept {
    bool lossy; // struct conv_image_header, of any format
    // Of JPEG.
    bool progressive;
    uint8_t components;    // that have divisors; 0: none
    uint8_t h, v;          // sampling factors of luma, those of chroma being 1
    uint16_t quant[3][64]; // divisors in zigzag order
    bool luma_apart;       // `encode` can replace the luma alone: conv_metadata.source
    // Of TIFF.
    uint16_t compression;
    bool unknown;
};

// Bytes of a file that are carried from input to output around the image data, in the encoding of
// the format that collected them. Starts as {0}; the memory is reused from image to image.
struct conv_metadata {
    struct conv_buffer bytes;
    size_t front; // how many of them come before the image data
    // Bytes after bytes.size: the input, whose chroma the output takes over as it is coded.
    // `encode` is then called with the luma as a gray image.
    size_t source;
    struct conv_kept kept;
};

void conv_metadata_free(struct conv_metadata *metadata); // also resets it to {0}

// An encoded file in parts, to be written one after the other. A part may be empty; its pointer may
// then be NULL.
#define CONV_ENCODED_PARTS 5
struct conv_encoded {
    struct {
        const uint8_t *data;
        size_t size;
    } part[CONV_ENCODED_PARTS];
    size_t size; // of all parts
    // Replaces the parts by those that follow them, once they are written; a size of 0: there are
    // none. After a failure the file is incomplete. NULL: these parts are the file.
    enum conv_status (*next)(struct conv_encoded *file, struct conv_err *err);
    void *context;
    const uint8_t *head; // with such parts: replaces the first head_size bytes of the file, or none
    size_t head_size;
};

// Why a library that ends its work by a long jump has given up. Starts as {0}.
struct conv_format_fault {
    bool no_memory, cancelled;
    bool truncated; // the file ends too early
    char text[200]; // the library's message
};

// Fill in *err for a file of `size` bytes that was read, and for an image that was written; return
// its status: CONV_ERR_MEMORY, CONV_ERR_CANCELLED, and CONV_ERR_FORMAT or CONV_ERR_UNSUPPORTED.
enum conv_status conv_format_read_failure(const struct conv_format_fault *fault, size_t size,
                                          struct conv_err *err);
enum conv_status conv_format_write_failure(const struct conv_format_fault *fault,
                                           struct conv_err *err);

// What samples the filtered images have.
enum conv_output_type {
    CONV_OUTPUT_SAME, // as the input
    CONV_OUTPUT_U8,   // 16 bits are filtered as such; results are divided by 257 and rounded
    CONV_OUTPUT_U16,  // 8 bits are multiplied by 257 before they are filtered
    CONV_OUTPUT_F32,  // .npy, neither rounded nor clamped, on the scale of the input's samples
};

// What metadata outputs lack that are still true.
enum conv_strip {
    CONV_STRIP_NONE,
    CONV_STRIP_MOST, // all but what changes how the image looks: colour space and orientation
    CONV_STRIP_ALL,
};

struct conv_codec_config {
    // Of another library (png.h); NULL: our own.
    const struct conv_png_encoder *encoder;
    int level;                  // compression level of that encoder; -1: its default
    int quality;                // 1 to 100, of a format that loses detail; 0: kept, or its default
    int sampling_h, sampling_v; // JPEG: factors of luma, those of chroma being 1; 0: as above
    bool progressive;           // JPEG in several scans; also if the input is
    bool optimize;              // JPEG with Huffman codes for the image; with several scans anyway
    size_t keep;                // bytes that trim leaves a buffer; 0: any number
    const atomic_int *stop;     // work ends soon after conv_cancel_is_asked(stop); may be NULL
    // Threads that may help with one image, kept by the codec; NULL: none. The result does not
    // depend on them.
    struct conv_parallel *parallel;
};

// --- rows ----------------------------------------------------------------------------------------

// Where decoded rows go instead of planes. `put` gets them as planes of one row at the depth of
// header->shape; `put_interleaved` as they are in the file, pixel by pixel, the most significant
// byte first, and aligned for uint16_t. A format may call either; put_interleaved may be NULL. Rows
// come in their order, and again from the first one on if another decoder takes over.
struct conv_rows {
    void (*put)(void *context, int y, const struct conv_image *row);
    void (*put_interleaved)(void *context, int y, const uint8_t *row);
    void *context;
};

// Where rows to be encoded come from instead of planes: `get` fills in planes of one row. Some rows
// may be asked for again.
struct conv_row_source {
    void (*get)(void *context, int y, const struct conv_image *row);
    void *context;
};

// Memory for an encoded file, of at least `bytes` bytes; NULL: there is none.
struct conv_file_room {
    uint8_t *(*take)(void *context, size_t bytes);
    void *context;
};

// Some rows of a large image at a time, where there is no memory for all.
struct conv_bands {
    const char *refusal; // why such images are not decoded or encoded so; NULL: they are
    int unit;            // encoding: each call but the last takes a multiple of this, in rows
    size_t bytes;        // of memory, at most, besides the rows and the file that is decoded
};

// --- a format ------------------------------------------------------------------------------------

// What one worker keeps for one format, from image to image. A format's own codec begins with it.
struct conv_codec {
    const struct conv_format *format;
    struct conv_codec_config config; // `keep` is not 0
    struct conv_buffer scratch, row, file;
};

// CONV_ERR_MEMORY, and as conv_format.open; *codec is then NULL.
enum conv_status conv_codec_open(struct conv_codec **codec, const struct conv_format *format,
                                 const struct conv_codec_config *config, struct conv_err *err);
void conv_codec_close(struct conv_codec *codec); // NULL is fine

// Frees buffers larger than config.keep, the bytes of the last `encode` among them.
void conv_codec_trim(struct conv_codec *codec);

// The coders that a device may have.
enum conv_device_coder { CONV_DEVICE_PNG, CONV_DEVICE_JPEG, CONV_DEVICE_CODERS };

// How a device encodes an image, besides its shape.
struct conv_device_encoding {
    enum conv_device_coder coder;
    // Of JPEG: sampling factors of luma, those of chroma being 1, and the divisors of luma and of
    // chroma in zigzag order.
    uint8_t h, v;
    uint16_t quant[2][64];
};

// For formats whose image data a device can decode and encode. The device's work is the backend's;
// these functions take files apart and put them together around it.
struct conv_format_device {
    enum conv_device_coder coder;
    bool same_bytes; // a device encodes to the bytes that `encode` makes
    // A guess from the first `bytes` bytes of a file, at least head_bytes: true if
    // header.device_stream is likely.
    size_t head_bytes;
    bool (*looks_decodable)(const uint8_t *head, size_t bytes);
    // Bytes of the decoded samples that such a head of a file of `size` bytes states, whether it is
    // right or not, or an estimate.
    uint64_t (*head_samples)(const uint8_t *head, size_t bytes, uint64_t size);
    int parts; // of an image that a device decodes at the same time, about

    // Copies the compressed image data to `stream`, which is 16-byte aligned and has room for
    // stream_bytes(header, size), or `size` where that is NULL, and sets *stream_bytes. False if a
    // device cannot decode this file; `stream` then holds anything. For files with
    // header->device_stream only.
    size_t (*stream_bytes)(const struct conv_image_header *header, size_t size);
    bool (*copy_stream)(uint8_t *stream, size_t *stream_bytes, const uint8_t *data, size_t size,
                        const struct conv_image_header *header);

    // Sets *encoding as `encode` would encode such an image. NULL: only the coder counts.
    void (*choose)(const struct conv_codec_config *config, const struct conv_image *shape,
                   const struct conv_metadata *metadata, struct conv_device_encoding *encoding);

    // The file around image data of that shape that a device has encoded; lifetime as of `encode`.
    void (*frame)(struct conv_codec *codec, const struct conv_image *shape,
                  const struct conv_device_encoding *encoding, const struct conv_metadata *metadata,
                  const uint8_t *encoded_data, size_t encoded_bytes, struct conv_encoded *file);
};

// In every function `data` is a whole file of `size` bytes and `header` is what `probe` made of it.
// All of them may be called from any thread, with one thread at a time per codec.
struct conv_format {
    const char *name;        // as conv_format_of_bytes says it
    const char *patterns[5]; // globs of its files' names, in upper and lower case; ended by NULL
    const char *extension;   // for a name that is made up, with the dot
    int most_depth;          // bits per sample (32: float32); `encode` takes no more
    int most_side;           // pixels in width and height, as above
    // The bytes with which a file begins: head_bytes of `signature` or, if that is NULL, as many
    // bytes as conv_format_of_bytes needs to call it one of `kinds`.
    size_t head_bytes;
    const char *signature, *kinds[2];

    // Fills *header. CONV_ERR_FORMAT; CONV_ERR_UNSUPPORTED for a kind of file that is not read.
    // Takes no memory; the sizes in it are not proven by the file.
    enum conv_status (*probe)(const uint8_t *data, size_t size, struct conv_image_header *header,
                              struct conv_err *err);

    // CONV_ERR_FORMAT if the file is too short for the image that its header declares, or far too
    // long. Called before memory is taken for the image.
    enum conv_status (*check_size)(const uint8_t *data, size_t size,
                                   const struct conv_image_header *header, struct conv_err *err);

    // Changes the header of a colour image so that `decode` makes one channel, the luminance that
    // the file stores. NULL: it stores none.
    void (*take_luma)(struct conv_image_header *header);

    // How the image is to be turned for display, 1 to 8 as in Exif; 1: not at all, as for NULL.
    int (*orientation)(const uint8_t *data, size_t size);

    // True if the file holds several frames; decoding returns the first. NULL: never.
    bool (*is_animated)(const uint8_t *data, size_t size);
    bool has_pages; // which is what the frames are called

    // Finds the end of an image that others may follow, from its first `size` bytes. True: *bytes
    // is its size, which may be more than `size`; UINT64_MAX: all that follows belongs to it, or
    // may. False: *bytes, more than `size`, must be there to say more; 0: it is damaged, and
    // nothing says where it ends. *at is 0 before the first call for an image and kept between
    // calls: with 0 it is the offset of the damage. NULL: nothing but the end of the input ends
    // such an image.
    bool (*extent)(const uint8_t *data, size_t size, size_t *at, uint64_t *bytes);
    bool has_trailers; // cameras append parts to such files without announcing them

    // Fills *common, which is {0} before, with what the output of a filter is to carry over.
    // put_common of the output's format replaces the bytes of *metadata by what it can hold of
    // that. `shape` is the output's. False: out of memory. Both NULL: such files hold no metadata.
    bool (*take_common)(const uint8_t *data, size_t size, const struct conv_image_header *header,
                        struct conv_cleaning cleaning, struct conv_common *common);
    bool (*put_common)(const struct conv_common *common, const struct conv_image *shape,
                       struct conv_metadata *metadata);

    // Instead of both where input and output have the same format, which may keep more and keep the
    // order; NULL: both. The depth and the channels of header->shape may be the output's instead of
    // the decoded image's.
    bool (*collect)(const uint8_t *data, size_t size, const struct conv_image_header *header,
                    struct conv_cleaning cleaning, struct conv_metadata *metadata);

    // Fills *kept for an output of the same format; NULL: nothing is kept.
    void (*keep)(const uint8_t *data, size_t size, const struct conv_image_header *header,
                 struct conv_kept *kept);

    // Of its codec, and what that has besides struct conv_codec; each NULL: nothing.
    // CONV_ERR_USAGE: the encoder has no such level; CONV_ERR_MEMORY; `close` is called then, too.
    size_t codec_bytes;
    enum conv_status (*open)(struct conv_codec *codec, struct conv_err *err);
    void (*close)(struct conv_codec *codec);
    void (*trim)(struct conv_codec *codec);

    // Upper bounds, except for some KiB, of the bytes that decoding such a file, or encoding such
    // an image with such metadata (NULL: none), allocates, including the encoded file; SIZE_MAX if
    // they do not fit.
    size_t (*decode_bytes)(const struct conv_image_header *header, size_t size);
    size_t (*encode_bytes)(const struct conv_codec_config *config, const struct conv_image *shape,
                           const struct conv_metadata *metadata);

    // Decodes into dst->plane[], whose sizes are header->shape's, or with `rows` (else NULL) to
    // these. CONV_ERR_FORMAT: damaged or truncated; CONV_ERR_MEMORY; CONV_ERR_CANCELLED. The planes
    // then hold anything.
    enum conv_status (*decode)(struct conv_codec *codec, const uint8_t *data, size_t size,
                               const struct conv_image_header *header, const struct conv_image *dst,
                               const struct conv_rows *rows, struct conv_err *err);

    // Encodes the rows of `src` from `from` to `to`: all, or where encodes_bands allows it those
    // after the ones that were encoded before; *file is then the next part of the file. In the
    // planes row y is at y times the stride; no other rows are read than these and the one before
    // them. `metadata` is what `collect` and `keep` of this format made, or NULL. *file points into
    // codec and metadata, until the next call with that codec. CONV_ERR_UNSUPPORTED: the encoder
    // cannot write such an image; CONV_ERR_MEMORY; CONV_ERR_CANCELLED.
    enum conv_status (*encode)(struct conv_codec *codec, const struct conv_image *src,
                               const struct conv_metadata *metadata, int from, int to,
                               struct conv_encoded *file, struct conv_err *err);

    // Encodes without metadata into memory that it takes once, and sets *size to the bytes of the
    // file. `source` NULL: the planes of *src; otherwise only its shape is used. CONV_ERR_MEMORY
    // also if `room` has none. Of the formats that conv.h encodes to; else NULL.
    enum conv_status (*encode_into)(struct conv_codec *codec, const struct conv_image *src,
                                    const struct conv_row_source *source,
                                    const struct conv_file_room *room, size_t *size,
                                    struct conv_err *err);

    // Decoding to rows, and encoding some rows at a time, with memory for these only: sets
    // bands->bytes, and bands->refusal or bands->unit. `rows`: that are encoded at a time; 0 as
    // long as only the unit is asked for. `metadata` as for encode. NULL: not possible.
    void (*decodes_bands)(struct conv_image_header *header, size_t size, struct conv_bands *bands);
    void (*encodes_bands)(const struct conv_codec *codec, const struct conv_image *shape,
                          const struct conv_metadata *metadata, int rows, struct conv_bands *bands);

    const struct conv_format_device *device; // NULL: no device codes this format
};

// CONV_ERR_FORMAT if a file that begins with these bytes is not of the format. Fewer than
// head_bytes bytes are a whole file.
enum conv_status conv_format_check_head(const struct conv_format *format, const uint8_t *data,
                                        size_t size, struct conv_err *err);

// The offset after the image and the parts that its file announces; `size` if nothing says it.
static inline size_t conv_format_end(const struct conv_format *format, const uint8_t *data,
                                     size_t size)
{
    size_t at = 0;
    uint64_t bytes;
    bool found = format->extent && format->extent(data, size, &at, &bytes);
    return found && bytes < size ? (size_t)bytes : size;
}

// Rows that need no header of their own: pnm/pnm.c writes gray as P5 and colours as P6; gray as P6,
// too; P5 only; P7. webp/webp.c.
extern const struct conv_format conv_pnm_format, conv_ppm_format, conv_pgm_format, conv_pam_format;
extern const struct conv_format conv_webp_format;

static inline int conv_format_orientation(const struct conv_format *format, const uint8_t *data,
                                          size_t size)
{
    return format->orientation ? format->orientation(data, size) : 1;
}

static inline bool conv_format_is_animated(const struct conv_format *format, const uint8_t *data,
                                           size_t size)
{
    return format->is_animated && format->is_animated(data, size);
}
