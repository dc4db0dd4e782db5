// SPDX-License-Identifier: MIT
// stb_image_write: a whole encoder in one small file, 8 bits per sample only.
#ifndef CONV_PNG_STB_H
#define CONV_PNG_STB_H

#include "base/buffer.h"
#include "png/png.h"

#define CONV_STB_DEFAULT_LEVEL 8

// Sets the search effort (hash chain length; below 5 is as 5) of every later conv_stb_encode, for
// the whole process, since stb keeps it in a global variable. Any thread may set the same level
// again at any time, another one only while no thread encodes.
void conv_stb_set_level(int level);

// Replaces the content of *file by a PNG of IHDR, one IDAT and IEND. `pixels` is scratch for the
// whole image. CONV_ERR_UNSUPPORTED for 16 bits and for sizes beyond stb's int arithmetic;
// CONV_ERR_MEMORY.
enum conv_status conv_stb_encode(struct conv_buffer *pixels, struct conv_buffer *file,
                                 const struct conv_image *src, struct conv_err *err);

#endif
