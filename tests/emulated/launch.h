// SPDX-License-Identifier: MIT
// kernel<<<shape>>>(arguments), as translate.py writes it.
#pragma once

#include <tuple>

#include "block.h"
#include "cuda_runtime_api.h"

namespace emulated
{

struct launch_shape {
    dim3 grid, block;
    size_t bytes; // of dynamic shared memory
    cudaStream_t stream;
};

// What each thread runs. Not a std::function: its header alone takes the compiler longer than most
// kernels.
struct launch_body {
    virtual ~launch_body() = default;
    virtual void run() const = 0;
};

// Queues the launch, and deletes `body` after it.
void queue_launch(const char *name, const void *kernel, const launch_shape &shape,
                  const launch_body *body);

// Runs a launch; *message is the text of its failure, empty if it went well.
void run_launch(const char *name, const launch_shape &shape, const launch_body &body, char *message,
                size_t room);

// The order of threads in later launches, and the noise in their memory.
void seed_order(uint64_t seed);

template <typename... Parameters> struct call final : launch_body {
    void (*kernel)(Parameters...);
    std::tuple<Parameters...> arguments;

    call(void (*kernel_)(Parameters...), const Parameters &...values)
        : kernel(kernel_), arguments(values...)
    {
    }
    void run() const override
    {
        std::apply(kernel, arguments);
    }
};

template <typename... Parameters, typename... Arguments>
void launch(void (*kernel)(Parameters...), const char *name, const launch_shape &shape,
            Arguments &&...arguments)
{
    static_assert((sizeof(Parameters) + ... + 0) <= 32764, "kernel parameters end there");
    queue_launch(name, (const void *)kernel, shape, new call<Parameters...>(kernel, arguments...));
}

} // namespace emulated

// --- launches with attributes, which change nothing here -----------------------------------------

enum cudaLaunchAttributeID {
    cudaLaunchAttributeProgrammaticStreamSerialization,
    cudaLaunchAttributePriority
};

union cudaLaunchAttributeValue {
    int programmaticStreamSerializationAllowed, priority;
};

struct cudaLaunchAttribute {
    cudaLaunchAttributeID id;
    cudaLaunchAttributeValue val;
};

// The members have other names than CUDA's, two of which are macros in kernels (cuda_runtime.h).
struct cudaLaunchConfig_t {
    dim3 grid, block;
    size_t bytes;
    cudaStream_t stream;
    cudaLaunchAttribute *attributes;
    unsigned attribute_count;
};

template <typename... Parameters, typename... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *config, void (*kernel)(Parameters...),
                               Arguments &&...arguments)
{
    emulated::launch_shape shape = {config->grid, config->block, config->bytes, config->stream};
    emulated::launch(kernel, "kernel", shape, arguments...);
    return cudaPeekAtLastError();
}
