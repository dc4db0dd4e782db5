// SPDX-License-Identifier: MIT
// The tests of test_api_arguments.c that are in other files.
#ifndef CONV_TESTS_API_ARGUMENTS_H
#define CONV_TESTS_API_ARGUMENTS_H

// api_arguments_images.c
void wrong_views_are_refused(void **state);
void wrong_files_are_refused(void **state);
void large_images_are_refused(void **state);
void refused_calls_say_so_for_each_item(void **state);

void wrong_layers_are_refused(void **state); // api_arguments_layers.c

#endif
