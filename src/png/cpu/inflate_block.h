// SPDX-License-Identifier: MIT
// The blocks of a deflate stream one by one, for decoders that begin in its middle. Positions are
// bits from the start of the input; `data` is that start.
#ifndef CONV_PNG_CPU_INFLATE_BLOCK_H
#define CONV_PNG_CPU_INFLATE_BLOCK_H

#include "png/cpu/inflate.h"
#include "png/cpu/inflate_symbols.h"

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

#endif
