// SPDX-License-Identifier: MIT
#include "decode.h"

#include <cstdio>
#include <cstring>
#include <string>

#include "errors.h"
#include "gil.h"
#include "groups.h"
#include "png.h"

namespace convpy
{

Shape image_shape(int width, int height, int channels, Layout layout, bool squeeze)
{
    if (layout == Layout::chw)
        return {{channels, height, width}, 3};
    if (layout == Layout::hw || (squeeze && channels == 1))
        return {{height, width}, 2};
    return {{height, width, channels}, 3};
}

Decode::Decode(const Files &from) : files(from), images(from.bytes.size()), items(from.bytes.size())
{
}

void Decode::fail(size_t i, conv_status status, const char *text)
{
    items[i].status = status;
    snprintf(items[i].message, sizeof items[i].message, "%s", text);
}

nb::object Decode::error(size_t i) const
{
    return png_error(static_cast<int64_t>(i), items[i].status, items[i].message);
}

// Frees images in the library's memory that a failed call will not return.
static void free_allocated(const Decode &call, const std::vector<size_t> &numbers,
                           const std::vector<conv_image> &results, const Borrowed &context)
{
    for (size_t k = 0; k < numbers.size(); k++)
        if (!call.images[numbers[k]].data && results[k].data)
            context->free(call.options.memory, results[k].data);
}

void Decode::run(const Borrowed &context)
{
    Unlocked unlocked;
    std::vector<size_t> numbers;
    std::vector<conv_bytes> sources;
    std::vector<conv_image> results;
    std::vector<uint64_t> samples;
    for (size_t i = 0; i < count(); i++) {
        if (items[i].status == CONV_OK) {
            numbers.push_back(i);
            sources.push_back(files.bytes[i]);
            results.push_back(images[i]);
            samples.push_back(samples_of(files.bytes[i]));
        }
    }
    std::vector<conv_item> states(numbers.size());
    bool together = may_overlap(sources, results);
    uint64_t most = together ? UINT64_MAX : group_samples(device, false);
    try {
        for (size_t first = 0, end; first < numbers.size(); first = end) {
            if (first > 0)
                look_for_signals(unlocked);
            end = end_of_group(samples, first, most);
            conv_status status =
                conv_decode_png(context.get(), &sources[first], static_cast<int>(end - first),
                                &options, &results[first], &states[first], stream.handle);
            bool of_an_item = false;
            for (size_t k = first; k < end; k++)
                of_an_item = of_an_item || states[k].status == status;
            if (status == CONV_ERR_DEVICE || (status != CONV_OK && !of_an_item) ||
                (status == CONV_ERR_USAGE && together))
                context.check(status);
        }
    } catch (...) {
        free_allocated(*this, numbers, results, context);
        throw;
    }
    for (size_t k = 0; k < numbers.size(); k++) {
        items[numbers[k]] = states[k];
        images[numbers[k]] = results[k];
    }
}

void Decode::raise_first() const
{
    for (size_t i = 0; raise && i < count(); i++) {
        if (items[i].status != CONV_OK)
            raise_now(error(i));
    }
}

namespace
{

// The images have the memory that the library allocated for them.
nb::object collect_allocated(Decode &call, const Borrowed &context)
{
    nb::list results;
    std::vector<Tensor> tensors;
    for (size_t i = 0; i < call.count(); i++) {
        const conv_image &image = call.images[i];
        Tensor tensor;
        if (call.items[i].status == CONV_OK) {
            Shape shape = image_shape(image.width, image.height, image.channels, call.layout, true);
            Array array;
            array.sample = image.sample;
            array.device = call.device;
            array.set_shape(shape.lengths, shape.count);
            array.data = static_cast<char *>(image.data);
            array.block = std::make_shared<Block>(context.shared(), call.options.memory, image.data,
                                                  context->stream());
            tensor.kind = call.kind;
            tensor.device = call.device;
            tensor.owner = nb::cast(std::move(array));
        }
        tensors.push_back(std::move(tensor));
    }
    call.raise_first();
    for (size_t i = 0; i < call.count(); i++)
        results.append(call.items[i].status == CONV_OK
                           ? finish(tensors[i], call.stream.handle, false)
                           : call.error(i));
    return call.files.many ? nb::object(results) : nb::object(results[0]);
}

bool parse_errors(nb::handle errors)
{
    std::string text = parse_text(errors);
    if (text != "raise" && text != "return")
        raise_value("errors must be 'raise' or 'return', not %R", errors.ptr());
    return text == "raise";
}

// The stream of the package whose arrays are written to.
Stream stream_of_results(const Decode &call, nb::handle out)
{
    Kind kind = call.kind;
    if (PyList_Check(out.ptr()) || PyTuple_Check(out.ptr()))
        kind = nb::len(out) > 0 ? kind_of(nb::object(out[0])) : kind;
    else if (!out.is_none())
        kind = kind_of(out);
    if (kind != Kind::torch && kind != Kind::cupy)
        return {};
    return {true, current_stream(kind, call.device)};
}

nb::object decode_png(nb::handle data, nb::handle device, nb::handle layout, nb::handle channels,
                      nb::handle dtype, bool batch, nb::handle out, nb::handle framework,
                      nb::handle stream, nb::handle errors)
{
    Files files(data);
    Decode call(files);
    call.layout = parse_layout(layout);
    call.stream = parse_stream(stream);
    call.device = parse_device(device);
    call.raise = parse_errors(errors);
    call.options.planar = call.layout == Layout::chw;
    call.options.channels = channels.is_none() ? 0 : parse_int(channels, "channels");
    if (!channels.is_none() && (call.options.channels < 1 || call.options.channels > 4))
        raise_value("channels must be 1 to 4, not %d", call.options.channels);
    if (call.layout == Layout::hw)
        call.options.channels = 1;
    if (!dtype.is_none())
        call.options.sample = parse_sample(dtype, {CONV_SAMPLE_U8, CONV_SAMPLE_U16}, "dtype");
    call.options.memory = call.device == cpu ? CONV_HOST : CONV_DEVICE;
    call.kind = !framework.is_none() ? parse_framework(framework)
                : call.device == cpu ? Kind::numpy
                                     : Kind::conv;
    if (call.kind == Kind::numpy && call.device != cpu)
        raise_value("NumPy arrays are in host memory: pass device='cpu'");
    if (!out.is_none() && !framework.is_none())
        raise_value("out and framework cannot be combined");
    if (files.many && !batch && !out.is_none() &&
        (!(PyList_Check(out.ptr()) || PyTuple_Check(out.ptr())) || nb::len(out) != call.count()))
        raise_value("out: a list of as many arrays as there are files was expected");
    if (batch && !files.many)
        raise_value("batch=True takes a list of files");
    if (call.count() == 0 && !batch)
        return nb::list();
    bool package = call.kind == Kind::torch || call.kind == Kind::cupy;
    if (!call.stream.given && call.device != cpu)
        call.stream = stream_of_results(call, out);
    Borrowed context(call.device, call.stream.handle);
    if (batch)
        return decode_batch(call, context, out);
    if (package || !out.is_none())
        return decode_into_list(call, context, out);
    call.run(context);
    return collect_allocated(call, context);
}

nb::object probe_png(nb::handle data)
{
    Files files(data);
    if (files.many)
        raise_type("probe_png takes one file");
    conv_png_info info;
    char message[CONV_MESSAGE_SIZE] = "";
    conv_status status = conv_probe_png(files.bytes[0].data, files.bytes[0].size, &info, message);
    if (status != CONV_OK)
        raise_now(png_error(0, status, message));
    return nb::make_tuple(info.width, info.height, info.channels, sample_name(info.sample),
                          info.has_alpha != 0, info.bit_depth, info.color_type,
                          info.interlaced != 0, info.animated != 0);
}

} // namespace

void bind_decode(nb::module_ &module)
{
    using nb::arg, nb::none;
    module.def("decode_png", decode_png, arg("data").none(), nb::kw_only(),
               arg("device").none() = "cpu", arg("layout").none() = "HWC", arg("channels") = none(),
               arg("dtype") = none(), arg("batch") = false, arg("out") = none(),
               arg("framework") = none(), arg("stream") = none(), arg("errors") = "raise");
    module.def("probe_png", probe_png, arg("data").none());
}

} // namespace convpy
