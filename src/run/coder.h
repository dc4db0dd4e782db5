// SPDX-License-Identifier: MIT
// Where PNG is decoded and encoded.
#ifndef CONV_RUN_CODER_H
#define CONV_RUN_CODER_H

// CONV_CODER_AUTO is for decoding only, during a run: on whichever is free (decode_policy.h).
enum conv_coder { CONV_CODER_CPU, CONV_CODER_AUTO, CONV_CODER_GPU };

#endif
