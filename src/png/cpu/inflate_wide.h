// SPDX-License-Identifier: MIT
// Decodes symbols before the bytes in front of them are known: each byte of output is a symbol of
// 16 bits, which may stand for an unknown byte.
#ifndef CONV_PNG_CPU_INFLATE_WIDE_H
#define CONV_PNG_CPU_INFLATE_WIDE_H

#include "png/cpu/inflate_symbols.h"

// As conv_inflate_symbols, from *at, which it advances, until it is beyond `stop`. Matches do not
// reach before `begin`. CONV_INFLATE_SLACK symbols after `stop` may be overwritten. `features`: of
// conv_cpu_features.
enum conv_inflate_state conv_inflate_wide(const struct conv_inflate_tables *tables,
                                          struct conv_inflate_reader *reader, uint16_t **at,
                                          uint16_t *begin, uint16_t *stop, unsigned features);

#endif
