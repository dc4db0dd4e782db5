// SPDX-License-Identifier: MIT
// The host divides the scratch memory of the device's coders among arrays.
#pragma once

#include <stdint.h>

static inline uint64_t round_up(uint64_t value, uint64_t to)
{
    return (value + to - 1) / to * to;
}

#define SCRATCH_ALIGN 256

// Places `count` items at the address *at and moves it after them. From address 0 on, the last
// address is the number of bytes that all arrays take.
template <typename Item> static void take(Item **place, uintptr_t *at, uint64_t count)
{
    *place = (Item *)*at;
    *at += (uintptr_t)round_up(count * sizeof(Item), SCRATCH_ALIGN);
}
