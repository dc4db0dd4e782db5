// SPDX-License-Identifier: MIT
// Decompresses a whole zlib stream of known size. It is used instead of libdeflate for two reasons:
// one table look-up yields two literals, or a length with its distance, if their codewords are
// short, as they are in images; and it refuses what zlib refuses (incomplete codes, reserved
// symbols), where libdeflate is more lenient, so files are accepted exactly if libpng accepts them.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// --- tables --------------------------------------------------------------------------------------

// Bits that index a table. Larger tables hold longer codewords but take longer to build and do not
// fit the first-level cache; these were fastest on photographs.
#define CONV_INFLATE_LITLEN_BITS 11
#define CONV_INFLATE_DISTANCE_BITS 9
#define CONV_INFLATE_PRECODE_BITS 7

// An entry of the table of literals and lengths. It holds a whole match if both codewords and the
// extra bits of the length fit the index:
//   bits 0-7   bits to drop: codewords and extra bits
//   bits 8-15  length of the match, 0 for literals; above CONV_INFLATE_NEAR, one of the kinds below
//   bits 16-23 bits to drop without the extra bits that are still to be read, which come last
//   bits 24-31 number of literals, 1 or 2
//   bits 32-47 their bytes, in order; base of a length whose distance has to be looked up
//   bits 48-63 base of the distance, to which the extra bits are added. With literals it is
//              CONV_INFLATE_BACK, a distance whose bytes are copied but not used, and which is too
//              large to depend on the last stores. With the kinds below it is 0: as all extra bits
//              of a length are below CONV_INFLATE_LENGTH, the distance is less than the length, as
//              in a match that overlaps itself, and one comparison finds both
#define CONV_INFLATE_NEAR 16   // longest match in the table: what one copy of 16 bytes covers
#define CONV_INFLATE_LENGTH 64 // a length; its distance has to be looked up
#define CONV_INFLATE_LONG 65   // the codeword is longer than the index
#define CONV_INFLATE_END 66
#define CONV_INFLATE_INVALID 67
#define CONV_INFLATE_BACK 2048

#define CONV_INFLATE_DROP(entry) ((unsigned)((entry)&63))
#define CONV_INFLATE_KIND(entry) ((unsigned)(entry) >> 8 & 255)
#define CONV_INFLATE_LITERALS(entry) ((unsigned)(entry) >> 24)

// An entry of the table of distances:
//   bits 0-7   bits to drop
//   bits 8-15  bits of the codeword alone; above CONV_INFLATE_NEAR, one of the kinds above
//   bits 16-31 base

// A codeword longer than the index leads to a second table after the first one, which is indexed by
// the following bits. An entry of the kind CONV_INFLATE_LONG holds its place:
//   litlen:   bits 32-43 the first entry, 44-47 the bits of the index
//   distance: bits 16-27 the first entry, 28-31 the bits of the index
// All second tables together have at most 294 and 82 entries for 288 and 32 symbols (zlib's "enough
// 288 11 15", "enough 32 9 15").
#define CONV_INFLATE_LITLEN_LONG 320
#define CONV_INFLATE_DISTANCE_LONG 128

// A code as lists, from which tables are made.
struct conv_inflate_code {
    uint16_t count[16];   // codewords of each length
    uint16_t sorted[288]; // symbols in the order of their codewords
};

// The tables of one block: about 23 KB, which need not be initialised.
struct conv_inflate_tables {
    uint64_t litlen[(1 << CONV_INFLATE_LITLEN_BITS) + CONV_INFLATE_LITLEN_LONG];
    uint32_t distance[(1 << CONV_INFLATE_DISTANCE_BITS) + CONV_INFLATE_DISTANCE_LONG];
    struct conv_inflate_code litlen_code, distance_code;
    bool mixed;  // matches are so frequent that a branch on literal or match is mispredicted
    bool joined; // conv_inflate_code_join has been called
};

// Fills a table of 1 << CONV_INFLATE_PRECODE_BITS entries from the lengths of the symbols'
// codewords. False if zlib refuses such a code. An entry is its symbol << 16 | bits to drop.
bool conv_inflate_code_precode(uint32_t *table, const uint8_t lengths[19]);

// The same for the tables of a block, joined at once if `join`. Until they are joined an entry
// holds one literal, or a length alone.
bool conv_inflate_code_tables(struct conv_inflate_tables *tables, const uint8_t *litlen_lengths,
                              unsigned litlens, const uint8_t *distance_lengths, unsigned distances,
                              bool join);

// Makes one entry of two literals, or of a length and its distance, wherever an index holds both.
// This takes longer than conv_inflate_code_tables and pays off after some thousand bytes.
void conv_inflate_code_join(struct conv_inflate_tables *tables);

// The joined tables of the fixed code, made at the first call. Any thread.
const struct conv_inflate_tables *conv_inflate_code_fixed(void);

// The entry for the codeword at the start of `bits`, where the first table's `entry` is of the kind
// CONV_INFLATE_LONG.
static inline uint64_t conv_inflate_code_find_litlen(const uint64_t *litlen, uint64_t entry,
                                                     uint64_t bits)
{
    uint64_t mask = ((uint64_t)1 << (entry >> 44)) - 1;
    return litlen[(entry >> 32 & 0xfff) + (bits >> CONV_INFLATE_LITLEN_BITS & mask)];
}

static inline uint32_t conv_inflate_code_find_distance(const uint32_t *distance, uint32_t entry,
                                                       uint64_t bits)
{
    uint64_t mask = ((uint64_t)1 << (entry >> 28)) - 1;
    return distance[(entry >> 16 & 0xfff) + (bits >> CONV_INFLATE_DISTANCE_BITS & mask)];
}

// --- streams -------------------------------------------------------------------------------------

// Bytes after the output that may be overwritten.
#define CONV_INFLATE_SLACK 512

// A place between two blocks.
struct conv_inflate_place {
    size_t bit;     // where the next block begins
    uint8_t *at;    // where its bytes go, with CONV_INFLATE_WINDOW before and ROOM after it
    size_t skipped; // bytes of output between the former place and this one
    bool last;      // the last block ends here
};

// One per worker. Starts as {0}; the tables need no initialisation.
struct conv_inflate {
    struct conv_inflate_tables tables; // of the current dynamic block
    uint32_t precode[1 << CONV_INFLATE_PRECODE_BITS];
    uint8_t lengths[288 + 32];
    size_t credit; // bytes of the blocks so far, less JOINED_AFTER for each joined table
    // Called at least once per CONV_INFLATE_STRETCH bytes of output: the bytes before `at` are
    // final. Returns where the next ones go: `at`, or another address with a copy of the last
    // CONV_INFLATE_WINDOW bytes before it and CONV_INFLATE_ROOM after it; NULL ends decompression.
    // May be NULL.
    uint8_t *(*next)(void *context, uint8_t *at);
    // Called before each block; place->bit counts from the start of the input. It may move the
    // decoder past blocks that were decoded elsewhere; it then sets all members of *place. False
    // ends decompression. May be NULL; if it is set, no Adler-32 is computed here.
    bool (*jump)(void *context, struct conv_inflate_place *place);
    // With jump(): returns the Adler-32 of the whole output, whose last bytes end at `at`. False:
    // the output was refused.
    bool (*sum)(void *context, uint32_t *adler, const uint8_t *at);
    void *context;
    // For a stream in pieces, of which conv_inflate_zlib gets the first: returns the next one,
    // which begins with the *left bytes from `at` on, and has the CONV_INFLATE_BEHIND bytes before
    // `at` before it. *left becomes its size, which is at least CONV_INFLATE_PIECE unless it is the
    // last one; *more: it is not. Not together with jump(). NULL: there is one piece.
    const uint8_t *(*supply)(void *input, const uint8_t *at, size_t *left, bool *more);
    void *input;
    bool ended_early; // by conv_inflate_zlib: the stream is valid, but holds fewer bytes
};

#define CONV_INFLATE_BEHIND 8
#define CONV_INFLATE_PIECE ((size_t)128 << 10) // more than a stored block and its header

#define CONV_INFLATE_STRETCH ((size_t)256 << 10)
#define CONV_INFLATE_WINDOW ((size_t)32 << 10)
// Bytes written between two calls of next(): a stretch, and a stored block that begins in it.
#define CONV_INFLATE_ROOM (CONV_INFLATE_STRETCH + 65535 + CONV_INFLATE_SLACK)

// True if the stream holds exactly out_size bytes, ends with the input, has the right Adler-32 and
// is one that zlib accepts. False otherwise, and also for a window smaller than out_size unless it
// is the largest; `out` then holds anything. `out` has room for out_size + CONV_INFLATE_SLACK
// bytes, or for CONV_INFLATE_WINDOW + CONV_INFLATE_ROOM if next() moves on in time.
bool conv_inflate_zlib(struct conv_inflate *inflate, uint8_t *out, size_t out_size,
                       const uint8_t *data, size_t size);

// Positions in a deflate stream, in bits.
struct conv_inflate_end {
    size_t last_block; // where its last block begins
    size_t bits;       // its end
};

// Finds the end of a deflate stream of exactly out_size bytes. False if it is not such a stream.
bool conv_inflate_find_end(struct conv_inflate *inflate, struct conv_inflate_end *end, uint8_t *out,
                           size_t out_size, const uint8_t *data, size_t size);
