// SPDX-License-Identifier: MIT
// What the files of src/api/ share: the context, and how its functions report failures.
#ifndef CONV_API_API_CONTEXT_H
#define CONV_API_API_CONTEXT_H

#include "base/err.h"
#include "conv.h"
#include "engine/engine.h"

struct conv_api_codecs; // api_codecs.h

struct conv_context_object {
    struct conv_device_context *device;
    char name[16];                  // "cpu", "cuda:0"
    struct conv_api_codecs *codecs; // made when the first PNG is decoded or encoded
    uint64_t max_pixels;
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

// Called at the beginning of each interface function: CONV_ERR_DEVICE if the device is lost.
enum conv_status conv_api_begin(conv_context *context);

// Called at its end: notes the loss of the device, adds the hint to the text in the words of
// conv.h, and returns `status`. The text is in context->err.
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

#endif
