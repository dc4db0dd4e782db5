// SPDX-License-Identifier: MIT
#include "gil.h"

#include <atomic>
#include <thread>

#include <unistd.h>

namespace convpy
{

static std::atomic<bool> shutting_down{false};
static std::atomic<int> returning{0}; // threads that are about to take the GIL
static std::thread::id last_thread;

// A thread counts itself before it looks at the flag, and the flag is set before the threads are
// counted: one of the two sees the other.
static void take_gil(PyThreadState *state)
{
    returning++;
    if (shutting_down && std::this_thread::get_id() != last_thread) {
        returning--;
        for (;;)
            pause();
    }
    PyEval_RestoreThread(state);
    returning--;
}

Unlocked::~Unlocked()
{
    take_gil(state);
}

Relocked::Relocked(Unlocked &owner) : unlocked(owner)
{
    take_gil(unlocked.state);
}

void forget_other_threads()
{
    returning = 0;
}

void begin_shutdown()
{
    last_thread = std::this_thread::get_id();
    shutting_down = true;
    while (returning > 0) {
        PyThreadState *state = PyEval_SaveThread();
        usleep(1000);
        PyEval_RestoreThread(state);
    }
}

} // namespace convpy
