// SPDX-License-Identifier: MIT
#include "frameworks.h"

#include <cstring>

#include "errors.h"

namespace convpy
{

Helpers helpers;

namespace
{

nb::handle member(const char *module, const char *name)
{
    return nb::object(nb::module_::import_(module).attr(name)).release();
}

} // namespace

void load_helpers()
{
    helpers.asarray = member("numpy", "asarray");
    helpers.dtype = member("numpy", "dtype");
    helpers.kind_of_type = member("conv._frameworks", "kind_of_type");
    helpers.torch_stream = member("conv._frameworks", "torch_stream");
    helpers.torch_view = member("conv._frameworks", "torch_view");
    helpers.cupy_stream = member("conv._frameworks", "cupy_stream");
    helpers.torch_empty = member("conv._frameworks", "torch_empty");
    helpers.torch_empty_like = member("conv._frameworks", "torch_empty_like");
    helpers.cupy_empty = member("conv._frameworks", "cupy_empty");
    helpers.jax_array = member("conv._frameworks", "jax_array");
    helpers.contiguous = member("conv._frameworks", "contiguous");
    helpers.host_numbers = member("conv._frameworks", "host_numbers");
    helpers.dtype_name = member("conv._frameworks", "dtype_name");
    helpers.png_error = member("conv._types", "PngError");
    helpers.device_error = member("conv._types", "DeviceError");
    helpers.progress = member("conv._types", "Progress");
}

namespace
{

const char *kind_name(Kind kind)
{
    switch (kind) {
    case Kind::numpy:
        return "numpy";
    case Kind::torch:
        return "torch";
    case Kind::cupy:
        return "cupy";
    case Kind::jax:
        return "jax";
    case Kind::conv:
        return "conv";
    default:
        return "other";
    }
}

Kind parse_kind(nb::handle name)
{
    for (Kind kind : {Kind::numpy, Kind::torch, Kind::cupy, Kind::jax, Kind::conv}) {
        if (nb::cast<nb::str>(name).equal(nb::str(kind_name(kind))))
            return kind;
    }
    return Kind::other;
}

} // namespace

Kind kind_of_type(nb::handle type)
{
    return parse_kind(helpers.kind_of_type(type));
}

Kind parse_framework(nb::handle name)
{
    if (nb::isinstance<nb::str>(name)) {
        Kind kind = parse_kind(name);
        if (kind != Kind::other && kind != Kind::conv)
            return kind;
    }
    raise_value("framework must be 'numpy', 'torch', 'cupy' or 'jax', not %R", name.ptr());
}

void *current_stream(Kind kind, int device)
{
    nb::object number = (kind == Kind::torch ? helpers.torch_stream : helpers.cupy_stream)(device);
    return reinterpret_cast<void *>(nb::cast<uintptr_t>(number));
}

nb::object contiguous_copy(Kind kind, nb::handle array)
{
    return helpers.contiguous(kind_name(kind), array);
}

Tensor new_result(const Borrowed &context, Kind kind, int device, conv_sample sample,
                  const int64_t *shape, int dimensions)
{
    Tensor tensor;
    tensor.kind = kind;
    tensor.device = device;
    tensor.sample = sample;
    tensor.writable = true;
    tensor.dimensions = dimensions;
    int64_t stride = conv_sample_bytes(sample);
    for (int i = dimensions - 1; i >= 0; i--) {
        tensor.shape[i] = shape[i];
        tensor.strides[i] = stride;
        stride *= shape[i];
    }
    if (kind == Kind::torch || kind == Kind::cupy) {
        nb::list lengths;
        for (int i = 0; i < dimensions; i++)
            lengths.append(shape[i]);
        nb::handle empty = kind == Kind::torch ? helpers.torch_empty : helpers.cupy_empty;
        nb::object pair = empty(nb::tuple(lengths), sample_name(sample), device);
        tensor.owner = pair[0];
        tensor.data = reinterpret_cast<void *>(nb::cast<uintptr_t>(pair[1]));
        return tensor;
    }
    Array array =
        new_array(context, device == cpu ? CONV_HOST : CONV_DEVICE, sample, shape, dimensions);
    tensor.data = array.data;
    tensor.owner = nb::cast(std::move(array));
    return tensor;
}

Tensor new_result_like(const Borrowed &context, const Tensor &source, conv_sample sample)
{
    if (source.kind == Kind::torch && source.sample == sample && source.contiguous()) {
        nb::object pair = helpers.torch_empty_like(source.owner);
        if (!pair.is_none()) {
            Tensor tensor;
            tensor.kind = source.kind;
            tensor.device = source.device;
            tensor.sample = sample;
            tensor.writable = true;
            tensor.dimensions = source.dimensions;
            memcpy(tensor.shape, source.shape, sizeof tensor.shape);
            memcpy(tensor.strides, source.strides, sizeof tensor.strides);
            tensor.owner = pair[0];
            tensor.data = reinterpret_cast<void *>(nb::cast<uintptr_t>(pair[1]));
            return tensor;
        }
    }
    return new_result(context, source.kind, source.device, sample, source.shape, source.dimensions);
}

nb::object finish(Tensor &result, void *stream, bool pending)
{
    if (result.kind == Kind::torch || result.kind == Kind::cupy)
        return std::move(result.owner);
    Array &array = *nb::inst_ptr<Array>(result.owner);
    if (result.device != cpu) {
        array.block->stream = stream;
        array.block->pending = pending;
    }
    if (result.kind == Kind::jax) {
        return helpers.jax_array(result.device == cpu ? to_numpy(array) : result.owner);
    }
    return result.device == cpu ? to_numpy(array) : std::move(result.owner);
}

void note_use(const Tensor &tensor, void *stream, const Borrowed &context, bool written)
{
    if (tensor.device == cpu || tensor.kind != Kind::conv)
        return;
    Block &block = *nb::inst_ptr<Array>(tensor.owner)->block;
    if (written) {
        block.stream = stream;
        block.pending = true;
    }
    void *home = block.context->stream();
    if (home != stream)
        context.check(conv_stream_order(context.get(), stream, home));
}

} // namespace convpy
