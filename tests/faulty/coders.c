// SPDX-License-Identifier: MIT
// PNG decoded and encoded by a fake device: with the CPU's coders, through the interface that
// groups have for a device's (engine/group.h). The files are therefore identical to those of the
// CPU's encoder.
#include <libdeflate.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "coders.h"
#include "png/chunk.h"
#include "png/png.h"

// A group in the device's memory.
struct memory {
    uint8_t *planes, *passthrough; // as in h_in, the latter from capacity - back on
    uint8_t *filtered;
    uint8_t *chunks;
    size_t chunks_bytes;
    struct conv_codec *codec;
};

bool faulty_takes_stream(enum conv_device_coder coder, const struct conv_image_header *header,
                         size_t most_bytes)
{
    (void)most_bytes;
    return coder == CONV_DEVICE_PNG && (header->shape.depth == 8 || header->shape.depth == 16);
}

size_t faulty_encoded_bytes(const struct conv_image *shape,
                            const struct conv_device_encoding *encoding)
{
    if (encoding->coder != CONV_DEVICE_PNG)
        return 0;
    size_t row = (size_t)shape->width * (size_t)shape->channels * (size_t)(shape->depth / 8) + 1;
    return row * (size_t)shape->height * 9 / 8 + 4096;
}

// The image with its planes in `planes` and in the passthrough memory.
static struct conv_image find_planes(const struct conv_group *group, const struct memory *memory,
                                     const struct conv_group_image *image, uint8_t *planes)
{
    struct conv_image found = image->shape;
    int filtered = found.channels - (image->passthrough != SIZE_MAX);
    for (int c = 0; c < found.channels; c++)
        found.plane[c] = (struct conv_plane){
            .data = c < filtered ? planes + group->planes[image->plane + c].offset
                                 : memory->passthrough + image->passthrough -
                                       (group->capacity - group->back),
            .stride = (ptrdiff_t)conv_image_stride(found.width, found.depth),
        };
    return found;
}

// The file around a zlib stream of that shape; NULL without memory.
static uint8_t *make_file(const struct memory *memory, const struct conv_image *shape,
                          const uint8_t *stream, size_t stream_bytes, size_t *size)
{
    struct conv_encoded parts;
    uint8_t *chunk = malloc(stream_bytes + 12), *file = NULL;
    if (chunk) {
        conv_chunk_write_u32(chunk, (uint32_t)stream_bytes);
        memcpy(chunk + 4, "IDAT", 4);
        memcpy(chunk + 8, stream, stream_bytes);
        conv_chunk_write_u32(chunk + 8 + stream_bytes,
                             libdeflate_crc32(0, chunk + 4, stream_bytes + 4));
        conv_png_format.device->frame(memory->codec, shape, NULL, NULL, chunk, stream_bytes + 12,
                                      &parts);
        file = malloc(parts.size);
        *size = 0;
        for (int i = 0; i < CONV_ENCODED_PARTS && file; i++)
            if (parts.part[i].size) {
                memcpy(file + *size, parts.part[i].data, parts.part[i].size);
                *size += parts.part[i].size;
            }
    }
    free(chunk);
    return file;
}

static void decode(struct conv_group *group, const struct memory *memory)
{
    for (int i = 0; i < group->image_count; i++) {
        struct conv_group_image *image = &group->images[i];
        struct conv_image dst = find_planes(group, memory, image, memory->planes);
        struct conv_image_header header;
        struct conv_err err;
        size_t size;
        uint8_t *file = make_file(memory, &image->shape, group->h_in + image->stream,
                                  image->stream_bytes, &size);
        image->failed =
            !file || conv_png_format.probe(file, size, &header, &err) ||
            conv_png_format.decode(memory->codec, file, size, &header, &dst, NULL, &err);
        free(file);
    }
}

static enum conv_status encode(struct conv_group *group, struct memory *memory, uint8_t *planes,
                               struct conv_err *err)
{
    for (int i = 0; i < group->image_count; i++) {
        struct conv_group_image *image = &group->images[i];
        struct conv_image src = find_planes(group, memory, image, planes);
        struct conv_encoded file;
        enum conv_status status =
            conv_png_format.encode(memory->codec, &src, NULL, 0, src.height, &file, err);
        if (status)
            return status;
        size_t bytes = file.part[2].size; // the image data
        if (bytes > faulty_encoded_bytes(&src, &image->encoding))
            return conv_err_set(err, CONV_ERR_DEVICE, "chunks are larger than their bound");
        memcpy(memory->chunks + memory->chunks_bytes, file.part[2].data, bytes);
        image->encoded = memory->chunks_bytes;
        image->encoded_bytes = bytes;
        memory->chunks_bytes += bytes;
    }
    return CONV_OK;
}

static enum conv_status take_memory(struct memory *memory, const struct conv_group *group,
                                    struct conv_err *err)
{
    static const struct conv_codec_config config = {.level = -1};
    memory->planes = calloc(group->front + 1, 1);
    memory->filtered = calloc(group->front + 1, 1);
    memory->passthrough = calloc(group->back + 1, 1);
    memory->chunks = malloc(group->results + 1);
    if (!memory->planes || !memory->filtered || !memory->passthrough || !memory->chunks)
        return conv_err_memory(err, "no memory for a faulty device's group");
    return conv_codec_open(&memory->codec, &conv_png_format, &config, err);
}

static enum conv_status copy_out(struct conv_group *group, const struct memory *memory,
                                 const uint8_t *planes, struct conv_err *err)
{
    if (group->memory) {
        enum conv_status status =
            group->memory->acquire_out(group->memory, memory->chunks_bytes, err);
        if (status)
            return status;
    }
    if (group->encoded)
        memcpy(group->h_out, memory->chunks, memory->chunks_bytes);
    else
        memcpy(group->h_out, planes, group->front);
    if (group->decoded && !group->encoded)
        memcpy(group->h_in + group->capacity - group->back, memory->passthrough, group->back);
    group->h_result = group->h_out;
    return CONV_OK;
}

static enum conv_status run(faulty_filter_fn filter, void *context, struct conv_group *group,
                            struct memory *memory, struct conv_err *err)
{
    enum conv_status status = take_memory(memory, group, err);
    if (status)
        return status;
    if (group->decoded) {
        decode(group, memory);
    } else {
        memcpy(memory->planes, group->h_in, group->front);
        memcpy(memory->passthrough, group->h_in + group->capacity - group->back, group->back);
    }
    if (group->memory)
        group->memory->release_in(group->memory);
    struct conv_group planes = *group;
    planes.h_in = memory->planes;
    planes.h_out = memory->filtered;
    planes.decoded = planes.encoded = false;
    status = filter(context, &planes, err);
    if (!status && group->encoded)
        status = encode(group, memory, planes.h_result, err);
    return status ? status : copy_out(group, memory, planes.h_result, err);
}

enum conv_status faulty_run_coded(faulty_filter_fn filter, void *context, struct conv_group *group,
                                  struct conv_err *err)
{
    struct memory memory = {0};
    enum conv_status status = run(filter, context, group, &memory, err);
    conv_codec_close(memory.codec);
    free(memory.planes);
    free(memory.filtered);
    free(memory.passthrough);
    free(memory.chunks);
    return status;
}
