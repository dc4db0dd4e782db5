// SPDX-License-Identifier: MIT
// Decodes a part of a deflate stream before the bytes in front of it are known, as pugz (Kerbiriou
// and Chikhi, 2019) and rapidgzip do. The start of a block is guessed. A match may reach into the
// 32 KiB of unknown bytes: symbols of 16 bits then stand for the places of its bytes. As soon as
// the last 32 KiB hold no such symbol, bytes are written as usual.
//
// The result is right if a block of the stream really starts at `first`, which only the decoder of
// the bytes before it can find out.
#ifndef CONV_PNG_CPU_INFLATE_AHEAD_H
#define CONV_PNG_CPU_INFLATE_AHEAD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "png/cpu/inflate.h"

#define CONV_INFLATE_NOWHERE SIZE_MAX

// The first bit in [from, to) where the header of a dynamic block, not the last one, may begin: its
// counts are valid and the lengths of its precode make a complete code. About one bit in 2,000 of
// random data passes, so the caller has to read the rest of the header. Headers of which fewer than
// 24 bytes lie within `size` are not found. CONV_INFLATE_NOWHERE: none.
size_t conv_inflate_find(const uint8_t *data, size_t size, size_t from, size_t to);

// Least memory of a part; two blocks of zlib need about ten times as much.
#define CONV_INFLATE_AHEAD_LEAST ((size_t)256 << 10)

// Belongs to one thread at a time. Positions are bits from `data`.
struct conv_inflate_ahead {
    // Set by the caller.
    const uint8_t *data; // the stream
    size_t size;
    size_t until;            // its begin is searched before this bit
    size_t to;               // the part ends at the first block that begins there or later
    uint8_t *memory;         // aligned to 2 bytes
    size_t room;             // its bytes
    const atomic_bool *stop; // asks for an early end; the result is then unusable
    // Set by conv_inflate_ahead_find.
    size_t first;
    // Set by conv_inflate_ahead_decode.
    size_t end;         // where the part ends, between two blocks
    size_t symbols;     // symbols of 16 bits at the start, then
    size_t bytes;       // bytes
    uint32_t bytes_sum; // their Adler-32
    bool last;          // the stream's last block ends there
    // Used inside.
    struct conv_inflate inflate;
};

// Finds where a block may begin, at bit `from` or later and before ahead->until. False: nowhere.
bool conv_inflate_ahead_find(struct conv_inflate_ahead *ahead, size_t from);

// Decodes whole blocks from ahead->first: to ahead->to, to the stream's end, or until the memory is
// full or something is invalid. False if there is not even one, so that no block begins at `first`,
// or it is too large.
bool conv_inflate_ahead_decode(struct conv_inflate_ahead *ahead);

// Fills `window`, the CONV_INFLATE_WINDOW bytes after the part, from those in front of it.
void conv_inflate_ahead_window(const struct conv_inflate_ahead *ahead, uint8_t *window,
                               const uint8_t *before);

// Converts the part to ahead->symbols + ahead->bytes bytes, which stay in its memory; to be called
// once. *adler is their Adler-32.
uint8_t *conv_inflate_ahead_finish(struct conv_inflate_ahead *ahead, const uint8_t *before,
                                   uint32_t *adler);

#endif
