// SPDX-License-Identifier: MIT
// Releases the GIL while the object lives.
#ifndef CONV_PYTHON_GIL_H
#define CONV_PYTHON_GIL_H

#include <nanobind/nanobind.h>

namespace convpy
{

// At exit, by the thread in which the interpreter ends, with the GIL. Python before 3.14 ends
// daemon threads that ask for the GIL later with pthread_exit, which must not unwind functions of
// C++. From here on such threads sleep when they come back from the library, as they do since 3.14.
void begin_shutdown();
// In a child process after fork(), which has the calling thread only.
void forget_other_threads();

class Unlocked
{
  public:
    Unlocked() : state(PyEval_SaveThread())
    {
    }
    ~Unlocked();
    Unlocked(const Unlocked &) = delete;
    Unlocked &operator=(const Unlocked &) = delete;

  private:
    friend class Relocked;
    PyThreadState *state;
};

// Holds the GIL again while the object lives, in a function that the library calls in the thread of
// `unlocked`.
class Relocked
{
  public:
    explicit Relocked(Unlocked &unlocked);
    ~Relocked()
    {
        unlocked.state = PyEval_SaveThread();
    }
    Relocked(const Relocked &) = delete;
    Relocked &operator=(const Relocked &) = delete;

  private:
    Unlocked &unlocked;
};

} // namespace convpy

#endif
