// SPDX-License-Identifier: MIT
#include "base/hash.h"

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
