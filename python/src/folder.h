// SPDX-License-Identifier: MIT
#ifndef CONV_PYTHON_FOLDER_H
#define CONV_PYTHON_FOLDER_H

#include <nanobind/nanobind.h>

namespace convpy
{

void bind_folder(nanobind::module_ &module);

} // namespace convpy

#endif
