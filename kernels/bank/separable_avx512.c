// SPDX-License-Identifier: MIT
// Separable filters: AVX-512.
#define SEPARABLE_RUN conv_separable_avx512
#include "kernels/bank/separable_body.h"
