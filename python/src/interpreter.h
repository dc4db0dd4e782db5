// SPDX-License-Identifier: MIT
// Python's exceptions, for errors of libconv and of the conversion of arguments, and Python's lock.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

#include "conv.h"

namespace convpy
{

namespace nb = nanobind;

// Throws; the format is that of PyErr_Format. Called with the GIL held, as the next four.
template <typename... Values>
[[noreturn]] void raise_error(PyObject *type, const char *format, Values... values)
{
    PyErr_Format(type, format, values...);
    throw nb::python_error();
}
template <typename... Values> [[noreturn]] void raise_value(Values... values)
{
    raise_error(PyExc_ValueError, values...);
}
template <typename... Values> [[noreturn]] void raise_type(Values... values)
{
    raise_error(PyExc_TypeError, values...);
}
template <typename... Values> [[noreturn]] void raise_buffer(Values... values)
{
    raise_error(PyExc_BufferError, values...);
}
[[noreturn]] void raise_now(nb::handle exception);

// Decodes a message. It is UTF-8 except for the names of files in it, and may be cut within a
// character; such bytes become U+FFFD.
nb::object message_text(const std::string &message);

// The formats of files, in the order in which conv._files counts them.
enum class Format { png, jpeg, any };

// A conv.PngError, JpegError or ImageError for item `index`, which is not raised yet.
nb::object image_error(Format format, size_t index, conv_status status, const char *reason);
inline nb::object image_error(Format format, size_t index, const conv_item &item)
{
    return image_error(format, index, item.status, item.message);
}

// Makes Failure a ValueError, OSError, MemoryError or conv.DeviceError.
void register_errors(nb::module_ &module);

// --- the lock, which releases and takes the GIL --------------------------------------------------

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
