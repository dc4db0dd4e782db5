// SPDX-License-Identifier: MIT
// What the files of test_api_device share: the contexts, and images in device memory.
#pragma once

#include "conv.h"
#include "support/api_image.h"

#define FILL 0x5a
// Under a sanitizer and on the emulated device a third of the images: as many kinds and layouts,
// fewer of each.
#ifdef CONV_EMULATED
#define PORTION 3
#else
#define PORTION (CONV_SANITIZED ? 3 : 1)
#endif

extern uint64_t api_noise; // state of the random numbers
extern conv_context *api_cpu, *api_gpu;

// Fails the test with the context's message if there is an error.
void api_must(conv_context *context, conv_status status);

// A view of device memory, and of a copy in host memory that may have guard bytes.
struct api_pair {
    struct api_image host;
    conv_image view;
    void *d_memory;
};

void api_pair_make(struct api_pair *pair, enum api_layout layout, int width, int height,
                   int channels, conv_sample sample);
void api_pair_upload(const struct api_pair *pair);
void api_pair_download(const struct api_pair *pair);
void api_pair_free(struct api_pair *pair);

// Runs the tests of api_device_filters.c; returns how many failed.
int api_device_filters(void);
