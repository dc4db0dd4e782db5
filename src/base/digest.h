// SPDX-License-Identifier: MIT
// Digests of 128 bits that identify contents (SipHash-2-4, Aumasson and Bernstein 2012), and sets
// of them. Any thread.
#ifndef CONV_BASE_DIGEST_H
#define CONV_BASE_DIGEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct conv_digest {
    uint64_t word[2];
};

// Replaces the digest by the hash of `size` bytes with the old digest as the key. So a sequence of
// calls computes the digest of a sequence of fields, including their lengths.
void conv_hash_add(struct conv_digest *digest, const void *data, size_t size);

// --- sets ----------------------------------------------------------------------------------------

// A set of digests, such as those of a journal's lines. Where a digest is stored depends on a
// random key: digests that were chosen to collide, in a forged journal, cost no more than others.
//
// An entry takes 21 to 43 bytes.

// {0} is an empty set.
struct conv_digest_set {
    struct conv_digest key;
    struct conv_digest *slots; // open addressing; the digest 0 marks a free slot
    size_t count, capacity;    // capacity: a power of two, or 0
};

// Leaves an empty set.
void conv_digest_set_free(struct conv_digest_set *set);

// The digest 0 is in no set. May be called by several threads while none adds.
bool conv_digest_set_has(const struct conv_digest_set *set, const struct conv_digest *digest);

// *added: false if the digest was in the set already (or is 0); may be NULL. CONV_ERR_MEMORY leaves
// the set as it was.
enum conv_status conv_digest_set_add(struct conv_digest_set *set, const struct conv_digest *digest,
                                     bool *added, struct conv_err *err);

#endif
