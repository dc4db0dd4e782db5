/* SPDX-License-Identifier: MIT */
/**
 * @file
 * libconv: decoding of image files, encoding to PNG and JPEG, image filters, convolution layers and
 * filter banks, on CPU cores and on CUDA devices, with the same bits on both.
 *
 *     conv_context *context;
 *     conv_filter *filter;
 *     if (conv_context_create(&context, NULL, NULL) == CONV_OK &&
 *         conv_filter_create(&filter, context, "emboss", NULL) == CONV_OK)
 *         status = conv_filter_run(filter, &source, &result, 1, NULL);
 *
 * Everything is done in a context: the CPU, or one CUDA device.
 *
 * Threads. A context and everything created in it belong to one thread at a time; contexts are
 * independent of each other, so use one for each thread that calls the library. On the CPU a
 * context divides batches and large images among threads of its own.
 *
 * Errors. Functions return CONV_OK or a code; conv_context_message then says what went wrong. After
 * a failure the results are undefined and everything that was created can still be used, except
 * after CONV_ERR_DEVICE: then only conv_free and destroy functions may be called with that
 * context and what belongs to it. Nothing is printed, no signal is handled, no global state is
 * kept, and the process is never ended: not by a file that becomes shorter while it is read, and
 * not by a closed pipe that conv_filter_folder writes to. Signals are blocked in the threads of a
 * context and of conv_filter_folder.
 *
 * Structs that a caller fills in begin with their size (`options.size = sizeof options`, or the
 * CONV_..._INIT macro), so that programs compiled against an older version keep working with a
 * newer library. Members that only a newer program has, and those called `reserved`, must be
 * zero (else CONV_ERR_UNSUPPORTED). Any pointer to options may be NULL: defaults.
 *
 * CUDA streams are passed as `void *`: a cudaStream_t of the context's device, NULL for the
 * default stream. Functions say whether they wait for the stream. Work is ordered by a stream where
 * it concerns device memory; host memory is read and written while the function runs, whatever the
 * stream holds, except by conv_copy. On the CPU a stream is ignored.
 */
#ifndef CONV_H
#define CONV_H

#include <stddef.h>
#include <stdint.h>

#include "conv_status.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Marks what the shared library exports. */
#if defined(__GNUC__)
#define CONV_API __attribute__((visibility("default")))
#else
#define CONV_API
#endif

#define CONV_VERSION_MAJOR 1 /**< of this header */
#define CONV_VERSION_MINOR 0 /**< of this header */
#define CONV_VERSION_PATCH 0 /**< of this header */

/** The version of the library that runs, "1.0.0": a static string. */
CONV_API const char *conv_version(void);

typedef enum conv_status conv_status; /**< see conv_status.h */

/** "ok", "usage", "io", "format", ...: a static string. */
CONV_API const char *conv_status_name(conv_status status);

typedef struct conv_context_object conv_context; /**< the CPU or one CUDA device */
typedef struct conv_filter_object conv_filter;   /**< a chain of filters made ready */
typedef struct conv_layer_object conv_layer;     /**< a convolution layer made ready */

/* --- contexts ----------------------------------------------------------------------------------*/

/** Settings of conv_context_create. */
typedef struct conv_context_options {
    size_t size;          /**< sizeof this struct */
    const char *device;   /**< "cpu", "cuda", "cuda:1"; NULL or "auto": CUDA if it can be used, else
                             the CPU */
    int threads;          /**< share the work of a call on the host; 0: one for each core */
    int reserved_int;     /**< 0 */
    uint64_t max_pixels;  /**< files of larger images are refused with CONV_ERR_LIMIT; 0: 2^28 */
    size_t pool_bytes;    /**< freed memory that the context keeps for reuse, on the host and on the
                             device each; 0: no limit */
    uint64_t reserved[4]; /**< 0 */
} conv_context_options;

/** Room for any message and its terminating zero; longer ones are cut. */
#define CONV_MESSAGE_SIZE 512

/**
 * CONV_ERR_USAGE: no such device name; CONV_ERR_DEVICE: the device cannot be used; CONV_ERR_MEMORY.
 * `message`, of CONV_MESSAGE_SIZE bytes, then holds the reason; it may be NULL. *context is set to
 * NULL on failure.
 */
CONV_API conv_status conv_context_create(conv_context **context,
                                         const conv_context_options *options, char *message);

/**
 * Waits for the work of the context, frees its pool and closes the device. All its filters and
 * layers must have been destroyed and all its memory freed before. NULL is fine.
 */
CONV_API void conv_context_destroy(conv_context *context);

/** Why the last function that failed in this context did so: a sentence; "" at first. Valid until
 * the next call with the context. */
CONV_API const char *conv_context_message(const conv_context *context);

/** "cpu", "cuda:0". Valid as long as the context. */
CONV_API const char *conv_context_device(const conv_context *context);

/** A device that a context can be created for. */
typedef struct conv_device_description {
    char device[16];      /**< for conv_context_options.device */
    char name[112];       /**< "NVIDIA H200", "Intel(R) Xeon(R) ..." */
    uint64_t memory;      /**< bytes */
    uint64_t reserved[3]; /**< 0 */
} conv_device_description;

/**
 * Sets *count to the number of this machine's devices and fills in at most `room` of them; the CPU
 * is always the first. Creates no CUDA context.
 */
CONV_API conv_status conv_devices(conv_device_description *devices, int room, int *count);

/* --- memory ------------------------------------------------------------------------------------*/

/** Where samples are. */
typedef enum conv_memory {
    CONV_HOST = 0,  /**< memory of the process */
    CONV_DEVICE = 1 /**< device memory of a CUDA context; on the CPU the same as CONV_HOST */
} conv_memory;

/**
 * Memory from the context's pool: 256-byte aligned, with unspecified contents. Device memory that
 * is freed may be handed out again at once, so work that uses it must have been queued on the
 * stream that uses it next, or be finished. CONV_ERR_MEMORY; *data is then NULL.
 */
CONV_API conv_status conv_allocate(conv_context *context, conv_memory memory, size_t bytes,
                                   void **data);
/** Returns memory to the pool; NULL is fine. */
CONV_API void conv_free(conv_context *context, conv_memory memory, void *data);

/**
 * Copies `bytes` bytes; the areas do not overlap. Between two areas of device memory the copy is
 * queued on `stream`; with host memory on either side it is ordered after the work queued on
 * `stream` and complete on return. CONV_ERR_DEVICE.
 */
CONV_API conv_status conv_copy(conv_context *context, void *result, conv_memory result_memory,
                               const void *source, conv_memory source_memory, size_t bytes,
                               void *stream);

/* --- streams -----------------------------------------------------------------------------------*/

/** Waits until all work that `stream` holds is done. On the CPU: nothing to do. CONV_ERR_DEVICE. */
CONV_API conv_status conv_stream_wait(conv_context *context, void *stream);

/** Waits until all work of the context's device is done, also on streams that no longer exist. On
 * the CPU: nothing to do. CONV_ERR_DEVICE. */
CONV_API conv_status conv_context_wait(conv_context *context);

/** Work that is queued on `later` from now on begins after all work queued on `earlier` so far. The
 * call itself does not wait. Both are streams of the context's device. CONV_ERR_DEVICE,
 * CONV_ERR_MEMORY. */
CONV_API conv_status conv_stream_order(conv_context *context, void *earlier, void *later);

/* --- images ------------------------------------------------------------------------------------*/

/** The type of samples. */
typedef enum conv_sample {
    CONV_SAMPLE_DEFAULT = 0, /**< in options: the default stated there */
    CONV_SAMPLE_U8 = 1,      /**< 0 to 255 */
    CONV_SAMPLE_U16 = 2,     /**< 0 to 65535, native byte order */
    CONV_SAMPLE_F32 = 3,     /**< IEEE single precision */
    CONV_SAMPLE_F16 = 4,     /**< IEEE half precision: of layers only */
    CONV_SAMPLE_BF16 = 5     /**< bfloat16: of layers only. Since 1.1 */
} conv_sample;

/**
 * A view of samples in memory that somebody else owns. The sample of row y, column x and channel c
 * is at data + y * row_stride + x * column_stride + c * channel_stride (bytes; multiples of the
 * size of a sample; not negative). Samples that are written do not overlap; those that are only
 * read may, so that strides of 0 repeat a row or a pixel. Strides of a written view are nested: a
 * larger one steps over everything that the smaller ones reach. Channels are gray | gray, alpha |
 * R, G, B | R, G, B, alpha.
 */
typedef struct conv_image_view {
    void *data;             /**< the first sample */
    int32_t width;          /**< pixels */
    int32_t height;         /**< pixels */
    int32_t channels;       /**< 1 to 4 */
    conv_sample sample;     /**< their type */
    conv_memory memory;     /**< where they are */
    int32_t has_alpha;      /**< non-zero: the last channel is alpha */
    int64_t row_stride;     /**< bytes from a row to the next */
    int64_t column_stride;  /**< bytes from a pixel to the next */
    int64_t channel_stride; /**< bytes from a channel to the next */
    uint64_t reserved[2];   /**< 0 */
} conv_image;

/** Bytes of a sample; 0 if there is no such type. */
static inline int64_t conv_sample_bytes(conv_sample sample)
{
    return sample == CONV_SAMPLE_U8    ? 1
           : sample == CONV_SAMPLE_F32 ? 4
           : sample == CONV_SAMPLE_U16 || sample == CONV_SAMPLE_F16 || sample == CONV_SAMPLE_BF16
               ? 2
               : 0;
}

/** Height x width x channels without gaps, as in most image libraries (HWC). */
static inline conv_image conv_image_interleaved(void *data, int width, int height, int channels,
                                                conv_sample sample, conv_memory memory)
{
    conv_image image = {data, width, height, channels, sample, memory, channels % 2 == 0,
                        0,    0,     0,      {0, 0}};
    image.channel_stride = conv_sample_bytes(sample);
    image.column_stride = image.channel_stride * channels;
    image.row_stride = image.column_stride * width;
    return image;
}

/** Channels x height x width without gaps, as in frameworks for training (CHW). */
static inline conv_image conv_image_planar(void *data, int width, int height, int channels,
                                           conv_sample sample, conv_memory memory)
{
    conv_image image = {data, width, height, channels, sample, memory, channels % 2 == 0,
                        0,    0,     0,      {0, 0}};
    image.column_stride = conv_sample_bytes(sample);
    image.row_stride = image.column_stride * width;
    image.channel_stride = image.row_stride * height;
    return image;
}

/** The result of one item of a batch. */
typedef struct conv_item_state {
    conv_status status; /**< of this item */
    char message[252];  /**< the reason; "" with CONV_OK */
} conv_item;

/* --- files -------------------------------------------------------------------------------------*/

/** A file in host memory. */
typedef struct conv_bytes {
    const void *data; /**< its first byte */
    size_t size;      /**< bytes */
} conv_bytes;

/**
 * What a PNG file says about its image. Palettes are decoded to RGB(A), 1, 2 and 4 bits to 8 bits,
 * and a transparent colour to an alpha channel.
 */
typedef struct conv_png_info {
    int32_t width;        /**< pixels */
    int32_t height;       /**< pixels */
    int32_t channels;     /**< of the decoded image */
    conv_sample sample;   /**< of the decoded image: U8 or U16 */
    int32_t has_alpha;    /**< of the decoded image */
    int32_t bit_depth;    /**< as in the file: 1, 2, 4, 8, 16 */
    int32_t color_type;   /**< as in the file: 0 gray, 2 RGB, 3 palette, 4 gray and alpha, 6 RGBA */
    int32_t interlaced;   /**< non-zero: Adam7 */
    int32_t animated;     /**< non-zero: an animation, of which the first image is decoded */
    int32_t reserved_int; /**< 0 */
    uint64_t reserved[4]; /**< 0 */
} conv_png_info;

/** Reads the header of a whole file in memory. Needs no context: `message`, of CONV_MESSAGE_SIZE
 * bytes or NULL, gets the reason. CONV_ERR_FORMAT. */
CONV_API conv_status conv_probe_png(const void *data, size_t size, conv_png_info *info,
                                    char *message);

/** Settings of conv_decode_png, conv_decode_jpeg, conv_decode_image and conv_probe_image. */
typedef struct conv_decode_options {
    size_t size;      /**< sizeof this struct */
    int32_t planar;   /**< for images that the library lays out: CHW instead of HWC */
    int32_t channels; /**< 0: as in the file. 1 to 4: gray is repeated, alpha is dropped or opaque,
                         of F32 1; colour becomes gray with `gray`, else CONV_ERR_UNSUPPORTED */
    conv_memory memory; /**< for images that the library allocates */
    conv_sample sample; /**< 0: as in the file. U8: 16 bits become x / 257, rounded; U16: 8 bits
                           become x * 257 */
    int32_t gray; /**< with 1 or 2 channels colour is reduced: to the luminance that a JPEG stores,
                     of PNG to 0.299 R + 0.587 G + 0.114 B, rounded half to even. Since 1.1 */
    int32_t orient;       /**< images are turned as the orientation in their Exif says. Since 1.1 */
    uint64_t reserved[3]; /**< 0 */
} conv_decode_options;

/** The formats of files. */
typedef enum conv_file_format {
    CONV_FILE_PNG = 1,  /**< PNG */
    CONV_FILE_JPEG = 2, /**< JPEG */
    CONV_FILE_PNM = 3,  /**< PBM, PGM, PPM or PAM */
    CONV_FILE_TIFF = 4, /**< TIFF */
    CONV_FILE_WEBP = 5  /**< WebP */
} conv_file_format;

/** What the header of a file says. */
typedef struct conv_image_information {
    int32_t width;           /**< pixels of the decoded image */
    int32_t height;          /**< pixels of the decoded image */
    int32_t channels;        /**< of the decoded image */
    conv_sample sample;      /**< of the decoded image: U8, U16 or F32 */
    int32_t has_alpha;       /**< of the decoded image */
    conv_file_format format; /**< of the file */
    int32_t orientation;  /**< in its Exif, 1 to 8: 6 is turned by 90 degrees; 1 if it has none */
    int32_t interlaced;   /**< non-zero: Adam7, or a progressive JPEG */
    int32_t animated;     /**< non-zero: an animation, of which the first image is decoded */
    int32_t reserved_int; /**< 0 */
    uint64_t reserved[4]; /**< 0 */
} conv_image_info;

/** As conv_probe_png for the formats of conv_decode_image; the decoded image is that of decoding
 * with the options. CONV_ERR_FORMAT, CONV_ERR_UNSUPPORTED, CONV_ERR_USAGE. Since 1.1. */
CONV_API conv_status conv_probe_image(const void *data, size_t size,
                                      const conv_decode_options *options, conv_image_info *info,
                                      char *message);

/**
 * Decodes `count` whole files in host memory: PNG, JPEG, or each by its first bytes. Where
 * images[i].data is not NULL, the samples are written to that view, whose width, height, channels
 * and sample type must be those of the decoded image (CONV_ERR_USAGE for the item otherwise). Where
 * it is NULL, images[i] is set to a view of memory from the context's pool, laid out as `options`
 * say, to be freed with conv_free.
 *
 * items[i] says what became of file i; a damaged file does not stop the others. Items that failed
 * have images[i].data as it was. Returns CONV_OK if all files were decoded, else the status of the
 * first that was not; `items` may then be looked at, or be NULL. Pixels only: texts, colour
 * profiles and other metadata are not read.
 *
 * conv_decode_image decodes PBM, PGM, PPM, PAM, TIFF and WebP, too. Samples of float32 stay what
 * they are: `sample` must be CONV_SAMPLE_DEFAULT, and images of their own have CONV_SAMPLE_F32.
 *
 * JPEG: Huffman and arithmetic coding, sequential and progressive, 8 bits, gray and colour; samples
 * are those of libjpeg-turbo's default settings. CMYK, 12 bits and damaged files are refused.
 * CONV_ERR_UNSUPPORTED if the library was built without JPEG.
 *
 * On CUDA, images in device memory are decoded by the device where it can (PNG of 8 and 16 bits, no
 * palette, not interlaced, neither made gray nor turned; sequential Huffman-coded JPEG), else by
 * the host. Work on the caller's memory is ordered after the work queued on `stream`; the function
 * waits until all images are complete.
 */
CONV_API conv_status conv_decode_png(conv_context *context, const conv_bytes *files, int count,
                                     const conv_decode_options *options, conv_image *images,
                                     conv_item *items, void *stream);
/** As conv_decode_png, of JPEG files. Since 1.1. */
CONV_API conv_status conv_decode_jpeg(conv_context *context, const conv_bytes *files, int count,
                                      const conv_decode_options *options, conv_image *images,
                                      conv_item *items, void *stream);
/** As conv_decode_png, of files of all formats. Since 1.1. */
CONV_API conv_status conv_decode_image(conv_context *context, const conv_bytes *files, int count,
                                       const conv_decode_options *options, conv_image *images,
                                       conv_item *items, void *stream);

/** Settings of conv_encode_png. */
typedef struct conv_encode_options {
    size_t size;          /**< sizeof this struct */
    int32_t level;        /**< 0 to 12; -1: the default, which the content of the image decides */
    int32_t reserved_int; /**< 0 */
    /**
     * Memory of the caller for the files; NULL: the library's. Sets memory[i] to sizes[i] bytes for
     * the file of images[indices[i]], or to NULL: then that item fails with CONV_ERR_MEMORY. Called
     * in the thread of the call, for several files at a time, as soon as their sizes are known; it
     * must not use the context. If it is called twice for an image, the second memory counts. The
     * memory stays the caller's, also where an item or the call fails.
     */
    void (*allocate)(void *user, int count, const int32_t *indices, const size_t *sizes,
                     void **memory);
    void *user; /**< for `allocate` and `reserve` */
    /**
     * With `allocate`: memory for images[index] before it is encoded, of `most` bytes, more than
     * its file will have; this saves a copy. NULL as result: `allocate` is called when the size is
     * known. Called where the calling thread encodes alone (one image, a context of one thread), in
     * its thread, in the order of the images. When it is called again, and when the call has ended,
     * files[index].size is set, and the library no longer uses the memory: it may be shrunk.
     */
    void *(*reserve)(void *user, int32_t index, size_t most);
    uint64_t reserved[1]; /**< 0 */
} conv_encode_options;

/**
 * Encodes `count` images of 8 or 16 bits, in host or device memory, to PNG files in host memory.
 * Without options.allocate, files[i].data is memory from the context's pool, to be freed with
 * conv_free(context, CONV_HOST, (void *)files[i].data). {NULL, 0} for items that failed. Status and
 * `items` are as with conv_decode_png. Two channels are gray and alpha, four R, G, B and alpha,
 * whatever has_alpha says. The level applies to files that the host encodes; the device has one
 * level. Ordered after the work queued on `stream`; waits until all files are complete.
 */
CONV_API conv_status conv_encode_png(conv_context *context, const conv_image *images, int count,
                                     const conv_encode_options *options, conv_bytes *files,
                                     conv_item *items, void *stream);

/** Settings of conv_encode_jpeg. Since 1.1. */
typedef struct conv_jpeg_encode_options {
    size_t size;         /**< sizeof this struct */
    int32_t quality;     /**< 1 to 100; 0: 90 */
    int32_t sampling;    /**< of colour: 444, 422 or 420; 0: 444 from quality 90 on, else 420 */
    int32_t progressive; /**< in several scans; smaller, and slower to encode and decode */
    int32_t optimize;    /**< Huffman codes made for each image; smaller, and slower to encode */
    /** As in conv_encode_options. */
    void (*allocate)(void *user, int count, const int32_t *indices, const size_t *sizes,
                     void **memory);
    void *user; /**< for `allocate` and `reserve` */
    /** As in conv_encode_options; `most` is the size of the file. */
    void *(*reserve)(void *user, int32_t index, size_t most);
    uint64_t reserved[4]; /**< 0 */
} conv_jpeg_encode_options;

/** As conv_encode_png, to JPEG files. Images have 8 bits; alpha must be opaque and is dropped
 * (CONV_ERR_UNSUPPORTED for the item otherwise). Since 1.1. */
CONV_API conv_status conv_encode_jpeg(conv_context *context, const conv_image *images, int count,
                                      const conv_jpeg_encode_options *options, conv_bytes *files,
                                      conv_item *items, void *stream);

/* --- filters -----------------------------------------------------------------------------------*/

/** Settings of conv_filter_create and conv_filter_create_matrix. */
typedef struct conv_filter_options {
    size_t size;         /**< sizeof this struct */
    const char *border;  /**< "replicate" (NULL), "reflect", "reflect101", "wrap", "constant:N"
                            (0 to 255, 8-bit units; of F32 images any number, as samples are) */
    const char *alpha;   /**< "keep" (NULL), "filter", "premultiply" */
    const char *kernel;  /**< what `custom` stands for: "1 2 1 2 4 2 1 2 1", "3x3: ...", "@FILE" */
    const char *divisor; /**< a number, or "sum"; NULL: the filter's own */
    const char *bias;    /**< a number in 8-bit units; NULL: the filter's own */
    const char *variant; /**< a kernel to force (`conv list kernels`); NULL: the best */
    int32_t side;   /**< 3 or 5: of built-in filters that exist in several sizes; 0: as named */
    int32_t flip;   /**< convolution instead of correlation */
    int32_t floats; /**< results are float32, neither rounded nor clamped */
    int32_t luma;   /**< the luminance of R, G, B is filtered, and its change added to each of them
                       (conv_filter_run). Since 1.1 */
    uint64_t reserved[4]; /**< 0 */
} conv_filter_options;

/** Name of built-in filter `index`, in the order of `conv list`, and at *summary (which may be
 * NULL) what it does. NULL, and *summary as it was, beyond the last. Static strings; any thread. */
CONV_API const char *conv_filter_name(int index, const char **summary);

/** How family `index` of filters with numbers (or with `banks` of filter banks) is written,
 * "gaussian:SIGMA", in the order of `conv list`; at *example "gaussian:2.5", at *summary what it
 * does. NULL, and both as they were, beyond the last. Static strings; any thread. Since 1.1. */
CONV_API const char *conv_family_name(int banks, int index, const char **example,
                                      const char **summary);

/** Name of kernel `index` for conv_filter_options.variant (`conv list kernels`), and at *device
 * (which may be NULL) the kind of context that runs it, "cpu" or "cuda". The first is the
 * definition that all others equal. NULL, and *device as it was, beyond the last. Static strings;
 * any thread. */
CONV_API const char *conv_kernel_name(int index, const char **device);

/**
 * A chain of filters: names of built-in filters, parametric filters (`conv list`), paths of matrix
 * files, or `custom`, separated by commas: "gaussian:2.5,unsharp:2,0.8,emboss". CONV_ERR_USAGE
 * for unknown names and bad settings, CONV_ERR_FORMAT and CONV_ERR_IO for files, CONV_ERR_MEMORY.
 * *filter is NULL on failure.
 */
CONV_API conv_status conv_filter_create(conv_filter **filter, conv_context *context,
                                        const char *text, const conv_filter_options *options);

/**
 * One filter from coefficients, row by row, top left first: sum / scale + offset (8-bit units).
 * Sides are odd, 1 to 31; the scale is not 0. With integers only, the result is exact: rounded
 * once, half to even. `options`: border, alpha, variant, flip, floats.
 */
CONV_API conv_status conv_filter_create_matrix(conv_filter **filter, conv_context *context,
                                               const double *coefficients, int width, int height,
                                               double scale, double offset,
                                               const conv_filter_options *options);

/** NULL is fine. The work that was queued with it is done. */
CONV_API void conv_filter_destroy(conv_filter *filter);

/**
 * Filters `count` images. sources[i] and results[i] have the same width, height and number of
 * channels. Samples are U8, U16 or F32; results have the same type (F32 with options.floats). A
 * call whose results overlap each other is refused (CONV_ERR_USAGE), in device memory also one
 * whose results overlap a source. In host memory results[i] may be the view sources[i]; other
 * sources that a result overlaps are copied first.
 *
 * Device memory: the work is queued on `stream`, and the function returns without waiting for it.
 * The filter must not be destroyed, and no image freed, before the work is done. Planar images
 * whose rows begin at multiples of 16 bytes are filtered where they are. So are interleaved images
 * with such rows if they have 8 bits and no alpha (or options.alpha is "filter"), the device's
 * compute capability is at least 9.0, and the filter's taps are small integers that span at most 17
 * samples of a row. Other images are rearranged in memory of the context.
 *
 * Host memory with a CUDA context: copied to the device and back, complete on return.
 *
 * F32 samples are neither rounded nor clamped, not even between the filters of a chain: each result
 * is the offset, to which coefficient / scale * sample is added for each coefficient that is not 0,
 * row by row, with fused multiply-adds in float32; if the matrix equals its transpose, diagonal by
 * diagonal from the main one on, the two samples that trade places by transposition added first.
 * Parametric filters have real coefficients, and sums in float64. Offset and border are not scaled.
 * Premultiplied alpha and F32 cannot be combined (CONV_ERR_UNSUPPORTED).
 *
 * With options.luma, of images with colours the gray image of Y = round_half_even((299 R + 587 G +
 * 114 B) / 1000), and alpha as options.alpha says, is filtered, to Y'; results are R + Y' - Y and
 * so on, clamped. Not for F32, and images must be in host memory (CONV_ERR_UNSUPPORTED).
 *
 * CONV_ERR_USAGE, CONV_ERR_UNSUPPORTED, CONV_ERR_MEMORY, CONV_ERR_DEVICE.
 */
CONV_API conv_status conv_filter_run(conv_filter *filter, const conv_image *sources,
                                     const conv_image *results, int count, void *stream);

/** The name of the kernel that runs filter `index` of the chain on planes of such samples, for
 * example "cuda_tma_mma"; NULL if the chain has no such filter. Valid as long as the filter. */
CONV_API const char *conv_filter_kernel(const conv_filter *filter, int index, conv_sample sample);

/* --- layers ------------------------------------------------------------------------------------*/

/**
 * A convolution layer, in float32: y[b][m][i][j] = activation(bias[m] + sum over c, u, v of
 * w[m][c][u][v] * x[b][g * C / G + c][i * stride + u * dilation - top][j * stride + v * dilation -
 * left]), where g = m / (M / G) is the group of map m, and c runs over its C / G channels. For
 * tensors of one axis, height and kernel_height are 1.
 *
 * `padding`: "valid" (none); "same", with which a stride of 1 gives as many outputs as inputs, as
 * in PyTorch; "same_upper" and "same_lower" as in ONNX, ceil(n / stride) outputs of n inputs (since
 * 1.1; TensorFlow's "SAME" is the former); or the samples on each side, up to 65536: "1", or for
 * height and width "1x2", either of them also as "BEFORE:AFTER", "0:1x2:3" (since 1.1).
 */
typedef struct conv_layer_description {
    size_t size;           /**< sizeof this struct */
    int32_t maps;          /**< M, at least 1 */
    int32_t channels;      /**< C, at least 1, of all groups */
    int32_t kernel_height; /**< 1 to 63 */
    int32_t kernel_width;  /**< 1 to 63 */
    int32_t stride;        /**< 1 to 1024; 0: 1 */
    conv_sample input;     /**< DEFAULT: F32; or U8; since 1.1 F16 or BF16 */
    conv_sample output;    /**< DEFAULT: F32; or F16; since 1.1 BF16 */
    float input_divisor;   /**< of U8 samples: 1 or 255; 0: 1 */
    const char *padding;   /**< NULL: "valid" */
    const char *border; /**< of the padding: "constant:0" (NULL) and as for filters; the constant in
                           units of the float32 input */
    const char *activation; /**< "none" (NULL), "relu", "tanh", "abs" */
    const char *precision;  /**< "exact" (NULL), "fast", "tf32", "fp16"; since 1.1 "bf16" */
    const char *variant;    /**< a kernel to force; NULL: the best */
    int32_t groups;         /**< G, divides M and C; 0: 1. Since 1.1 */
    int32_t stride_width;   /**< from one column to the next; 0: `stride`. Since 1.1 */
    int32_t dilation;       /**< from one tap to the next, 1 to 1024; 0: 1. Since 1.1 */
    int32_t dilation_width; /**< in a row of the kernel; 0: `dilation`. Since 1.1 */
    int32_t channels_last;  /**< non-zero: images x height x width x channels without gaps, weights
                               [maps][kernel_height][kernel_width][channels / groups]; on CUDA
                               devices, by cuDNN, with a precision that is not "exact". Since 1.1 */
    int32_t reserved_int;   /**< 0 */
    uint64_t reserved[1];   /**< 0 */
} conv_layer_options;

/** `weights` [maps][channels / groups][kernel_height][kernel_width] and `bias` [maps] (NULL: zeros)
 * are in host memory and copied. Without `weights` the layer is for
 * conv_layer_run_with (since 1.1). CONV_ERR_USAGE, CONV_ERR_MEMORY, CONV_ERR_DEVICE. */
CONV_API conv_status conv_layer_create(conv_layer **layer, conv_context *context,
                                       const float *weights, const float *bias,
                                       const conv_layer_options *options);
/** NULL is fine. The work that was queued with it is done. */
CONV_API void conv_layer_destroy(conv_layer *layer);

/** Rows and columns of the result for inputs of that size. CONV_ERR_USAGE if it would be empty. */
CONV_API conv_status conv_layer_result_size(conv_layer *layer, int height, int width,
                                            int *result_height, int *result_width);

/** Images x channels x height x width. Rows are contiguous. */
typedef struct conv_tensor_view {
    void *data;             /**< the first sample */
    conv_memory memory;     /**< where they are */
    int32_t height;         /**< of each plane, without padding */
    int32_t width;          /**< of each plane, without padding */
    int32_t reserved_int;   /**< 0 */
    int64_t images;         /**< of the batch */
    int64_t image_stride;   /**< bytes from an image to the next; 0: without gaps */
    int64_t channel_stride; /**< bytes from a channel to the next; 0: without gaps */
    int64_t row_stride;     /**< bytes from a row to the next; 0: without gaps */
    uint64_t reserved[2];   /**< 0 */
} conv_tensor;

/**
 * Runs the layer on a batch; `result` has [images][maps][result height][result width] without gaps
 * and begins at a multiple of 16 bytes. It does not overlap the input. Both in host memory,
 * complete on return, or both in device memory, queued on `stream`; then the input begins at a
 * multiple of 16 bytes, and the layer and both tensors stay until the work is done. CONV_ERR_USAGE,
 * CONV_ERR_MEMORY, CONV_ERR_DEVICE.
 */
CONV_API conv_status conv_layer_run(conv_layer *layer, const conv_tensor *input, void *result,
                                    void *stream);

/** Sets *bytes to what conv_layer_run_with needs for such a batch in device memory, and makes the
 * layer ready for it; 0 for host memory. CONV_ERR_USAGE, CONV_ERR_MEMORY, CONV_ERR_DEVICE. Since
 * 1.1. */
CONV_API conv_status conv_layer_workspace(conv_layer *layer, int64_t images, int height, int width,
                                          size_t *bytes);

/**
 * conv_layer_run of a layer that was created without weights, with those that are passed, in the
 * memory of the input. In device memory they are read when the work is done, so that changes which
 * are queued before it count, and after conv_layer_workspace the call queues kernels and does
 * nothing else: a CUDA graph can capture it. `workspace` is device memory that begins at a multiple
 * of 256 bytes and is used until the work is done. In host memory, and where 0 bytes are needed, it
 * may be NULL; weights in host memory that equal those of the call before are not packed again. In
 * device memory, input of a layer that is not "exact" has no gaps. Since 1.1.
 */
CONV_API conv_status conv_layer_run_with(conv_layer *layer, const conv_tensor *input,
                                         const float *weights, const float *bias, void *workspace,
                                         void *result, void *stream);

/**
 * The filters of a bank that `conv layer` takes by name, "gabor:4x8" (`conv list banks` shows all),
 * as weights for conv_layer_create with one channel: [filters][1][height][width], smaller filters
 * in the middle of zeros. Sets *filters, *height and *width; writes to `weights` unless it is NULL.
 * `room` counts floats; CONV_ERR_USAGE if it is too small, and for unknown names and bad numbers.
 * The caller has to compute the magnitudes and maxima that `conv layer` makes of several responses,
 * and separable filters are computed in one pass, so that results may differ in their last bits.
 * Needs no context: `message`, of CONV_MESSAGE_SIZE bytes or NULL, gets the reason.
 * CONV_ERR_MEMORY.
 */
CONV_API conv_status conv_bank_weights(const char *bank, int32_t *filters, int32_t *height,
                                       int32_t *width, float *weights, size_t room, char *message);

/* --- folders -----------------------------------------------------------------------------------*/

/** The progress of a run, for the callback, and its totals. */
typedef struct conv_folder_progress {
    size_t size;          /**< sizeof this struct */
    uint64_t done;        /**< images that were filtered and saved */
    uint64_t failed;      /**< images that could not be */
    uint64_t skipped;     /**< images whose results existed */
    uint64_t found;       /**< images found so far; all of them once `listed` */
    int32_t listed;       /**< non-zero: the inputs are listed completely */
    int32_t reserved_int; /**< 0 */
    const char *path;     /**< of the image that failed, with `message`; else NULL */
    const char *message;  /**< why it failed */
    uint64_t reserved[4]; /**< 0 */
} conv_folder_progress;

/** Settings of conv_filter_folder. */
typedef struct conv_folder_options {
    size_t size;                       /**< sizeof this struct */
    const conv_filter_options *filter; /**< may be NULL */
    int32_t recursive;                 /**< folders below the inputs, too */
    int32_t skip_existing; /**< outputs that exist are kept; by default they are replaced */
    int32_t update;        /**< outputs that are not older than their inputs are kept */
    int32_t strip;   /**< 1: of metadata only colour space and orientation are kept; 2: nothing */
    int32_t level;   /**< of compression; -1: the default */
    int32_t quality; /**< of JPEG outputs, 1 to 100; 0: as their inputs, or 90. Since 1.1 */
    /** Called from one thread at a time, but from any thread of the run, several times a second,
     * however long an image takes, and for each image that fails. Non-zero stops the run. May be
     * NULL. */
    int (*progress)(void *user, const conv_folder_progress *progress);
    void *user;       /**< for `progress` */
    int32_t archives; /**< archives are read and written, as tar and zip; else they are files */
    int32_t shard;    /**< only part `shard`, from 0, of `shards` */
    int32_t shards;   /**< 0: all images */
    int32_t shard_by_name; /**< parts by names alone, not by bytes, without listing the inputs */
    const char *to;      /**< "png", "jpg": the format of outputs; NULL: as the inputs. Since 1.1 */
    int32_t gray;        /**< colours become their luminance before the first filter. Since 1.1 */
    int32_t progressive; /**< JPEG in several scans, also if the input is not. Since 1.1 */
    int32_t optimize;    /**< JPEG with Huffman codes made for each image. Since 1.1 */
    int32_t auto_orient; /**< images are turned upright by Exif before filtering. Since 1.1 */
    int32_t luma;        /**< only luminance is filtered (conv_filter_run); from JPEG to JPEG chroma
                            passes as it is coded. Since 1.1 */
    int32_t linear;      /**< filters work in linear light, with 16 bits inside. Since 1.1 */
    uint64_t reserved[2]; /**< 0. Since 1.1 */
} conv_folder_options;

/**
 * Does what the program's `run` does: filters the images of folders (or single files) into a
 * folder, with the context's device and threads. Images in folders are found by the
 * extensions of their names; animations fail.
 *
 * With `archives`, inputs that are archives stand for their members. `output` is an archive if its
 * name is that of one (`out.tar`); if there are several input archives, it is a folder, and each of
 * them becomes an archive in it. Members that are not images are copied unchanged and not counted.
 * skip_existing and update then apply to an output archive as a whole. With `shards`, several
 * archives are distributed as wholes, a single one by its members.
 *
 * *result, whose `size` is set, gets the totals; it may be NULL.
 * CONV_OK even if single images failed; CONV_ERR_CANCELLED if the callback stopped the run.
 */
CONV_API conv_status conv_filter_folder(conv_context *context, const char *filter,
                                        const char *const *inputs, int input_count,
                                        const char *output, const conv_folder_options *options,
                                        conv_folder_progress *result);

/* --- defaults ----------------------------------------------------------------------------------*/

/* A layer also needs maps, channels and the sides of its kernel. */
/* clang-format off */
#define CONV_CONTEXT_OPTIONS_INIT \
    {sizeof(conv_context_options), NULL, 0, 0, 0, 0, {0}} /**< defaults */
#define CONV_DECODE_OPTIONS_INIT \
    {sizeof(conv_decode_options), 0, 0, CONV_HOST, CONV_SAMPLE_DEFAULT, 0, 0, {0}} /**< defaults */
#define CONV_ENCODE_OPTIONS_INIT \
    {sizeof(conv_encode_options), -1, 0, NULL, NULL, NULL, {0}} /**< defaults */
#define CONV_JPEG_ENCODE_OPTIONS_INIT \
    {sizeof(conv_jpeg_encode_options), 0, 0, 0, 0, NULL, NULL, NULL, {0}} /**< defaults */
#define CONV_FILTER_OPTIONS_INIT \
    {sizeof(conv_filter_options), NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, 0, 0, \
    {0}} /**< defaults */
#define CONV_LAYER_OPTIONS_INIT \
    {sizeof(conv_layer_options), 0, 0, 0, 0, 0, CONV_SAMPLE_DEFAULT, CONV_SAMPLE_DEFAULT, 0, \
    NULL, NULL, NULL, NULL, NULL, 0, 0, 0, 0, 0, 0, {0}} /**< defaults */
#define CONV_FOLDER_OPTIONS_INIT \
    {sizeof(conv_folder_options), NULL, 0, 0, 0, 0, -1, 0, NULL, NULL, 0, 0, 0, 0, NULL, 0, 0, 0, \
    0, 0, 0, {0}} /**< defaults */
/* clang-format on */

#ifdef __cplusplus
}
#endif

#endif
