// SPDX-License-Identifier: MIT
// Activations, with the same bits on the CPU and on CUDA devices: every operation below is one IEEE
// float32 operation, which both round to nearest even.
#ifndef CONV_KERNELS_LAYER_ACTIVATION_H
#define CONV_KERNELS_LAYER_ACTIVATION_H

#include <math.h>

#include "kernels/common/place.h"
#include "kernels/layer/layer.h"

// The hyperbolic tangent. Below 0.625 an odd polynomial; above it 1 - 2 / (exp(2|x|) + 1), exp by
// the reduction of Cody and Waite ("Software Manual for the Elementary Functions", 1980) and a
// polynomial. The coefficients are minimax fits in float64, rounded. Within 2 units in the last
// place of the exact value (tests/unit/test_layer.c).
CONV_HOST_DEVICE static inline float conv_layer_tanh(float x)
{
    float a = fabsf(x);
    if (a < 0.625f) {
        float z = x * x;
        float p = -0.006113188806921244f;
        p = fmaf(p, z, 0.021010080352425575f);
        p = fmaf(p, z, -0.053854070603847504f);
        p = fmaf(p, z, 0.13332794606685638f);
        p = fmaf(p, z, -0.333333283662796f);
        return fmaf(p * z, x, x);
    }
    if (a > 9.1f) // the exact value is within half a unit of 1
        return x < 0 ? -1.0f : 1.0f;
    if (!(a <= 9.1f))
        return x; // NaN
    float t = 2 * a;
    float n = rintf(t * 1.4426950216293335f); // 2 to 26
    float r = fmaf(n, -0.693359375f, t);
    r = fmaf(n, 0.00021219444170128554f, r);
    float q = 0.0013941109646111727f;
    q = fmaf(q, r, 0.008363175205886364f);
    q = fmaf(q, r, 0.04166637361049652f);
    q = fmaf(q, r, 0.16666576266288757f);
    q = fmaf(q, r, 0.5f);
    float e = fmaf(q * r, r, r) + 1; // exp(r)
    float y = 1 - 2 / fmaf(e, (float)(1 << (int)n), 1);
    return x < 0 ? -y : y;
}

CONV_HOST_DEVICE static inline float conv_layer_activate(enum conv_activation activation, float x)
{
    switch (activation) {
    case CONV_ACTIVATION_RELU:
        return x < 0 ? 0 : x;
    case CONV_ACTIVATION_TANH:
        return conv_layer_tanh(x);
    case CONV_ACTIVATION_ABS:
        return fabsf(x);
    case CONV_ACTIVATION_NONE:
        break;
    }
    return x;
}

#endif
