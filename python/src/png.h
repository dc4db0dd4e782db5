// SPDX-License-Identifier: MIT
// conv.decode_png, conv.encode_png and conv.probe_png.
#ifndef CONV_PYTHON_PNG_H
#define CONV_PYTHON_PNG_H

#include <nanobind/nanobind.h>

namespace convpy
{

void bind_decode(nanobind::module_ &module);
void bind_encode(nanobind::module_ &module);

} // namespace convpy

#endif
