// SPDX-License-Identifier: MIT
// The formats of netpbm as rows of the table of formats. All of them read each other's files; what
// they write differs. None holds metadata.
#ifndef CONV_PNM_PNM_H
#define CONV_PNM_PNM_H

#include "image/format.h"

// P5 and P6 (binary), P2 and P3 (numbers as text), P1 and P4 (bits); P7 (PAM, which has alpha).
extern const struct conv_format conv_pnm_format; // writes gray as P5, colours as P6
extern const struct conv_format conv_ppm_format; // P6, gray as well
extern const struct conv_format conv_pgm_format; // P5, no colours
extern const struct conv_format conv_pam_format; // P7

#endif
