// SPDX-License-Identifier: MIT
// Asynchronous copies of a thread to shared memory, and the noise that is there until they land.
// In a file separate from the scheduler, because the address sanitizer has to check these accesses
// and not the scheduler's.
#include "block.h"
#include "scheduler.h"

#include <cstring>

#include "../support/random.h"

namespace emulated
{

#define NOISE_WORDS (1 << 15)
#define NOISE_BYTES (sizeof(uint64_t) * NOISE_WORDS)

static const uint8_t *make_noise()
{
    static uint64_t words[NOISE_WORDS];
    uint64_t state = 1;
    for (uint64_t &word : words)
        word = random_bits(&state);
    return (const uint8_t *)words;
}

// Copies from some place of a fixed block of noise: all of a block's shared memory becomes noise
// when it begins.
void fill_with_noise(void *memory, size_t size)
{
    static const uint8_t *const noise = make_noise();
    uint8_t *to = (uint8_t *)memory;
    size_t at = draw() % NOISE_BYTES;
    while (size > 0) {
        size_t part = size < NOISE_BYTES - at ? size : NOISE_BYTES - at;
        memcpy(to, noise + at, part);
        to += part;
        size -= part;
        at = 0;
    }
}

void copy_later(void *to, const void *from, size_t size, size_t zeros)
{
    alignas(16) static const uint8_t nothing[16] = {0};
    if (zeros && zeros != size)
        fail("an asynchronous copy of %zu bytes, %zu of them zeros", size, zeros);
    if (zeros)
        from = nothing;
    if ((size != 4 && size != 8 && size != 16) || (uintptr_t)to % size || (uintptr_t)from % size)
        fail("an asynchronous copy of %zu bytes that is not aligned", size);
    fill_with_noise(to, size);
    self()->copies.push_back({to, from, size, self()->groups});
}

void commit_copies()
{
    self()->groups++;
}

void finish_copies(unsigned groups)
{
    thread *me = self();
    size_t kept = 0;
    for (const pending_copy &copy : me->copies) {
        if (copy.group + groups < me->groups)
            memcpy(copy.to, copy.from, copy.size);
        else
            me->copies[kept++] = copy;
    }
    me->copies.resize(kept);
}

} // namespace emulated
