// SPDX-License-Identifier: MIT
// Decoding into arrays whose shapes are known in advance: a framework's, the caller's, and batches.
#include <cstdio>
#include <cstring>

#include "decode.h"
#include "errors.h"

namespace convpy
{

namespace
{

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

} // namespace

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
            results.append(call.error(i));
        else if (out.is_none())
            results.append(finish(tensors[i], call.stream.handle, false));
        else
            results.append(tensors[i].owner);
    }
    return call.files.many ? nb::object(results) : nb::object(results[0]);
}

static nb::object finish_batch(Decode &call, Tensor &batch, nb::handle out)
{
    nb::object result = out.is_none() ? finish(batch, call.stream.handle, false) : nb::borrow(out);
    if (call.raise)
        return result;
    nb::list errors;
    for (size_t i = 0; i < call.count(); i++)
        errors.append(call.items[i].status == CONV_OK ? nb::object(nb::none()) : call.error(i));
    return nb::make_tuple(result, errors);
}

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

} // namespace convpy
