// SPDX-License-Identifier: MIT
// Inflates one image with many blocks of threads, when few images are in flight. The stream is cut
// into parts of equal size. In each part except the first, split_find.cu searches for the begin of
// a DEFLATE block. All parts are then decoded at once, each from its begin on: first only to count
// (in the same file), which shows which begins are real and where the output of each part is; then
// to write (split_put.cu). Bytes that a part copies from before its own output are written as
// markers, which are resolved when all parts have been written (split_put.cu). After Knespel and
// Brunst, "Rapidgzip" (2023), and Kerbiriou and Chikhi, "Parallel decompression of gzip-compressed
// files" (2019).
//
// If that fails, because of the stream or for lack of room in the tables below, the kernel in
// inflate.cu decodes the image and finds the error, if there is one.
#pragma once

#include "png/cuda/inflate.cuh"

#define SPLIT_THREADS 256
#define SPLIT_NONE UINT32_MAX

// States of an output byte of a split image, 16 bits each: in a window, references to its places
// are below 0x4000. Then bytes, then markers: the byte at this distance less 1 before the part.
#define STATE_BYTE 0x4000u
#define STATE_MARKER 0x4100u
static_assert(SPLIT_THREADS * THREAD_ROOM <= STATE_BYTE, "a place of the window fits");
static_assert(STATE_MARKER + 32768 <= INSIDE, "markers of all distances fit");

struct split_part {
    uint32_t start;  // the bit of the stream where its first block begins; SPLIT_NONE
    uint32_t next;   // the part that begins where this one ends, `parts` at the end of the stream;
                     // SPLIT_NONE if it could not be counted
    uint32_t bytes;  // of output
    uint32_t window; // its first window; SPLIT_NONE
    uint32_t out;    // bytes of output before it; SPLIT_NONE if it does not belong to the stream
};

// A counted window, or stored bytes.
struct split_window {
    uint32_t next;         // the next window of the same split_part; SPLIT_NONE
    uint32_t codes;        // index of its block's split_codes; SPLIT_NONE: stored bytes
    uint32_t at;           // bit of the stream; for stored bytes, the byte
    uint32_t bits;         // bits of input per thread's part (part_bits of struct progress)
    uint32_t parts, bytes; // number of threads' parts; bytes of output
    uint32_t shares[SPLIT_THREADS + 1]; // as in struct block_memory
};

struct split_codes {
    uint8_t lengths[LITLENS + DISTANCES];
};

struct split_state {
    uint32_t failed;
    uint32_t windows, codes;              // used so far
    uint32_t live;                        // number of parts that belong to the stream
    uint32_t done;                        // blocks that have resolved their share
    uint32_t bytes, weighted;             // sums of shares of the Adler-32
    uint32_t outs[CONV_SPLIT_MOST_PARTS]; // of live parts: the output before each
    struct split_part parts[CONV_SPLIT_MOST_PARTS];
};

// An image's tables, in its scratch memory.
struct split {
    struct split_state *state;
    struct split_codes *codes;
    struct split_window *windows;
    uint16_t *states; // one for each byte of the rows
    uint32_t most_codes, most_windows;
};

__host__ __device__ inline size_t split_align(size_t bytes)
{
    return (bytes + 127) / 128 * 128;
}

// The places of the parts of a split in its memory, and its size, for an image whose rows have
// `rows_bytes` bytes. Ordinary streams use half of the codes and windows.
struct split_layout {
    uint32_t most_codes, most_windows;
    size_t codes, windows, states, bytes;
};

__host__ __device__ inline struct split_layout split_layout_of(uint32_t rows_bytes)
{
    struct split_layout at;
    at.most_codes = rows_bytes / 8192 + 64;
    at.most_windows = rows_bytes / 4096 + 64;
    at.codes = split_align(sizeof(struct split_state));
    at.windows = at.codes + split_align(at.most_codes * sizeof(struct split_codes));
    at.states = at.windows + split_align(at.most_windows * sizeof(struct split_window));
    at.bytes = at.states + split_align(((size_t)rows_bytes + 8) * sizeof(uint16_t));
    return at;
}

__device__ inline struct split find_split(const struct conv_decode_image &image)
{
    struct split_layout at = split_layout_of(image.rows_bytes);
    struct split split;
    split.most_codes = at.most_codes;
    split.most_windows = at.most_windows;
    split.state = (struct split_state *)image.d_split;
    split.codes = (struct split_codes *)(image.d_split + at.codes);
    split.windows = (struct split_window *)(image.d_split + at.windows);
    split.states = (uint16_t *)(image.d_split + at.states);
    return split;
}
