// SPDX-License-Identifier: MIT
#include <cstring>
#include <string>
#include <vector>

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "array.h"
#include "interpreter.h"
#include "prepared.h"

namespace convpy
{

namespace
{

// One array of a call and its result.
struct Pair {
    Tensor source, result;
    nb::object out; // the caller's array for the result, or None
};

struct Call {
    std::vector<Pair> pairs;
    std::vector<conv_image> sources, results;
    Stream stream;
    int device = cpu;
};

void add_source(Call &call, nb::handle image, nb::object out, nb::handle device)
{
    Pair pair;
    pair.out = std::move(out);
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

void add_result(Call &call, Pair &pair, const Borrowed &context, bool floats)
{
    const Tensor &source = pair.source;
    conv_sample sample = floats ? CONV_SAMPLE_F32 : source.sample;
    pair.result = pair.out.is_none()
                      ? new_result(context, source.kind, source.device, sample, source.shape,
                                   source.dimensions)
                      : import_result(pair.out, call.stream, source, sample, source.shape);
}

nb::object finish_pair(Call &call, Pair &pair, const Borrowed &context)
{
    if (pair.out.is_none())
        return finish(pair.result, call.stream.handle, pair.source.device != cpu);
    note_use(pair.result, call.stream.handle, context, true);
    return pair.out;
}

class Filter : public Prepared<conv_filter, conv_filter_options, conv_filter_destroy>
{
  public:
    Filter(nb::handle given, nb::handle border, nb::handle alpha, nb::handle kernel,
           nb::handle divisor, nb::handle bias, nb::handle variant, nb::handle side, bool flip,
           bool floats, bool luma)
        : Prepared(CONV_FILTER_OPTIONS_INIT)
    {
        nb::object filter = helper("joined")(given);
        options.border = texts.keep_border(border);
        options.alpha = texts.keep(alpha);
        options.variant = texts.keep(variant);
        options.side = parse_int(side, "side");
        options.flip = flip;
        options.floats = floats;
        options.luma = luma;
        if (nb::isinstance<nb::str>(filter)) {
            text = texts.keep(filter);
            options.kernel = texts.keep(kernel);
            options.divisor = texts.keep(divisor);
            options.bias = texts.keep(bias);
            state = nb::make_tuple(filter, options.border, options.alpha, options.kernel,
                                   options.divisor, options.bias, options.variant, options.side,
                                   flip, floats, luma);
        } else {
            if (!kernel.is_none() || options.side != 0)
                raise_value("kernel and side are for filters by name");
            nb::object rows = read_matrix(filter, divisor, bias);
            state = nb::make_tuple(rows, options.border, options.alpha, nb::none(), scale, offset,
                                   options.variant, 0, flip, floats, luma);
        }
        check();
    }

    nb::object call(nb::handle images, nb::handle layout, nb::handle out, nb::handle stream,
                    nb::handle device) const
    {
        bool many = is_list(images);
        Layout order = parse_layout(layout);
        Call call;
        call.stream = parse_stream(stream);
        if (many) {
            size_t count = nb::len(images);
            if (count == 0)
                return nb::list();
            if (!out.is_none() && (!is_list(out) || nb::len(out) != count))
                raise_value("out: a list of as many arrays as there are images was expected");
            call.pairs.reserve(count);
            for (size_t i = 0; i < count; i++)
                add_source(call, nb::object(images[i]),
                           out.is_none() ? nb::none() : nb::object(out[i]), device);
        } else {
            add_source(call, images, nb::borrow(out), device);
        }
        Borrowed context(call.device, call.stream.handle);
        for (Pair &pair : call.pairs) {
            append_images(call.sources, pair.source, order, "images");
            add_result(call, pair, context, options.floats);
            append_images(call.results, pair.result, order, "out");
        }
        {
            Unlocked unlocked;
            conv_filter *filter = ready(context);
            context.check(conv_filter_run(filter, call.sources.data(), call.results.data(),
                                          static_cast<int>(call.sources.size()),
                                          call.stream.handle));
        }
        for (const Pair &pair : call.pairs)
            note_use(pair.source, call.stream.handle, context, false);
        if (!many)
            return finish_pair(call, call.pairs[0], context);
        nb::list results;
        for (Pair &pair : call.pairs)
            results.append(finish_pair(call, pair, context));
        return std::move(results);
    }

    std::vector<std::string> kernels(nb::handle device, nb::handle dtype) const
    {
        conv_sample sample =
            parse_sample(dtype, {CONV_SAMPLE_U8, CONV_SAMPLE_U16, CONV_SAMPLE_F32}, "dtype");
        Borrowed context(parse_device(device), nullptr);
        std::vector<std::string> names;
        conv_filter *filter = ready(context);
        while (const char *name =
                   conv_filter_kernel(filter, static_cast<int>(names.size()), sample))
            names.push_back(name);
        return names;
    }

    nb::tuple state; // the arguments of __init__, which pickle keeps

  private:
    // Returns the coefficients as a list of rows.
    nb::object read_matrix(nb::handle filter, nb::handle divisor, nb::handle bias)
    {
        if (filter.is_none())
            raise_type(
                "a filter must be a string, or a matrix of coefficients with two axes, not None");
        nb::object matrix = helpers->host_numbers(filter, "a matrix of coefficients", "float64");
        if (nb::cast<int>(matrix.attr("ndim")) != 2)
            raise_value("a filter must be a string, or a matrix of coefficients with two axes");
        height = nb::cast<int>(matrix.attr("shape")[0]);
        width = nb::cast<int>(matrix.attr("shape")[1]);
        coefficients = nb::cast<std::vector<double>>(matrix.attr("ravel")().attr("tolist")());
        if (!bias.is_none())
            offset = nb::cast<double>(bias);
        if (nb::isinstance<nb::str>(divisor)) {
            if (parse_text(divisor) != "sum")
                raise_value("divisor must be a number or 'sum'");
            scale = nb::cast<double>(matrix.attr("sum")());
        } else if (!divisor.is_none()) {
            scale = nb::cast<double>(divisor);
        }
        return matrix.attr("tolist")();
    }

    conv_status create(conv_context *context, conv_filter **filter) const override
    {
        return text ? conv_filter_create(filter, context, text, &options)
                    : conv_filter_create_matrix(filter, context, coefficients.data(), width, height,
                                                scale, offset, &options);
    }

    const char *text = nullptr;       // of the chain; NULL: there is a matrix
    std::vector<double> coefficients; // of which these are the rest
    int width = 0, height = 0;
    double scale = 1, offset = 0;
};

void restore_filter(Filter *self, nb::tuple state)
{
    size_t length = nb::len(state); // 10 in version 1.0
    if (length != 10 && length != 11)
        raise_value("not the state of a conv.Filter");
    new (self) Filter(state[0], state[1], state[2], state[3], state[4], state[5], state[6],
                      state[7], nb::cast<bool>(state[8]), nb::cast<bool>(state[9]),
                      length == 11 && nb::cast<bool>(state[10]));
}

// Pairs of a name and what `name_of` says about it.
nb::list names_of(const char *name_of(int index, const char **about))
{
    nb::list names;
    const char *about = "";
    for (int i = 0; const char *name = name_of(i, &about); i++)
        names.append(nb::make_tuple(name, about));
    return names;
}

} // namespace

void bind_filter(nb::module_ &module)
{
    using nb::arg, nb::none, nb::handle;
    nb::class_<Filter>(module, "Filter", nb::is_final(),
                       "A chain of filters with its settings, for repeated calls.\n\n"
                       "Arguments and results are those of conv.filter. Any thread may call it.")
        .def(nb::init<handle, handle, handle, handle, handle, handle, handle, handle, bool, bool,
                      bool>(),
             arg("filter").none(), nb::kw_only(), arg("border") = none(), arg("alpha") = none(),
             arg("kernel") = none(), arg("divisor") = none(), arg("bias") = none(),
             arg("variant") = none(), arg("side") = 0, arg("flip") = false, arg("floats") = false,
             arg("luma") = false)
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
    module.def("filter_names", [] { return names_of(conv_filter_name); });
    module.def("kernel_names", [] { return names_of(conv_kernel_name); });
}

} // namespace convpy
