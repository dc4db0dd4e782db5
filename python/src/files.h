// SPDX-License-Identifier: MIT
// The PNG files of a call: one object with the buffer protocol, or a list of them.
#ifndef CONV_PYTHON_FILES_H
#define CONV_PYTHON_FILES_H

#include <vector>

#include <nanobind/nanobind.h>

#include "conv.h"

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

} // namespace convpy

#endif
