// SPDX-License-Identifier: MIT
// The files of a call: one object with the buffer protocol, uint8 tensor of torch or path, or a
// list of them, which may be long.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "interpreter.h"
#include "tensor.h"

namespace convpy
{

// Keeps the files in place for as long as it lives.
class Files
{
  public:
    explicit Files(nb::handle data); // TypeError, BufferError, OSError

    bool many = false; // a list was passed
    std::vector<conv_bytes> bytes;

  private:
    void append(nb::handle item);

    nb::list list;
    std::vector<Buffer> buffers;
    std::vector<Tensor> tensors;
};

// By its first bytes; Format::any if it has another format.
Format format_of(const conv_bytes &file);

// --- groups: long lists are passed to the library in parts, with a check for Ctrl-C between them
// ---

uint64_t samples_of(const conv_image &image); // bytes

// Bytes of samples in a group for that device, about 0.3 s of work; `slow`: the compression takes
// many times as long as the default.
uint64_t group_samples(int device, bool slow);

// Calls the library for items from `first` on, in groups that have `most` bytes of samples or one
// item. Throws Failure where a call has failed as a whole, not an item of it, and what Python's
// signal handlers raise, in the thread of `unlocked`.
using Work = std::function<conv_status(size_t first, int count)>;
void run_groups(const Borrowed &context, Unlocked &unlocked, const std::vector<uint64_t> &samples,
                uint64_t most, const std::vector<conv_item> &items, const Work &work);

} // namespace convpy
