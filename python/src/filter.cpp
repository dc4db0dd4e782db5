// SPDX-License-Identifier: MIT
#include "filter.h"

#include <cstring>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "errors.h"
#include "frameworks.h"
#include "gil.h"

namespace convpy
{

const char *text_or_null(const Text &text)
{
    return text ? text->c_str() : nullptr;
}

Text text_of(nb::handle value)
{
    if (value.is_none())
        return {};
    return parse_text(value);
}

Text border_of(nb::handle value)
{
    if (value.is_none() || nb::isinstance<nb::str>(value))
        return text_of(value);
    return "constant:" + parse_text(value);
}

namespace
{

// One array of a call and its result.
struct Pair {
    Tensor source, result;
    bool given; // the result is the caller's
};

struct Call {
    std::vector<Pair> pairs;
    std::vector<conv_image> sources, results;
    Stream stream;
    int device = cpu;
};

void check_out(const Tensor &out, const Tensor &source, conv_sample sample)
{
    if (out.sample != sample)
        raise_value("out is %s; the result is %s", sample_name(out.sample), sample_name(sample));
    bool same = out.dimensions == source.dimensions;
    for (int i = 0; same && i < out.dimensions; i++)
        same = out.shape[i] == source.shape[i];
    if (!same)
        raise_value("out and the images differ in shape");
    if (out.device != source.device)
        raise_value("out and the images are not in the same memory");
}

void add_source(Call &call, nb::handle image, nb::handle device)
{
    Pair pair;
    pair.given = false;
    pair.source = import_array(image, call.stream, "images");
    Tensor &source = pair.source;
    if (source.sample != CONV_SAMPLE_U8 && source.sample != CONV_SAMPLE_U16 &&
        source.sample != CONV_SAMPLE_F32)
        raise_type("images: samples of type %s; filters read uint8, uint16 and float32",
                   sample_name(source.sample));
    int place = place_of(source, device);
    if (source.stream.given)
        call.stream = source.stream;
    if (call.pairs.empty())
        call.device = place;
    else if (call.device != place || call.pairs[0].source.device != source.device)
        raise_value("the images of one call must all be in the same memory");
    call.pairs.push_back(std::move(pair));
}

void add_result(Call &call, Pair &pair, nb::handle out, const Borrowed &context, bool floats)
{
    conv_sample sample = floats ? CONV_SAMPLE_F32 : pair.source.sample;
    pair.given = !out.is_none();
    if (pair.given) {
        pair.result = import_out(out, call.stream);
        check_out(pair.result, pair.source, sample);
    } else {
        const Tensor &source = pair.source;
        pair.result = new_result(context, source.kind, source.device, sample, source.shape,
                                 source.dimensions);
    }
}

nb::object finish_pair(Call &call, Pair &pair, nb::handle out, const Borrowed &context)
{
    bool on_device = pair.source.device != cpu;
    if (!pair.given)
        return finish(pair.result, call.stream.handle, on_device);
    note_use(pair.result, call.stream.handle, context, true);
    return nb::borrow(out);
}

} // namespace

conv_filter_options FilterSettings::options() const
{
    conv_filter_options options = CONV_FILTER_OPTIONS_INIT;
    options.border = text_or_null(border);
    options.alpha = text_or_null(alpha);
    options.kernel = text_or_null(kernel);
    options.divisor = text_or_null(divisor);
    options.bias = text_or_null(bias);
    options.variant = text_or_null(variant);
    options.side = side;
    options.flip = flip;
    options.floats = floats;
    options.luma = luma;
    return options;
}

Filter::Filter(nb::tuple arguments, std::string chain, FilterSettings how)
    : state(std::move(arguments)), text(std::move(chain)), settings(std::move(how)),
      id(new_prepared_id())
{
    check();
}

Filter::Filter(nb::tuple arguments, std::vector<double> values, int columns, int rows,
               double divisor, double bias, FilterSettings how)
    : state(std::move(arguments)), settings(std::move(how)), coefficients(std::move(values)),
      width(columns), height(rows), scale(divisor), offset(bias), id(new_prepared_id())
{
    check();
}

Filter::~Filter()
{
    forget_prepared(id);
}

// A forced kernel may exist only for CUDA devices, so it is checked when it is used.
void Filter::check() const
{
    if (settings.variant)
        return;
    Borrowed context(cpu, nullptr);
    Unlocked unlocked;
    ready(context);
}

conv_filter *Filter::ready(const Borrowed &context) const
{
    auto found = context->prepared.find(id);
    if (found != context->prepared.end())
        return std::get<conv_filter *>(found->second);
    conv_filter_options options = settings.options();
    conv_filter *filter;
    if (coefficients.empty())
        context.check(conv_filter_create(&filter, context.get(), text.c_str(), &options));
    else
        context.check(conv_filter_create_matrix(&filter, context.get(), coefficients.data(), width,
                                                height, scale, offset, &options));
    context->prepared.emplace(id, filter);
    return filter;
}

nb::object Filter::call(nb::handle images, nb::handle layout, nb::handle out, nb::handle stream,
                        nb::handle device) const
{
    bool many = PyList_Check(images.ptr()) || PyTuple_Check(images.ptr());
    Layout order = parse_layout(layout);
    Call call;
    call.stream = parse_stream(stream);
    if (many) {
        call.pairs.reserve(nb::len(images));
        for (nb::handle image : images)
            add_source(call, image, device);
        if (call.pairs.empty())
            return nb::list();
        if (!out.is_none() && (!(PyList_Check(out.ptr()) || PyTuple_Check(out.ptr())) ||
                               nb::len(out) != call.pairs.size()))
            raise_value("out: a list of as many arrays as there are images was expected");
    } else {
        add_source(call, images, device);
    }
    Borrowed context(call.device, call.stream.handle);
    for (size_t i = 0; i < call.pairs.size(); i++) {
        Pair &pair = call.pairs[i];
        nb::object into = nb::borrow(out);
        if (many && !out.is_none())
            into = out[i];
        append_images(call.sources, pair.source, order, "images");
        add_result(call, pair, into, context, settings.floats);
        append_images(call.results, pair.result, order, "out");
    }
    {
        Unlocked unlocked;
        conv_filter *filter = ready(context);
        context.check(conv_filter_run(filter, call.sources.data(), call.results.data(),
                                      static_cast<int>(call.sources.size()), call.stream.handle));
    }
    for (const Pair &pair : call.pairs)
        note_use(pair.source, call.stream.handle, context, false);
    if (!many)
        return finish_pair(call, call.pairs[0], out, context);
    nb::list results;
    for (size_t i = 0; i < call.pairs.size(); i++) {
        nb::object into = out.is_none() ? nb::borrow(out) : nb::object(out[i]);
        results.append(finish_pair(call, call.pairs[i], into, context));
    }
    return std::move(results);
}

std::vector<std::string> Filter::kernels(nb::handle device, nb::handle dtype) const
{
    conv_sample sample =
        parse_sample(dtype, {CONV_SAMPLE_U8, CONV_SAMPLE_U16, CONV_SAMPLE_F32}, "dtype");
    Borrowed context(parse_device(device), nullptr);
    std::vector<std::string> names;
    conv_filter *filter = ready(context);
    while (const char *name = conv_filter_kernel(filter, static_cast<int>(names.size()), sample))
        names.push_back(name);
    return names;
}

namespace
{

void make_filter(Filter *self, nb::handle given, nb::handle border, nb::handle alpha,
                 nb::handle kernel, nb::handle divisor, nb::handle bias, nb::handle variant,
                 nb::handle side, bool flip, bool floats, bool luma)
{
    nb::object filter = helper("joined")(given);
    FilterSettings settings;
    settings.border = border_of(border);
    settings.alpha = text_of(alpha);
    settings.variant = text_of(variant);
    settings.flip = flip;
    settings.floats = floats;
    settings.luma = luma;
    if (nb::isinstance<nb::str>(filter)) {
        settings.kernel = text_of(kernel);
        settings.divisor = text_of(divisor);
        settings.bias = text_of(bias);
        settings.side = parse_int(side, "side");
        nb::tuple state = nb::make_tuple(filter, settings.border, settings.alpha, settings.kernel,
                                         settings.divisor, settings.bias, settings.variant,
                                         settings.side, flip, floats, luma);
        new (self) Filter(std::move(state), parse_text(filter), std::move(settings));
        return;
    }
    if (!kernel.is_none() || parse_int(side, "side") != 0)
        raise_value("kernel and side are for filters by name");
    if (filter.is_none())
        raise_type(
            "a filter must be a string, or a matrix of coefficients with two axes, not None");
    nb::object matrix = helpers.host_numbers(filter, "a matrix of coefficients", "float64");
    if (nb::cast<int>(matrix.attr("ndim")) != 2)
        raise_value("a filter must be a string, or a matrix of coefficients with two axes");
    auto height = nb::cast<int>(matrix.attr("shape")[0]);
    auto width = nb::cast<int>(matrix.attr("shape")[1]);
    auto values = nb::cast<std::vector<double>>(matrix.attr("ravel")().attr("tolist")());
    double offset = bias.is_none() ? 0 : nb::cast<double>(bias);
    double scale = 1;
    if (nb::isinstance<nb::str>(divisor)) {
        if (parse_text(divisor) != "sum")
            raise_value("divisor must be a number or 'sum'");
        scale = nb::cast<double>(matrix.attr("sum")());
    } else {
        scale = divisor.is_none() ? 1 : nb::cast<double>(divisor);
    }
    nb::tuple state =
        nb::make_tuple(matrix.attr("tolist")(), settings.border, settings.alpha, nb::none(), scale,
                       offset, settings.variant, 0, flip, floats, luma);
    new (self) Filter(std::move(state), std::move(values), width, height, scale, offset,
                      std::move(settings));
}

void restore_filter(Filter *self, nb::tuple state)
{
    size_t length = nb::len(state); // 10 in version 1.0
    if (length != 10 && length != 11)
        raise_value("not the state of a conv.Filter");
    make_filter(self, state[0], state[1], state[2], state[3], state[4], state[5], state[6],
                state[7], nb::cast<bool>(state[8]), nb::cast<bool>(state[9]),
                length == 11 && nb::cast<bool>(state[10]));
}

} // namespace

void bind_filter(nb::module_ &module)
{
    using nb::arg, nb::none;
    nb::class_<Filter>(module, "Filter", nb::is_final(),
                       "A chain of filters with its settings, for repeated calls.\n\n"
                       "Arguments and results are those of conv.filter. Any thread may call it.")
        .def("__init__", make_filter, arg("filter").none(), nb::kw_only(), arg("border") = none(),
             arg("alpha") = none(), arg("kernel") = none(), arg("divisor") = none(),
             arg("bias") = none(), arg("variant") = none(), arg("side") = 0, arg("flip") = false,
             arg("floats") = false, arg("luma") = false)
        .def("__call__", &Filter::call, arg("images").none(), nb::kw_only(),
             arg("layout").none() = "HWC", arg("out") = none(), arg("stream") = none(),
             arg("device") = none(), "Filters images as conv.filter does.")
        .def("kernels", &Filter::kernels, arg("device") = "cpu", arg("dtype").none() = "uint8",
             "Names of the kernels that run the filters of the chain on such samples.")
        .def("__getstate__", [](const Filter &filter) { return filter.state; })
        .def("__setstate__", restore_filter)
        .def("__eq__",
             [](const Filter &filter, nb::handle other) {
                 return nb::isinstance<Filter>(other) &&
                        filter.state.equal(nb::cast<const Filter &>(other).state);
             })
        .def("__hash__", [](const Filter &filter) { return nb::hash(nb::repr(filter.state)); })
        .def("__repr__", [](const Filter &filter) {
            return nb::str("conv.Filter({})").format(helper("filter_text")(filter.state));
        });
    module.def("family_names", [](bool banks) {
        nb::list names;
        const char *example = "", *summary = "";
        for (int i = 0; const char *name = conv_family_name(banks, i, &example, &summary); i++) {
            const char *form = strcmp(name, example) == 0 ? "{}" : "{} (for example {})";
            names.append(nb::make_tuple(name, nb::str(form).format(summary, example)));
        }
        return names;
    });
    module.def("filter_names", [] {
        nb::list names;
        const char *summary = "";
        for (int i = 0; const char *name = conv_filter_name(i, &summary); i++)
            names.append(nb::make_tuple(name, summary));
        return names;
    });
    module.def("kernel_names", [] {
        nb::list names;
        const char *device = "";
        for (int i = 0; const char *name = conv_kernel_name(i, &device); i++)
            names.append(nb::make_tuple(name, device));
        return names;
    });
}

} // namespace convpy
