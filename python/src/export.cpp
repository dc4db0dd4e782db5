// SPDX-License-Identifier: MIT
#include "export.h"

#include "array.h"
#include "errors.h"

namespace convpy
{

namespace
{

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
    bool real = array.sample == CONV_SAMPLE_F32 || array.sample == CONV_SAMPLE_F16;
    managed.tensor.data = array.data;
    managed.tensor.device = device_of(array);
    managed.tensor.ndim = array.dimensions;
    managed.tensor.dtype = {real ? dl_float : dl_uint, static_cast<uint8_t>(8 * size), 1};
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

} // namespace

void order_after(const Array &array, void *stream)
{
    void *own = array.block->stream;
    if (array.device == cpu || !array.block->pending || own == stream)
        return;
    Borrowed context(array.device, stream);
    context.check(conv_stream_order(context.get(), own, stream));
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
        if (type != own.type || nb::cast<int>(dl_device[1]) != own.id)
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
    return nb::make_tuple(device.type, device.id);
}

nb::dict cuda_array_interface(const Array &array)
{
    if (array.device == cpu) {
        PyErr_SetString(PyExc_AttributeError, "the array is in host memory");
        throw nb::python_error();
    }
    nb::dict result;
    nb::list shape;
    for (int i = 0; i < array.dimensions; i++)
        shape.append(array.shape[i]);
    result["shape"] = nb::tuple(shape);
    result["typestr"] = array.sample == CONV_SAMPLE_U8    ? "|u1"
                        : array.sample == CONV_SAMPLE_U16 ? "<u2"
                        : array.sample == CONV_SAMPLE_F32 ? "<f4"
                                                          : "<f2";
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

} // namespace convpy
