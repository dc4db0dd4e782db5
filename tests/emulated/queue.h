// SPDX-License-Identifier: MIT
// What streams have queued, and the one thread that does it, in the order in which it was queued
// anywhere: any order in which the device of a real machine may do it as well.
#ifndef CONV_EMULATED_QUEUE_H
#define CONV_EMULATED_QUEUE_H

#include <cstdint>
#include <functional>

namespace emulated
{

// Any thread. Nothing is done before somebody waits for it, or for what was queued later. The
// number of the work, from 1 on.
uint64_t queue_work(std::function<void()> work);

// Until the work of this number, and all before it, is done.
void wait_for_work(uint64_t number);

uint64_t last_queued();

} // namespace emulated

#endif
