// SPDX-License-Identifier: MIT
#include "files.h"

#include <utility>

#include "errors.h"

namespace convpy
{

Files::Hold::Hold(Hold &&other) noexcept
{
    std::swap(buffer, other.buffer);
}

Files::Hold::~Hold()
{
    if (buffer.obj)
        PyBuffer_Release(&buffer);
}

Files::Files(nb::handle data)
{
    many = !PyObject_CheckBuffer(data.ptr()) && !nb::isinstance<nb::str>(data) &&
           !nb::hasattr(data, "read") &&
           nb::hasattr(data, "__iter__"); // a file is not a list of lines
    if (!many) {
        append(data);
        return;
    }
    list = nb::list(data);
    holds.reserve(nb::len(list));
    bytes.reserve(nb::len(list));
    for (nb::handle item : list)
        append(item);
}

Files::~Files() = default;

void Files::append(nb::handle item)
{
    if (!PyObject_CheckBuffer(item.ptr())) {
        bool is_path = nb::isinstance<nb::str>(item) || nb::hasattr(item, "__fspath__");
        raise_type("PNG files must be bytes or support the buffer protocol, not %s%s",
                   nb::type_name(item.type()).c_str(),
                   is_path                     ? ": pass pathlib.Path(...).read_bytes()"
                   : nb::hasattr(item, "read") ? ": pass what its read() returns"
                                               : "");
    }
    Hold hold;
    if (PyObject_GetBuffer(item.ptr(), &hold.buffer, PyBUF_SIMPLE) != 0)
        throw nb::python_error();
    bytes.push_back({hold.buffer.buf, static_cast<size_t>(hold.buffer.len)});
    holds.push_back(std::move(hold));
}

} // namespace convpy
