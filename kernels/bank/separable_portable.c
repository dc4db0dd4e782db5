// SPDX-License-Identifier: MIT
// Separable filters: any processor.
#define SEPARABLE_RUN conv_separable_portable
#include "kernels/bank/separable_body.h"
