// SPDX-License-Identifier: MIT
// When something is shown; CONV_AUTO: if it is shown on a terminal.
#ifndef CONV_REPORT_WHEN_H
#define CONV_REPORT_WHEN_H

enum conv_when { CONV_AUTO, CONV_ALWAYS, CONV_NEVER };

#endif
