// SPDX-License-Identifier: MIT
#include "files.h"

#include <algorithm>
#include <utility>

#include "contexts.h"
#include "errors.h"

namespace convpy
{

Files::Files(nb::handle data)
{
    many = !PyObject_CheckBuffer(data.ptr()) && !nb::isinstance<nb::str>(data) &&
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
    if (!PyObject_CheckBuffer(item.ptr())) {
        bool is_path = nb::isinstance<nb::str>(item) || nb::hasattr(item, "__fspath__");
        raise_type("PNG files must be bytes or support the buffer protocol, not %s%s",
                   nb::type_name(item.type()).c_str(),
                   is_path                     ? ": pass pathlib.Path(...).read_bytes()"
                   : nb::hasattr(item, "read") ? ": pass what its read() returns"
                                               : "");
    }
    Buffer buffer;
    if (PyObject_GetBuffer(item.ptr(), &buffer.view, PyBUF_SIMPLE) != 0)
        throw nb::python_error();
    bytes.push_back({buffer.view.buf, static_cast<size_t>(buffer.view.len)});
    buffers.push_back(std::move(buffer));
}

namespace
{

// A core decodes about 350 MB/s of samples, a GPU 60 GB/s. The threads of a group wait for its last
// image, so groups have many images.
constexpr uint64_t core_samples = uint64_t{100} << 20;
constexpr uint64_t device_samples = uint64_t{16} << 30;
constexpr uint64_t slow_factor = 16;

uint64_t big_endian(const unsigned char *bytes)
{
    return uint64_t{bytes[0]} << 24 | uint64_t{bytes[1]} << 16 | uint64_t{bytes[2]} << 8 | bytes[3];
}

} // namespace

uint64_t samples_of(const conv_bytes &file)
{
    const auto *bytes = static_cast<const unsigned char *>(file.data);
    if (!bytes || file.size < 26) // the signature and what IHDR begins with
        return 0;
    static const unsigned channels[] = {1, 0, 3, 3, 2, 0, 4};
    unsigned type = bytes[25];
    uint64_t pixels = big_endian(bytes + 16) * big_endian(bytes + 20);
    uint64_t factor = (type < 7 ? channels[type] : 0) * (bytes[24] == 16 ? 2 : 1);
    return std::min(pixels, uint64_t{1} << 40) * factor;
}

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

void raise_first(const std::vector<conv_item> &items)
{
    for (size_t i = 0; i < items.size(); i++) {
        if (items[i].status != CONV_OK)
            raise_now(png_error(i, items[i]));
    }
}

bool may_overlap(const std::vector<conv_bytes> &files, const std::vector<conv_image> &images)
{
    struct Range {
        uintptr_t first, end;
        bool written;
    };
    std::vector<Range> ranges;
    for (const conv_image &image : images) {
        auto first = reinterpret_cast<uintptr_t>(image.data);
        int64_t extent = (image.height - 1) * image.row_stride +
                         (image.width - 1) * image.column_stride +
                         (image.channels - 1) * image.channel_stride;
        if (image.data)
            ranges.push_back({first, first + extent + conv_sample_bytes(image.sample), true});
    }
    if (ranges.empty())
        return false;
    for (const conv_bytes &file : files) {
        auto first = reinterpret_cast<uintptr_t>(file.data);
        ranges.push_back({first, first + file.size, false});
    }
    std::sort(ranges.begin(), ranges.end(),
              [](const Range &a, const Range &b) { return a.first < b.first; });
    uintptr_t end = 0, end_of_written = 0;
    for (const Range &range : ranges) {
        if (range.first < (range.written ? end : end_of_written))
            return true;
        end = std::max(end, range.end);
        end_of_written = range.written ? std::max(end_of_written, range.end) : end_of_written;
    }
    return false;
}

} // namespace convpy
