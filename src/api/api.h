// SPDX-License-Identifier: MIT
// What the files of src/api/ share: the context, and how its functions report failures; checks of
// views, and of the memory that they share; batches of files.
#pragma once

#include "base/err.h"
#include "base/lock.h"
#include "conv.h"
#include "engine/engine.h"
#include "png/png.h"

struct conv_context_object {
    struct conv_device_context *device;
    char name[16];              // "cpu", "cuda:0"
    struct conv_codec **coders; // of each thread and format; made when the first file is coded
    uint64_t max_pixels;
    int previous;        // of a call: the caller's current device
    bool entered;        // which is to be restored
    bool lost;           // after CONV_ERR_DEVICE: nothing more can be done
    struct conv_err err; // of the last failure
};

static inline bool conv_api_is_cpu(const conv_context *context)
{
    return context->device->ops->place == CONV_ON_CPU;
}

// True if that kind of memory is not the host's.
static inline bool conv_api_is_on_device(const conv_context *context, conv_memory memory)
{
    return memory == CONV_DEVICE && !conv_api_is_cpu(context);
}

// Called at the beginning of each interface function: makes the device the current one.
// CONV_ERR_USAGE if `context` is NULL, CONV_ERR_DEVICE if the device is lost.
enum conv_status conv_api_begin(conv_context *context);

// Called at its end, also after a failure to begin: restores the caller's current device, notes the
// loss of the device, adds the hint to the text in the words of conv.h, and returns `status`. The
// text is in context->err. `context` may be NULL.
enum conv_status conv_api_end(conv_context *context, enum conv_status status);

// Writes the reason of a failure, with its hint in the words of conv.h, cut to `size` bytes;
// returns `text`.
char *conv_api_explain(char *text, size_t size, const struct conv_err *err);

// filter.c: fills in a chain's configuration from a text and options of the current size;
// `filters` has room for CONV_FILTER_MAX_CHAIN. CONV_ERR_USAGE, CONV_ERR_FORMAT, CONV_ERR_IO,
// CONV_ERR_MEMORY.
enum conv_status conv_api_read_chain(struct conv_backend_config *config,
                                     struct conv_filter *filters, const conv_context *context,
                                     const char *text, const conv_filter_options *options,
                                     struct conv_err *err);

// The part of the caller's options that the program and this library have in common: copies the
// struct of `size` bytes (its first member) over the defaults in *own, which has own_size bytes.
// `options` NULL: the defaults stay. CONV_ERR_USAGE if it is smaller than `least`, the struct of
// the first version; CONV_ERR_UNSUPPORTED if a byte is not 0 from `reserved_at` on, where this
// version has no members that mean anything.
enum conv_status conv_api_read_options(void *own, size_t own_size, const void *options,
                                       size_t least, size_t reserved_at, struct conv_err *err);

// For a struct of options that ends in `reserved` and has had its size since the first version.
#define CONV_API_READ_OPTIONS(own, options, err)                                                   \
    conv_api_read_options((own), sizeof *(own), (options), sizeof *(own),                          \
                          sizeof *(own) - sizeof(own)->reserved, (err))

// --- views: views.c ------------------------------------------------------------------------------

// CONV_ERR_USAGE unless the view has a size, a sample type of conv_sample up to `most`, memory, and
// strides that are multiples of its samples within the address space; with `written`, samples that
// do not overlap. `name` begins the text: "sources[3]".
enum conv_status conv_api_check_view(const conv_image *view, conv_sample most, bool written,
                                     const char *name, struct conv_err *err);

// The bytes of one argument: blocks of `size` bytes at start + i * stride for each i below count,
// and this along several axes.
struct conv_api_span {
    uintptr_t start, end;
    int64_t size;
    struct {
        int64_t count, stride;
    } axes[3];
    int item;       // of the batch
    bool written;   // else it is only read
    bool may_copy;  // if it is only read: the caller can read a copy
    bool is_copied; // which it has to
};

// Of a checked view; of blocks of `size` bytes along axes of {count, stride}, NULL: of one block.
struct conv_api_span conv_api_apart_view(const conv_image *view, int item, bool written);
struct conv_api_span conv_api_apart_bytes(const void *data, size_t size, const int64_t axes[3][2]);

// True if the spans have bytes in common. Also true where finding out would take too long, which
// needs overlapping extents and several strides that differ.
bool conv_api_apart_meet(const struct conv_api_span *a, const struct conv_api_span *b);

// Memory of the pool for that many spans, and what finding a clash takes.
enum conv_status conv_api_apart_take(conv_context *context, size_t most,
                                     struct conv_api_span **spans, struct conv_err *err);
// Finds a written span, clash[0], that has bytes in common with another one, clash[1]: false if
// there is none. Where that is one that may be copied, sets its is_copied instead. Sorts the first
// `count` spans of `most` that were taken.
bool conv_api_apart_clash(struct conv_api_span *spans, size_t count, size_t most,
                          const struct conv_api_span *clash[2]);

// Memory of the pool for an image of that size and type, without gaps, whose view *image becomes.
// CONV_ERR_LIMIT, CONV_ERR_MEMORY, CONV_ERR_DEVICE.
enum conv_status conv_api_take_image(conv_context *context, conv_image *image, conv_memory memory,
                                     bool planar, struct conv_err *err);

// --- batches of files: codec.c -------------------------------------------------------------------
// Their items can fail independently of each other. One batch per call; only conv_api_batch_fail
// and conv_api_coder_get may be called by several threads.

struct conv_api_batch {
    conv_context *context;
    conv_item *items; // of the caller; may be NULL
    int count;
    void *memory; // of the call, for its items
    struct conv_lock lock;
    int first_failed; // the lowest index; INT_MAX: none. Its reason is in context->err.
    enum conv_status status;
    bool device_lost;
};

// Begins a batch of `count` files, unless *status, that of the call so far, is a failure: checks
// these arguments of the call, marks all items as CONV_OK, and sets batch->memory to `count` times
// `size` bytes, all zeros. False after a failure: every item then has its status and reason, and
// *status is the call's result.
bool conv_api_batch_open(struct conv_api_batch *batch, conv_context *context,
                         const conv_bytes *files, const conv_image *images, conv_item *items,
                         int count, size_t size, enum conv_status *status);

// Notes that item `index` failed. Any thread.
void conv_api_batch_fail(struct conv_api_batch *batch, int index, enum conv_status status,
                         const struct conv_err *err);

// Gives back the memory; the status of the first item that failed, as the call's result.
enum conv_status conv_api_batch_end(struct conv_api_batch *batch);

// The format of files with that extension. CONV_ERR_UNSUPPORTED if this build has none.
enum conv_status conv_api_find_format(const struct conv_format **format, const char *extension,
                                      struct conv_err *err);

// The codec of a worker for a format, opened at the first call, with the settings of *config, which
// matter to encoding only; NULL: any. CONV_ERR_USAGE: no such level; CONV_ERR_MEMORY.
enum conv_status conv_api_coder_get(conv_context *context, int worker,
                                    const struct conv_format *format,
                                    const struct conv_codec_config *config,
                                    struct conv_codec **codec, struct conv_err *err);
void conv_api_coders_close(conv_context *context);
