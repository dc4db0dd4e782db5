// SPDX-License-Identifier: MIT
#include "queue.h"

#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>

namespace emulated
{

namespace
{
struct state {
    std::mutex lock;
    std::condition_variable wanted_more, done_more;
    std::deque<std::function<void()>> queue;
    uint64_t queued = 0, wanted = 0, done = 0;
    bool started = false;
};
} // namespace

// Created before main(), by one thread, and never destroyed, since its thread outlives main().
static state &s = *new state;

static void wait_for_gate()
{
    const char *text = getenv("CONV_EMULATED");
    FILE *gate = text && strstr(text, "gate") ? fopen("gate", "r") : nullptr;
    if (gate)
        fgetc(gate);
}

static void work_on()
{
    wait_for_gate();
    std::unique_lock<std::mutex> held(s.lock);
    for (;;) {
        s.wanted_more.wait(held, [&] { return s.done < s.wanted; });
        std::function<void()> work = std::move(s.queue.front());
        s.queue.pop_front();
        held.unlock();
        work();
        work = nullptr;
        held.lock();
        s.done++;
        s.done_more.notify_all();
    }
}

uint64_t queue_work(std::function<void()> work)
{
    std::lock_guard<std::mutex> held(s.lock);
    s.queue.push_back(std::move(work));
    return ++s.queued;
}

void wait_for_work(uint64_t number)
{
    std::unique_lock<std::mutex> held(s.lock);
    if (!s.started)
        std::thread(work_on).detach();
    s.started = true;
    if (s.wanted < number) {
        s.wanted = number;
        s.wanted_more.notify_one();
    }
    s.done_more.wait(held, [&] { return s.done >= number; });
}

uint64_t last_queued()
{
    std::lock_guard<std::mutex> held(s.lock);
    return s.queued;
}

bool is_done(uint64_t number)
{
    std::lock_guard<std::mutex> held(s.lock);
    return s.done >= number;
}

} // namespace emulated
