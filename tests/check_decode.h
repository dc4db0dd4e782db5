// SPDX-License-Identifier: MIT
// The parts of check_codec that compare the decoder on the device with the one on the CPU:
// generated images and streams, the oracle, the device.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "image/image.h"

#define CHECK_DECODE_MOST 64 // images in a batch

// An image as a zlib stream of filtered rows, right or wrong.
struct check_stream {
    int width, height, channels, depth;
    uint8_t *bytes;
    size_t size;
    const char *kind; // the kind of case
    int result;       // an enum conv_decode_result that must come out, or CHECK_ANY_RESULT
};

#define CHECK_ANY_RESULT (-1)

// --- check_decode_streams.c ----------------------------------------------------------------------

void check_decode_seed(uint64_t seed);
unsigned check_decode_random(unsigned below);

// A random image of about `most` samples, compressed by zlib with random parameters. The caller
// frees the bytes. *planes, if not NULL, is set to the expected planes, as by check_oracle.
struct check_stream check_make_stream(unsigned most, struct conv_image *planes);
// A photograph as programs write it: filtered rows, zlib's usual settings, no flushes. The device
// must decode it, so its `result` is CONV_DECODE_DECODED.
struct check_stream check_photo_stream(void);
// A copy, damaged at random; some of the damaged ones get a right Adler-32 again.
struct check_stream check_damage_stream(const struct check_stream *stream);
// A copy of the first `size` bytes.
struct check_stream check_cut_stream(const struct check_stream *stream, size_t size);
// Streams written bit by bit that break one rule each, and their neighbours that do not. False
// after the last one.
bool check_special_stream(struct check_stream *stream, int number);
// Valid streams whose `result` depends on the cost of their block headers. False after the last.
bool check_costly_stream(struct check_stream *stream, int number);
// A valid stream long enough to be stopped: its `result` is CONV_DECODE_STOPPED.
struct check_stream check_long_stream(void);

// --- check_decode_oracle.c -----------------------------------------------------------------------

// What the device must do with a stream.
enum check_verdict {
    CHECK_MUST_REFUSE,
    CHECK_MAY_DECODE, // to the planes that libpng decodes
    CHECK_MUST_DECODE,
};
// Decodes the stream in a PNG file with src/png/cpu/decode.c. A stream that this leaves to libpng
// may be decoded if it is whole for zlib and libpng decodes it. The content of *planes, which
// image_free frees, is undefined if the stream must be refused.
enum check_verdict check_oracle(struct conv_image *planes, const struct check_stream *stream);
// The image data of a PNG file. False if it has none that the device takes.
bool check_read_stream(struct check_stream *stream, const char *path);

// --- check_decode_device.c -----------------------------------------------------------------------

// How a batch is decoded.
struct check_decode_run {
    int threads;      // that decode an image together; 0: the decoder's choice
    int at_once;      // images that the device decodes at the same time; 0: unknown; 1: the batch's
    int parts;        // at most, that a stream is cut into; 0: the decoder's choice
    bool at_any_cost; // otherwise a valid stream may be refused as CONV_DECODE_COSTLY
    bool stopped;     // by the host, before the start
    uint64_t seed;    // of the order of emulated threads
};

// Decodes a batch and compares each image with the oracle's verdicts[i] and, if it is decoded,
// planes[i]; valid streams whose `result` is CONV_DECODE_COSTLY or CONV_DECODE_STOPPED must end so.
// False, with a message, if anything differs or memory around the planes has changed. *split counts
// the images that were decoded in parts.
bool check_decode_batch(const struct check_stream *streams, const struct conv_image *planes,
                        const enum check_verdict *verdicts, int count,
                        const struct check_decode_run *how, int *split);
