// SPDX-License-Identifier: MIT
// The work queued by all streams, and the one thread that executes it in the order of queueing,
// which is one of the orders that CUDA allows.
#pragma once

#include <cstdint>
#include <functional>

namespace emulated
{

// Any thread. Nothing is executed before a thread waits for it, or for later work. Returns the
// number of the work, from 1 on.
uint64_t queue_work(std::function<void()> work);

// Waits until the work of this number, and all before it, is done.
void wait_for_work(uint64_t number);

uint64_t last_queued();

bool is_done(uint64_t number);

} // namespace emulated
