// SPDX-License-Identifier: MIT
// Arrays of other packages as views, without copying: numpy and all that has the buffer protocol,
// torch, cupy, jax and all that has __dlpack__, numba and all that has __cuda_array_interface__.
#ifndef CONV_PYTHON_TENSOR_H
#define CONV_PYTHON_TENSOR_H

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <vector>

#include <nanobind/nanobind.h>

#include "contexts.h"
#include "conv.h"
#include "dlpack.h"

namespace convpy
{

namespace nb = nanobind;

// The package of an array, so that results come from the same one.
enum class Kind { numpy, torch, cupy, jax, conv, other };

constexpr int max_dimensions = 4;

// A CUDA stream argument: nothing, a number, or an object with __cuda_stream__, cuda_stream (torch)
// or ptr (cupy).
struct Stream {
    bool given = false;
    void *handle = nullptr;
};
Stream parse_stream(nb::handle stream);

int parse_int(nb::handle value, const char *name); // TypeError

// A type of samples as a class, dtype or name. ValueError, with what `name` can be.
conv_sample parse_sample(nb::handle dtype, std::initializer_list<conv_sample> possible,
                         const char *name);

// str(value) as UTF-8. ValueError if it has a null character or, as file names can, characters that
// UTF-8 cannot express.
std::string parse_text(nb::handle value);

// "cpu", "cuda", "cuda:1": the number of the device. ValueError.
int parse_device(nb::handle device);

// A view of memory that `owner` keeps alive.
struct Tensor {
    Kind kind = Kind::other;
    void *data = nullptr;
    int device = cpu;
    conv_sample sample = CONV_SAMPLE_DEFAULT;
    int dimensions = 0;
    int64_t shape[max_dimensions] = {};
    int64_t strides[max_dimensions] = {}; // bytes
    bool writable = false;
    bool in_place = true; // false: it is a copy, since the library cannot read the array itself
    nb::object owner;
    std::shared_ptr<void> held; // what else keeps `data`: a DLPack struct, or the copy
    // The stream that the package works on by default, where it has such a thing.
    Stream stream;

    Tensor() = default;
    Tensor(Tensor &&other) noexcept;
    Tensor &operator=(Tensor &&other) noexcept;
    ~Tensor();

    int64_t size() const; // elements
    bool contiguous() const;
    conv_memory memory() const
    {
        return device == cpu ? CONV_HOST : CONV_DEVICE;
    }

    // For tensor.cpp.
    Py_buffer buffer = {}; // released with this object where buffer.obj is set
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

// Replaces a tensor by a copy without gaps, in its own memory.
void make_dense(Tensor &tensor, nb::handle array, const Stream &stream, const char *name);

// The images in a tensor: one of height x width (x channels), or more than one with an axis before
// those. `layout` is "HWC", "CHW" or "HW".
enum class Layout { hwc, chw, hw };
Layout parse_layout(nb::handle layout);
void append_images(std::vector<conv_image> &images, const Tensor &tensor, Layout layout,
                   const char *name);

} // namespace convpy

#endif
