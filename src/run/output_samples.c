// SPDX-License-Identifier: MIT
// What the samples of an output become besides being filtered: float32 for .npy files, luminance
// or colours of another luminance, linear light and back, a blend with the original.
#include "run/stages.h"

#include <string.h>

// --- .npy files ----------------------------------------------------------------------------------

// In place, where rows of floats take at least the room of rows of samples: backwards from the last
// sample, each is read before it is overwritten.
static void make_floats(struct conv_image *out, int channel, int depth)
{
    struct conv_plane *plane = &out->plane[channel];
    ptrdiff_t stride = (ptrdiff_t)conv_image_stride(out->width, out->depth);
    for (int y = depth == 32 ? -1 : out->height - 1; y >= 0; y--) {
        const uint8_t *row = plane->data + y * plane->stride;
        float *floats = (float *)(void *)(plane->data + y * stride);
        for (int x = out->width - 1; x >= 0; x--)
            floats[x] = depth == 16 ? ((const uint16_t *)(const void *)row)[x] : row[x];
    }
    plane->stride = stride;
}

static void close_rows(const struct conv_image *out, int channel)
{
    size_t row = (size_t)out->width * sizeof(float);
    const struct conv_plane *plane = &out->plane[channel];
    for (int y = 1; y < out->height && row != (size_t)plane->stride; y++)
        memmove(plane->data + (size_t)y * row, plane->data + y * plane->stride, row);
}

void conv_output_npy(struct conv_image *out, const struct conv_placed *placed,
                     uint8_t header[CONV_NPY_OWN_HEADER], struct conv_encoded *file)
{
    size_t plane = (size_t)out->width * (size_t)out->height * sizeof(float);
    struct conv_tensor_shape shape = {3, {out->channels, out->height, out->width}};
    if (out->channels == 1)
        shape = (struct conv_tensor_shape){2, {out->height, out->width}};
    *file = (struct conv_encoded){0};
    file->part[0].data = header;
    file->part[0].size = file->size = conv_npy_write(header, CONV_ELEMENT_F32, &shape, 0);
    _Static_assert(CONV_ENCODED_PARTS > CONV_IMAGE_MAX_CHANNELS, "a part for each plane");
    for (int c = 0; c < out->channels; c++) {
        if (placed->out_offset[c] == SIZE_MAX)
            make_floats(out, c, placed->in.depth);
        close_rows(out, c);
        file->part[1 + c].data = out->plane[c].data;
        file->part[1 + c].size = plane;
        file->size += plane;
    }
}

// --- --gray, --luma, --mix and --roi -------------------------------------------------------------

// The spare planes from `first` on as an image of `channels`.
static void view_spare(const struct conv_job *job, int first, int channels,
                       struct conv_image *image)
{
    *image = job->placed.in;
    image->channels = channels;
    for (int c = 0; c < channels; c++)
        image->plane[c] = job->placed.spare[first + c];
}

// Before filtering; colours that get it back keep their spare planes until then.
static bool becomes_gray(const struct conv_job *job)
{
    return job->file_channels != job->header.shape.channels;
}

static void view_original(const struct conv_job *job, struct conv_image *image)
{
    if (conv_blend_replaces_luma(job))
        view_spare(job, job->file_channels, job->file_channels, image);
    else
        view_spare(job, 0, job->header.shape.channels, image);
}

void conv_blend_file_header(const struct conv_job *job, struct conv_image_header *header)
{
    *header = job->header;
    header->shape.depth = job->file_depth;
    header->shape.channels = job->file_channels;
    if (job->header.orientation >= 5) {
        header->shape.width = job->header.shape.height;
        header->shape.height = job->header.shape.width;
    }
}

void conv_blend_target(const struct conv_job *job, struct conv_image *planes)
{
    if (becomes_gray(job))
        view_spare(job, 0, job->file_channels, planes);
    else
        *planes = job->placed.in;
}

void conv_blend_begin(const struct conv_blend *blend, struct conv_job *job,
                      const struct conv_image *planes, const struct conv_curve *curve)
{
    const uint16_t *table = blend->linear ? curve->linear : NULL;
    bool original = conv_blend_needs_original(blend), apart = original || becomes_gray(job);
    struct conv_image *in = &job->placed.in, decoded = *planes;
    decoded.depth = job->file_depth;
    conv_image_convert(&decoded, planes->depth, apart ? NULL : table);
    if (becomes_gray(job)) {
        conv_image_weigh(in, planes);
        struct conv_image to = *in, from = *planes;
        to.plane[0] = in->plane[1], from.plane[0] = planes->plane[3];
        to.channels = from.channels = planes->alpha;
        conv_image_copy(&to, &from);
    }
    if (original) {
        struct conv_image before;
        view_original(job, &before);
        conv_image_copy(&before, conv_blend_replaces_luma(job) ? planes : in);
    }
    conv_image_convert(in, in->depth, apart ? table : NULL);
}

static int within(int64_t value, int most)
{
    return value < most ? (int)value : most;
}

static struct conv_image cut(const struct conv_image *image, int left, int top, int right, int end)
{
    struct conv_image part = *image;
    part.width = right - left;
    part.height = end - top;
    for (int c = 0; c < image->channels; c++)
        part.plane[c].data = conv_image_row(image, c, top) + left * (image->depth / 8);
    return part;
}

void conv_blend_end(const struct conv_blend *blend, struct conv_job *job, struct conv_image *out,
                    bool narrow, const struct conv_curve *curve)
{
    struct conv_image original;
    const uint16_t *table = blend->linear ? curve->stored : NULL;
    int depth = narrow ? 8 : out->depth;
    if (conv_blend_replaces_luma(job)) {
        struct conv_image colours;
        view_spare(job, 0, job->file_channels, &colours);
        conv_image_convert(out, out->depth, table);
        table = NULL;
        conv_image_replace_luma(&colours, out);
        if (out->alpha)
            colours.plane[3] = out->plane[1];
        *out = colours;
    }
    conv_image_convert(out, depth, table);
    if (!conv_blend_needs_original(blend))
        return;
    view_original(job, &original);
    conv_image_convert(&original, depth, NULL);
    bool whole = blend->width == 0;
    int left = whole ? 0 : blend->x, top = whole || blend->y < 0 ? 0 : blend->y;
    int right = whole ? out->width : within((int64_t)blend->x + blend->width, out->width);
    int bottom = whole ? out->height : within((int64_t)blend->y + blend->height, out->height);
    const struct conv_image filtered = cut(out, left, top, right, bottom);
    const struct conv_image before = cut(&original, left, top, right, bottom);
    if (blend->original > 0)
        conv_image_mix(&filtered, &before, (unsigned)blend->original);
    if (!whole) {
        conv_image_copy(&before, &filtered);
        *out = original;
    }
}
