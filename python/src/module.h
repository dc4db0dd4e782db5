// SPDX-License-Identifier: MIT
// What each file adds to the module.
#ifndef CONV_PYTHON_MODULE_H
#define CONV_PYTHON_MODULE_H

#include <nanobind/nanobind.h>

namespace convpy
{

void bind_array(nanobind::module_ &module);
void bind_decode(nanobind::module_ &module);
void bind_encode(nanobind::module_ &module);
void bind_filter(nanobind::module_ &module);
void bind_folder(nanobind::module_ &module);
void bind_layer(nanobind::module_ &module);

} // namespace convpy

#endif
