// SPDX-License-Identifier: MIT
// conv.Array for other packages: DLPack and the CUDA array interface.
#ifndef CONV_PYTHON_EXPORT_H
#define CONV_PYTHON_EXPORT_H

#include <nanobind/nanobind.h>

namespace convpy
{

namespace nb = nanobind;
struct Array;

nb::object export_dlpack(const Array &array, nb::object stream, nb::object max_version,
                         nb::object dl_device, nb::object copy);
nb::tuple dlpack_device(const Array &array);
nb::dict cuda_array_interface(const Array &array); // version 3; AttributeError on the host

// Orders work that is queued on `stream` from now on after what is pending on the array.
void order_after(const Array &array, void *stream);

} // namespace convpy

#endif
