// SPDX-License-Identifier: MIT
// Asynchronous copies of a thread to shared memory, and the noise that is there until they land.
// Apart from the scheduler, because the address sanitizer is to check these accesses and not the
// scheduler's.
#include "block.h"
#include "scheduler.h"

#include <cstring>

namespace emulated
{

void fill_with_noise(void *memory, size_t size)
{
    uint8_t *to = (uint8_t *)memory;
    uint64_t word = draw() | 1;
    for (size_t i = 0; i < size; i += sizeof word) {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        memcpy(to + i, &word, size - i < sizeof word ? size - i : sizeof word);
    }
}

void copy_later(void *to, const void *from, size_t size)
{
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
