// SPDX-License-Identifier: MIT
// How many bits of input each thread of a block takes. C as well as CUDA: a unit test compiles it.
#ifndef CONV_PNG_CUDA_THREAD_BITS_CUH
#define CONV_PNG_CUDA_THREAD_BITS_CUH

#include "png/cuda/symbols.cuh"

#define THREAD_ROOM 64       // bytes of shared memory for each thread's part of the output
#define EXPECTED_ROOM 56     // bytes of output that are aimed at: it seldom exceeds the room
#define MOST_THREAD_BITS 288 // whole words, an odd number of them: threads begin in 32 banks
#define LEAST_THREAD_BITS 56 // at most 28 matches begin there: 7,224 bytes fit 128 threads' room
#define FIRST_THREAD_BITS 224

// Bits of input per thread for the next window, after `bits` (at most 512 * 288) made `bytes` > 0.
// A multiple of 8 from LEAST_THREAD_BITS to MOST_THREAD_BITS.
ANYWHERE uint32_t choose_thread_bits(uint32_t bits, uint32_t bytes)
{
    uint32_t wanted = bits * EXPECTED_ROOM / bytes / 8 * 8;
    // DEFLATE makes up to 129 bytes of a bit, so that `wanted` is 0 for flat images.
    wanted = wanted < LEAST_THREAD_BITS  ? LEAST_THREAD_BITS
             : wanted > MOST_THREAD_BITS ? MOST_THREAD_BITS
                                         : wanted;
    // With a multiple of 128, the threads of a warp would begin in few banks of shared memory.
    return wanted % 128 ? wanted : wanted - 8;
}

#endif
