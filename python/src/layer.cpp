// SPDX-License-Identifier: MIT
// conv.Layer: a convolution layer, made ready in each context that runs it.
#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include <nanobind/stl/array.h>
#include <nanobind/stl/string.h>

#include "array.h"
#include "interpreter.h"
#include "prepared.h"

namespace convpy
{

namespace
{

// An array of float32 that nobody writes to.
struct Numbers {
    nb::object array = nb::none();
    const float *data = nullptr;
};

// Checks that the images have the shape and type that the layer reads. `axes`: of a plane.
void check_images(const Tensor &input, int axes, conv_sample sample, int64_t channels)
{
    if (input.sample != sample)
        raise_type("images: samples of type %s; this layer reads %s", sample_name(input.sample),
                   sample_name(sample));
    if (input.dimensions != axes + 1 && input.dimensions != axes + 2)
        raise_value("images: channels x %s was expected, or a batch of that",
                    axes == 1 ? "length" : "height x width");
    const int64_t *lengths = input.shape + input.dimensions - axes - 1;
    if (lengths[0] != channels)
        raise_value("images have %lld channels; the weights are for %lld",
                    static_cast<long long>(lengths[0]), static_cast<long long>(channels));
    if (lengths[1] > INT32_MAX || lengths[axes] > INT32_MAX)
        raise_value("images are too large");
}

conv_tensor tensor_of(const Tensor &input, int axes)
{
    int first = input.dimensions - axes - 1;
    conv_tensor tensor = {};
    tensor.data = input.data;
    tensor.memory = input.memory();
    tensor.images = first ? input.shape[0] : 1;
    tensor.height = axes == 1 ? 1 : static_cast<int32_t>(input.shape[first + 1]);
    tensor.width = static_cast<int32_t>(input.shape[first + axes]);
    tensor.channel_stride = input.strides[first];
    tensor.row_stride = axes == 1 ? 0 : input.strides[first + 1];
    tensor.image_stride = first ? input.strides[0] : tensor.channel_stride * input.shape[first];
    return tensor;
}

// *axes: how many there must be, or 0, which their number replaces.
Numbers floats_of(nb::handle array, int *axes, int64_t *lengths, const char *name)
{
    nb::object host = helpers->host_numbers(array, name, "float32").attr("copy")();
    host.attr("setflags")(false);
    Tensor tensor = import_array(host, {}, name);
    if (*axes == 0 && (tensor.dimensions == 3 || tensor.dimensions == 4))
        *axes = tensor.dimensions;
    if (tensor.dimensions != *axes)
        raise_value("%s has %d axes, not %s", name, tensor.dimensions, *axes ? "1" : "4 or 3");
    memcpy(lengths, tensor.shape, sizeof(int64_t) * *axes);
    return {host, reinterpret_cast<const float *>(tensor.data)};
}

// A number for all axes, or a sequence with one for each.
void parse_steps(int32_t *height, int32_t *width, nb::handle value, int axes, const char *name)
{
    nb::sequence each;
    bool many = !nb::isinstance<nb::str>(value) && nb::try_cast(value, each);
    if (many && nb::len(each) != static_cast<size_t>(axes))
        raise_value("%s must be a number or %d of them, not %R", name, axes, value.ptr());
    int32_t *const steps[] = {height, width};
    for (int i = 0; i < 2; i++) {
        *steps[i] = parse_int(many ? nb::object(each[axes == 1 ? 0 : i]) : nb::borrow(value), name);
        if (*steps[i] < 1)
            raise_value("%s must be at least 1, not %d", name, *steps[i]);
    }
}

// The text that the library reads: of a number, of a sequence with one for each axis or with a pair
// (before, after) for each, or as it is.
std::string parse_padding(nb::handle padding, int axes)
{
    nb::sequence each;
    std::string text;
    if (nb::isinstance<nb::str>(padding) || !nb::try_cast(padding, each)) {
        text = parse_text(padding);
    } else {
        if (nb::len(each) != static_cast<size_t>(axes))
            raise_value("padding must be a text, a number, or one or a pair for each of %d axes, "
                        "not %R",
                        axes, padding.ptr());
        for (int i = 0; i < axes; i++) {
            nb::object axis = each[i];
            nb::sequence pair;
            bool is_pair = nb::try_cast(axis, pair) && nb::len(pair) == 2;
            text += i ? "x" : "";
            text += std::to_string(parse_int(is_pair ? nb::object(pair[0]) : axis, "padding"));
            if (is_pair)
                text += ":" + std::to_string(parse_int(pair[1], "padding"));
        }
    }
    if (axes == 1 && isdigit(static_cast<unsigned char>(text[0])) &&
        text.find('x') == std::string::npos)
        text = "0x" + text;
    return text;
}

class Layer : public Prepared<conv_layer, conv_layer_options, conv_layer_destroy>
{
  public:
    // The shape of the weights is maps x channels of a group x height x width, of which a layer of
    // one axis has no height; the bias has `maps` values, or none.
    Layer(nb::handle numbers, nb::handle offsets, nb::handle stride, nb::handle padding,
          nb::handle border, nb::handle activation, nb::handle precision, nb::handle variant,
          nb::handle input, nb::handle output, float input_divisor, nb::handle dilation,
          nb::handle groups)
        : Layer()
    {
        int64_t shape[4], count = 0;
        int count_axes = 0, one = 1;
        weights = floats_of(numbers, &count_axes, shape, "weights");
        axes = count_axes - 2;
        if (axes == 1) {
            shape[3] = shape[2];
            shape[2] = 1;
        }
        if (!offsets.is_none()) {
            bias = floats_of(offsets, &one, &count, "bias");
            if (count != shape[0])
                raise_value("bias has %lld values for %lld maps", static_cast<long long>(count),
                            static_cast<long long>(shape[0]));
        }
        for (int64_t length : shape) {
            if (length < 1 || length > 1 << 20)
                raise_value("weights: each axis must have 1 to 2^20 values");
        }
        read_settings(shape, stride, padding, dilation, groups, border, activation, input, output,
                      input_divisor, precision);
        options.variant = texts.keep(variant);
        check();
    }

    // Without weights, which have this shape.
    static Layer *late(const std::array<int64_t, 4> &shape, nb::handle stride, nb::handle padding,
                       nb::handle dilation, nb::handle groups, nb::handle border,
                       nb::handle activation, nb::handle input, nb::handle output,
                       float input_divisor, nb::handle precision, bool channels_last)
    {
        std::unique_ptr<Layer> layer(new Layer);
        layer->read_settings(shape.data(), stride, padding, dilation, groups, border, activation,
                             input, output, input_divisor, precision);
        layer->options.channels_last = channels_last;
        layer->check();
        return layer.release();
    }

    nb::object call(nb::handle images, nb::handle out, nb::handle stream, nb::handle device) const
    {
        Tensor input = import_array(images, parse_stream(stream), "images");
        check_images(input, axes, options.input, options.channels);
        if (options.output == CONV_SAMPLE_BF16 && input.kind != Kind::torch && out.is_none())
            raise_type("output: results of type bfloat16 are tensors of torch only");
        int place = place_of(input, device);
        bool batch = input.dimensions == axes + 2;
        if (input.strides[input.dimensions - 1] != conv_sample_bytes(input.sample))
            make_dense(input, images, parse_stream(stream), "images");
        conv_tensor from = tensor_of(input, axes);
        Borrowed context(place, input.stream.handle);
        conv_layer *layer;
        int height, width;
        {
            Unlocked unlocked;
            layer = ready(context);
            context.check(conv_layer_result_size(layer, from.height, from.width, &height, &width));
        }
        int64_t lengths[max_dimensions] = {from.images, options.maps, height, width};
        if (axes == 1)
            lengths[2] = width;
        const int64_t *own = lengths + (batch ? 0 : 1);
        Tensor result = out.is_none()
                            ? new_result(context, input.kind, input.device, options.output, own,
                                         input.dimensions)
                            : import_result(out, input.stream, input, options.output, own);
        if (!out.is_none() &&
            (!result.contiguous() || reinterpret_cast<uintptr_t>(result.data) % 16 != 0))
            raise_buffer("out has gaps, or does not begin at a multiple of 16 bytes");
        if (from.images > 0) {
            Unlocked unlocked;
            context.check(conv_layer_run(layer, &from, result.data, input.stream.handle));
        }
        note_use(input, input.stream.handle, context, false);
        if (out.is_none())
            return finish(result, input.stream.handle, input.device != cpu);
        note_use(result, input.stream.handle, context, true);
        return nb::borrow(out);
    }

    // Without weights: (bytes of device memory that `run_with` needs for a batch, rows and columns
    // of its result), and a batch on that device by addresses, strides in bytes.
    nb::tuple workspace(int device, int64_t images, int height, int width) const
    {
        Borrowed context(device, nullptr);
        size_t bytes;
        int rows, columns;
        {
            Unlocked unlocked;
            conv_layer *layer = ready(context);
            context.check(conv_layer_workspace(layer, images, height, width, &bytes));
            context.check(conv_layer_result_size(layer, height, width, &rows, &columns));
        }
        return nb::make_tuple(bytes, rows, columns);
    }

    void run_with(int device, uintptr_t stream, uintptr_t images, nb::tuple lengths,
                  nb::tuple strides, uintptr_t numbers, uintptr_t offsets, uintptr_t room,
                  uintptr_t result) const
    {
        conv_tensor from = {};
        from.data = reinterpret_cast<void *>(images);
        from.memory = device == cpu ? CONV_HOST : CONV_DEVICE;
        from.images = nb::cast<int64_t>(lengths[0]);
        from.height = nb::cast<int32_t>(lengths[2]);
        from.width = nb::cast<int32_t>(lengths[3]);
        if (!options.channels_last) {
            from.image_stride = nb::cast<int64_t>(strides[0]);
            from.channel_stride = nb::cast<int64_t>(strides[1]);
            from.row_stride = nb::cast<int64_t>(strides[2]);
        }
        // One context for all streams, which a capture can use, too: the call touches no pool.
        Borrowed context(device, nullptr);
        Unlocked unlocked;
        context.check(conv_layer_run_with(
            ready(context), &from, reinterpret_cast<float *>(numbers),
            reinterpret_cast<float *>(offsets), reinterpret_cast<void *>(room),
            reinterpret_cast<void *>(result), reinterpret_cast<void *>(stream)));
    }

    // The arguments of __init__: what pickle keeps.
    nb::tuple state() const
    {
        auto steps = [this](int height, int width) {
            return axes == 1 ? nb::make_tuple(width) : nb::make_tuple(height, width);
        };
        return nb::make_tuple(
            weights.array, bias.array, steps(options.stride, options.stride_width), options.padding,
            options.border, options.activation, options.precision, options.variant,
            sample_name(options.input), sample_name(options.output), options.input_divisor,
            steps(options.dilation, options.dilation_width), options.groups);
    }

    nb::str representation() const
    {
        return nb::str("conv.Layer({} maps of {} x {} x {}{})")
            .format(options.maps, options.channels / options.groups, options.kernel_height,
                    options.kernel_width, helper("layer_text")(state()));
    }

  private:
    Layer() : Prepared(CONV_LAYER_OPTIONS_INIT)
    {
    }

    void read_settings(const int64_t *shape, nb::handle stride, nb::handle padding,
                       nb::handle dilation, nb::handle groups, nb::handle border,
                       nb::handle activation, nb::handle input, nb::handle output,
                       float input_divisor, nb::handle precision)
    {
        parse_steps(&options.stride, &options.stride_width, stride, axes, "stride");
        parse_steps(&options.dilation, &options.dilation_width, dilation, axes, "dilation");
        options.groups = parse_int(groups, "groups");
        if (options.groups < 1 || options.groups > 1 << 20)
            raise_value("groups must be 1 to 2^20, not %d", options.groups);
        options.maps = static_cast<int32_t>(shape[0]);
        options.channels = static_cast<int32_t>(shape[1] * options.groups);
        options.kernel_height = static_cast<int32_t>(shape[2]);
        options.kernel_width = static_cast<int32_t>(shape[3]);
        if (!padding.is_none())
            options.padding = texts.keep(parse_padding(padding, axes));
        options.border = texts.keep_border(border);
        options.activation = texts.keep(activation);
        options.input = parse_sample(
            input, {CONV_SAMPLE_F32, CONV_SAMPLE_U8, CONV_SAMPLE_F16, CONV_SAMPLE_BF16}, "input");
        options.output =
            parse_sample(output, {CONV_SAMPLE_F32, CONV_SAMPLE_F16, CONV_SAMPLE_BF16}, "output");
        options.input_divisor = input_divisor;
        options.precision = texts.keep(precision);
    }

    conv_status create(conv_context *context, conv_layer **layer) const override
    {
        return conv_layer_create(layer, context, weights.data, bias.data, &options);
    }

    Numbers weights, bias;
    int axes = 2; // with one, heights are 1
};

void restore_layer(Layer *self, nb::tuple state)
{
    size_t count = nb::len(state); // 11 in version 1.0
    if (count != 11 && count != 13)
        raise_value("not the state of a conv.Layer");
    nb::object one = nb::int_(1), dilation = count > 11 ? nb::object(state[11]) : one;
    new (self) Layer(state[0], state[1], state[2], state[3], state[4], state[5], state[6], state[7],
                     state[8], state[9], nb::cast<float>(state[10]), dilation,
                     count > 11 ? nb::object(state[12]) : one);
}

// (bytes of float32, filters, height, width)
nb::tuple bank_weights(nb::str name)
{
    std::string bank = parse_text(name);
    int32_t filters, height, width;
    char message[CONV_MESSAGE_SIZE] = "";
    auto read = [&](float *to, size_t room) {
        conv_status status =
            conv_bank_weights(bank.c_str(), &filters, &height, &width, to, room, message);
        if (status != CONV_OK)
            throw Failure{status, message};
    };
    read(nullptr, 0);
    std::vector<float> weights(static_cast<size_t>(filters) * height * width);
    read(weights.data(), weights.size());
    nb::bytes data(weights.data(), weights.size() * sizeof(float));
    return nb::make_tuple(data, filters, height, width);
}

} // namespace

void bind_layer(nb::module_ &module)
{
    module.def("bank_weights", bank_weights);
    module.def("late_layer", &Layer::late, nb::rv_policy::take_ownership, nb::arg("shape"),
               nb::arg("stride").none(), nb::arg("padding").none(), nb::arg("dilation").none(),
               nb::arg("groups").none(), nb::arg("border").none(), nb::arg("activation").none(),
               nb::arg("input"), nb::arg("output"), nb::arg("input_divisor"),
               nb::arg("precision").none(), nb::arg("channels_last") = false);
    module.def("sample_name", [](nb::handle images) {
        return sample_name(import_array(images, {}, "images").sample);
    });
    using nb::arg, nb::none, nb::handle;
    nb::class_<Layer>(module, "Layer", nb::is_final(),
                      "A convolution layer with its weights, for repeated calls.\n\n"
                      "Arguments and results are those of conv.layer. Any thread may call it.")
        .def(nb::init<handle, handle, handle, handle, handle, handle, handle, handle, handle,
                      handle, float, handle, handle>(),
             arg("weights").none(), arg("bias") = none(), nb::kw_only(), arg("stride") = 1,
             arg("padding") = none(), arg("border") = none(), arg("activation") = none(),
             arg("precision") = none(), arg("variant") = none(), arg("input").none() = "float32",
             arg("output").none() = "float32", arg("input_divisor") = 1.0f, arg("dilation") = 1,
             arg("groups") = 1)
        .def("__call__", &Layer::call, arg("images").none(), nb::kw_only(), arg("out") = none(),
             arg("stream") = none(), arg("device") = none(), "Runs the layer as conv.layer does.")
        .def("workspace", &Layer::workspace)
        .def("run_with", &Layer::run_with)
        .def("__getstate__", &Layer::state)
        .def("__setstate__", restore_layer)
        .def_prop_ro("weights", [](const Layer &layer) -> nb::object { return layer.state()[0]; })
        .def_prop_ro("bias", [](const Layer &layer) -> nb::object { return layer.state()[1]; })
        .def_prop_ro("stride", [](const Layer &layer) -> nb::object { return layer.state()[2]; })
        .def("__repr__", &Layer::representation);
}

} // namespace convpy
