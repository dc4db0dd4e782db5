// SPDX-License-Identifier: MIT
// Includes and helpers that all tests of the C interface need.
#pragma once

#include "conv.h"
#include "support/unit.h"

// Opens a context of the CPU.
static inline conv_context *api_open(int threads)
{
    conv_context *context;
    conv_context_options options = CONV_CONTEXT_OPTIONS_INIT;
    options.device = "cpu";
    options.threads = threads;
    assert_ok(conv_context_create(&context, &options, NULL));
    return context;
}

// A test with a context of the CPU.
#define API_TEST(name, threads)                                                                    \
    static void name##_with(conv_context *context);                                                \
    UNIT_TEST(name)                                                                                \
    {                                                                                              \
        conv_context *context = api_open(threads);                                                 \
        name##_with(context);                                                                      \
        conv_context_destroy(context);                                                             \
    }                                                                                              \
    static void name##_with(conv_context *context)

// Checks that the call fails with `code`, and that `context` has a message.
#define REFUSE(code, call)                                                                         \
    do {                                                                                           \
        assert_int_equal(call, code);                                                              \
        assert_true(conv_context_message(context)[0] != 0);                                        \
    } while (0)
