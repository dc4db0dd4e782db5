/* SPDX-License-Identifier: MIT */
/* The declarations of include/conv.h in version 1.0. */
#ifndef CONV_H
#define CONV_H
#include <stddef.h>
#include <stdint.h>

#include "conv_status.h"
#ifdef __cplusplus
extern "C" {
#endif
#if defined(__GNUC__)
#define CONV_API __attribute__((visibility("default")))
#else
#define CONV_API
#endif
#define CONV_VERSION_MAJOR 1
#define CONV_VERSION_MINOR 0
#define CONV_VERSION_PATCH 0
CONV_API const char *conv_version(void);
typedef enum conv_status conv_status;
CONV_API const char *conv_status_name(conv_status status);
typedef struct conv_context_object conv_context;
typedef struct conv_filter_object conv_filter;
typedef struct conv_layer_object conv_layer;
typedef struct conv_context_options {
    size_t size;
    const char *device;
    int threads;
    int reserved_int;
    uint64_t max_pixels;
    size_t pool_bytes;
    uint64_t reserved[4];
} conv_context_options;
#define CONV_CONTEXT_OPTIONS_INIT                                                                  \
    {                                                                                              \
        sizeof(conv_context_options), NULL, 0, 0, 0, 0,                                            \
        {                                                                                          \
            0, 0, 0, 0                                                                             \
        }                                                                                          \
    }
#define CONV_MESSAGE_SIZE 512
CONV_API conv_status conv_context_create(conv_context **context,
                                         const conv_context_options *options, char *message);
CONV_API void conv_context_destroy(conv_context *context);
CONV_API const char *conv_context_message(const conv_context *context);
CONV_API const char *conv_context_device(const conv_context *context);
typedef struct conv_device_description {
    char device[16];
    char name[112];
    uint64_t memory;
    uint64_t reserved[3];
} conv_device_description;
CONV_API conv_status conv_devices(conv_device_description *devices, int room, int *count);
typedef enum conv_memory { CONV_HOST = 0, CONV_DEVICE = 1 } conv_memory;
CONV_API conv_status conv_allocate(conv_context *context, conv_memory memory, size_t bytes,
                                   void **data);
CONV_API void conv_free(conv_context *context, conv_memory memory, void *data);
CONV_API conv_status conv_copy(conv_context *context, void *result, conv_memory result_memory,
                               const void *source, conv_memory source_memory, size_t bytes,
                               void *stream);
CONV_API conv_status conv_stream_wait(conv_context *context, void *stream);
CONV_API conv_status conv_context_wait(conv_context *context);
CONV_API conv_status conv_stream_order(conv_context *context, void *earlier, void *later);
typedef enum conv_sample {
    CONV_SAMPLE_DEFAULT = 0,
    CONV_SAMPLE_U8 = 1,
    CONV_SAMPLE_U16 = 2,
    CONV_SAMPLE_F32 = 3,
    CONV_SAMPLE_F16 = 4
} conv_sample;
typedef struct conv_image_view {
    void *data;
    int32_t width;
    int32_t height;
    int32_t channels;
    conv_sample sample;
    conv_memory memory;
    int32_t has_alpha;
    int64_t row_stride;
    int64_t column_stride;
    int64_t channel_stride;
    uint64_t reserved[2];
} conv_image;
static inline int64_t conv_sample_bytes(conv_sample sample)
{
    return sample == CONV_SAMPLE_U8                                 ? 1
           : sample == CONV_SAMPLE_U16 || sample == CONV_SAMPLE_F16 ? 2
           : sample == CONV_SAMPLE_F32                              ? 4
                                                                    : 0;
}
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
typedef struct conv_item_state {
    conv_status status;
    char message[252];
} conv_item;
typedef struct conv_bytes {
    const void *data;
    size_t size;
} conv_bytes;
typedef struct conv_png_info {
    int32_t width;
    int32_t height;
    int32_t channels;
    conv_sample sample;
    int32_t has_alpha;
    int32_t bit_depth;
    int32_t color_type;
    int32_t interlaced;
    int32_t animated;
    int32_t reserved_int;
    uint64_t reserved[4];
} conv_png_info;
CONV_API conv_status conv_probe_png(const void *data, size_t size, conv_png_info *info,
                                    char *message);
typedef struct conv_decode_options {
    size_t size;
    int32_t planar;
    int32_t channels;
    conv_memory memory;
    conv_sample sample;
    uint64_t reserved[4];
} conv_decode_options;
#define CONV_DECODE_OPTIONS_INIT                                                                   \
    {                                                                                              \
        sizeof(conv_decode_options), 0, 0, CONV_HOST, CONV_SAMPLE_DEFAULT,                         \
        {                                                                                          \
            0, 0, 0, 0                                                                             \
        }                                                                                          \
    }
CONV_API conv_status conv_decode_png(conv_context *context, const conv_bytes *files, int count,
                                     const conv_decode_options *options, conv_image *images,
                                     conv_item *items, void *stream);
typedef struct conv_encode_options {
    size_t size;
    int32_t level;
    int32_t reserved_int;
    void (*allocate)(void *user, int count, const int32_t *indices, const size_t *sizes,
                     void **memory);
    void *user;
    uint64_t reserved[2];
} conv_encode_options;
#define CONV_ENCODE_OPTIONS_INIT                                                                   \
    {                                                                                              \
        sizeof(conv_encode_options), -1, 0, NULL, NULL,                                            \
        {                                                                                          \
            0, 0                                                                                   \
        }                                                                                          \
    }
CONV_API conv_status conv_encode_png(conv_context *context, const conv_image *images, int count,
                                     const conv_encode_options *options, conv_bytes *files,
                                     conv_item *items, void *stream);
typedef struct conv_filter_options {
    size_t size;
    const char *border;
    const char *alpha;
    const char *kernel;
    const char *divisor;
    const char *bias;
    const char *variant;
    int32_t side;
    int32_t flip;
    int32_t floats;
    int32_t reserved_int;
    uint64_t reserved[4];
} conv_filter_options;
#define CONV_FILTER_OPTIONS_INIT                                                                   \
    {                                                                                              \
        sizeof(conv_filter_options), NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, 0, 0,               \
        {                                                                                          \
            0, 0, 0, 0                                                                             \
        }                                                                                          \
    }
CONV_API const char *conv_filter_name(int index, const char **summary);
CONV_API const char *conv_kernel_name(int index, const char **device);
CONV_API conv_status conv_filter_create(conv_filter **filter, conv_context *context,
                                        const char *text, const conv_filter_options *options);
CONV_API conv_status conv_filter_create_matrix(conv_filter **filter, conv_context *context,
                                               const double *coefficients, int width, int height,
                                               double scale, double offset,
                                               const conv_filter_options *options);
CONV_API void conv_filter_destroy(conv_filter *filter);
CONV_API conv_status conv_filter_run(conv_filter *filter, const conv_image *sources,
                                     const conv_image *results, int count, void *stream);
CONV_API const char *conv_filter_kernel(const conv_filter *filter, int index, conv_sample sample);
typedef struct conv_layer_description {
    size_t size;
    int32_t maps;
    int32_t channels;
    int32_t kernel_height;
    int32_t kernel_width;
    int32_t stride;
    conv_sample input;
    conv_sample output;
    float input_divisor;
    const char *padding;
    const char *border;
    const char *activation;
    const char *precision;
    const char *variant;
    uint64_t reserved[4];
} conv_layer_options;
#define CONV_LAYER_OPTIONS_INIT                                                                    \
    {                                                                                              \
        sizeof(conv_layer_options), 0, 0, 0, 0, 0, CONV_SAMPLE_DEFAULT, CONV_SAMPLE_DEFAULT, 0,    \
            NULL, NULL, NULL, NULL, NULL,                                                          \
        {                                                                                          \
            0, 0, 0, 0                                                                             \
        }                                                                                          \
    }
CONV_API conv_status conv_layer_create(conv_layer **layer, conv_context *context,
                                       const float *weights, const float *bias,
                                       const conv_layer_options *options);
CONV_API void conv_layer_destroy(conv_layer *layer);
CONV_API conv_status conv_layer_result_size(conv_layer *layer, int height, int width,
                                            int *result_height, int *result_width);
typedef struct conv_tensor_view {
    void *data;
    conv_memory memory;
    int32_t height;
    int32_t width;
    int32_t reserved_int;
    int64_t images;
    int64_t image_stride;
    int64_t channel_stride;
    int64_t row_stride;
    uint64_t reserved[2];
} conv_tensor;
CONV_API conv_status conv_layer_run(conv_layer *layer, const conv_tensor *input, void *result,
                                    void *stream);
CONV_API conv_status conv_bank_weights(const char *bank, int32_t *filters, int32_t *height,
                                       int32_t *width, float *weights, size_t room, char *message);
typedef struct conv_folder_progress {
    size_t size;
    uint64_t done;
    uint64_t failed;
    uint64_t skipped;
    uint64_t found;
    int32_t listed;
    int32_t reserved_int;
    const char *path;
    const char *message;
    uint64_t reserved[4];
} conv_folder_progress;
typedef struct conv_folder_options {
    size_t size;
    const conv_filter_options *filter;
    int32_t recursive;
    int32_t skip_existing;
    int32_t update;
    int32_t strip;
    int32_t level;
    int32_t reserved_int;
    int (*progress)(void *user, const conv_folder_progress *progress);
    void *user;
    int32_t archives;
    int32_t shard;
    int32_t shards;
    int32_t shard_by_name;
    uint64_t reserved[2];
} conv_folder_options;
#define CONV_FOLDER_OPTIONS_INIT                                                                   \
    {                                                                                              \
        sizeof(conv_folder_options), NULL, 0, 0, 0, 0, -1, 0, NULL, NULL, 0, 0, 0, 0,              \
        {                                                                                          \
            0, 0                                                                                   \
        }                                                                                          \
    }
CONV_API conv_status conv_filter_folder(conv_context *context, const char *filter,
                                        const char *const *inputs, int input_count,
                                        const char *output, const conv_folder_options *options,
                                        conv_folder_progress *result);
#ifdef __cplusplus
}
#endif
#endif
