// SPDX-License-Identifier: MIT
// What the processor offers.
#pragma once

#include <stddef.h>

enum conv_cpu_feature {
    CONV_CPU_SSE41 = 1 << 0,
    CONV_CPU_AVX2 = 1 << 1,   // AVX2, FMA3 and BMI2, and the system saves the registers
    CONV_CPU_AVX512 = 1 << 2, // AVX-512 F, BW, DQ, VL
    CONV_CPU_VNNI = 1 << 3,   // AVX-512 VNNI
    CONV_CPU_NEON = 1 << 4,
    CONV_CPU_VBMI = 1 << 5,    // AVX-512 VBMI
    CONV_CPU_DOTPROD = 1 << 6, // sdot of ARMv8.2
};

struct conv_cpu_feature_row {
    unsigned bit;
    const char *name;  // as CONV_DISABLE takes it: "avx512"
    const char *title; // as users read it: "AVX-512"
};

// One row per feature.
const struct conv_cpu_feature_row *conv_cpu_feature_rows(size_t *count);

// Feature bits of this machine, in a build with tests without those that the environment variable
// CONV_DISABLE names ("avx2,avx512"). Any thread, any time.
unsigned conv_cpu_features(void);

// Defines a function that does what name##_loop does, compiled for AVX2 as well and run so where
// the processor has it. That is a CONV_LOOP, plain code that compilers vectorise.
#define CONV_LOOP static inline __attribute__((always_inline))
#ifdef __x86_64__
#define CONV_FOR_AVX2 __attribute__((target("avx2")))
#else
#define CONV_FOR_AVX2
#endif
#define CONV_VECTORISE(name, parameters, arguments)                                                \
    CONV_FOR_AVX2 static void name##_avx2 parameters                                               \
    {                                                                                              \
        name##_loop arguments;                                                                     \
    }                                                                                              \
    void name parameters                                                                           \
    {                                                                                              \
        if (conv_cpu_features() & CONV_CPU_AVX2)                                                   \
            name##_avx2 arguments;                                                                 \
        else                                                                                       \
            name##_loop arguments;                                                                 \
    }

// The processor's name as the system reports it, or "unknown processor".
void conv_cpu_model(char *text, size_t size);
