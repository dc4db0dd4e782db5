// SPDX-License-Identifier: MIT
#include "frameworks.h"

#include "errors.h"

namespace convpy
{

Helpers helpers;

static nb::handle member(const char *module, const char *name)
{
    return nb::object(nb::module_::import_(module).attr(name)).release();
}

nb::object helper(const char *name)
{
    return nb::module_::import_("conv._frameworks").attr(name);
}

void load_helpers()
{
    helpers.asarray = member("numpy", "asarray");
    helpers.dtype = member("numpy", "dtype");
    helpers.kind_of_type = member("conv._frameworks", "kind_of_type");
    helpers.torch_stream = member("conv._frameworks", "torch_stream");
    helpers.torch_view = member("conv._frameworks", "torch_view");
    helpers.torch_empty = member("conv._frameworks", "torch_empty");
    helpers.host_numbers = member("conv._frameworks", "host_numbers");
    helpers.dtype_name = member("conv._frameworks", "dtype_name");
    helpers.image_error = member("conv._types", "ImageError");
    helpers.png_error = member("conv._types", "PngError");
    helpers.jpeg_error = member("conv._types", "JpegError");
    helpers.device_error = member("conv._types", "DeviceError");
    helpers.progress = member("conv._types", "Progress");
}

// Indexed by Kind.
static const char *const kind_names[] = {"numpy", "torch", "cupy", "jax", "conv", "other"};

static Kind parse_kind(nb::handle name)
{
    int kind = 0;
    while (kind < static_cast<int>(Kind::other) && !name.equal(nb::str(kind_names[kind])))
        kind++;
    return static_cast<Kind>(kind);
}

Kind kind_of_type(nb::handle type)
{
    return parse_kind(helpers.kind_of_type(type));
}

Kind parse_framework(nb::handle name)
{
    Kind kind = nb::isinstance<nb::str>(name) ? parse_kind(name) : Kind::other;
    if (kind >= Kind::conv)
        raise_value("framework must be 'numpy', 'torch', 'cupy' or 'jax', not %R", name.ptr());
    return kind;
}

void *current_stream(Kind kind, int device)
{
    nb::object number =
        kind == Kind::torch ? helpers.torch_stream(device) : helper("cupy_stream")(device);
    return reinterpret_cast<void *>(nb::cast<uintptr_t>(number));
}

nb::object contiguous_copy(Kind kind, nb::handle array)
{
    return helper("contiguous")(kind_names[static_cast<int>(kind)], array);
}

Tensor new_result(const Borrowed &context, Kind kind, int device, conv_sample sample,
                  const int64_t *shape, int dimensions)
{
    Tensor tensor;
    tensor.kind = kind;
    tensor.device = device;
    tensor.sample = sample;
    tensor.writable = true;
    tensor.set_shape(shape, dimensions);
    if (kind == Kind::torch || kind == Kind::cupy) {
        nb::object empty =
            kind == Kind::torch ? nb::borrow(helpers.torch_empty) : helper("cupy_empty");
        nb::object made = empty(tuple_of(shape, dimensions), sample_name(sample), device);
        tensor.owner = made[0];
        tensor.data = reinterpret_cast<char *>(nb::cast<uintptr_t>(made[1]));
        return tensor;
    }
    Array array = new_array(context, tensor.memory(), sample, shape, dimensions);
    tensor.data = array.data;
    tensor.owner = nb::cast(std::move(array));
    return tensor;
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
    nb::object own = result.device == cpu ? to_numpy(array) : std::move(result.owner);
    return result.kind == Kind::jax ? helper("jax_array")(own) : own;
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
