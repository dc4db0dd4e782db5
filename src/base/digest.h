// SPDX-License-Identifier: MIT
// Digests of 128 bits that identify contents (SipHash-2-4, Aumasson and Bernstein 2012), and sets
// of them, whose members may have data. Any thread.
#pragma once

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
// A digest takes 21 to 43 bytes, data 4/3 to 8/3 times their size.

// {0} is an empty set.
struct conv_digest_set {
    struct conv_digest key;
    uint8_t *slots;         // open addressing: a digest, 0 in a free slot, and its data
    size_t count, capacity; // capacity: a power of two, or 0
    size_t data_bytes;      // of each member, a multiple of 8; set while it is empty
};

// Leaves an empty set.
void conv_digest_set_free(struct conv_digest_set *set);

// The digest 0 is in no set. May be called by several threads while none adds.
bool conv_digest_set_has(const struct conv_digest_set *set, const struct conv_digest *digest);

// The data of a member, zeros when it is new, until the next one is added; NULL: it is none.
void *conv_digest_set_data(const struct conv_digest_set *set, const struct conv_digest *digest);

// *added: false if the digest was in the set already (or is 0); may be NULL. CONV_ERR_MEMORY leaves
// the set as it was.
enum conv_status conv_digest_set_add(struct conv_digest_set *set, const struct conv_digest *digest,
                                     bool *added, struct conv_err *err);
