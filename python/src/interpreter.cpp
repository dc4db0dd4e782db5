// SPDX-License-Identifier: MIT
#include "interpreter.h"

#include <atomic>
#include <thread>

#include <unistd.h>

#include "array.h"
#include "contexts.h"

namespace convpy
{

static PyObject *class_of(conv_status status)
{
    switch (status) {
    case CONV_ERR_IO:
        return PyExc_OSError;
    case CONV_ERR_MEMORY:
        return PyExc_MemoryError;
    case CONV_ERR_DEVICE:
        return helpers->device_error.ptr();
    case CONV_ERR_CANCELLED:
        return PyExc_RuntimeError;
    default:
        return PyExc_ValueError;
    }
}

nb::object message_text(const std::string &message)
{
    PyObject *text =
        PyUnicode_DecodeUTF8(message.data(), static_cast<Py_ssize_t>(message.size()), "replace");
    if (!text)
        throw nb::python_error();
    return nb::steal(text);
}

void raise_now(nb::handle exception)
{
    PyErr_SetObject(reinterpret_cast<PyObject *>(Py_TYPE(exception.ptr())), exception.ptr());
    throw nb::python_error();
}

nb::object image_error(Format format, size_t index, conv_status status, const char *reason)
{
    nb::handle type = format == Format::png    ? helpers->png_error
                      : format == Format::jpeg ? helpers->jpeg_error
                                               : helpers->image_error;
    return type(index, message_text(reason), conv_status_name(status));
}

void register_errors(nb::module_ &)
{
    nb::register_exception_translator([](const std::exception_ptr &thrown, void *) {
        try {
            std::rethrow_exception(thrown);
        } catch (const Failure &failure) {
            PyErr_SetObject(class_of(failure.status), message_text(failure.message).ptr());
        } catch (const nb::cast_error &) {
            PyErr_SetString(PyExc_TypeError, "an argument has a type that is not accepted");
        }
    });
}

// --- the lock ------------------------------------------------------------------------------------

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
