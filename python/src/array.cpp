// SPDX-License-Identifier: MIT
#include "array.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include "errors.h"
#include "export.h"
#include "gil.h"
#include "helpers.h"

namespace convpy
{

Block::Block(std::shared_ptr<Context> owner, conv_memory where, void *address, void *used_on)
    : context(std::move(owner)), memory(where), data(address), stream(used_on)
{
}

Block::~Block()
{
    context->free(memory, data);
}

void Array::set_shape(const int64_t *lengths, int count)
{
    int64_t stride = conv_sample_bytes(sample);
    dimensions = count;
    for (int i = count - 1; i >= 0; i--) {
        shape[i] = lengths[i];
        strides[i] = stride;
        stride *= lengths[i];
    }
}

int64_t Array::bytes() const
{
    int64_t size = conv_sample_bytes(sample);
    for (int i = 0; i < dimensions; i++)
        size *= shape[i];
    return size;
}

const char *sample_name(conv_sample sample)
{
    switch (sample) {
    case CONV_SAMPLE_U8:
        return "uint8";
    case CONV_SAMPLE_U16:
        return "uint16";
    case CONV_SAMPLE_F32:
        return "float32";
    case CONV_SAMPLE_F16:
        return "float16";
    default:
        return "?";
    }
}

Array new_array(const Borrowed &context, conv_memory memory, conv_sample sample,
                const int64_t *shape, int dimensions)
{
    Array array;
    array.sample = sample;
    array.device = memory == CONV_DEVICE ? context->device() : cpu;
    array.set_shape(shape, dimensions);
    void *data;
    context.check(conv_allocate(context.get(), memory, static_cast<size_t>(array.bytes()), &data));
    array.block = std::make_shared<Block>(context.shared(), memory, data, context->stream());
    array.data = static_cast<char *>(data);
    return array;
}

nb::object to_numpy(const Array &array)
{
    if (array.device == cpu)
        return helpers.asarray(nb::cast(array));
    Borrowed context(array.device, array.block->stream);
    Array copy = new_array(context, CONV_HOST, array.sample, array.shape, array.dimensions);
    {
        Unlocked unlocked;
        context.check(conv_copy(context.get(), copy.data, CONV_HOST, array.data, CONV_DEVICE,
                                static_cast<size_t>(array.bytes()), array.block->stream));
    }
    return helpers.asarray(nb::cast(copy));
}

nb::object numpy_dtype(conv_sample sample)
{
    return helpers.dtype(sample_name(sample));
}

namespace
{

const char *buffer_format(conv_sample sample)
{
    return sample == CONV_SAMPLE_U8    ? "B"
           : sample == CONV_SAMPLE_U16 ? "H"
           : sample == CONV_SAMPLE_F32 ? "f"
                                       : "e";
}

int get_buffer(PyObject *self, Py_buffer *view, int flags)
{
    const Array &array = *nb::inst_ptr<Array>(self);
    if (array.device != cpu) {
        PyErr_SetString(PyExc_BufferError, "the array is in device memory: use numpy() for a copy");
        view->obj = nullptr;
        return -1;
    }
    *view = Py_buffer{};
    view->obj = Py_NewRef(self);
    view->buf = array.data;
    view->len = array.bytes();
    view->itemsize = conv_sample_bytes(array.sample);
    view->ndim = array.dimensions;
    if (flags & PyBUF_FORMAT)
        view->format = const_cast<char *>(buffer_format(array.sample));
    if (flags & PyBUF_ND)
        view->shape = reinterpret_cast<Py_ssize_t *>(const_cast<int64_t *>(array.shape));
    if ((flags & PyBUF_STRIDES) == PyBUF_STRIDES)
        view->strides = reinterpret_cast<Py_ssize_t *>(const_cast<int64_t *>(array.strides));
    return 0;
}

nb::tuple tuple_of(const int64_t *values, int count)
{
    nb::list list;
    for (int i = 0; i < count; i++)
        list.append(values[i]);
    return nb::tuple(list);
}

std::string device_text(const Array &array)
{
    return array.device == cpu ? "cpu" : "cuda:" + std::to_string(array.device);
}

Array item(const Array &array, int64_t index)
{
    if (array.dimensions == 0)
        throw nb::index_error("the array has no axes");
    if (index < 0)
        index += array.shape[0];
    if (index < 0 || index >= array.shape[0])
        throw nb::index_error("index out of range");
    Array part = array;
    part.data += index * array.strides[0];
    part.set_shape(array.shape + 1, array.dimensions - 1);
    return part;
}

nb::str representation(const Array &array)
{
    return nb::str("conv.Array(shape={}, dtype={}, device='{}')")
        .format(tuple_of(array.shape, array.dimensions), sample_name(array.sample),
                device_text(array));
}

nb::object refuse_array(const Array &array, nb::args, nb::kwargs)
{
    if (array.device == cpu)
        return to_numpy(array);
    raise_type("a conv.Array in device memory is not converted to NumPy implicitly: use numpy()");
}

} // namespace

void bind_array(nb::module_ &module)
{
    static PyType_Slot slots[] = {{Py_bf_getbuffer, reinterpret_cast<void *>(get_buffer)},
                                  {0, nullptr}};
    nb::class_<Array>(
        module, "Array", nb::type_slots(slots), nb::is_final(),
        "Samples in device memory (results of conv on CUDA). Row-major, without gaps.\n\n"
        "Other packages view it without a copy: torch.from_dlpack(x),\n"
        "torch.as_tensor(x), cupy.asarray(x), jax.dlpack.from_dlpack(x).")
        .def_prop_ro(
            "shape", [](const Array &a) { return tuple_of(a.shape, a.dimensions); },
            "Lengths of the axes.")
        .def_prop_ro(
            "strides", [](const Array &a) { return tuple_of(a.strides, a.dimensions); },
            "Bytes from an element to the next, for each axis.")
        .def_prop_ro(
            "dtype", [](const Array &a) { return numpy_dtype(a.sample); }, "NumPy's dtype.")
        .def_prop_ro(
            "ndim", [](const Array &a) { return a.dimensions; }, "Number of axes.")
        .def_prop_ro(
            "size", [](const Array &a) { return a.bytes() / conv_sample_bytes(a.sample); },
            "Number of elements.")
        .def_prop_ro("nbytes", &Array::bytes, "Bytes of all elements.")
        .def_prop_ro("device", device_text, "'cuda:0', or 'cpu'.")
        .def("numpy", to_numpy,
             "A copy in host memory, as a NumPy array. Waits until it is complete.")
        .def("__array__", refuse_array)
        .def("__len__",
             [](const Array &a) {
                 if (a.dimensions == 0)
                     raise_type("len() of an array without axes");
                 return a.shape[0];
             })
        .def("__getitem__", item, nb::arg("index"),
             "A view of one element of the first axis: of one image of a batch.")
        .def("__repr__", representation)
        .def("__dlpack__", export_dlpack, nb::kw_only(), nb::arg("stream") = nb::none(),
             nb::arg("max_version") = nb::none(), nb::arg("dl_device") = nb::none(),
             nb::arg("copy") = nb::none(), "DLPack. Pending work is ordered before `stream`.")
        .def("__dlpack_device__", dlpack_device)
        .def_prop_ro("__cuda_array_interface__", cuda_array_interface);
}

} // namespace convpy
