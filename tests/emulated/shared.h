// SPDX-License-Identifier: MIT
// Private to the emulation: the shared memory of the running block.
#pragma once

#include <cstddef>
#include <cstdint>

namespace emulated
{

// Made anew for each block, with noise in it.
void open_shared();

// True for an address in it, of any kind of array.
bool is_shared(const void *p);

// The pointer for a 32-bit address of PTX; fails unless `size` bytes there are aligned and the
// block's.
void *shared_at(uint32_t address, size_t size, size_t align);

} // namespace emulated
