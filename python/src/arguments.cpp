// SPDX-License-Identifier: MIT
// Streams, devices, layouts, and the images in a tensor.
#include <cstdlib>
#include <cstring>
#include <strings.h>
#include <utility>

#include "array.h"
#include "interpreter.h"
#include "prepared.h"

namespace convpy
{

static Stream stream_of_number(nb::handle number)
{
    if (PyLong_Check(number.ptr())) {
        long long value = PyLong_AsLongLong(number.ptr());
        if (value == -1 && PyErr_Occurred())
            PyErr_Clear(); // too large
        if (value >= 0)    // 1 is the default stream as well
            return {true, value == 1 ? nullptr : reinterpret_cast<void *>(value)};
    }
    raise_value("%R is not the number of a CUDA stream", number.ptr());
}

int parse_int(nb::handle value, const char *name)
{
    PyObject *index = PyNumber_Index(value.ptr()); // integers of NumPy, too
    if (!index)
        PyErr_Clear();
    nb::object whole = nb::steal(index);
    int number = 0;
    if (!index || !nb::try_cast(whole, number))
        raise_type("%s must be a whole number, not %R", name, value.ptr());
    return number;
}

conv_sample parse_sample(nb::handle dtype, std::initializer_list<conv_sample> possible,
                         const char *name)
{
    std::string text = parse_text(helpers->dtype_name(dtype)), all;
    for (conv_sample sample : possible) {
        if (text == sample_name(sample))
            return sample;
        all += (all.empty() ? "'" : ", '") + std::string(sample_name(sample)) + "'";
    }
    raise_value("%s must be one of %s, not %R", name, all.c_str(), dtype.ptr());
}

std::string parse_text(nb::handle value)
{
    nb::str text(value);
    Py_ssize_t size;
    const char *data = PyUnicode_AsUTF8AndSize(text.ptr(), &size);
    if (!data)
        throw nb::python_error();
    if (memchr(data, 0, static_cast<size_t>(size)))
        raise_value("%R has a null character", text.ptr());
    return {data, static_cast<size_t>(size)};
}

const char *Texts::keep(std::string text)
{
    return texts.emplace_back(std::move(text)).c_str();
}

const char *Texts::keep(nb::handle value)
{
    return value.is_none() ? nullptr : keep(parse_text(value));
}

const char *Texts::keep_border(nb::handle value)
{
    bool is_number = !value.is_none() && !nb::isinstance<nb::str>(value);
    return is_number ? keep("constant:" + parse_text(value)) : keep(value);
}

Stream parse_stream(nb::handle stream)
{
    if (stream.is_none())
        return {};
    if (PyLong_Check(stream.ptr()))
        return stream_of_number(stream);
    if (nb::hasattr(stream, "__cuda_stream__")) {
        nb::object member = stream.attr("__cuda_stream__");
        nb::object pair = PyCallable_Check(member.ptr()) ? member() : member;
        return stream_of_number(pair[1]);
    }
    for (const char *name : {"cuda_stream", "ptr"}) {
        if (nb::hasattr(stream, name))
            return stream_of_number(stream.attr(name));
    }
    raise_type(
        "stream: a number, or an object with __cuda_stream__, cuda_stream or ptr was expected");
}

int parse_device(nb::handle device)
{
    if (device.is_none())
        return cpu;
    bool number = PyIndex_Check(device.ptr()) && !PyBool_Check(device.ptr());
    std::string text = (number ? "cuda:" : "") + parse_text(device); // torch.device, too
    const char *name = text.c_str();
    if (strcmp(name, "cpu") == 0)
        return cpu;
    if (strcmp(name, "cuda") == 0)
        return 0;
    size_t digits = strlen(name) > 5 ? strspn(name + 5, "0123456789") : 0;
    if (strncmp(name, "cuda:", 5) == 0 && digits > 0 && !name[5 + digits] &&
        strtol(name + 5, nullptr, 10) < 1000)
        return static_cast<int>(strtol(name + 5, nullptr, 10));
    raise_value("device must be 'cpu', 'cuda', 'cuda:1' or 1, not %R", device.ptr());
}

int place_of(const Tensor &images, nb::handle device)
{
    if (images.device == cpu)
        return parse_device(device);
    if (!device.is_none() && parse_device(device) != images.device)
        raise_value("the images are on cuda:%d", images.device);
    return images.device;
}

bool parse_errors(nb::handle errors)
{
    std::string text = parse_text(errors);
    if (text != "raise" && text != "return")
        raise_value("errors must be 'raise' or 'return', not %R", errors.ptr());
    return text == "raise";
}

Layout parse_layout(nb::handle layout)
{
    if (layout.is_none())
        raise_type("layout must be 'HWC', 'CHW' or 'HW', not None");
    std::string text = parse_text(layout);
    if (text.size() > 2 && (text[0] == 'N' || text[0] == 'n'))
        text.erase(0, 1);
    for (auto [name, order] : {std::pair("HWC", Layout::hwc), std::pair("CHW", Layout::chw),
                               std::pair("HW", Layout::hw)}) {
        if (strcasecmp(text.c_str(), name) == 0)
            return order;
    }
    raise_value("layout must be 'HWC', 'CHW' or 'HW', not %R", layout.ptr());
}

void append_images(std::vector<conv_image> &images, const Tensor &tensor, Layout layout,
                   const char *name)
{
    int single = layout == Layout::hw ? 2 : 3; // axes of one image
    int axes = tensor.dimensions;
    bool gray = axes == 2;
    if (axes < 2 || axes > single + 1)
        raise_value("%s has %d axes; an image has height, width (and channels), a batch one more",
                    name, axes);
    int first = axes == single + 1 ? 1 : 0; // of the axes of an image
    int y = first, x = first + 1, c = first + 2;
    if (layout == Layout::chw && !gray) {
        c = first;
        y = first + 1;
        x = first + 2;
    }
    bool has_channels = layout != Layout::hw && !gray;
    int64_t channels = has_channels ? tensor.shape[c] : 1;
    if (channels < 1 || channels > 4)
        raise_value("%s has %lld channels in layout '%s', not 1 to 4; is it layout='%s'?", name,
                    static_cast<long long>(channels), layout == Layout::chw ? "CHW" : "HWC",
                    layout == Layout::chw ? "HWC" : "CHW");
    if (tensor.shape[y] < 1 || tensor.shape[x] < 1)
        raise_value("%s has no pixels", name);
    if (tensor.shape[y] > INT32_MAX || tensor.shape[x] > INT32_MAX)
        raise_value("%s is too large", name);
    conv_image image = {};
    image.width = static_cast<int32_t>(tensor.shape[x]);
    image.height = static_cast<int32_t>(tensor.shape[y]);
    image.channels = static_cast<int32_t>(channels);
    image.sample = tensor.sample;
    image.memory = tensor.memory();
    image.has_alpha = channels % 2 == 0;
    image.row_stride = tensor.strides[y];
    image.column_stride = tensor.strides[x];
    image.channel_stride = has_channels ? tensor.strides[c] : conv_sample_bytes(tensor.sample);
    int64_t count = first ? tensor.shape[0] : 1;
    for (int64_t i = 0; i < count; i++) {
        image.data = static_cast<char *>(tensor.data) + (first ? i * tensor.strides[0] : 0);
        images.push_back(image);
    }
}

} // namespace convpy
