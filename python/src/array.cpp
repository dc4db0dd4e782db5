// SPDX-License-Identifier: MIT
#include "array.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include "interpreter.h"

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

nb::tuple tuple_of(const int64_t *values, int count)
{
    nb::list list;
    for (int i = 0; i < count; i++)
        list.append(values[i]);
    return nb::tuple(list);
}

Array own_array(const Borrowed &context, conv_memory memory, void *data, conv_sample sample,
                const int64_t *shape, int dimensions)
{
    Array array;
    array.data = static_cast<char *>(data);
    array.device = memory == CONV_DEVICE ? context->device() : cpu;
    array.sample = sample;
    array.set_shape(shape, dimensions);
    array.block = std::make_shared<Block>(context.shared(), memory, data, context->stream());
    return array;
}

Array new_array(const Borrowed &context, conv_memory memory, conv_sample sample,
                const int64_t *shape, int dimensions)
{
    View view;
    view.sample = sample;
    view.set_shape(shape, dimensions);
    void *data;
    context.check(conv_allocate(context.get(), memory, static_cast<size_t>(view.bytes()), &data));
    return own_array(context, memory, data, sample, shape, dimensions);
}

nb::object to_numpy(const Array &array)
{
    if (array.device == cpu)
        return helpers->asarray(nb::cast(array));
    Borrowed context(array.device, array.block->stream);
    Array copy = new_array(context, CONV_HOST, array.sample, array.shape, array.dimensions);
    {
        Unlocked unlocked;
        context.check(conv_copy(context.get(), copy.data, CONV_HOST, array.data, CONV_DEVICE,
                                static_cast<size_t>(array.bytes()), array.block->stream));
    }
    return helpers->asarray(nb::cast(copy));
}

void order_after(const Array &array, void *stream)
{
    void *own = array.block->stream;
    if (array.device == cpu || !array.block->pending || own == stream)
        return;
    Borrowed context(array.device, stream);
    context.check(conv_stream_order(context.get(), own, stream));
}

namespace
{

// --- for other packages: DLPack and the CUDA array interface -------------------------------------

// Held by a consumer: the memory, and the shape that the struct points to.
template <class Managed> struct Exported {
    Managed managed;
    std::shared_ptr<Block> block;
    int64_t shape[max_dimensions];
    int64_t strides[max_dimensions]; // elements
};

template <class Managed> void delete_exported(Managed *managed)
{
    delete static_cast<Exported<Managed> *>(managed->context);
}

// A consumer renames the capsule; a capsule that was not consumed frees the memory.
template <class Managed> void capsule_destructor(PyObject *capsule)
{
    const char *name = PyCapsule_GetName(capsule);
    if (!name || name[0] == 'u') // "used_..."
        return;
    auto *managed = static_cast<Managed *>(PyCapsule_GetPointer(capsule, name));
    if (managed)
        managed->deleter(managed);
}

DlDevice device_of(const Array &array)
{
    return array.device == cpu ? DlDevice{dl_cpu, 0} : DlDevice{dl_cuda, array.device};
}

template <class Managed> nb::object new_capsule(const Array &array, const char *name)
{
    auto *exported = new Exported<Managed>{};
    exported->block = array.block;
    int64_t size = conv_sample_bytes(array.sample);
    for (int i = 0; i < array.dimensions; i++) {
        exported->shape[i] = array.shape[i];
        exported->strides[i] = array.strides[i] / size;
    }
    Managed &managed = exported->managed;
    managed.context = exported;
    managed.deleter = delete_exported<Managed>;
    if constexpr (std::is_same_v<Managed, DlManagedVersioned>)
        managed.major = 1;
    const SampleType &type = type_of(array.sample);
    managed.tensor.data = array.data;
    managed.tensor.device = device_of(array);
    managed.tensor.ndim = array.dimensions;
    managed.tensor.dtype = {type.dl_code, type.bits, 1};
    managed.tensor.shape = exported->shape;
    managed.tensor.strides = exported->strides;
    PyObject *capsule = PyCapsule_New(&managed, name, capsule_destructor<Managed>);
    if (!capsule) {
        delete exported;
        throw nb::python_error();
    }
    return nb::steal(capsule);
}

// Stream of a consumer: None is the default stream, 1 the same, -1 asks for no order.
void order_for_consumer(const Array &array, nb::handle stream)
{
    intptr_t number = stream.is_none() ? 1 : nb::cast<intptr_t>(stream);
    if (number == 0 || number < -1)
        raise_value("stream %zd is not valid in __dlpack__: 1 is the default stream",
                    static_cast<Py_ssize_t>(number));
    if (number != -1)
        order_after(array, number == 1 ? nullptr : reinterpret_cast<void *>(number));
}

nb::object export_dlpack(const Array &array, nb::object stream, nb::object max_version,
                         nb::object dl_device, nb::object copy)
{
    if (!copy.is_none() && nb::cast<bool>(copy))
        raise_buffer("conv.Array makes no copies for DLPack");
    if (!dl_device.is_none()) {
        auto type = nb::cast<int>(dl_device[0]);
        if (type == dl_cpu && array.device != cpu) {
            if (!copy.is_none())
                raise_buffer("the array is in device memory: the host needs a copy");
            nb::dict options;
            options["max_version"] = max_version;
            return to_numpy(array).attr("__dlpack__")(**options);
        }
        DlDevice own = device_of(array);
        if (type != own.device_type || nb::cast<int>(dl_device[1]) != own.device_id)
            raise_buffer("the array is not on that device");
    }
    if (array.device == cpu) {
        if (!stream.is_none())
            raise_value("an array in host memory has no stream");
    } else {
        order_for_consumer(array, stream);
    }
    if (!max_version.is_none() && nb::cast<int>(max_version[0]) >= 1)
        return new_capsule<DlManagedVersioned>(array, "dltensor_versioned");
    return new_capsule<DlManaged>(array, "dltensor");
}

nb::tuple dlpack_device(const Array &array)
{
    DlDevice device = device_of(array);
    return nb::make_tuple(device.device_type, device.device_id);
}

// Version 3; AttributeError on the host.
nb::dict cuda_array_interface(const Array &array)
{
    if (array.device == cpu) {
        PyErr_SetString(PyExc_AttributeError, "the array is in host memory");
        throw nb::python_error();
    }
    nb::dict result;
    result["shape"] = tuple_of(array.shape, array.dimensions);
    result["typestr"] = type_of(array.sample).typestr;
    result["data"] = nb::make_tuple(reinterpret_cast<uintptr_t>(array.data), false);
    result["strides"] = nb::none();
    result["version"] = 3;
    if (array.block->pending) {
        auto stream = reinterpret_cast<uintptr_t>(array.block->stream.load());
        result["stream"] = stream == 0 ? uintptr_t{1} : stream;
    } else {
        result["stream"] = nb::none();
    }
    return result;
}

// --- the class -----------------------------------------------------------------------------------

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
        view->format = const_cast<char *>(type_of(array.sample).format);
    if (flags & PyBUF_ND)
        view->shape = reinterpret_cast<Py_ssize_t *>(const_cast<int64_t *>(array.shape));
    if ((flags & PyBUF_STRIDES) == PyBUF_STRIDES)
        view->strides = reinterpret_cast<Py_ssize_t *>(const_cast<int64_t *>(array.strides));
    return 0;
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
                device_name(array.device));
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
            "dtype", [](const Array &a) { return helpers->dtype(sample_name(a.sample)); },
            "NumPy's dtype.")
        .def_prop_ro(
            "ndim", [](const Array &a) { return a.dimensions; }, "Number of axes.")
        .def_prop_ro(
            "size", [](const Array &a) { return a.size(); }, "Number of elements.")
        .def_prop_ro(
            "nbytes", [](const Array &a) { return a.bytes(); }, "Bytes of all elements.")
        .def_prop_ro(
            "device", [](const Array &a) { return device_name(a.device); }, "'cuda:0', or 'cpu'.")
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

// --- other packages ------------------------------------------------------------------------------

const Helpers *helpers;

nb::object helper(const char *name)
{
    return nb::module_::import_("conv._frameworks").attr(name);
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
    return parse_kind(helpers->kind_of_type(type));
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
        kind == Kind::torch ? helpers->torch_stream(device) : helper("cupy_stream")(device);
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
            kind == Kind::torch ? nb::borrow(helpers->torch_empty) : helper("cupy_empty");
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
