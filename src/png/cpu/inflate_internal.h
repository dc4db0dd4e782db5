// SPDX-License-Identifier: MIT
// The parts of inflate: bits in, symbols looked up, bytes and copies out, block by block.
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "png/cpu/inflate.h"

#ifdef __x86_64__
#include <immintrin.h>
#endif

#define CONV_INFLATE_INLINE static inline __attribute__((always_inline))

// --- reading bits --------------------------------------------------------------------------------

// `bits` holds `count` valid bits, the next one lowest. After the end of the input zeros are read;
// `beyond` counts their bytes.
struct conv_inflate_reader {
    uint64_t bits;
    unsigned count;
    unsigned beyond;
    const uint8_t *at, *end;
    bool more; // there are further pieces, so that nothing is read beyond `end`
};

CONV_INFLATE_INLINE uint64_t conv_inflate_load64(const uint8_t *p)
{
    uint64_t value;
    memcpy(&value, p, sizeof value);
    return value;
}

// Makes `count` at least 56. Bits above `count` may be set already, to the values they will get.
// `count` may hold any multiple of 64 besides, see conv_inflate_drop_inside; that is kept.
CONV_INFLATE_INLINE void conv_inflate_refill_inside(struct conv_inflate_reader *reader)
{
    reader->bits |= conv_inflate_load64(reader->at) << (reader->count & 63);
    reader->at += ~reader->count >> 3 & 7;
    reader->count |= 56;
}

// The same byte by byte, at the end of the input.
void conv_inflate_refill_bytes(struct conv_inflate_reader *reader);

static inline void conv_inflate_refill(struct conv_inflate_reader *reader)
{
    if (__builtin_expect(reader->end - reader->at >= 8, 1))
        conv_inflate_refill_inside(reader);
    else
        conv_inflate_refill_bytes(reader);
}

CONV_INFLATE_INLINE void conv_inflate_drop(struct conv_inflate_reader *reader, unsigned count)
{
    reader->bits >>= count;
    reader->count -= count;
}

// Drops the bits that the lowest byte of an entry says, at most 63, and subtracts all of it from
// `count`, which saves an instruction: only its lowest six bits are then right.
CONV_INFLATE_INLINE void conv_inflate_drop_inside(struct conv_inflate_reader *reader,
                                                  uint64_t entry)
{
    reader->bits >>= entry & 63;
    reader->count -= (unsigned)entry;
}

// The lowest bits, as many as the lowest byte of `entry` says, at most 63.
typedef uint64_t (*conv_inflate_low_fn)(uint64_t bits, uint64_t entry);

CONV_INFLATE_INLINE uint64_t conv_inflate_low_plain(uint64_t bits, uint64_t entry)
{
    return bits & (((uint64_t)1 << (entry & 63)) - 1);
}

#ifdef __x86_64__
__attribute__((target("bmi2"))) static inline uint64_t conv_inflate_low_bmi2(uint64_t bits,
                                                                             uint64_t entry)
{
    return _bzhi_u64(bits, (unsigned)entry);
}
#endif

// --- writing bytes -------------------------------------------------------------------------------

struct conv_inflate_output {
    const struct conv_inflate_decoders *decoders;
    const struct conv_inflate_tables *fixed;
    uint8_t *begin; // matches do not reach before it
    uint8_t *at;
    uint8_t *end;   // as many bytes as the stream should have, or as there is room for
    uint8_t *stop;  // conv_inflate_symbols returns when `at` is beyond it
    uint8_t *look;  // conv_inflate.next is called when `at` is beyond it
    uint8_t *fresh; // of the last such call: the bytes after it are not yet counted and summed
    size_t counted, total;
    uint32_t adler;
    bool summed; // adler is computed
};

CONV_INFLATE_INLINE void conv_inflate_put_literals(uint8_t *out, uint64_t entry)
{
    uint16_t bytes = (uint16_t)(entry >> 32);
    memcpy(out, &bytes, sizeof bytes);
}

// --- symbols -------------------------------------------------------------------------------------

// The fastest decoders that these bits of conv_cpu_features allow.
const struct conv_inflate_decoders *conv_inflate_symbols_choose(unsigned features);

enum conv_inflate_state { CONV_INFLATE_WORKING, CONV_INFLATE_DONE, CONV_INFLATE_FAILED };

// Decodes symbols of a block. DONE: the block has ended; FAILED: the stream is invalid; WORKING:
// output->at is beyond output->stop, or the input is used up (at is not beyond stop then). Up to
// CONV_INFLATE_SLACK bytes after output->stop are overwritten.
enum conv_inflate_state conv_inflate_symbols(const struct conv_inflate_tables *tables,
                                             struct conv_inflate_reader *reader,
                                             struct conv_inflate_output *output);

// --- inflate.c: blocks ---------------------------------------------------------------------------

// The blocks of a deflate stream one by one, for decoders that begin in its middle. Positions are
// bits from the start of the input; `data` is that start.

static inline unsigned conv_inflate_take(struct conv_inflate_reader *reader, unsigned count)
{
    unsigned value = (unsigned)(reader->bits & (((uint64_t)1 << count) - 1));
    conv_inflate_drop(reader, count);
    return value;
}

// Bits of the input that were used, without those that were read ahead.
static inline size_t conv_inflate_used_bits(const struct conv_inflate_reader *reader,
                                            const uint8_t *data)
{
    return 8 * ((size_t)(reader->at - data) + reader->beyond) - reader->count;
}

// Continues at a bit, which is not after the end of the input.
static inline void conv_inflate_move(struct conv_inflate_reader *reader, const uint8_t *data,
                                     size_t bit)
{
    *reader = (struct conv_inflate_reader){.at = data + bit / 8, .end = reader->end};
    conv_inflate_refill(reader);
    conv_inflate_drop(reader, bit % 8);
}

// Moves to the start of the next byte and gives back the bytes that were read ahead. False if zeros
// from after the input were used.
bool conv_inflate_align(struct conv_inflate_reader *reader);

// Prepares to write `out_size` bytes to `out`; matches do not reach before output->begin.
void conv_inflate_start(struct conv_inflate *inflate, struct conv_inflate_output *output,
                        uint8_t *out, size_t out_size);

// Decodes a block; `number` counts them. Calls inflate->next() as described there. False: the
// stream is invalid, has more than out_size bytes, or next() ended it.
bool conv_inflate_next_block(struct conv_inflate *inflate, struct conv_inflate_reader *reader,
                             struct conv_inflate_output *output, unsigned number, bool *last);

// Reads the codes of a dynamic block, after its first three bits, to inflate->tables, which are
// joined at once if `join`.
bool conv_inflate_read_dynamic(struct conv_inflate *inflate, struct conv_inflate_reader *reader,
                               bool join);

// Decodes what is left of a block whose first symbols were decoded elsewhere. `tables`: of the
// fixed code, or inflate->tables.
bool conv_inflate_rest_of_block(struct conv_inflate *inflate,
                                const struct conv_inflate_tables *tables,
                                struct conv_inflate_reader *reader,
                                struct conv_inflate_output *output);

// Brings output->counted and output->adler up to output->at.
void conv_inflate_count(struct conv_inflate_output *output);

// --- inflate_ahead.c: parts of a stream ----------------------------------------------------------

// Decodes a part of a deflate stream before the bytes in front of it are known, as pugz (Kerbiriou
// and Chikhi, 2019) and rapidgzip do. The start of a block is guessed. A match may reach into the
// 32 KiB of unknown bytes: symbols of 16 bits then stand for the places of its bytes. As soon as
// the last 32 KiB hold no such symbol, bytes are written as usual.
//
// The result is right if a block of the stream really starts at `first`, which only the decoder of
// the bytes before it can find out.

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
