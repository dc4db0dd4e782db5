// SPDX-License-Identifier: MIT
// The PNG files of a call: one object with the buffer protocol, or a list of them, which may be
// long.
#ifndef CONV_PYTHON_FILES_H
#define CONV_PYTHON_FILES_H

#include <cstddef>
#include <cstdint>
#include <vector>

#include <nanobind/nanobind.h>

#include "conv.h"
#include "gil.h"

namespace convpy
{

namespace nb = nanobind;

// Keeps the files in place for as long as it lives.
class Files
{
  public:
    explicit Files(nb::handle data); // TypeError, BufferError
    ~Files();
    Files(const Files &) = delete;
    Files &operator=(const Files &) = delete;

    bool many = false; // a list was passed
    std::vector<conv_bytes> bytes;

  private:
    struct Hold { // released one by one, also when a later one cannot be had
        Py_buffer buffer = {};
        Hold() = default;
        Hold(Hold &&other) noexcept;
        ~Hold();
    };
    void append(nb::handle item);

    nb::list list;
    std::vector<Hold> holds;
};

// --- groups: long lists are passed to the library in parts, with a check for Ctrl-C between them
// ---

// The bytes of samples that a file's header, which is not checked, promises. 0: no header.
uint64_t samples_of(const conv_bytes &file);
uint64_t samples_of(const conv_image &image);

// Bytes of samples in a group for that device, about 0.3 s of work; `slow`: the compression takes
// many times as long as the default.
uint64_t group_samples(int device, bool slow);

// The end of the group that begins at item `first`: as many items as have `most` bytes, at least
// one.
size_t end_of_group(const std::vector<uint64_t> &samples, size_t first, uint64_t most);

// True if images in the caller's memory may share bytes with each other or with files, by their
// extents. The library finds out, but only among the items of one group.
bool may_overlap(const std::vector<conv_bytes> &files, const std::vector<conv_image> &images);

// Runs Python's signal handlers, in the thread of `unlocked`; throws what they raise.
void look_for_signals(Unlocked &unlocked);

} // namespace convpy

#endif
