// SPDX-License-Identifier: MIT
// A digest of 128 bits that identifies contents (SipHash-2-4, Aumasson and Bernstein 2012). Any
// thread.
#ifndef CONV_BASE_HASH_H
#define CONV_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

struct conv_digest {
    uint64_t word[2];
};

// Replaces the digest by the hash of `size` bytes with the old digest as the key. So a sequence of
// calls computes the digest of a sequence of fields, including their lengths.
void conv_hash_add(struct conv_digest *digest, const void *data, size_t size);

#endif
