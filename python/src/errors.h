// SPDX-License-Identifier: MIT
// Python exceptions for errors of libconv and of the conversion of arguments.
#ifndef CONV_PYTHON_ERRORS_H
#define CONV_PYTHON_ERRORS_H

#include <nanobind/nanobind.h>

#include <string>

#include "conv.h"

namespace convpy
{

namespace nb = nanobind;

// Each throws; formats are those of PyErr_Format. Called with the GIL held.
[[noreturn]] void raise_value(const char *format, ...);
[[noreturn]] void raise_type(const char *format, ...);
[[noreturn]] void raise_buffer(const char *format, ...);
[[noreturn]] void raise_now(nb::handle exception);

// Decodes a message. It is UTF-8 except for the names of files in it, and may be cut within a
// character; such bytes become U+FFFD.
nb::object message_text(const std::string &message);

// A conv.PngError for item `index`, which is not raised yet.
nb::object png_error(size_t index, conv_status status, const char *reason);
inline nb::object png_error(size_t index, const conv_item &item)
{
    return png_error(index, item.status, item.message);
}

// Makes Failure a ValueError, OSError, MemoryError or conv.DeviceError.
void register_errors(nb::module_ &module);

} // namespace convpy

#endif
