// SPDX-License-Identifier: MIT
// conv._core: the implementation of the package conv. Its functions are documented in
// conv/__init__.py.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <vector>

#include "array.h"
#include "contexts.h"
#include "interpreter.h"

namespace convpy
{

// What each file adds to the module.
void bind_array(nb::module_ &module);
void bind_decode(nb::module_ &module);
void bind_encode(nb::module_ &module);
void bind_filter(nb::module_ &module);
void bind_folder(nb::module_ &module);
void bind_layer(nb::module_ &module);

namespace
{

nb::list devices()
{
    std::vector<conv_device_description> found(256); // more than a machine has
    int count = 0;
    conv_status status = conv_devices(found.data(), static_cast<int>(found.size()), &count);
    if (status != CONV_OK)
        throw Failure{status, "the devices cannot be listed"};
    nb::list result;
    for (int i = 0; i < count; i++)
        result.append(nb::make_tuple(found[i].device, found[i].name, found[i].memory));
    return result;
}

uint64_t parse_count(nb::handle value, uint64_t old, const char *name)
{
    if (value.is_none())
        return old;
    nb::object whole = nb::steal(PyNumber_Index(value.ptr()));
    if (!whole.is_valid()) {
        PyErr_Clear();
        raise_type("%s must be a whole number, not %R", name, value.ptr());
    }
    uint64_t count = 0;
    if (!nb::try_cast(whole, count))
        raise_value("%s must be at least 0, not %R", name, value.ptr());
    return count;
}

void set_configuration(nb::handle threads, nb::handle max_pixels, nb::handle pool_bytes)
{
    Settings settings = current_settings();
    uint64_t count = parse_count(threads, settings.threads, "threads");
    if (count > 1024)
        raise_value("threads must be 0 to 1024, not %R", threads.ptr());
    settings.threads = static_cast<int>(count);
    settings.max_pixels = parse_count(max_pixels, settings.max_pixels, "max_pixels");
    settings.pool_bytes = parse_count(pool_bytes, settings.pool_bytes, "pool_bytes");
    Unlocked unlocked;
    configure(settings);
}

} // namespace

} // namespace convpy

NB_MODULE(_core, module)
{
    using namespace convpy;
    nb::set_leak_warnings(false); // arrays of a program that ends are not leaks
    helpers = new Helpers;
    register_errors(module);
    bind_array(module);
    bind_filter(module);
    bind_layer(module);
    bind_decode(module);
    bind_encode(module);
    bind_folder(module);
    module.def("devices", devices);
    auto any = nb::arg().none();
    module.def("configure", set_configuration, any, any, any);
    module.def("version", [] { return conv_version(); });
    module.def("abandon_contexts", abandon_contexts);
    module.def("begin_shutdown", begin_shutdown);
}
