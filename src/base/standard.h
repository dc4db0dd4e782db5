// SPDX-License-Identifier: MIT
// Standard input, output and error that the caller closed before it started the program. Left
// closed, their numbers would go to the first files that the program opens, and whatever is printed
// would land in those: in images, reports and journals.
#ifndef CONV_BASE_STANDARD_H
#define CONV_BASE_STANDARD_H

#include <stdbool.h>
#include <stdio.h>

#include "base/err.h"

// To be called before anything else opens a file. Occupies each closed descriptor of 0 to 2 with
// one that can be neither read nor written, not even through /dev/stdout. False if there is no
// descriptor left for that.
bool conv_standard_open(void);

// True if `fd` (0 to 2) was closed before conv_standard_open. Any thread. Leaves errno as it is.
bool conv_standard_is_closed(int fd);

// True if standard output and standard error are the same file, pipe or socket (2>&1), so that
// messages would be mixed with the output. Terminals and devices do not count.
bool conv_standard_is_shared(void);

// Flushes stdout. CONV_ERR_IO with the reason if anything printed there so far was not written.
enum conv_status conv_standard_flush(struct conv_err *err);

#endif
