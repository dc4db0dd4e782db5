// SPDX-License-Identifier: MIT
// Separable filters: AVX2 with FMA3.
#define SEPARABLE_RUN conv_separable_avx2
#include "kernels/bank/separable_body.h"
