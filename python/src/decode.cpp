// SPDX-License-Identifier: MIT
#include <array>
#include <cstdio>
#include <optional>
#include <string>

#include "array.h"
#include "files.h"
#include "interpreter.h"

namespace convpy
{

namespace
{

// A call: its arguments, and the result for each file.
struct Decode {
    const Files &files;
    Format format;
    conv_decode_options options = CONV_DECODE_OPTIONS_INIT;
    Layout layout = Layout::hwc;
    Kind kind = Kind::numpy;
    int device = cpu;
    Stream stream;
    bool given = false; // the results are the caller's arrays
    bool raise = true;  // the first error, instead of returning all
    std::vector<conv_image> images;
    std::vector<conv_item> items;

    Decode(const Files &from, Format of)
        : files(from), format(of), images(from.bytes.size()), items(from.bytes.size())
    {
    }
    size_t count() const
    {
        return images.size();
    }
    nb::object error(size_t i) const;
    void fail(size_t i, conv_status status, const char *text);
    // Decodes the items that have not failed yet. Throws Failure when the device fails.
    void run(const Borrowed &context);
    void raise_first() const;
};

constexpr auto decoders = std::array{conv_decode_png, conv_decode_jpeg, conv_decode_image};

void Decode::fail(size_t i, conv_status status, const char *text)
{
    items[i].status = status;
    snprintf(items[i].message, sizeof items[i].message, "%.251s", text);
}

nb::object Decode::error(size_t i) const
{
    Format of = format == Format::any ? format_of(files.bytes[i]) : format;
    return image_error(of, i, items[i]);
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
            samples.push_back(samples_of(images[i]));
        }
    }
    std::vector<conv_item> states(numbers.size());
    // The library finds memory that the caller's images share, but only among those of one call.
    uint64_t most = given ? UINT64_MAX : group_samples(device, false);
    run_groups(context, unlocked, samples, most, states, [&](size_t first, int group) {
        auto decode = decoders[static_cast<size_t>(format)];
        conv_status status = decode(context.get(), &sources[first], group, &options,
                                    &results[first], &states[first], stream.handle);
        if (status == CONV_ERR_USAGE && given)
            context.check(status);
        return status;
    });
    for (size_t k = 0; k < numbers.size(); k++)
        items[numbers[k]] = states[k];
}

void Decode::raise_first() const
{
    for (size_t i = 0; raise && i < count(); i++)
        if (items[i].status != CONV_OK)
            raise_now(error(i));
}

// --- shapes --------------------------------------------------------------------------------------

// Shapes from the headers; items without a usable one have failed.
std::vector<conv_image_info> probe_all(Decode &call)
{
    uint64_t limit = current_settings().max_pixels;
    if (limit == 0)
        limit = uint64_t{1} << 28;
    std::vector<conv_image_info> infos(call.count());
    for (size_t i = 0; i < call.count(); i++) {
        char message[CONV_MESSAGE_SIZE] = "";
        const conv_bytes &file = call.files.bytes[i];
        conv_status status =
            conv_probe_image(file.data, file.size, &call.options, &infos[i], message);
        if (status != CONV_OK)
            call.fail(i, status, message);
        else if (static_cast<uint64_t>(infos[i].width) * static_cast<uint64_t>(infos[i].height) >
                 limit) {
            snprintf(message, sizeof message, "%d x %d pixels are more than the limit of %llu",
                     infos[i].width, infos[i].height, static_cast<unsigned long long>(limit));
            call.fail(i, CONV_ERR_LIMIT, message);
        }
    }
    return infos;
}

// The caller's array or, if `out` is None, a new one: for `count` images, or without an axis for
// images. Gray images have no axis for channels in layout "HW", and in "HWC" unless in a batch.
Tensor target(const Decode &call, const Borrowed &context, nb::handle out,
              const conv_image_info &info, std::optional<size_t> count)
{
    if (!out.is_none()) {
        Tensor tensor = import_out(out, call.stream);
        if (tensor.device != call.device)
            raise_value("out is not on the device");
        return tensor;
    }
    std::vector<int64_t> shape;
    if (count)
        shape.push_back(static_cast<int64_t>(*count));
    if (call.layout == Layout::chw)
        shape.push_back(info.channels);
    shape.insert(shape.end(), {info.height, info.width});
    if (call.layout == Layout::hwc && (count || info.channels > 1))
        shape.push_back(info.channels);
    return new_result(context, call.kind, call.device, info.sample, shape.data(),
                      static_cast<int>(shape.size()));
}

void check_fit(Decode &call, size_t i, const conv_image_info &info)
{
    const conv_image &image = call.images[i];
    char text[200];
    snprintf(text, sizeof text,
             "its shape and type (%d x %d, %d channels, %s) are not those of %s (%d x %d, %d, %s)",
             info.width, info.height, info.channels, sample_name(info.sample),
             call.given ? "its array" : "the batch", image.width, image.height, image.channels,
             sample_name(image.sample));
    if (image.width != info.width || image.height != info.height ||
        image.channels != info.channels || image.sample != info.sample)
        call.fail(i, CONV_ERR_USAGE, text);
}

// An array for each image.
nb::object decode_into_list(Decode &call, const Borrowed &context, nb::handle out)
{
    std::vector<conv_image_info> infos = probe_all(call);
    call.raise_first();
    std::vector<Tensor> tensors(call.count());
    for (size_t i = 0; i < call.count(); i++) {
        if (call.items[i].status != CONV_OK)
            continue;
        bool own = call.given && call.files.many;
        std::vector<conv_image> one;
        tensors[i] =
            target(call, context, own ? nb::object(out[i]) : nb::borrow(out), infos[i], {});
        append_images(one, tensors[i], call.layout, "out");
        if (one.size() != 1)
            raise_value("out: an array of one image was expected");
        call.images[i] = one[0];
        check_fit(call, i, infos[i]);
    }
    call.raise_first();
    call.run(context);
    call.raise_first();
    nb::list results;
    for (size_t i = 0; i < call.count(); i++) {
        if (call.items[i].status != CONV_OK)
            results.append(call.error(i));
        else
            results.append(call.given ? tensors[i].owner
                                      : finish(tensors[i], call.stream.handle, false));
    }
    return call.files.many ? nb::object(results) : nb::object(results[0]);
}

// One array for all images, in which those that failed are zeros.
nb::object decode_batch(Decode &call, const Borrowed &context, nb::handle out)
{
    std::vector<conv_image_info> infos = probe_all(call);
    call.raise_first();
    conv_image_info shape = {}; // where no file says how large its image is
    shape.channels = call.options.channels ? call.options.channels : 1;
    shape.sample = call.options.sample ? call.options.sample : CONV_SAMPLE_U8;
    for (size_t i = call.count(); i-- > 0;)
        if (call.items[i].status == CONV_OK)
            shape = infos[i];
    if (call.count() == 0)
        raise_value("a batch needs at least one image");
    Tensor batch = target(call, context, out, shape, call.count());
    if (call.given || shape.width > 0) {
        std::vector<conv_image> images;
        append_images(images, batch, call.layout, "out");
        if (images.size() != call.count() ||
            batch.dimensions != (call.layout == Layout::hw ? 3 : 4))
            raise_value("out does not have one image for each file");
        if (!call.raise && !batch.contiguous())
            raise_buffer("out has gaps, which errors='return' does not allow");
        call.images = images;
        for (size_t i = 0; i < call.count(); i++)
            if (call.items[i].status == CONV_OK)
                check_fit(call, i, infos[i]);
        call.raise_first();
        call.run(context);
        call.raise_first();
    }
    std::vector<char> zeros(static_cast<size_t>(batch.bytes()) / call.count());
    nb::list errors;
    for (size_t i = 0; i < call.count(); i++) {
        bool failed = call.items[i].status != CONV_OK;
        errors.append(failed ? call.error(i) : nb::object(nb::none()));
        if (failed && !zeros.empty())
            context.check(conv_copy(context.get(), call.images[i].data, call.images[i].memory,
                                    zeros.data(), CONV_HOST, zeros.size(), call.stream.handle));
    }
    nb::object result = call.given ? nb::borrow(out) : finish(batch, call.stream.handle, false);
    return call.raise ? result : nb::object(nb::make_tuple(result, errors));
}

// --- the call ------------------------------------------------------------------------------------

// The stream of the package whose arrays are written to.
Stream stream_of_results(const Decode &call, nb::handle out)
{
    Kind kind = call.kind;
    if (is_list(out))
        kind = nb::len(out) > 0 ? kind_of(nb::object(out[0])) : kind;
    else if (!out.is_none())
        kind = kind_of(out);
    if (kind != Kind::torch && kind != Kind::cupy)
        return {};
    return {true, current_stream(kind, call.device)};
}

// 1 to 4, "gray" or "rgb"; None: as in the file.
void read_channels(conv_decode_options &options, nb::handle channels)
{
    if (channels.is_none())
        return;
    std::string text = nb::isinstance<nb::str>(channels) ? parse_text(channels) : "";
    options.gray = text == "gray";
    options.channels = text == "gray"  ? 1
                       : text == "rgb" ? 3
                       : text.empty()  ? parse_int(channels, "channels")
                                       : 0;
    if (options.channels < 1 || options.channels > 4)
        raise_value("channels must be 1 to 4, 'gray' or 'rgb', not %R", channels.ptr());
}

nb::object decode(int format, nb::handle data, nb::handle device, nb::handle layout,
                  nb::handle channels, nb::handle dtype, bool batch, nb::handle out,
                  nb::handle framework, nb::handle stream, nb::handle errors, bool auto_orient)
{
    Files files(data);
    Decode call(files, static_cast<Format>(format));
    call.layout = parse_layout(layout);
    call.stream = parse_stream(stream);
    call.device = parse_device(device);
    call.raise = parse_errors(errors);
    call.given = !out.is_none();
    read_channels(call.options, channels);
    call.options.orient = auto_orient;
    if (call.layout == Layout::hw)
        call.options.channels = 1;
    if (!dtype.is_none())
        call.options.sample = parse_sample(dtype, {CONV_SAMPLE_U8, CONV_SAMPLE_U16}, "dtype");
    call.kind = !framework.is_none() ? parse_framework(framework)
                : call.device == cpu ? Kind::numpy
                                     : Kind::conv;
    if (call.kind == Kind::numpy && call.device != cpu)
        raise_value("NumPy arrays are in host memory: pass device='cpu'");
    if (!out.is_none() && !framework.is_none())
        raise_value("out and framework cannot be combined");
    if (files.many && !batch && !out.is_none() && (!is_list(out) || nb::len(out) != call.count()))
        raise_value("out: a list of as many arrays as there are files was expected");
    if (batch && !files.many)
        raise_value("batch=True takes a list of files");
    if (call.count() == 0 && !batch)
        return nb::list();
    if (!call.stream.given && call.device != cpu)
        call.stream = stream_of_results(call, out);
    Borrowed context(call.device, call.stream.handle);
    return batch ? decode_batch(call, context, out) : decode_into_list(call, context, out);
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
        raise_now(image_error(Format::png, 0, status, message));
    return nb::make_tuple(info.width, info.height, info.channels, sample_name(info.sample),
                          info.has_alpha != 0, info.bit_depth, info.color_type,
                          info.interlaced != 0, info.animated != 0);
}

} // namespace

void bind_decode(nb::module_ &module)
{
    auto any = nb::arg().none();
    module.def("decode", decode, nb::arg(), any, any, any, any, any, nb::arg(), any, any, any, any,
               nb::arg());
    module.def("probe_png", probe_png, any);
}

} // namespace convpy
