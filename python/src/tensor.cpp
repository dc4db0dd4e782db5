// SPDX-License-Identifier: MIT
#include "tensor.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <new>
#include <unordered_map>
#include <utility>

#include "array.h"
#include "interpreter.h"

namespace convpy
{

void View::set_shape(const int64_t *lengths, int count)
{
    int64_t stride = conv_sample_bytes(sample);
    dimensions = count;
    for (int i = count - 1; i >= 0; i--) {
        shape[i] = lengths[i];
        strides[i] = stride;
        stride *= lengths[i];
    }
}

int64_t View::size() const
{
    int64_t count = 1;
    for (int i = 0; i < dimensions; i++)
        count *= shape[i];
    return count;
}

bool View::contiguous() const
{
    int64_t stride = conv_sample_bytes(sample);
    for (int i = dimensions - 1; i >= 0; i--) {
        if (shape[i] != 1 && strides[i] != stride)
            return false;
        stride *= shape[i];
    }
    return true;
}

const SampleType &type_of(conv_sample sample)
{
    for (const SampleType &type : sample_types) {
        if (type.sample == sample)
            return type;
    }
    static const SampleType unknown = {CONV_SAMPLE_DEFAULT, "?", "", "", 0, 0};
    return unknown;
}

Kind kind_of(nb::handle array)
{
    // A type is not kept alive: when it goes, its entry does, since another may get its address.
    struct Known {
        Kind kind;
        nb::object reference;
    };
    static auto *types = new std::unordered_map<PyObject *, Known>;
    static nb::ft_mutex lock; // nothing where Python has a GIL
    nb::handle type = array.type();
    {
        nb::ft_lock_guard guard(lock);
        auto found = types->find(type.ptr());
        if (found != types->end())
            return found->second.kind;
    }
    Kind kind = kind_of_type(type);
    PyObject *key = type.ptr();
    nb::object forget = nb::cpp_function([key](nb::handle) {
        nb::ft_lock_guard guard(lock);
        types->erase(key);
    });
    Known known{kind, nb::weakref(type, forget)};
    nb::ft_lock_guard guard(lock);
    types->emplace(key, std::move(known));
    return kind;
}

namespace
{

[[noreturn]] void refuse_type(const char *name, const char *type)
{
    raise_type(
        "%s: samples of type %s; conv reads uint8, uint16 and float32, layers also float16 and "
        "bfloat16",
        name, type);
}

// The name of a type that has only a letter here is read from `array`.
void set_buffer_type(Tensor &tensor, nb::handle array, const char *name)
{
    const char *format = tensor.buffer.view.format;
    const char *code = format ? format : "B";
    if (*code == '@' || *code == '=' || *code == '<')
        code++;
    for (const SampleType &type : sample_types) {
        if (strcmp(code, type.format) == 0) {
            tensor.sample = type.sample;
            return;
        }
    }
    refuse_type(name, nb::str(nb::getattr(array, "dtype", nb::str(format))).c_str());
}

void set_dimensions(Tensor &tensor, int64_t count, const char *name)
{
    if (count > max_dimensions)
        raise_value("%s has %d axes; at most 4 are possible", name, static_cast<int>(count));
    tensor.dimensions = static_cast<int>(count);
}

void view_buffer(Tensor &tensor, nb::handle array, const char *name)
{
    if (PyObject_GetBuffer(array.ptr(), &tensor.buffer.view, PyBUF_RECORDS_RO) != 0)
        throw nb::python_error();
    const Py_buffer &buffer = tensor.buffer.view;
    set_buffer_type(tensor, array, name);
    set_dimensions(tensor, buffer.ndim, name);
    int64_t dense = conv_sample_bytes(tensor.sample); // ctypes gives no strides
    for (int i = buffer.ndim - 1; i >= 0; i--) {
        tensor.shape[i] = buffer.shape ? buffer.shape[i] : buffer.len / dense;
        tensor.strides[i] = buffer.strides ? buffer.strides[i] : dense;
        dense *= tensor.shape[i];
    }
    tensor.data = static_cast<char *>(buffer.buf);
    tensor.writable = !buffer.readonly;
}

void view_array(Tensor &tensor, const Array &array, const Stream &stream)
{
    static_cast<View &>(tensor) = array;
    tensor.writable = true;
    if (array.device == cpu)
        return;
    tensor.stream = stream.given ? stream : Stream{true, array.block->stream};
    order_after(array, tensor.stream.handle);
}

conv_sample sample_of(DlType type, const char *name)
{
    for (const SampleType &known : sample_types) {
        if (type.lanes == 1 && type.code == known.dl_code && type.bits == known.bits)
            return known.sample;
    }
    // Indexed by the type codes of DLPack.
    static const char *const kinds[] = {"int",    "uint",    "float", "opaque",
                                        "bfloat", "complex", "bool"};
    char text[32];
    snprintf(text, sizeof text, "%s%d", type.code < std::size(kinds) ? kinds[type.code] : "other",
             type.bits);
    refuse_type(name, type.code == dl_bool ? "bool" : text);
}

// A capsule of either version of the protocol. The host has no stream.
nb::object call_dlpack(Tensor &tensor, nb::handle array, const Stream &stream)
{
    nb::object method = array.attr("__dlpack__");
    nb::dict options;
    if (tensor.device != cpu) {
        bool has_own = tensor.kind == Kind::torch || tensor.kind == Kind::cupy;
        void *own = has_own ? current_stream(tensor.kind, tensor.device) : nullptr;
        if (has_own && (!stream.given || stream.handle == own)) {
            // Queued on the package's own stream, our work needs no further ordering.
            tensor.stream = {true, own};
            options["stream"] = -1;
        } else {
            tensor.stream = {true, stream.handle};
            auto number = reinterpret_cast<uintptr_t>(stream.handle);
            options["stream"] = number == 0 ? uintptr_t{1} : number;
        }
    }
    nb::dict versioned;
    versioned.update(options);
    versioned["max_version"] = nb::make_tuple(1, 0);
    try {
        return method(**versioned);
    } catch (nb::python_error &error) {
        if (!error.matches(PyExc_TypeError)) // from an exporter older than version 1.0
            throw;
    }
    return method(**options);
}

// Takes the struct out of a capsule, which then no longer frees it.
template <typename Managed>
const DlTensor &take_capsule(Tensor &tensor, nb::handle capsule, const char *name, const char *used)
{
    auto *managed = static_cast<Managed *>(PyCapsule_GetPointer(capsule.ptr(), name));
    if (!managed || PyCapsule_SetName(capsule.ptr(), used) != 0)
        throw nb::python_error();
    tensor.held = std::shared_ptr<void>(managed, [](void *taken) {
        auto *own = static_cast<Managed *>(taken);
        if (own->deleter)
            own->deleter(own);
    });
    tensor.writable = tensor.kind != Kind::jax;
    if constexpr (std::is_same_v<Managed, DlManagedVersioned>) {
        if (managed->major != 1)
            raise_buffer("an array of version %u of DLPack; conv reads version 1", managed->major);
        tensor.writable = tensor.writable && !(managed->flags & dl_flag_read_only);
        tensor.in_place = !(managed->flags & dl_flag_is_copied);
    }
    return managed->tensor;
}

int device_of(int type, int id, const char *name)
{
    if (type == dl_cuda || type == dl_cuda_managed)
        return id;
    if (type != dl_cpu && type != dl_cuda_host)
        raise_buffer("%s is on a device of DLPack type %d; only the host and CUDA are possible",
                     name, type);
    return cpu;
}

void view_dlpack(Tensor &tensor, nb::handle array, const Stream &stream, const char *name)
{
    nb::object where = array.attr("__dlpack_device__")();
    tensor.device = device_of(nb::cast<int>(where[0]), nb::cast<int>(where[1]), name);
    nb::object capsule =
        call_dlpack(tensor, tensor.kind == Kind::torch ? array.attr("detach")() : array, stream);
    bool versioned = PyCapsule_IsValid(capsule.ptr(), "dltensor_versioned");
    const DlTensor &from =
        versioned ? take_capsule<DlManagedVersioned>(tensor, capsule, "dltensor_versioned",
                                                     "used_dltensor_versioned")
                  : take_capsule<DlManaged>(tensor, capsule, "dltensor", "used_dltensor");
    if (device_of(from.device.device_type, from.device.device_id, name) != tensor.device)
        raise_buffer("%s is on another device than it says", name);
    tensor.sample = sample_of(from.dtype, name);
    set_dimensions(tensor, from.ndim, name);
    int64_t size = conv_sample_bytes(tensor.sample), dense = size;
    for (int i = from.ndim - 1; i >= 0; i--) {
        tensor.shape[i] = from.shape[i];
        tensor.strides[i] = from.strides ? from.strides[i] * size : dense;
        dense *= from.shape[i];
    }
    tensor.data = static_cast<char *>(from.data) + from.byte_offset;
}

// Reads a torch tensor through its attributes. False where that is not enough: DLPack then orders
// the work of one stream before another's, or reports the error. BufferError if gradients are
// expected of it.
bool view_torch(Tensor &tensor, nb::handle array, const Stream &stream, const char *name)
{
    nb::object told = helpers->torch_view(array, name);
    if (told.is_none())
        return false;
    auto device = nb::cast<int>(told[1]);
    void *own = reinterpret_cast<void *>(nb::cast<uintptr_t>(told[2]));
    if (device != cpu && stream.given && stream.handle != own)
        return false;
    tensor.device = device;
    if (device != cpu)
        tensor.stream = {true, own};
    tensor.sample = static_cast<conv_sample>(nb::cast<int>(told[3]));
    nb::object shape = told[4], strides = told[5];
    set_dimensions(tensor, static_cast<int64_t>(nb::len(shape)), name);
    int64_t size = conv_sample_bytes(tensor.sample);
    for (int i = 0; i < tensor.dimensions; i++) {
        tensor.shape[i] = nb::cast<int64_t>(shape[i]);
        tensor.strides[i] = nb::cast<int64_t>(strides[i]) * size;
    }
    tensor.data = reinterpret_cast<char *>(nb::cast<uintptr_t>(told[0]));
    tensor.writable = true;
    return true;
}

conv_sample sample_of_typestr(const char *text, const char *name)
{
    for (const SampleType &type : sample_types) {
        if (strcmp(text, type.typestr) == 0)
            return type.sample;
    }
    if (strcmp(text, "<u1") == 0)
        return CONV_SAMPLE_U8;
    refuse_type(name, text);
}

// The interface does not name the device: the first one is assumed.
void view_cuda_interface(Tensor &tensor, nb::handle array, const Stream &stream, const char *name)
{
    nb::dict interface = nb::cast<nb::dict>(array.attr("__cuda_array_interface__"));
    tensor.device = 0;
    tensor.sample = sample_of_typestr(nb::str(interface["typestr"]).c_str(), name);
    nb::tuple shape = nb::cast<nb::tuple>(interface["shape"]);
    set_dimensions(tensor, static_cast<int64_t>(nb::len(shape)), name);
    nb::object strides =
        interface.contains("strides") ? nb::object(interface["strides"]) : nb::object(nb::none());
    int64_t dense = conv_sample_bytes(tensor.sample);
    for (int i = tensor.dimensions - 1; i >= 0; i--) {
        tensor.shape[i] = nb::cast<int64_t>(shape[i]);
        tensor.strides[i] = strides.is_none() ? dense : nb::cast<int64_t>(strides[i]);
        dense *= tensor.shape[i];
    }
    nb::object data = interface["data"];
    tensor.data = reinterpret_cast<char *>(nb::cast<uintptr_t>(data[0]));
    tensor.writable = !nb::cast<bool>(data[1]);
    tensor.stream = {true, stream.handle};
    nb::object from =
        interface.contains("stream") ? nb::object(interface["stream"]) : nb::object(nb::none());
    if (from.is_none())
        return;
    auto number = nb::cast<uintptr_t>(from);
    void *producer = number == 1 ? nullptr : reinterpret_cast<void *>(number);
    if (producer != stream.handle) {
        Borrowed context(tensor.device, stream.handle);
        context.check(conv_stream_order(context.get(), producer, stream.handle));
    }
}

// Axes of length 1 may have any stride; the library gets one that fits. False for strides, or an
// address of host memory, that it cannot read.
bool normalize_strides(Tensor &tensor)
{
    int64_t size = conv_sample_bytes(tensor.sample), dense = size;
    auto address = reinterpret_cast<intptr_t>(tensor.data);
    bool usable = tensor.device != cpu || tensor.size() == 0 || address % size == 0;
    for (int i = tensor.dimensions - 1; i >= 0; i--) {
        if (tensor.shape[i] <= 1)
            tensor.strides[i] = dense;
        usable = usable && tensor.strides[i] > 0 && tensor.strides[i] % size == 0;
        if (tensor.strides[i] * tensor.shape[i] > dense)
            dense = tensor.strides[i] * tensor.shape[i];
    }
    return usable;
}

// --- copies --------------------------------------------------------------------------------------

template <size_t Size> char *copy_line(char *to, const char *from, int64_t count, int64_t stride)
{
    for (int64_t i = 0; i < count; i++, to += Size, from += stride)
        memcpy(to, from, Size);
    return to;
}

// The samples from axis `axis` on, whose last `dense` bytes lie without gaps.
char *copy_axis(char *to, const char *from, const Tensor &tensor, int axis, int64_t dense)
{
    int64_t size = conv_sample_bytes(tensor.sample), part = size;
    for (int i = axis; i < tensor.dimensions; i++)
        part *= tensor.shape[i];
    if (part <= dense) {
        memcpy(to, from, static_cast<size_t>(part));
        return to + part;
    }
    if (axis == tensor.dimensions - 1)
        return (size == 1   ? copy_line<1>
                : size == 2 ? copy_line<2>
                            : copy_line<4>)(to, from, tensor.shape[axis], tensor.strides[axis]);
    for (int64_t i = 0; i < tensor.shape[axis]; i++)
        to = copy_axis(to, from + i * tensor.strides[axis], tensor, axis + 1, dense);
    return to;
}

void copy_host(Tensor &tensor)
{
    int64_t dense = conv_sample_bytes(tensor.sample), bytes = dense * tensor.size();
    for (int i = tensor.dimensions - 1; i >= 0 && bytes > 0 && tensor.strides[i] == dense; i--)
        dense *= tensor.shape[i];
    std::shared_ptr<char> copy(static_cast<char *>(malloc(static_cast<size_t>(bytes) + 1)), free);
    if (!copy)
        throw std::bad_alloc();
    if (bytes > 0) {
        Unlocked unlocked;
        copy_axis(copy.get(), tensor.data, tensor, 0, dense);
    }
    tensor.set_shape(tensor.shape, tensor.dimensions);
    tensor.data = copy.get();
    tensor.held = std::move(copy);
    tensor.in_place = false;
}

Tensor view(nb::handle array, const Stream &stream, const char *name)
{
    Tensor tensor;
    tensor.kind = kind_of(array);
    tensor.owner = nb::borrow(array);
    // Arrays of cupy and jax have the buffer protocol, but it fails for those in device memory.
    bool on_device = tensor.kind == Kind::cupy || tensor.kind == Kind::jax;
    if (tensor.kind == Kind::conv)
        view_array(tensor, *nb::inst_ptr<Array>(array), stream);
    else if (tensor.kind == Kind::torch && view_torch(tensor, array, stream, name))
        return tensor;
    else if (!on_device && PyObject_CheckBuffer(array.ptr()))
        view_buffer(tensor, array, name);
    else if (nb::hasattr(array, "__dlpack__"))
        view_dlpack(tensor, array, stream, name);
    else if (nb::hasattr(array, "__cuda_array_interface__"))
        view_cuda_interface(tensor, array, stream, name);
    else
        raise_type("%s: an array was expected (numpy, torch, cupy, jax, or with DLPack), not %s%s",
                   name, nb::type_name(nb::handle(array.type())).c_str(),
                   nb::hasattr(array, "__array_interface__") ? ": pass numpy.asarray(...)" : "");
    return tensor;
}

} // namespace

Tensor import_array(nb::handle array, const Stream &stream, const char *name)
{
    Tensor tensor = view(array, stream, name);
    if (!normalize_strides(tensor))
        make_dense(tensor, array, stream, name);
    return tensor;
}

void make_dense(Tensor &tensor, nb::handle array, const Stream &stream, const char *name)
{
    if (tensor.device == cpu) {
        copy_host(tensor);
        return;
    }
    nb::object copy = contiguous_copy(tensor.kind, array);
    if (copy.is_none())
        raise_buffer("%s has strides that are zero, negative or not multiples of a sample", name);
    tensor = view(copy, stream, name);
    normalize_strides(tensor);
    tensor.in_place = false;
}

Tensor import_out(nb::handle array, const Stream &stream)
{
    Tensor out = import_array(array, stream, "out");
    if (!out.writable)
        raise_buffer("out cannot be written to");
    if (!out.in_place)
        raise_buffer(
            "out cannot be written to in place: its strides are zero or negative, its "
            "samples lie at addresses that are not multiples of their size, or its package "
            "has passed a copy");
    return out;
}

Tensor import_result(nb::handle array, const Stream &stream, const View &source, conv_sample sample,
                     const int64_t *lengths)
{
    Tensor out = import_out(array, stream);
    if (out.dimensions != source.dimensions || out.device != source.device ||
        out.sample != sample || !std::equal(lengths, lengths + out.dimensions, out.shape))
        raise_value("out: an array of shape %R and type %s was expected, in the same memory",
                    tuple_of(lengths, source.dimensions).ptr(), sample_name(sample));
    return out;
}

} // namespace convpy
