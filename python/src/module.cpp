// SPDX-License-Identifier: MIT
// conv._core: what the package conv is made of. Its functions are documented in conv/__init__.py.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "array.h"
#include "errors.h"
#include "filter.h"
#include "folder.h"
#include "gil.h"
#include "helpers.h"
#include "layer.h"
#include "png.h"

namespace convpy
{

namespace
{

nb::list devices()
{
    std::vector<conv_device_description> found(16);
    int count = 0;
    conv_status status = conv_devices(found.data(), static_cast<int>(found.size()), &count);
    if (status != CONV_OK)
        throw Failure{status, "the devices cannot be listed"};
    if (count > static_cast<int>(found.size())) {
        found.resize(static_cast<size_t>(count));
        status = conv_devices(found.data(), count, &count);
        if (status != CONV_OK)
            throw Failure{status, "the devices cannot be listed"};
    }
    nb::list result;
    for (int i = 0; i < count && i < static_cast<int>(found.size()); i++)
        result.append(nb::make_tuple(found[i].device, found[i].name, found[i].memory));
    return result;
}

void set_configuration(int threads, uint64_t max_pixels, uint64_t pool_bytes)
{
    if (threads < 0)
        raise_value("threads is at least 0, not %d", threads);
    Unlocked unlocked;
    configure({threads, max_pixels, static_cast<size_t>(pool_bytes)});
}

} // namespace

} // namespace convpy

NB_MODULE(_core, module)
{
    using namespace convpy;
    nb::set_leak_warnings(false); // arrays of a program that ends are not leaks
    load_helpers();
    register_errors(module);
    bind_array(module);
    bind_filter(module);
    bind_layer(module);
    bind_decode(module);
    bind_encode(module);
    bind_folder(module);
    module.def("devices", devices);
    module.def("configure", set_configuration);
    module.def("configuration", [] {
        Settings settings = current_settings();
        return nb::make_tuple(settings.threads, settings.max_pixels, settings.pool_bytes);
    });
    module.def("version", [] { return conv_version(); });
    module.def("abandon_contexts", abandon_contexts);
    module.def("begin_shutdown", begin_shutdown);
}
