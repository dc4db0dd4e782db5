// SPDX-License-Identifier: MIT
// Inside of the emulation: the shared memory of the block that runs.
#ifndef CONV_EMULATED_SHARED_H
#define CONV_EMULATED_SHARED_H

#include <cstddef>
#include <cstdint>

namespace emulated
{

// Made anew for each block, with noise in it.
void open_shared();

// What a 32-bit address of PTX means; fails unless `size` bytes there are aligned and the block's.
void *shared_at(uint32_t address, size_t size, size_t align);

} // namespace emulated

#endif
