// SPDX-License-Identifier: MIT
// The names of unfinished files, and the removal of those left behind by killed processes.
//
// A name is `.conv-WHERE-PID-START-NUMBER.tmp`, all but PID and NUMBER in hexadecimal: WHERE stands
// for this boot of this machine's kernel and this PID namespace, so that within one WHERE the PID
// and the start time of a process identify it. Any thread.
#ifndef CONV_FILES_TEMPORARY_H
#define CONV_FILES_TEMPORARY_H

#include <stdbool.h>
#include <stddef.h>

// Upper bound of a name with its NUL. Short, since file systems allow 255 bytes and some less.
#define CONV_TEMPORARY_NAME_SIZE 80

// The name of temporary file `number` of this process.
void conv_temporary_name(char name[CONV_TEMPORARY_NAME_SIZE], unsigned number);

// True for the name of a temporary file of any process: such a file is never an input.
bool conv_temporary_is(const char *name);

// Removes temporary files of processes that have ended from `folder` ("" is the current one). A
// file is removed if it is regular, belongs to this user or that user is root, and its process has
// ended: known by PID and start time within this WHERE, otherwise (another machine on a network
// folder, another container, before a reboot) assumed once the file is a day old. What cannot be
// removed stays, without an error.
void conv_temporary_sweep(const char *folder);

#endif
