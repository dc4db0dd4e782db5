// SPDX-License-Identifier: MIT
// Barriers in shared memory that count arrivals and bytes (mbarrier), and the bulk copy engine:
// copies begin when they are requested and complete some time later, at the latest when no thread
// can continue.
#pragma once

#include <cstdint>

namespace emulated
{

void init_barrier(uint32_t barrier, uint32_t arrivals);
// Expects `bytes` more in this phase, then arrives.
void arrive_at(uint32_t barrier, uint32_t bytes);
// Until the phase of this parity is over.
void wait_for(uint32_t barrier, uint32_t parity);
// Fails if the thread has not fenced since it met others at a barrier: the copy may overtake what
// they did before that.
void copy_bulk(uint32_t to, const void *from, uint32_t bytes, uint32_t barrier);
void fence_bulk();

// Before a block's first thread, and after its last one: fails if copies are still under way.
void open_bulk();
void close_bulk();

} // namespace emulated
