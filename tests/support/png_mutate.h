// SPDX-License-Identifier: MIT
// Changes a PNG as an attacker of its decoder would: chunks are inserted, deleted and moved, the
// image data is cut into other chunks or written anew with odd DEFLATE codes, and in most cases
// CRCs and Adler-32 are correct again afterwards.
#pragma once

#include <stddef.h>
#include <stdint.h>

// Changes bytes within `room`, returns their number; LLVMFuzzerMutate is one.
typedef size_t (*png_mutate_bytes_fn)(uint8_t *data, size_t size, size_t room);

// Changes the file in `data` within `room` bytes and returns its new size. The change depends on
// the file and the seed only, unless `mutate_bytes` is not NULL; it then changes the content of
// chunks. If the data is not a PNG it becomes a small one.
size_t png_mutate(uint8_t *data, size_t size, size_t room, uint32_t seed,
                  png_mutate_bytes_fn mutate_bytes);
