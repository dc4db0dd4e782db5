// SPDX-License-Identifier: MIT
// Contexts of libconv for threads of Python. A context belongs to one thread at a time: a call
// borrows an idle one and returns it. Contexts are kept for each device and stream, so memory that
// returns to a context's pool is reused by work of the same stream only, in order.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "conv.h"

namespace convpy
{

constexpr int cpu = -1; // as a device number; CUDA devices count from 0
std::string device_name(int device);

// Settings of contexts that are created from now on: conv.configure.
struct Settings {
    int threads = 0;
    uint64_t max_pixels = 0;
    size_t pool_bytes = 0;
};

class Context
{
  public:
    Context(int device, void *stream, const Settings &settings, unsigned generation);
    ~Context();
    Context(const Context &) = delete;
    Context &operator=(const Context &) = delete;

    conv_context *get() const
    {
        return context;
    }
    int device() const
    {
        return device_number;
    }
    void *stream() const
    {
        return cuda_stream;
    }

    // May be called from any thread, even while another one uses the context.
    void free(conv_memory memory, void *data) noexcept;
    void forget(uint64_t prepared_id) noexcept;

    // Used by the thread that has borrowed the context: filters and layers by their numbers.
    std::unordered_map<uint64_t, std::shared_ptr<void>> prepared;
    bool broken = false; // after CONV_ERR_DEVICE: only destroyed

  private:
    friend class Borrowed;
    struct Freed {
        conv_memory memory;
        void *data;
    };
    void free_all() noexcept;
    void collect() noexcept; // with the lock held

    conv_context *context = nullptr;
    int device_number;
    void *cuda_stream;
    unsigned generation; // of the settings
    long process;    // a child after fork() has none of the threads: it leaves the context alone
    std::mutex lock; // of what follows
    bool busy = false;
    std::vector<Freed> freed;        // while busy
    std::vector<uint64_t> forgotten; // while busy
};

// An idle context, or a new one, for as long as this object lives. Made with the GIL, which is
// released while a new context starts. Throws Failure.
class Borrowed
{
  public:
    Borrowed(int device, void *stream);
    ~Borrowed();
    Borrowed(const Borrowed &) = delete;
    Borrowed &operator=(const Borrowed &) = delete;

    conv_context *get() const
    {
        return context->get();
    }
    Context *operator->() const
    {
        return context.get();
    }
    const std::shared_ptr<Context> &shared() const
    {
        return context;
    }

    // Throws Failure with the context's message unless `status` is CONV_OK. Without the GIL, too.
    void check(conv_status status) const;

  private:
    std::shared_ptr<Context> context;
};

// A function of libconv failed. Becomes a Python exception in interpreter.cpp.
struct Failure {
    conv_status status;
    std::string message;
};

void configure(const Settings &settings);
Settings current_settings();
unsigned cpu_threads(); // of a call, by the settings

// Numbers for filters and layers, unique in the process.
uint64_t new_prepared_id();
// Destroys what contexts prepared for that number, now or when they are next idle.
void forget_prepared(uint64_t id) noexcept;

// In a child process after fork().
void abandon_contexts();

} // namespace convpy
