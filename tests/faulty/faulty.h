// SPDX-License-Identifier: MIT
// Functions that make a real device fail, for device.c; not in a build without CUDA.
#pragma once

#include <stddef.h>

// Runs a kernel that traps on CUDA's device of this number: every later call for it fails.
void faulty_trap(int device);

// Takes its memory until at most `leave` bytes are free, as another process might.
void faulty_hog(int device, size_t leave);
