// SPDX-License-Identifier: MIT
// conv.Filter: a chain of filters with its settings, made ready in each context that runs it.
#ifndef CONV_PYTHON_FILTER_H
#define CONV_PYTHON_FILTER_H

#include <optional>
#include <string>
#include <vector>

#include "tensor.h"

namespace convpy
{

using Text = std::optional<std::string>;
Text text_of(nb::handle value);   // of None: none
Text border_of(nb::handle value); // a number is a constant
const char *text_or_null(const Text &text);

// Settings as Python passes them; the strings are those of conv_filter_options.
struct FilterSettings {
    Text border, alpha, kernel, divisor, bias, variant;
    int side = 0;
    bool flip = false, floats = false, luma = false;

    conv_filter_options options() const; // points into this object
};

class Filter
{
  public:
    // `state`: the arguments of __init__, which pickle keeps.
    Filter(nb::tuple state, std::string text, FilterSettings settings);
    Filter(nb::tuple state, std::vector<double> coefficients, int width, int height, double scale,
           double offset, FilterSettings settings);
    ~Filter();
    Filter(const Filter &) = delete;
    Filter &operator=(const Filter &) = delete;

    nb::object call(nb::handle images, nb::handle layout, nb::handle out, nb::handle stream,
                    nb::handle device) const;
    std::vector<std::string> kernels(nb::handle device, nb::handle dtype) const;

    const nb::tuple state;
    const std::string text; // "" for coefficients
    const FilterSettings settings;

  private:
    conv_filter *ready(const Borrowed &context) const; // without the GIL
    void check() const;                                // throws Failure

    const std::vector<double> coefficients;
    const int width = 0, height = 0;
    const double scale = 1, offset = 0;
    const uint64_t id;
};

} // namespace convpy

#endif
