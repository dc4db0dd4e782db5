// SPDX-License-Identifier: MIT
// conv.Layer: a convolution layer, made ready in each context that runs it.
#ifndef CONV_PYTHON_LAYER_H
#define CONV_PYTHON_LAYER_H

#include <string>
#include <vector>

#include "filter.h"

namespace convpy
{

struct LayerSettings {
    int stride = 1;
    Text padding, border, activation, precision, variant;
    conv_sample input = CONV_SAMPLE_F32, output = CONV_SAMPLE_F32;
    float input_divisor = 1;
};

class Layer
{
  public:
    // The shape of the weights is maps x channels x height x width; the bias has `maps` values or
    // is empty.
    Layer(std::vector<float> weights, const int64_t (&shape)[4], std::vector<float> bias,
          LayerSettings settings);
    ~Layer();
    Layer(const Layer &) = delete;
    Layer &operator=(const Layer &) = delete;

    nb::object call(nb::handle images, nb::handle out, nb::handle stream, nb::handle device) const;
    nb::tuple state() const; // the arguments of __init__: what pickle keeps
    nb::str representation() const;

  private:
    conv_layer *ready(const Borrowed &context) const; // without the GIL

    const std::vector<float> weights, bias;
    int64_t shape[4];
    const LayerSettings settings;
    const uint64_t id;
};

void bind_layer(nb::module_ &module);

} // namespace convpy

#endif
