// SPDX-License-Identifier: MIT
// This build reads and writes plain tar only.
#include "io/archive.h"

const struct conv_archive_format *const conv_archive_libarchive[] = {NULL};
