// SPDX-License-Identifier: MIT
// The Python functions and classes that the module calls. Loaded once, with the module: an import
// in the middle of a call could let another thread in. Never released: arrays may outlive the
// interpreter.
#ifndef CONV_PYTHON_HELPERS_H
#define CONV_PYTHON_HELPERS_H

#include <nanobind/nanobind.h>

namespace convpy
{

struct Helpers {
    nanobind::handle asarray, dtype; // of NumPy
    // of conv/_frameworks.py
    nanobind::handle kind_of_type, torch_stream, torch_view, cupy_stream, torch_empty,
        torch_empty_like, cupy_empty, jax_array, contiguous, host_numbers, dtype_name;
    nanobind::handle png_error, device_error, progress; // classes
};
extern Helpers helpers;

void load_helpers();

} // namespace convpy

#endif
