// SPDX-License-Identifier: MIT
// How many bits of input the threads of a block take. Valid C as well as CUDA: a unit test compiles
// it.
#ifndef CONV_PNG_CUDA_THREAD_BITS_CUH
#define CONV_PNG_CUDA_THREAD_BITS_CUH

#include "png/cuda/symbols.cuh"

// One thread counts a part of the input; one or two threads write its shares.
#define THREAD_ROOM 62     // bytes of output per share that fit the window
#define EXPECTED_ROOM 58   // bytes of output per share to aim at, so that they rarely do not fit
#define LEAST_PART_BITS 56 // at most 28 matches begin there: 7,224 bytes fit 128 threads' room
#define FIRST_THREAD_BITS 224

// Bits of input per part for the next window, after `bits` (below 2^18) made `bytes` > 0. A
// multiple of 8 from LEAST_PART_BITS to `most`.
ANYWHERE uint32_t choose_part_bits(uint32_t bits, uint32_t bytes, uint32_t shares, uint32_t most)
{
    uint32_t wanted = bits * (shares * EXPECTED_ROOM) / bytes / 8 * 8;
    // DEFLATE produces up to 129 bytes from a bit, so `wanted` is 0 for flat images.
    wanted = wanted < LEAST_PART_BITS ? LEAST_PART_BITS : wanted > most ? most : wanted;
    // With a multiple of 128, the threads of a warp would begin in few banks of shared memory.
    return wanted % 128 ? wanted : wanted - 8;
}

#endif
