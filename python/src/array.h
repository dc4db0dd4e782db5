// SPDX-License-Identifier: MIT
// conv.Array: samples in memory of libconv. Results in device memory are of this type; on the host
// it is what numpy arrays and memoryviews keep alive.
#ifndef CONV_PYTHON_ARRAY_H
#define CONV_PYTHON_ARRAY_H

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

} // namespace convpy

#endif
