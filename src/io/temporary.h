// SPDX-License-Identifier: MIT
// The names of half-written files, and which of those that lie about may be removed.
//
// A name is `.conv-WHERE-PID-START-NUMBER.tmp`, all but PID and NUMBER in hexadecimal: WHERE stands
// for this boot of this machine's kernel and this PID namespace, so that within one WHERE a PID and
// the time at which its process started tell processes apart for good.
#ifndef CONV_IO_TEMPORARY_H
#define CONV_IO_TEMPORARY_H

#include <stdbool.h>
#include <stddef.h>

// A name takes less. Short, since file systems take 255 bytes and some less.
#define CONV_TEMPORARY_NAME_SIZE 80

// The name of temporary file `number` of this process.
void conv_temporary_name(char name[CONV_TEMPORARY_NAME_SIZE], unsigned number);

// True for the name of a temporary file, whoever's it is: such a file is never an input.
bool conv_temporary_is(const char *name);

// Removes what processes that are gone have left in `folder` ("" is the current one). A file goes
// if it is regular, belongs to this user, and its process is known to be gone: by PID and start
// where both mean something here, otherwise (another machine on a network folder, another
// container, before a reboot) by not having been touched for a day. What cannot be removed stays.
void conv_temporary_sweep(const char *folder);

#endif
