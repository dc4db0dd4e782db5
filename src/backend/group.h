// SPDX-License-Identifier: MIT
// A group: several images packed into one staging buffer, so that they go to the device as one
// copy, one launch a filter and one copy back however many they are.
#ifndef CONV_BACKEND_GROUP_H
#define CONV_BACKEND_GROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "image/image.h"

struct conv_group_plane {
    size_t offset; // of the first sample, the same in h_in, h_out and device memory
    int width, height, depth;
    int alpha; // index of the image's alpha plane, where that is filtered too; else -1
};

// An image of a group that is coded: whose image data the device decodes, encodes or both.
struct conv_group_image {
    struct conv_image shape;     // its planes mean nothing
    int plane;                   // its first one among the group's
    size_t kept;                 // offset of the alpha plane that is kept as it is; SIZE_MAX: none
    size_t stream, stream_bytes; // decoded: where in h_in its zlib stream is
    bool failed;                 // decoded: not by the device, that is; set by the backend
    size_t chunks, chunks_bytes; // encoded: where in h_out its IDAT chunks are; set by the backend
};

// Who has a group's staging memory, which a group that is resident needs for its way to the device
// and back only. Called by stream_run; both may take the pipeline's lock.
struct conv_group_lender {
    // All of h_in has been copied in.
    void (*take_back)(struct conv_group_lender *lender);
    // Sets h_out to `bytes` of memory.
    enum conv_status (*lend)(struct conv_group_lender *lender, size_t bytes, struct conv_err *err);
};

// Planes that the CPU has decoded and will encode:
//   h_in:  | planes to filter, packed from the front | backend's tables | free | kept planes |
//   h_out: | filtered planes at the same offsets |
// Where the device decodes, h_in has the streams instead of the planes to filter, and gets the kept
// planes from there. Where it encodes, h_out has IDAT chunks instead of planes. The offsets of
// planes are good for the device's memory all the same, so that `capacity` bounds that, too.
// Where it does both, the group is resident: no plane is ever in the host's memory, which so need
// not be as large, nor be the group's all the time that the device decodes.
struct conv_group {
    uint8_t *h_in, *h_out;            // staging (staging.h): in_capacity and `capacity` bytes
    size_t capacity;                  // bytes of planes, on either side of the bus
    size_t in_capacity;               // the same, unless the group is resident
    struct conv_group_lender *lender; // of a resident group, which begins without h_out
    size_t front;                     // bytes of planes to filter
    size_t back;                      // bytes of kept planes at the end of h_in
    bool decoded, encoded;            // by the device
    size_t streams;                   // decoded: bytes of h_in that they take
    size_t chunks;                    // encoded: most bytes that they take in h_out
    struct conv_group_image *images;  // if decoded or encoded
    int image_count, image_capacity;
    struct conv_group_plane *planes; // the planes to filter
    int plane_count, plane_capacity;
    uint8_t *h_result; // set by the backend: h_out, or h_in if the last step ended there
    uint64_t ns_start; // when the copy in began, on conv_clock_ns's clock; set by the backend
    uint64_t ns_copy_in, ns_kernel, ns_copy_out; // set by the backend
};

// Bytes of staging that an image needs: planes, tables (table_bytes a filtered plane), alignment.
size_t conv_group_need(const struct conv_image *shape, bool filter_alpha, size_t table_bytes);

static inline bool conv_group_is_resident(const struct conv_group *group)
{
    return group->decoded && group->encoded;
}

// Reserves room for an image. `shape` gives sizes; on success in->plane[] point into h_in (to be
// filled) and `out_offset[c]` says where in h_result the filtered channel will be, SIZE_MAX for a
// kept one (which stays at in->plane[c]). false if the group has no room.
bool conv_group_place(struct conv_group *group, const struct conv_image *shape, bool filter_alpha,
                      size_t table_bytes, struct conv_image *in,
                      size_t out_offset[CONV_IMAGE_MAX_CHANNELS]);

// What an image adds to a group that is coded.
struct conv_group_coding {
    size_t stream_bytes; // decoded: most bytes of its zlib stream
    size_t chunks_bytes; // encoded: most bytes of its IDAT chunks, with what the backend adds
};

// What memory an image needs when its group is coded; `coding` has 0 for what the CPU does.
struct conv_group_room {
    size_t planes; // of `capacity`
    size_t in;     // of in_capacity
};
struct conv_group_room conv_group_need_coded(const struct conv_image *shape, bool filter_alpha,
                                             size_t table_bytes,
                                             const struct conv_group_coding *coding);

// As conv_group_place, for a group of which `decoded` or `encoded` is set. *index: the image's
// among the group's images, whose stream the caller writes; the planes of *in are those of h_in
// only if they are to be filled, or kept.
bool conv_group_place_coded(struct conv_group *group, const struct conv_image *shape,
                            bool filter_alpha, size_t table_bytes,
                            const struct conv_group_coding *coding, struct conv_image *in,
                            size_t out_offset[CONV_IMAGE_MAX_CHANNELS], int *index);

// The filtered image: views into h_result and, for kept planes, h_in.
void conv_group_result(const struct conv_group *group, const struct conv_image *in,
                       const size_t out_offset[CONV_IMAGE_MAX_CHANNELS], struct conv_image *out);

// Cuts a group in two of about the same size, for a device that cannot take it whole: `head` and
// `tail` are groups on parts of its memory. False if it cannot be cut: it is one plane, or one
// image whose alpha its colours need. The tail must be run before the head, since a backend's
// table lies behind a group's planes, which is where the tail is. The group's table of planes is
// changed: it is good for nothing but head and tail from then on.
bool conv_group_split(const struct conv_group *group, struct conv_group *head,
                      struct conv_group *tail);

// Empties the group; its memory stays.
void conv_group_reset(struct conv_group *group);

#endif
