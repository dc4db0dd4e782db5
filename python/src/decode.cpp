// SPDX-License-Identifier: MIT
#include <cstdio>
#include <cstring>
#include <string>

#include "errors.h"
#include "files.h"
#include "frameworks.h"
#include "gil.h"

namespace convpy
{

namespace
{

// A call: its arguments, and the result for each file.
struct Shape {
    int64_t lengths[max_dimensions];
    int count;
};

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
    void raise_first() const;
};

// Gray images have two axes in layouts "HWC" and "HW", and three in "CHW" and (`squeeze` unset) in
// batches.
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

// Frees images in the library's memory that a failed call will not return.
void free_allocated(const Decode &call, const std::vector<size_t> &numbers,
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
        run_groups(context, unlocked, samples, most, states, [&](size_t first, int group) {
            conv_status status = conv_decode_png(context.get(), &sources[first], group, &options,
                                                 &results[first], &states[first], stream.handle);
            if (status == CONV_ERR_USAGE && together)
                context.check(status);
            return status;
        });
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
    if (raise)
        convpy::raise_first(items);
}

// --- into arrays whose shapes are known in advance: a framework's, the caller's, and batches
// -------

// Sizes from the headers; items without a usable one have failed.
std::vector<conv_png_info> probe_all(Decode &call)
{
    uint64_t limit = current_settings().max_pixels;
    if (limit == 0)
        limit = uint64_t{1} << 28;
    std::vector<conv_png_info> infos(call.count());
    for (size_t i = 0; i < call.count(); i++) {
        char message[CONV_MESSAGE_SIZE] = "";
        const conv_bytes &file = call.files.bytes[i];
        conv_png_info &info = infos[i];
        conv_status status = conv_probe_png(file.data, file.size, &info, message);
        if (status != CONV_OK) {
            call.fail(i, status, message);
            continue;
        }
        if (static_cast<uint64_t>(info.width) * static_cast<uint64_t>(info.height) > limit)
            call.fail(i, CONV_ERR_LIMIT, "more pixels than the limit (conv.configure)");
        if (call.options.channels)
            info.channels = call.options.channels;
        if (call.options.sample)
            info.sample = call.options.sample;
    }
    return infos;
}

Tensor into_result(Decode &call, nb::handle out)
{
    Tensor tensor = import_out(out, call.stream);
    if (tensor.device != call.device)
        raise_value("out is not on the device");
    return tensor;
}

bool fits(const conv_image &image, const conv_png_info &info)
{
    return image.width == info.width && image.height == info.height &&
           image.channels == info.channels && image.sample == info.sample;
}

// Fills images that failed with zeros.
void clear_failed(const Decode &call, const Borrowed &context, const conv_image &shape,
                  const std::vector<conv_image> &images)
{
    std::vector<char> zeros;
    for (size_t i = 0; i < call.count(); i++) {
        if (call.items[i].status == CONV_OK)
            continue;
        zeros.resize(static_cast<size_t>(shape.height) * shape.width * shape.channels *
                     conv_sample_bytes(shape.sample));
        context.check(conv_copy(context.get(), images[i].data, images[i].memory, zeros.data(),
                                CONV_HOST, zeros.size(), call.stream.handle));
    }
}

// Into arrays of a framework or of the caller, one for each image; `out` may be None.
nb::object decode_into_list(Decode &call, const Borrowed &context, nb::handle out)
{
    std::vector<conv_png_info> infos = probe_all(call);
    call.raise_first();
    std::vector<Tensor> tensors(call.count());
    for (size_t i = 0; i < call.count(); i++) {
        const conv_png_info &info = infos[i];
        if (call.items[i].status != CONV_OK)
            continue;
        std::vector<conv_image> one;
        if (out.is_none()) {
            Shape shape = image_shape(info.width, info.height, info.channels, call.layout, true);
            tensors[i] = new_result(context, call.kind, call.device, info.sample, shape.lengths,
                                    shape.count);
        } else {
            tensors[i] = into_result(call, call.files.many ? nb::object(out[i]) : nb::borrow(out));
        }
        append_images(one, tensors[i], call.layout, "out");
        if (one.size() != 1)
            raise_value("out: an array of one image was expected");
        if (!fits(one[0], info))
            call.fail(i, CONV_ERR_USAGE, "out does not have the shape and type of the image");
        call.images[i] = one[0];
    }
    call.raise_first();
    call.run(context);
    call.raise_first();
    nb::list results;
    for (size_t i = 0; i < call.count(); i++) {
        if (call.items[i].status != CONV_OK)
            results.append(png_error(i, call.items[i]));
        else if (out.is_none())
            results.append(finish(tensors[i], call.stream.handle, false));
        else
            results.append(tensors[i].owner);
    }
    return call.files.many ? nb::object(results) : nb::object(results[0]);
}

nb::object finish_batch(Decode &call, Tensor &batch, nb::handle out)
{
    nb::object result = out.is_none() ? finish(batch, call.stream.handle, false) : nb::borrow(out);
    if (call.raise)
        return result;
    nb::list errors;
    for (size_t i = 0; i < call.count(); i++)
        errors.append(call.items[i].status == CONV_OK ? nb::object(nb::none())
                                                      : png_error(i, call.items[i]));
    return nb::make_tuple(result, errors);
}

// Into one array for all images.
nb::object decode_batch(Decode &call, const Borrowed &context, nb::handle out)
{
    std::vector<conv_png_info> infos = probe_all(call);
    call.raise_first();
    const conv_png_info *first = nullptr;
    for (size_t i = 0; i < call.count() && !first; i++) {
        if (call.items[i].status == CONV_OK)
            first = &infos[i];
    }
    if (call.count() == 0)
        raise_value("a batch needs at least one image");
    conv_png_info nothing = {}; // where no file says how large its image is
    nothing.channels = call.options.channels ? call.options.channels : 1;
    nothing.sample = call.options.sample ? call.options.sample : CONV_SAMPLE_U8;
    if (!first)
        first = &nothing;
    Tensor batch;
    if (out.is_none()) {
        Shape shape = image_shape(first->width, first->height, first->channels, call.layout, false);
        int64_t lengths[max_dimensions] = {static_cast<int64_t>(call.count())};
        memcpy(lengths + 1, shape.lengths, sizeof(int64_t) * shape.count);
        batch =
            new_result(context, call.kind, call.device, first->sample, lengths, shape.count + 1);
    } else {
        batch = into_result(call, out);
        if (!call.raise && !batch.contiguous())
            raise_buffer("out has gaps, which errors='return' does not allow");
    }
    if (out.is_none() && first == &nothing)
        return finish_batch(call, batch, out);
    std::vector<conv_image> images;
    append_images(images, batch, call.layout, "out");
    if (images.size() != call.count() || batch.dimensions != (call.layout == Layout::hw ? 3 : 4))
        raise_value("out does not have one image for each file");
    for (size_t i = 0; i < call.count(); i++) {
        if (call.items[i].status == CONV_OK && !fits(images[i], infos[i])) {
            char text[160];
            snprintf(text, sizeof text,
                     "%dx%d with %d channels of %d bytes, unlike the batch (%dx%d, %d, %d)",
                     infos[i].width, infos[i].height, infos[i].channels,
                     static_cast<int>(conv_sample_bytes(infos[i].sample)), images[i].width,
                     images[i].height, images[i].channels,
                     static_cast<int>(conv_sample_bytes(images[i].sample)));
            call.fail(i, CONV_ERR_USAGE, text);
        }
    }
    call.raise_first();
    call.images = images;
    call.run(context);
    call.raise_first();
    clear_failed(call, context, images[0], images);
    return finish_batch(call, batch, out);
}

// --- the call ------------------------------------------------------------------------------------

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
            tensor.kind = call.kind;
            tensor.device = call.device;
            tensor.owner = nb::cast(own_array(context, call.options.memory, image.data,
                                              image.sample, shape.lengths, shape.count));
        }
        tensors.push_back(std::move(tensor));
    }
    call.raise_first();
    for (size_t i = 0; i < call.count(); i++)
        results.append(call.items[i].status == CONV_OK
                           ? finish(tensors[i], call.stream.handle, false)
                           : png_error(i, call.items[i]));
    return call.files.many ? nb::object(results) : nb::object(results[0]);
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
    auto any = nb::arg().none();
    module.def("decode_png", decode_png, any, any, any, any, any, nb::arg(), any, any, any, any);
    module.def("probe_png", probe_png, any);
}

} // namespace convpy
