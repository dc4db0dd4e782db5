// SPDX-License-Identifier: MIT
// What makes a real device fail, for device.c; in a build without CUDA there is none.
#ifndef CONV_TESTS_FAULTY_H
#define CONV_TESTS_FAULTY_H

#include <stddef.h>

// Runs a kernel that traps: every later CUDA call of this process fails.
void faulty_trap(void);

// Takes device memory until at most `leave` bytes are free, as another process might.
void faulty_hog(size_t leave);

#endif
