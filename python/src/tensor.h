// SPDX-License-Identifier: MIT
// Arrays of other packages as views, without copying: numpy and all that has the buffer protocol,
// torch, cupy, jax and all that has __dlpack__, numba and all that has __cuda_array_interface__.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include "contexts.h"
#include "conv.h"

namespace convpy
{

namespace nb = nanobind;

// --- DLPack, versions 1.x and before: https://dmlc.github.io/dlpack ------------------------------

enum : int32_t { dl_cpu = 1, dl_cuda = 2, dl_cuda_host = 3, dl_cuda_managed = 13 };
enum : uint8_t { dl_int = 0, dl_uint = 1, dl_float = 2, dl_bfloat = 4, dl_bool = 6 };
constexpr uint64_t dl_flag_read_only = 1, dl_flag_is_copied = 2;

using DlDevice = nb::dlpack::device;
using DlType = nb::dlpack::dtype;
using DlTensor = nb::dlpack::dltensor;

// In a capsule called "dltensor"; "used_dltensor" once a consumer has taken it.
struct DlManaged {
    DlTensor tensor;
    void *context;
    void (*deleter)(DlManaged *self);
};

// In a capsule called "dltensor_versioned".
struct DlManagedVersioned {
    uint32_t major, minor;
    void *context;
    void (*deleter)(DlManagedVersioned *self);
    uint64_t flags;
    DlTensor tensor;
};

// --- samples in memory ---------------------------------------------------------------------------

// The package of an array, so that results come from the same one.
enum class Kind { numpy, torch, cupy, jax, conv, other };

constexpr int max_dimensions = 4;

// Samples in memory.
struct View {
    char *data = nullptr;
    int device = cpu;
    conv_sample sample = CONV_SAMPLE_U8;
    int dimensions = 0;
    int64_t shape[max_dimensions] = {};
    int64_t strides[max_dimensions] = {}; // bytes

    // Row-major strides without gaps.
    void set_shape(const int64_t *lengths, int count);
    int64_t size() const; // elements
    int64_t bytes() const
    {
        return size() * conv_sample_bytes(sample);
    }
    bool contiguous() const;
    conv_memory memory() const
    {
        return device == cpu ? CONV_HOST : CONV_DEVICE;
    }
};

// How a type of samples is called: by NumPy, the buffer protocol, the CUDA array interface, DLPack.
struct SampleType {
    conv_sample sample;
    const char *name, *format, *typestr;
    uint8_t dl_code, bits;
};
constexpr SampleType sample_types[] = {
    {CONV_SAMPLE_U8, "uint8", "B", "|u1", dl_uint, 8},
    {CONV_SAMPLE_U16, "uint16", "H", "<u2", dl_uint, 16},
    {CONV_SAMPLE_F32, "float32", "f", "<f4", dl_float, 32},
    {CONV_SAMPLE_F16, "float16", "e", "<f2", dl_float, 16},
    {CONV_SAMPLE_BF16, "bfloat16", "bfloat16", "bfloat16", dl_bfloat, 16}, // of no buffer
};
const SampleType &type_of(conv_sample sample);
inline const char *sample_name(conv_sample sample)
{
    return type_of(sample).name;
}

// What an object with the buffer protocol exports.
struct Buffer {
    Py_buffer view = {};

    Buffer() = default;
    Buffer(Buffer &&other) noexcept
    {
        std::swap(view, other.view);
    }
    Buffer &operator=(Buffer &&other) noexcept
    {
        std::swap(view, other.view);
        return *this;
    }
    ~Buffer()
    {
        if (view.obj)
            PyBuffer_Release(&view);
    }
};

// A CUDA stream argument: nothing, a number, or an object with __cuda_stream__, cuda_stream (torch)
// or ptr (cupy).
struct Stream {
    bool given = false;
    void *handle = nullptr;
};
Stream parse_stream(nb::handle stream);

int parse_int(nb::handle value, const char *name); // TypeError

inline bool is_list(nb::handle value)
{
    return PyList_Check(value.ptr()) || PyTuple_Check(value.ptr());
}

// A type of samples as a class, dtype or name. ValueError, with what `name` can be.
conv_sample parse_sample(nb::handle dtype, std::initializer_list<conv_sample> possible,
                         const char *name);

// str(value) as UTF-8. ValueError if it has a null character or, as file names can, characters that
// UTF-8 cannot express.
std::string parse_text(nb::handle value);

// "cpu", "cuda", "cuda:1": the number of the device. ValueError.
int parse_device(nb::handle device);

// A view of memory that `owner` keeps alive.
struct Tensor : View {
    Kind kind = Kind::other;
    bool writable = false;
    bool in_place = true; // false: it is a copy, since the library cannot read the array itself
    nb::object owner;
    Buffer buffer;              // what else keeps `data`: this,
    std::shared_ptr<void> held; // a DLPack struct, or the copy
    // The stream that the package works on by default, where it has such a thing.
    Stream stream;
};

Kind kind_of(nb::handle array);

// The device that works on images: theirs, or for those in host memory the one of the argument.
// ValueError if it is another one.
int place_of(const Tensor &images, nb::handle device);

bool parse_errors(nb::handle errors); // "raise": true, "return": false. ValueError

// `stream`: where the caller's work is going to be queued; work of the array's producer is ordered
// before it. If none is given, the producer's own stream is used and returned in the tensor.
// Strides that are negative or zero, and samples at addresses that are not multiples of their size,
// are copied. TypeError: not an array, or of a type that no function here accepts; BufferError: it
// cannot be viewed.
Tensor import_array(nb::handle array, const Stream &stream, const char *name);

// The same for an array that is written to. BufferError unless that can be done in place.
Tensor import_out(nb::handle array, const Stream &stream);
// The same for results of `source`. ValueError unless it is in the same memory, of that type and of
// the shape `lengths`, which has as many axes.
Tensor import_result(nb::handle array, const Stream &stream, const View &source, conv_sample sample,
                     const int64_t *lengths);

// Replaces a tensor by a copy without gaps, in its own memory.
void make_dense(Tensor &tensor, nb::handle array, const Stream &stream, const char *name);

// The images in a tensor: one of height x width (x channels), or more than one with an axis before
// those. `layout` is "HWC", "CHW" or "HW".
enum class Layout { hwc, chw, hw };
Layout parse_layout(nb::handle layout);
void append_images(std::vector<conv_image> &images, const Tensor &tensor, Layout layout,
                   const char *name);

} // namespace convpy
