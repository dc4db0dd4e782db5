// SPDX-License-Identifier: MIT
#include "engine/group.h"

// Room to align the table after the planes and the passthrough planes at the end.
#define GROUP_SLACK 512

static bool is_passthrough(const struct conv_image *shape, bool filter_alpha, int channel)
{
    return shape->alpha && !filter_alpha && channel == shape->channels - 1;
}

size_t conv_group_need(const struct conv_image *shape, bool filter_alpha, size_t table_bytes)
{
    size_t plane =
        conv_image_plane_bytes(shape->width, shape->height, conv_image_room_depth(shape));
    size_t need = GROUP_SLACK;
    for (int c = 0; c < shape->channels; c++)
        need += plane + (is_passthrough(shape, filter_alpha, c) ? 0 : table_bytes);
    return need + (size_t)shape->spare * plane;
}

// Takes room for a plane from the end of h_in; returns its offset.
static size_t place_at_back(struct conv_group *group, size_t bytes)
{
    size_t offset = group->capacity - group->back - bytes;
    offset -= offset % CONV_IMAGE_PLANE_ALIGN;
    group->back = group->capacity - offset;
    return offset;
}

bool conv_group_place(struct conv_group *group, const struct conv_image *shape, bool filter_alpha,
                      size_t table_bytes, struct conv_placed *placed)
{
    size_t tables = (size_t)group->plane_count * table_bytes;
    size_t need = conv_group_need(shape, filter_alpha, table_bytes);
    size_t used = group->front + group->back + tables;
    if (used > group->capacity || need > group->capacity - used)
        return false;
    if (group->plane_count + shape->channels > group->plane_capacity)
        return false;

    size_t bytes =
        conv_image_plane_bytes(shape->width, shape->height, conv_image_room_depth(shape));
    placed->in = *shape;
    int alpha = shape->alpha && filter_alpha ? group->plane_count + shape->channels - 1 : -1;
    for (int c = 0; c < shape->channels; c++) {
        size_t offset;
        if (is_passthrough(shape, filter_alpha, c)) {
            offset = place_at_back(group, bytes);
            placed->out_offset[c] = SIZE_MAX;
        } else {
            offset = group->front;
            group->front += bytes;
            group->planes[group->plane_count++] = (struct conv_group_plane){
                .offset = offset,
                .width = shape->width,
                .height = shape->height,
                .depth = shape->depth,
                .alpha = c < shape->channels - 1 ? alpha : -1,
            };
            placed->out_offset[c] = offset;
        }
        placed->in.plane[c] = (struct conv_plane){
            .data = conv_group_is_device_coded(group) ? NULL : group->h_in + offset,
            .stride = (ptrdiff_t)conv_image_stride(shape->width, shape->depth),
        };
    }
    for (int c = 0; c < shape->spare; c++)
        placed->spare[c] = (struct conv_plane){
            .data = group->h_in + place_at_back(group, bytes),
            .stride = (ptrdiff_t)conv_image_stride(shape->width, shape->depth),
        };
    return true;
}

// Streams begin at multiples of the bytes that a kernel reads at once.
#define STREAM_ALIGN 16

// What a device decodes takes no memory of the host for the host's own use.
static struct conv_image without_spare(const struct conv_image *shape)
{
    struct conv_image placed = *shape;
    placed.spare = 0;
    return placed;
}

static size_t stream_need(size_t stream_bytes, int channels, size_t table_bytes)
{
    return conv_image_align(stream_bytes, STREAM_ALIGN) + GROUP_SLACK +
           (size_t)channels * table_bytes;
}

struct conv_group_room conv_group_need_coded(const struct conv_image *shape, bool filter_alpha,
                                             size_t table_bytes,
                                             const struct conv_group_coding *coding)
{
    struct conv_image placed = coding->stream_bytes ? without_spare(shape) : *shape;
    struct conv_group_room room = {.planes = conv_group_need(&placed, filter_alpha, table_bytes)};
    if (room.planes < coding->encoded_bytes)
        room.planes = coding->encoded_bytes;
    size_t in = stream_need(coding->stream_bytes, shape->channels, table_bytes);
    if (coding->stream_bytes && coding->encoded_bytes) {
        room.in = in;
        return room;
    }
    // The passthrough plane comes back into h_in.
    in += conv_image_plane_bytes(shape->width, shape->height, conv_image_room_depth(shape));
    if (coding->stream_bytes && room.planes < in)
        room.planes = in;
    room.in = room.planes;
    return room;
}

bool conv_group_place_coded(struct conv_group *group, const struct conv_image *shape,
                            bool filter_alpha, size_t table_bytes,
                            const struct conv_group_coding *coding, struct conv_placed *placed,
                            int *index)
{
    size_t streams = group->streams, results = group->results;
    if (group->image_count == group->image_capacity)
        return false;
    if (group->decoded) {
        // Besides the tables and passthrough planes of all images, this one included.
        size_t others =
            stream_need(coding->stream_bytes, group->plane_count + shape->channels, table_bytes);
        if (!group->encoded)
            others += group->back + conv_image_plane_bytes(shape->width, shape->height,
                                                           conv_image_room_depth(shape));
        if (others > group->in_capacity || streams > group->in_capacity - others)
            return false;
        streams += conv_image_align(coding->stream_bytes, STREAM_ALIGN);
    }
    if (group->encoded) {
        results += coding->encoded_bytes;
        if (results > group->capacity)
            return false;
    }
    int plane = group->plane_count;
    const struct conv_image own = group->decoded ? without_spare(shape) : *shape;
    if (!conv_group_place(group, &own, filter_alpha, table_bytes, placed))
        return false;
    struct conv_group_image *image = &group->images[group->image_count];
    *image = (struct conv_group_image){
        .shape = *shape,
        .plane = plane,
        .passthrough = SIZE_MAX,
        .stream = group->streams,
        .decoder = coding->decoder,
    };
    if (group->encoded)
        image->encoding = *coding->encoding;
    if (placed->out_offset[shape->channels - 1] == SIZE_MAX) // the last one placed
        image->passthrough = group->capacity - group->back;
    group->streams = streams;
    group->results = results;
    *index = group->image_count++;
    return true;
}

void conv_group_result(const struct conv_group *group, const struct conv_placed *placed,
                       struct conv_image *out)
{
    *out = placed->in;
    if (out->result_depth)
        out->depth = out->result_depth;
    for (int c = 0; c < out->channels; c++) {
        if (placed->out_offset[c] == SIZE_MAX)
            continue;
        out->plane[c].data = group->h_result + placed->out_offset[c];
        out->plane[c].stride = (ptrdiff_t)conv_image_stride(out->width, out->depth);
    }
}

// The index of the plane before which to cut: nearest to the middle, and not between a colour and
// its alpha. 0 if there is none.
static int find_cut(const struct conv_group *group)
{
    int cut = 0, alpha = -1; // the last alpha plane that planes so far need
    size_t middle = group->front / 2, best = SIZE_MAX;
    for (int i = 1; i < group->plane_count; i++) {
        if (group->planes[i - 1].alpha > alpha)
            alpha = group->planes[i - 1].alpha;
        size_t offset = group->planes[i].offset;
        size_t distance = offset > middle ? offset - middle : middle - offset;
        if (alpha < i && distance < best) {
            best = distance;
            cut = i;
        }
    }
    return cut;
}

bool conv_group_split(const struct conv_group *group, struct conv_group *head,
                      struct conv_group *tail)
{
    int cut = find_cut(group);
    if (cut == 0)
        return false;
    size_t offset = group->planes[cut].offset;
    *head = *tail = *group;
    head->front = offset;
    head->plane_count = cut;
    tail->h_in += offset;
    tail->h_out += offset;
    tail->h_result = tail->h_out;
    tail->capacity -= offset;
    tail->front -= offset;
    tail->planes += cut;
    tail->plane_count -= cut;
    tail->plane_capacity -= cut;
    for (int i = 0; i < tail->plane_count; i++) {
        tail->planes[i].offset -= offset;
        if (tail->planes[i].alpha >= 0)
            tail->planes[i].alpha -= cut;
    }
    return true;
}

void conv_group_reset(struct conv_group *group)
{
    group->front = 0;
    group->back = 0;
    group->plane_count = 0;
    group->decoded = group->encoded = false;
    group->streams = group->results = 0;
    group->image_count = 0;
    group->next = NULL;
    group->h_result = group->h_out;
    group->ns_start = group->ns_copy_in = group->ns_kernel = group->ns_copy_out = 0;
}
