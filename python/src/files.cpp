// SPDX-License-Identifier: MIT
#include "files.h"

#include <cstring>
#include <utility>

#include "array.h"
#include "contexts.h"

namespace convpy
{

static bool is_path(nb::handle item)
{
    return nb::isinstance<nb::str>(item) || nb::hasattr(item, "__fspath__");
}

Files::Files(nb::handle data)
{
    many = !PyObject_CheckBuffer(data.ptr()) && !is_path(data) && kind_of(data) == Kind::other &&
           !nb::hasattr(data, "read") &&
           nb::hasattr(data, "__iter__"); // a file is not a list of lines
    if (!many) {
        append(data);
        return;
    }
    list = nb::list(data);
    buffers.reserve(nb::len(list));
    bytes.reserve(nb::len(list));
    for (nb::handle item : list)
        append(item);
}

void Files::append(nb::handle item)
{
    if (kind_of(item) == Kind::torch) {
        Tensor tensor = import_array(item, {}, "data");
        if (tensor.device != cpu || tensor.sample != CONV_SAMPLE_U8 || tensor.dimensions != 1)
            raise_type("a file as a tensor has one axis and type uint8, in host memory");
        if (!tensor.contiguous())
            make_dense(tensor, item, {}, "data");
        bytes.push_back({tensor.data, static_cast<size_t>(tensor.bytes())});
        tensors.push_back(std::move(tensor));
        return;
    }
    nb::object file = is_path(item) ? helper("read_file")(item) : nb::borrow(item);
    if (!PyObject_CheckBuffer(file.ptr()))
        raise_type("files must be paths, or support the buffer protocol, not %s%s",
                   nb::type_name(item.type()).c_str(),
                   nb::hasattr(item, "read") ? ": pass what its read() returns" : "");
    Buffer buffer;
    if (PyObject_GetBuffer(file.ptr(), &buffer.view, PyBUF_SIMPLE) != 0)
        throw nb::python_error();
    bytes.push_back({buffer.view.buf, static_cast<size_t>(buffer.view.len)});
    buffers.push_back(std::move(buffer));
}

Format format_of(const conv_bytes &file)
{
    if (file.size >= 4 && memcmp(file.data, "\x89PNG", 4) == 0)
        return Format::png;
    return file.size >= 3 && memcmp(file.data, "\xff\xd8\xff", 3) == 0 ? Format::jpeg : Format::any;
}

// A core decodes about 350 MB/s of samples, a GPU 60 GB/s. The threads of a group wait for its last
// image, so groups have many images.
constexpr uint64_t core_samples = uint64_t{100} << 20;
constexpr uint64_t device_samples = uint64_t{16} << 30;
constexpr uint64_t slow_factor = 16;

uint64_t samples_of(const conv_image &image)
{
    return static_cast<uint64_t>(image.width) * static_cast<uint64_t>(image.height) *
           static_cast<uint64_t>(image.channels) *
           static_cast<uint64_t>(conv_sample_bytes(image.sample));
}

uint64_t group_samples(int device, bool slow)
{
    if (device != cpu)
        return device_samples;
    return core_samples * cpu_threads() / (slow ? slow_factor : 1);
}

void run_groups(const Borrowed &context, Unlocked &unlocked, const std::vector<uint64_t> &samples,
                uint64_t most, const std::vector<conv_item> &items, const Work &work)
{
    for (size_t first = 0, end; first < samples.size(); first = end) {
        if (first > 0) {
            Relocked locked(unlocked);
            if (PyErr_CheckSignals() != 0)
                throw nb::python_error();
        }
        uint64_t sum = samples[first];
        for (end = first + 1; end < samples.size() && sum + samples[end] <= most; end++)
            sum += samples[end];
        conv_status status = work(first, static_cast<int>(end - first));
        bool of_an_item = false;
        for (size_t i = first; i < end; i++)
            of_an_item = of_an_item || items[i].status == status;
        if (status == CONV_ERR_DEVICE || !of_an_item)
            context.check(status);
    }
}

} // namespace convpy
