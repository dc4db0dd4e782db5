// SPDX-License-Identifier: MIT
// The parts of check_codec that hold the decoder on the device against the one on the CPU: made
// pictures and streams, the judge, the device.
#ifndef CONV_TESTS_CHECK_DECODE_H
#define CONV_TESTS_CHECK_DECODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "image/image.h"

#define CHECK_DECODE_MOST 64 // pictures in a batch

// A picture as a zlib stream of filtered rows, right or wrong.
struct check_stream {
    int width, height, channels, depth;
    uint8_t *bytes;
    size_t size;
    const char *kind; // what it is a case of
    int result;       // an enum conv_decode_result that must come out, or CHECK_ANY_RESULT
};

#define CHECK_ANY_RESULT (-1)

// --- check_decode_streams.c ----------------------------------------------------------------------

void check_decode_seed(uint64_t seed);
unsigned check_decode_random(unsigned below);

// A random picture of about `most` samples, compressed by zlib with random parameters. The bytes
// are the caller's to free. *planes, if not NULL, becomes what must come out, as check_judge does.
struct check_stream check_make_stream(unsigned most, struct conv_image *planes);
// A copy, damaged at random; some of the damaged ones get a right Adler-32 again.
struct check_stream check_damage_stream(const struct check_stream *stream);
// A copy of the first `size` bytes.
struct check_stream check_cut_stream(const struct check_stream *stream, size_t size);
// Streams written bit by bit that break one rule each, and their neighbours that do not. False
// behind the last one.
bool check_special_stream(struct check_stream *stream, int number);
// The picture data of a PNG file. False if it has none that the device takes.
bool check_read_stream(struct check_stream *stream, const char *path);

// --- check_decode_judge.c ------------------------------------------------------------------------

// What src/png/decode.c makes of the stream in a PNG file: true and planes, whose memory is
// planes->plane[0].data alone, or false.
bool check_judge(struct conv_image *planes, const struct check_stream *stream);
void check_alloc_planes(struct conv_image *planes, const struct check_stream *stream);
void check_free_planes(struct conv_image *planes);

// --- check_decode_device.c -----------------------------------------------------------------------

// Decodes a batch by `threads` threads a picture (0: as many as the decoder chooses) and compares
// each with the judge, which has said right[i] and, if so, made planes[i]. False, with a message,
// if anything differs or memory around the planes has changed.
bool check_decode_batch(const struct check_stream *streams, const struct conv_image *planes,
                        const bool *right, int count, int threads, uint64_t seed);

#endif
