// SPDX-License-Identifier: MIT
// The module's access to torch, cupy and jax; the Python side is conv/_frameworks.py.
#ifndef CONV_PYTHON_FRAMEWORKS_H
#define CONV_PYTHON_FRAMEWORKS_H

#include "array.h"
#include "tensor.h"

namespace convpy
{

// The Python functions and classes that the module calls. Loaded once, with the module: an import
// in the middle of a call could let another thread in. Never released: arrays may outlive the
// interpreter.
struct Helpers {
    nb::handle asarray, dtype; // of NumPy
    // of conv/_frameworks.py
    nb::handle kind_of_type, torch_stream, torch_view, torch_empty, host_numbers, dtype_name;
    nb::handle image_error, png_error, jpeg_error, device_error, progress; // classes
};
extern Helpers helpers;

void load_helpers();
nb::object helper(const char *name); // another function of conv/_frameworks.py

Kind kind_of_type(nb::handle type);
// "numpy", "torch", "cupy", "jax": results of that package. ValueError.
Kind parse_framework(nb::handle name);
// The stream on which torch or cupy work at present.
void *current_stream(Kind kind, int device);
// The array of torch or cupy without gaps and with positive strides; None for others.
nb::object contiguous_copy(Kind kind, nb::handle array);

// An array to be filled in for a result of the package `kind`, row-major without gaps: in memory of
// torch or cupy, otherwise of the context. `finish` turns it into the caller's result.
Tensor new_result(const Borrowed &context, Kind kind, int device, conv_sample sample,
                  const int64_t *shape, int dimensions);
// `stream`: where the work that fills it in has been queued; `pending`: that work may not be done.
nb::object finish(Tensor &result, void *stream, bool pending);
// Must be called for every array of the caller that queued work reads or (with `written`) writes:
// the memory of a conv.Array is reused on the stream of its context, which must wait for the work.
// Throws Failure.
void note_use(const Tensor &tensor, void *stream, const Borrowed &context, bool written);

} // namespace convpy

#endif
