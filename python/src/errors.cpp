// SPDX-License-Identifier: MIT
#include "errors.h"

#include <cstdarg>

#include "contexts.h"
#include "helpers.h"

namespace convpy
{

namespace
{

[[noreturn]] void raise_formatted(PyObject *type, const char *format, va_list arguments)
{
    PyErr_FormatV(type, format, arguments);
    throw nb::python_error();
}

void set_error(const Failure &failure)
{
    const char *text = failure.message.c_str();
    switch (failure.status) {
    case CONV_ERR_IO:
        PyErr_SetString(PyExc_OSError, text);
        break;
    case CONV_ERR_MEMORY:
        PyErr_SetString(PyExc_MemoryError, text);
        break;
    case CONV_ERR_DEVICE:
        PyErr_SetString(helpers.device_error.ptr(), text);
        break;
    case CONV_ERR_CANCELLED:
        PyErr_SetString(PyExc_RuntimeError, text);
        break;
    default:
        PyErr_SetString(PyExc_ValueError, text);
    }
}

} // namespace

void raise_value(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    raise_formatted(PyExc_ValueError, format, arguments);
}

void raise_type(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    raise_formatted(PyExc_TypeError, format, arguments);
}

void raise_buffer(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    raise_formatted(PyExc_BufferError, format, arguments);
}

void raise_now(nb::handle exception)
{
    PyErr_SetObject(reinterpret_cast<PyObject *>(Py_TYPE(exception.ptr())), exception.ptr());
    throw nb::python_error();
}

nb::object png_error(int64_t index, conv_status status, const char *reason)
{
    return helpers.png_error(index, reason, conv_status_name(status));
}

void register_errors(nb::module_ &)
{
    nb::register_exception_translator([](const std::exception_ptr &thrown, void *) {
        try {
            std::rethrow_exception(thrown);
        } catch (const Failure &failure) {
            set_error(failure);
        } catch (const nb::cast_error &) {
            PyErr_SetString(PyExc_TypeError, "an argument has a type that is not accepted");
        }
    });
}

} // namespace convpy
