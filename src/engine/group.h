// SPDX-License-Identifier: MIT
// A group: several images packed into one staging buffer, so that any number of them takes one copy
// to the device, one launch per filter and one copy back. A group belongs to one thread at a time.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/parallel.h"
#include "image/format.h"

struct conv_group_plane {
    size_t offset; // of the first sample, the same in h_in, h_out and device memory
    int width, height, depth;
    int alpha; // index of the image's alpha plane, where that is filtered too; else -1
};

// An image whose data the device decodes, encodes, or both. Offsets are in bytes.
struct conv_group_image {
    struct conv_image shape; // without planes
    int plane;               // index of its first plane among the group's
    size_t passthrough;      // offset of an alpha plane that is not filtered; SIZE_MAX: none
    // Decoded: by which coder, and its compressed data in h_in: 0 bytes if it has none after all.
    enum conv_device_coder decoder;
    size_t stream, stream_bytes;
    bool failed; // decoded: the device could not; set by the backend
    // Encoded: how, and its data in h_out; set by the backend.
    struct conv_device_encoding encoding;
    size_t encoded, encoded_bytes;
};

// The staging memory of a group that the device decodes and encodes: it is needed for the upload
// and for the download, not in between. stream_run calls both on its own thread; they may wait for
// a lock.
struct conv_group_memory {
    // All of h_in has been uploaded: its owner may use it for other groups.
    void (*release_in)(struct conv_group_memory *memory);
    // Sets the group's h_out to `bytes` of memory. CONV_ERR_MEMORY.
    enum conv_status (*acquire_out)(struct conv_group_memory *memory, size_t bytes,
                                    struct conv_err *err);
};

// Planes that the CPU has decoded and will encode:
//   h_in:  | planes to filter, packed from the front | backend's tables | free | passthrough planes
//   | h_out: | filtered planes at the same offsets |
// If the device decodes, h_in has streams of compressed data instead of the planes to filter, and
// the device writes the passthrough planes to it. If the device encodes, h_out has encoded data
// instead of planes. Planes have their offsets in device memory all the same, so `capacity` bounds
// that, too. If it does both, the group is device-coded: no plane is ever in host memory, so that
// h_in can be smaller and is released after the upload.
//
// The owner of the memory sets the buffers, capacities and arrays, and `decoded` and `encoded`
// while the group is empty. conv_group_place and _place_coded fill it. The backend sets the fields
// marked "set by the backend". All other fields are only read outside group.c.
struct conv_group {
    uint8_t *h_in, *h_out;            // staging memory of in_capacity and `capacity` bytes
    size_t capacity;                  // bytes for planes, in host and in device memory
    size_t in_capacity;               // as capacity, unless the group is device-coded
    struct conv_group_memory *memory; // of a device-coded group, which has no h_out at first
    size_t front;                     // bytes of planes to filter
    size_t back;                      // bytes of passthrough planes at the end of h_in
    bool decoded, encoded;            // by the device
    size_t streams;                   // decoded: bytes of h_in that streams take
    size_t results;                   // encoded: most bytes of h_out that encoded data takes
    struct conv_group_image *images;  // if decoded or encoded
    int image_count, image_capacity;
    struct conv_group_plane *planes; // the planes to filter
    int plane_count, plane_capacity;
    uint8_t *h_result; // set by the backend: h_out, or h_in if the last filter ended there
    // Device-coded: the next of the groups that run together with this one; NULL: none.
    struct conv_group *next;
    // How many may run together on this stream from now on, set by the owner of the first of them:
    // the backend reserves memory for as many. 0: as many as are linked.
    int together;
    // Threads that may help to run it, set by its owner; NULL: none. Only the CPU backend uses
    // them.
    struct conv_parallel *parallel;
    uint64_t ns_start; // when the copy in began, on conv_clock_ns's clock; set by the backend
    uint64_t ns_copy_in, ns_kernel, ns_copy_out; // set by the backend
};

// Bytes of staging memory per image: planes, tables (table_bytes per filtered plane), alignment.
size_t conv_group_need(const struct conv_image *shape, bool filter_alpha, size_t table_bytes);

static inline bool conv_group_is_device_coded(const struct conv_group *group)
{
    return group->decoded && group->encoded;
}

// An image's place in a group.
struct conv_placed {
    struct conv_image in; // its planes in h_in, to be filled
    // Where in h_result a filtered channel will be; SIZE_MAX for a passthrough one, which stays at
    // in.plane[].
    size_t out_offset[CONV_IMAGE_MAX_CHANNELS];
    // The shape's spare planes, among the passthrough planes: backends never touch them.
    struct conv_plane spare[CONV_IMAGE_MOST_SPARE];
};

// Reserves room for an image of the sizes of `shape`. False if the group has no room.
bool conv_group_place(struct conv_group *group, const struct conv_image *shape, bool filter_alpha,
                      size_t table_bytes, struct conv_placed *placed);

// The bytes that an image adds to a group that is decoded or encoded by the device.
struct conv_group_coding {
    size_t stream_bytes; // decoded: most bytes of its stream
    enum conv_device_coder decoder;
    size_t encoded_bytes; // encoded: conv_device_ops.encoded_bytes
    const struct conv_device_encoding *encoding;
};

// The memory that an image needs when its group is coded; `coding` has 0 for the direction that the
// CPU codes.
struct conv_group_room {
    size_t planes; // of `capacity`
    size_t in;     // of in_capacity
};
struct conv_group_room conv_group_need_coded(const struct conv_image *shape, bool filter_alpha,
                                             size_t table_bytes,
                                             const struct conv_group_coding *coding);

// As conv_group_place, for a group with `decoded` or `encoded` set. *index is the image's among the
// group's images; the caller writes its stream. Planes are in h_in only if the caller fills them or
// if they pass through.
bool conv_group_place_coded(struct conv_group *group, const struct conv_image *shape,
                            bool filter_alpha, size_t table_bytes,
                            const struct conv_group_coding *coding, struct conv_placed *placed,
                            int *index);

// The filtered image: views into h_result and, for passthrough planes, h_in. It has result_depth,
// except that passthrough planes are as they were placed, with room for that depth.
void conv_group_result(const struct conv_group *group, const struct conv_placed *placed,
                       struct conv_image *out);

// Cuts a group in two of about the same size, for a device that cannot take it whole: `head` and
// `tail` are groups on parts of its memory. False if it cannot be cut: it is one plane, or one
// image whose alpha its colours need. The tail must be run before the head, since a backend's
// table lies after a group's planes, which is where the tail is. The group's table of planes is
// changed: only head and tail can be used from then on.
bool conv_group_split(const struct conv_group *group, struct conv_group *head,
                      struct conv_group *tail);

// Empties the group; its memory stays.
void conv_group_reset(struct conv_group *group);
