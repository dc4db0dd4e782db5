// SPDX-License-Identifier: MIT
#include "contexts.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <thread>
#include <utility>

#include <unistd.h>

#include "interpreter.h"

namespace convpy
{

namespace
{

// Contexts kept for one device and stream, as many as calls run at the same time. Otherwise CPU
// calls by a pool with a thread for each core would create new ones, with their coders, again and
// again.
size_t idle_limit(int device)
{
    static const size_t cores = std::thread::hardware_concurrency();
    return device == cpu ? std::max<size_t>(8, cores) : 8;
}

// Streams whose idle contexts are kept: torch has 32 of each priority. There is no notice of
// destroyed streams, so the contexts of the least recently used stream are dropped.
constexpr size_t stream_limit = 80;

struct Idle {
    std::vector<std::shared_ptr<Context>> contexts;
    uint64_t last_use = 0;
};

struct Pool {
    std::mutex lock;
    Settings settings;
    unsigned generation = 0; // counts changes of the settings
    std::map<std::pair<int, void *>, Idle> idle;
    uint64_t uses = 0;
    std::vector<std::weak_ptr<Context>> all;
};

// Never destroyed: at the end of the process arrays may outlive any static object.
std::atomic<Pool *> current_pool{new Pool};

Pool &pool()
{
    return *current_pool.load();
}

// Takes the least recently used entry out of the pool, whose lock is held.
std::vector<std::shared_ptr<Context>> take_oldest(Pool &p)
{
    auto older = [](const auto &a, const auto &b) { return a.second.last_use < b.second.last_use; };
    auto oldest = std::min_element(p.idle.begin(), p.idle.end(), older);
    std::vector<std::shared_ptr<Context>> contexts = std::move(oldest->second.contexts);
    p.idle.erase(oldest);
    return contexts;
}

} // namespace

std::string device_name(int device)
{
    return device == cpu ? "cpu" : "cuda:" + std::to_string(device);
}

Context::Context(int device, void *stream, const Settings &settings, unsigned settings_generation)
    : device_number(device), cuda_stream(stream), generation(settings_generation), process(getpid())
{
    conv_context_options options = CONV_CONTEXT_OPTIONS_INIT;
    std::string name = device_name(device);
    char message[CONV_MESSAGE_SIZE] = "";
    options.device = name.c_str();
    options.threads = settings.threads;
    options.max_pixels = settings.max_pixels;
    options.pool_bytes = settings.pool_bytes;
    conv_status status = conv_context_create(&context, &options, message);
    if (status != CONV_OK)
        throw Failure{status, message};
}

Context::~Context()
{
    if (process != getpid())
        return;
    // Kernels may still read the filters. The stream may have been destroyed.
    if (device_number != cpu && !broken)
        conv_context_wait(context);
    prepared.clear();
    free_all();
    conv_context_destroy(context);
}

// After CONV_ERR_DEVICE memory cannot be freed, only lost with the context.
void Context::free_all() noexcept
{
    for (const Freed &block : freed) {
        if (!broken)
            conv_free(context, block.memory, block.data);
    }
    freed.clear();
}

void Context::collect() noexcept
{
    free_all();
    bool here = false; // most were prepared in another context
    for (uint64_t id : forgotten)
        here = here || prepared.count(id) != 0;
    if (here && device_number != cpu && !broken)
        conv_context_wait(context); // the stream may have been destroyed
    for (uint64_t id : forgotten)
        prepared.erase(id);
    forgotten.clear();
}

void Context::free(conv_memory memory, void *data) noexcept
{
    if (process != getpid())
        return;
    std::lock_guard<std::mutex> guard(lock);
    freed.push_back({memory, data});
    if (!busy)
        free_all();
}

void Context::forget(uint64_t id) noexcept
{
    if (process != getpid())
        return;
    std::lock_guard<std::mutex> guard(lock);
    forgotten.push_back(id);
    if (!busy)
        collect();
}

Borrowed::Borrowed(int device, void *stream)
{
    Pool &p = pool();
    Settings settings;
    unsigned generation;
    {
        std::lock_guard<std::mutex> guard(p.lock);
        auto found = p.idle.find({device, stream});
        if (found != p.idle.end() && !found->second.contexts.empty()) {
            context = std::move(found->second.contexts.back());
            found->second.contexts.pop_back();
        }
        settings = p.settings;
        generation = p.generation;
    }
    if (!context) {
        Unlocked unlocked; // starting a device can take a second
        context = std::make_shared<Context>(device, stream, settings, generation);
        std::lock_guard<std::mutex> guard(p.lock);
        auto expired = [](const std::weak_ptr<Context> &weak) { return weak.expired(); };
        p.all.erase(std::remove_if(p.all.begin(), p.all.end(), expired), p.all.end());
        p.all.push_back(context);
    }
    std::lock_guard<std::mutex> guard(context->lock);
    context->busy = true;
}

Borrowed::~Borrowed()
{
    {
        std::lock_guard<std::mutex> guard(context->lock);
        context->collect();
        context->busy = false;
    }
    if (context->broken || context->process != getpid())
        return;
    Pool &p = pool();
    std::vector<std::shared_ptr<Context>> dropped; // destroyed without the lock
    {
        std::lock_guard<std::mutex> guard(p.lock);
        Idle &idle = p.idle[{context->device_number, context->cuda_stream}];
        idle.last_use = ++p.uses;
        if (context->generation == p.generation &&
            idle.contexts.size() < idle_limit(context->device_number))
            idle.contexts.push_back(std::move(context));
        if (p.idle.size() > stream_limit)
            dropped = take_oldest(p);
    }
    if (!dropped.empty()) {
        Unlocked unlocked; // waits for the device
        dropped.clear();
    }
}

void Borrowed::check(conv_status status) const
{
    if (status == CONV_OK)
        return;
    if (status == CONV_ERR_DEVICE)
        context->broken = true;
    throw Failure{status, conv_context_message(context->get())};
}

void configure(const Settings &settings)
{
    Pool &p = pool();
    decltype(p.idle) dropped; // destroyed without the lock
    std::lock_guard<std::mutex> guard(p.lock);
    p.settings = settings;
    p.generation++;
    dropped.swap(p.idle);
}

Settings current_settings()
{
    Pool &p = pool();
    std::lock_guard<std::mutex> guard(p.lock);
    return p.settings;
}

unsigned cpu_threads()
{
    int threads = current_settings().threads;
    return threads > 0 ? static_cast<unsigned>(threads) : std::thread::hardware_concurrency();
}

uint64_t new_prepared_id()
{
    static std::atomic<uint64_t> last{0};
    return ++last;
}

void forget_prepared(uint64_t id) noexcept
{
    std::vector<std::shared_ptr<Context>> contexts;
    Pool &p = pool();
    {
        std::lock_guard<std::mutex> guard(p.lock);
        for (const std::weak_ptr<Context> &weak : p.all) {
            if (std::shared_ptr<Context> context = weak.lock())
                contexts.push_back(std::move(context));
        }
    }
    for (const std::shared_ptr<Context> &context : contexts)
        context->forget(id);
}

void abandon_contexts()
{
    forget_other_threads();
    Settings settings = pool().settings; // unlocked: the thread that held the lock is not here
    Pool *fresh = new Pool;
    fresh->settings = settings;
    current_pool.store(fresh); // the old one leaks: its contexts' threads do not exist here
}

} // namespace convpy
