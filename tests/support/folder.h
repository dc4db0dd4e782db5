// SPDX-License-Identifier: MIT
// A temporary folder for one test at a time, and small files in it.
#pragma once

#include <stdbool.h>
#include <stddef.h>

// cmocka's setup and teardown: makes the folder, removes it with all that is in it. 0 on success.
int folder_make(void **state);
int folder_remove(void **state);

// The path of a name in the folder; "" is the folder itself. Valid for the thread's next 63 calls.
const char *folder_path(const char *name);

// These stop the program with a message if the system refuses.
void folder_write(const char *name, const char *text); // makes the folders on the way
void folder_write_bytes(const char *name, const void *data, size_t size);
const char *folder_read(const char *name); // until the next call; NULL: no such file
bool folder_has(const char *name);         // a link without a target counts
int folder_count(const char *name);        // entries of a folder, "." and ".." not
