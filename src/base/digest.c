// SPDX-License-Identifier: MIT
#include "base/digest.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"

static uint64_t rotate(uint64_t x, int bits)
{
    return x << bits | x >> (64 - bits);
}

static void mix(uint64_t v[4], int rounds)
{
    while (rounds-- > 0) {
        v[0] += v[1];
        v[2] += v[3];
        v[1] = rotate(v[1], 13) ^ v[0];
        v[3] = rotate(v[3], 16) ^ v[2];
        v[0] = rotate(v[0], 32);
        v[2] += v[1];
        v[0] += v[3];
        v[1] = rotate(v[1], 17) ^ v[2];
        v[3] = rotate(v[3], 21) ^ v[0];
        v[2] = rotate(v[2], 32);
    }
}

static uint64_t read_word(const unsigned char bytes[8])
{
    return (uint64_t)bytes[0] | (uint64_t)bytes[1] << 8 | (uint64_t)bytes[2] << 16 |
           (uint64_t)bytes[3] << 24 | (uint64_t)bytes[4] << 32 | (uint64_t)bytes[5] << 40 |
           (uint64_t)bytes[6] << 48 | (uint64_t)bytes[7] << 56;
}

void conv_hash_add(struct conv_digest *digest, const void *data, size_t size)
{
    uint64_t *key = digest->word;
    // "somepseudorandomlygeneratedbytes", and the mark of the variant with 128 bits.
    uint64_t v[4] = {key[0] ^ 0x736F6D6570736575, key[1] ^ 0x646F72616E646F6D ^ 0xEE,
                     key[0] ^ 0x6C7967656E657261, key[1] ^ 0x7465646279746573};
    const unsigned char *bytes = data;
    uint64_t word;
    size_t done = 0;
    for (; size - done >= 8; done += 8) {
        word = read_word(bytes + done);
        v[3] ^= word;
        mix(v, 2);
        v[0] ^= word;
    }
    word = (uint64_t)size << 56;
    for (size_t i = 0; done + i < size; i++)
        word |= (uint64_t)bytes[done + i] << 8 * i;
    v[3] ^= word;
    mix(v, 2);
    v[0] ^= word;
    v[2] ^= 0xEE;
    mix(v, 4);
    key[0] = v[0] ^ v[1] ^ v[2] ^ v[3];
    v[1] ^= 0xDD;
    mix(v, 4);
    key[1] = v[0] ^ v[1] ^ v[2] ^ v[3];
}

// --- sets ----------------------------------------------------------------------------------------

#define FIRST_CAPACITY 1024

static bool is_zero(const struct conv_digest *digest)
{
    return (digest->word[0] | digest->word[1]) == 0;
}

static void draw_key(struct conv_digest_set *set)
{
    if (getrandom(&set->key, sizeof set->key, GRND_NONBLOCK) == (ssize_t)sizeof set->key)
        return;
    // Early in the system's start there may be no random bytes yet.
    uint64_t seed[2] = {conv_clock_ns(), (uint64_t)(uintptr_t)set};
    conv_hash_add(&set->key, seed, sizeof seed);
}

static size_t slot_bytes(const struct conv_digest_set *set)
{
    return sizeof(struct conv_digest) + set->data_bytes;
}

// The slot of the digest, or the free slot where it belongs.
static struct conv_digest *find(const struct conv_digest_set *set, const struct conv_digest *digest)
{
    struct conv_digest place = set->key, *slot;
    conv_hash_add(&place, digest, sizeof *digest);
    for (size_t at = place.word[0];; at++) {
        slot = (void *)(set->slots + (at & (set->capacity - 1)) * slot_bytes(set));
        if (is_zero(slot) || memcmp(slot, digest, sizeof *digest) == 0)
            return slot;
    }
}

static enum conv_status grow(struct conv_digest_set *set, struct conv_err *err)
{
    uint8_t *old = set->slots, *end = old + set->capacity * slot_bytes(set);
    size_t capacity = set->capacity ? 2 * set->capacity : FIRST_CAPACITY;
    uint8_t *slots = calloc(capacity, slot_bytes(set));
    if (!slots)
        return conv_err_memory(err, "no memory for a table of %zu entries", capacity);
    if (!old)
        draw_key(set);
    set->slots = slots;
    set->capacity = capacity;
    for (uint8_t *slot = old; slot < end; slot += slot_bytes(set))
        if (!is_zero((void *)slot))
            memcpy(find(set, (void *)slot), slot, slot_bytes(set));
    free(old);
    return CONV_OK;
}

void conv_digest_set_free(struct conv_digest_set *set)
{
    free(set->slots);
    *set = (struct conv_digest_set){0};
}

bool conv_digest_set_has(const struct conv_digest_set *set, const struct conv_digest *digest)
{
    return set->capacity > 0 && !is_zero(digest) && !is_zero(find(set, digest));
}

void *conv_digest_set_data(const struct conv_digest_set *set, const struct conv_digest *digest)
{
    return conv_digest_set_has(set, digest) ? find(set, digest) + 1 : NULL;
}

enum conv_status conv_digest_set_add(struct conv_digest_set *set, const struct conv_digest *digest,
                                     bool *added, struct conv_err *err)
{
    bool unused;
    added = added ? added : &unused;
    *added = false;
    // At most three quarters full.
    if (4 * (set->count + 1) > 3 * set->capacity) {
        enum conv_status status = grow(set, err);
        if (status)
            return status;
    }
    if (is_zero(digest))
        return CONV_OK;
    struct conv_digest *slot = find(set, digest);
    *added = is_zero(slot);
    set->count += *added;
    *slot = *digest;
    return CONV_OK;
}
