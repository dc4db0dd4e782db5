// SPDX-License-Identifier: MIT
#include "helpers.h"

namespace convpy
{

namespace nb = nanobind;

Helpers helpers;

namespace
{

nb::handle member(const char *module, const char *name)
{
    return nb::object(nb::module_::import_(module).attr(name)).release();
}

} // namespace

void load_helpers()
{
    helpers.asarray = member("numpy", "asarray");
    helpers.dtype = member("numpy", "dtype");
    helpers.kind_of_type = member("conv._frameworks", "kind_of_type");
    helpers.torch_stream = member("conv._frameworks", "torch_stream");
    helpers.torch_view = member("conv._frameworks", "torch_view");
    helpers.cupy_stream = member("conv._frameworks", "cupy_stream");
    helpers.torch_empty = member("conv._frameworks", "torch_empty");
    helpers.torch_empty_like = member("conv._frameworks", "torch_empty_like");
    helpers.cupy_empty = member("conv._frameworks", "cupy_empty");
    helpers.jax_array = member("conv._frameworks", "jax_array");
    helpers.contiguous = member("conv._frameworks", "contiguous");
    helpers.host_numbers = member("conv._frameworks", "host_numbers");
    helpers.dtype_name = member("conv._frameworks", "dtype_name");
    helpers.png_error = member("conv._errors", "PngError");
    helpers.device_error = member("conv._errors", "DeviceError");
    helpers.progress = member("conv._progress", "Progress");
}

} // namespace convpy
