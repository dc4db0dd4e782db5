// SPDX-License-Identifier: MIT
// Compressed streams. What they hold, from an archive's bytes: everything before damage is handed
// out, the sums in the stream are checked, and it is bounded how far it expands. Uses zlib,
// libzstd, liblzma and libbz2.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "io/archive/archive_input.h"

// --- streams -------------------------------------------------------------------------------------

// Opens the stream that the input begins with, which must outlive it. CONV_ERR_UNSUPPORTED if this
// build has no library for it; CONV_ERR_FORMAT, CONV_ERR_MEMORY, and as conv_archive_input_peek.
enum conv_status conv_unpack_open(struct conv_unpack **unpack, struct conv_archive_input *input,
                                  struct conv_err *err);
void conv_unpack_close(struct conv_unpack *unpack); // NULL is fine

// The next bytes, at most `size`: returns how many, 0 at the end. Streams may follow one another;
// what follows the last one must be zeros, as padding is. -1 with *err: CONV_ERR_FORMAT for a
// truncated or damaged stream, CONV_ERR_LIMIT for one that expands too far, CONV_ERR_MEMORY, and as
// conv_archive_input_take; every later call fails in the same way.
ssize_t conv_unpack_read(struct conv_unpack *unpack, uint8_t *data, size_t size,
                         struct conv_err *err);

// Bytes of the compressed stream: of all of it if it is mapped, else of what has been read.
uint64_t conv_unpack_stored(const struct conv_unpack *unpack);

// --- compressors ---------------------------------------------------------------------------------

// The input that is left, and the room for output. `run` advances both.
struct conv_unpack_bytes {
    const uint8_t *in;
    size_t in_size;
    uint8_t *out;
    size_t out_size;
};

enum conv_unpack_result {
    CONV_UNPACK_MORE, // more input is needed, or more room
    CONV_UNPACK_END,  // the end of a stream; another one may follow
    CONV_UNPACK_DAMAGED,
    CONV_UNPACK_NO_MEMORY,
};

// One library's compressor, at its fastest level: images are compressed already, and the rest
// shrinks at little cost. Its bytes depend on nothing but its input.
struct conv_pack_method {
    size_t state_bytes;
    bool (*begin)(void *state); // from zeros; false without memory
    // `last`: CONV_UNPACK_END once all is out; else CONV_UNPACK_MORE.
    enum conv_unpack_result (*run)(void *state, struct conv_unpack_bytes *bytes, bool last);
    void (*close)(void *state); // also after `begin` has failed
};

// NULL: not in this build.
extern const struct conv_pack_method *const conv_pack_gzip, *const conv_pack_zstd;

// --- bounds --------------------------------------------------------------------------------------

// How far an archive may expand. Without a limit, 10 MB of deflate expand to 10 GB, and entries of
// a zip file that share their data, or a sparse file, to any size.

// Images are compressed already and do not expand; texts and labels compress to a twentieth. Large
// empty arrays compress better than that, so a small archive may expand up to this size in any
// case.
#define CONV_EXPANSION_FREE ((uint64_t)256 << 20)
#define CONV_EXPANSION_RATIO 200
#define CONV_EXPANSION_TEXT                                                                        \
    "the archive expands to more than 200 times its size, as a decompression bomb does"

// True if `in` bytes of an archive may have become `out` bytes of content.
static inline bool conv_expansion_allows(uint64_t in, uint64_t out)
{
    return out <= CONV_EXPANSION_FREE || (out - CONV_EXPANSION_FREE) / CONV_EXPANSION_RATIO <= in;
}
