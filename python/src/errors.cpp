// SPDX-License-Identifier: MIT
#include "errors.h"

#include "contexts.h"
#include "frameworks.h"

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
        return helpers.device_error.ptr();
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
    nb::handle type = format == Format::png    ? helpers.png_error
                      : format == Format::jpeg ? helpers.jpeg_error
                                               : helpers.image_error;
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

} // namespace convpy
