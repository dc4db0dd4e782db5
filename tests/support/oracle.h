// SPDX-License-Identifier: MIT
// The decoders against libpng: every file that the fast one decodes, libpng decodes to identical
// pixels, and a file is accepted exactly if libpng accepts it for other programs.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "png/cpu/cpu_png.h"

enum oracle_verdict {
    ORACLE_REFUSED, // by libpng, and left alone by the fast decoder
    ORACLE_LEFT,    // good, but left to libpng
    ORACLE_FAST,    // good, decoded by both to the same pixels
};

// Up to this size a file cannot hold the excess of image data that png.h says is refused.
#define ORACLE_SMALL ((size_t)1 << 16)

// Runs every unfilter variant of this machine on the file, and the check of the header's promise.
// Prints a word and aborts if the fast decoder is wrong, writes beyond its rows or lets the images
// before influence it, if the verdict is another than libpng's (support/reference.h) in a case that
// png.h does not list, or if what is carried of the file makes an output that libpng refuses.
// Images of more pixels than `limit` count as refused.
enum oracle_verdict oracle_file(const uint8_t *data, size_t size, size_t limit);

// Corrects CRCs and the Adler-32 in place, if there is a zlib stream to sum up, so that the
// decoders meet the damage, and not only their checks. `inflated` is scratch of `room` bytes.
void oracle_repair(uint8_t *data, size_t size, uint8_t *inflated, size_t room);
