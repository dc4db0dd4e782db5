// SPDX-License-Identifier: MIT
// Tests that test_api_arguments.c runs and other files define.
#ifndef CONV_TESTS_API_ARGUMENTS_H
#define CONV_TESTS_API_ARGUMENTS_H

// api_arguments_images.c
void wrong_views_are_refused(void **state);
void results_of_another_shape_or_place_are_refused(void **state);
void wrong_encodings_are_refused(void **state);
void wrong_decodings_are_refused(void **state);
void files_that_end_anywhere_are_refused(void **state);
void large_images_are_refused(void **state);
void refused_calls_say_so_for_each_item(void **state);

void wrong_layers_are_refused(void **state); // api_arguments_layers.c

#endif
