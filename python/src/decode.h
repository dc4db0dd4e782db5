// SPDX-License-Identifier: MIT
// A call of conv.decode_png: its arguments, and the result for each file.
#ifndef CONV_PYTHON_DECODE_H
#define CONV_PYTHON_DECODE_H

#include "files.h"
#include "frameworks.h"

namespace convpy
{

struct Shape {
    int64_t lengths[max_dimensions];
    int count;
};

// Gray images have two axes in layouts "HWC" and "HW", and three in "CHW" and (`squeeze` unset) in
// batches.
Shape image_shape(int width, int height, int channels, Layout layout, bool squeeze);

struct Decode {
    const Files &files;
    conv_decode_options options = CONV_DECODE_OPTIONS_INIT;
    Layout layout = Layout::hwc;
    Kind kind = Kind::numpy;
    int device = cpu;
    Stream stream;
    bool raise = true; // the first error, instead of returning all
    std::vector<conv_image> images;
    std::vector<conv_item> items;

    explicit Decode(const Files &from);
    size_t count() const
    {
        return images.size();
    }
    void fail(size_t i, conv_status status, const char *text);
    // Decodes the items that have not failed yet. Throws Failure when the device fails.
    void run(const Borrowed &context);
    nb::object error(size_t i) const; // a conv.PngError
    void raise_first() const;
};

// Into arrays of a framework or of the caller, one for each image; `out` may be None.
nb::object decode_into_list(Decode &call, const Borrowed &context, nb::handle out);
// Into one array for all images.
nb::object decode_batch(Decode &call, const Borrowed &context, nb::handle out);

} // namespace convpy

#endif
