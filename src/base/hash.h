// SPDX-License-Identifier: MIT
// A digest of 128 bits that tells contents apart (SipHash-2-4, Aumasson and Bernstein 2012).
#ifndef CONV_BASE_HASH_H
#define CONV_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

struct conv_digest {
    uint64_t word[2];
};

// Replaces the digest by that of `size` bytes under the digest as key. So a row of calls makes the
// digest of a row of fields, each with its length.
void conv_hash_add(struct conv_digest *digest, const void *data, size_t size);

#endif
