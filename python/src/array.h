// SPDX-License-Identifier: MIT
// Arrays of results: conv.Array, samples in memory of libconv, and those of torch, cupy and jax,
// for which the Python side is conv/_frameworks.py. Results in device memory are conv.Array; on the
// host it is what numpy arrays and memoryviews keep alive.
#pragma once

#include <atomic>
#include <memory>

#include "tensor.h"

namespace convpy
{

// Memory of a context's pool, returned when the last array, tensor or view of it is gone.
struct Block {
    std::shared_ptr<Context> context;
    conv_memory memory;
    void *data;
    std::atomic<void *> stream;       // where it is used
    std::atomic<bool> pending{false}; // work on it has been queued there and may not be done

    Block(std::shared_ptr<Context> owner, conv_memory where, void *address, void *used_on);
    ~Block();
    Block(const Block &) = delete;
    Block &operator=(const Block &) = delete;
};

struct Array : View { // without gaps
    std::shared_ptr<Block> block;
};

nb::tuple tuple_of(const int64_t *values, int count); // of Python

// An array that owns memory of the context's pool.
Array own_array(const Borrowed &context, conv_memory memory, void *data, conv_sample sample,
                const int64_t *shape, int dimensions);
// A new array of that shape in memory of the context. Throws Failure.
Array new_array(const Borrowed &context, conv_memory memory, conv_sample sample,
                const int64_t *shape, int dimensions);

// A NumPy array of the memory of a host array; a copy of a device array, complete.
nb::object to_numpy(const Array &array);

// Orders work that is queued on `stream` from now on after what is pending on the array.
void order_after(const Array &array, void *stream);

// --- other packages ------------------------------------------------------------------------------

// A Python object that the module uses. Loaded once, with the module: an import in the middle of a
// call could let another thread in. Never released: arrays may outlive the interpreter.
struct Helper : nb::handle {
    Helper(const char *module, const char *name)
        : nb::handle(nb::object(nb::module_::import_(module).attr(name)).release())
    {
    }
};
struct Helpers {
    Helper asarray{"numpy", "asarray"}, dtype{"numpy", "dtype"};
    Helper kind_of_type{"conv._frameworks", "kind_of_type"};
    Helper torch_stream{"conv._frameworks", "torch_stream"};
    Helper torch_view{"conv._frameworks", "torch_view"};
    Helper torch_empty{"conv._frameworks", "torch_empty"};
    Helper host_numbers{"conv._frameworks", "host_numbers"};
    Helper dtype_name{"conv._frameworks", "dtype_name"};
    Helper image_error{"conv._types", "ImageError"}, png_error{"conv._types", "PngError"};
    Helper jpeg_error{"conv._types", "JpegError"}, device_error{"conv._types", "DeviceError"};
    Helper progress{"conv._types", "Progress"};
};
extern const Helpers *helpers;

nb::object helper(const char *name); // another function of conv/_frameworks.py

Kind kind_of_type(nb::handle type);
// "numpy", "torch", "cupy", "jax": results of that package. ValueError.
Kind parse_framework(nb::handle name);
// The stream on which torch or cupy work at present.
void *current_stream(Kind kind, int device);
// The array of torch or cupy without gaps and with positive strides; None for others.
nb::object contiguous_copy(Kind kind, nb::handle array);

// An array to be filled in for a result of the package `kind`, row-major without gaps: in memory of
// torch or cupy, otherwise of the context. `finish` turns it into the caller's result.
Tensor new_result(const Borrowed &context, Kind kind, int device, conv_sample sample,
                  const int64_t *shape, int dimensions);
// `stream`: where the work that fills it in has been queued; `pending`: that work may not be done.
nb::object finish(Tensor &result, void *stream, bool pending);
// Must be called for every array of the caller that queued work reads or (with `written`) writes:
// the memory of a conv.Array is reused on the stream of its context, which must wait for the work.
// Throws Failure.
void note_use(const Tensor &tensor, void *stream, const Borrowed &context, bool written);

} // namespace convpy
