// SPDX-License-Identifier: MIT
// Families of PNG files that are made to be expensive to decode.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "support/png_make.h"

enum codes { STORED, FIXED, USED, FLAT, LONG, SPREAD, CODES };

enum mix { ONE, LITERALS, NEAR, DISTANT, LONGEST, SHORT, ANY, ALTERNATING, MIXES };

enum flaw {
    WHOLE,
    WRONG_SUM,
    NO_END,
    EXCESS,
    SHORT_STREAM,
    BAD_FILTER,
    LATE_FILTER,
    BAD_CRC,
    TRUNCATED,
    IGNORED,
};

struct png_family {
    int color_type, depth, width, height;
    bool interlaced, transparency;
    enum codes codes;
    enum codes other; // of every other block, if it is not the same
    enum mix mix;
    int symbols;  // of a block; 0: all in one
    int empties;  // blocks without a symbol before each
    int byte;     // every literal; -1: 0 to 4 at random. Filters are literals too
    bool plainly; // headers without repeats
    int idat;     // bytes of an IDAT chunk; 0: one chunk
    int empty_idats;
    int texts; // tEXt chunks before the image data
    int text_size;
    enum flaw flaw;
};

// Makes a file, to be freed by png_make_free. *random is the state of random.h.
void png_family_make(struct png_file *file, const struct png_family *family, uint64_t *random);

// Describes the family in words.
void png_family_describe(char *text, size_t size, const struct png_family *family);
