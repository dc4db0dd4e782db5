// SPDX-License-Identifier: MIT
#include "base/features.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef __aarch64__
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "words are loaded from bytes as they are");

static const struct conv_cpu_feature_row features[] = {
    {CONV_CPU_SSE41, "sse41", "SSE4.1"},      {CONV_CPU_AVX2, "avx2", "AVX2"},
    {CONV_CPU_AVX512, "avx512", "AVX-512"},   {CONV_CPU_VNNI, "vnni", "VNNI"},
    {CONV_CPU_VBMI, "vbmi", "VBMI"},          {CONV_CPU_NEON, "neon", "NEON"},
    {CONV_CPU_DOTPROD, "dotprod", "DOTPROD"},
};
#define FEATURES (sizeof features / sizeof features[0])

const struct conv_cpu_feature_row *conv_cpu_feature_rows(size_t *count)
{
    *count = FEATURES;
    return features;
}

static unsigned detect(void)
{
    unsigned have = 0;
#if defined(__x86_64__) || defined(__i386__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("sse4.1"))
        have |= CONV_CPU_SSE41;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
        __builtin_cpu_supports("bmi2"))
        have |= CONV_CPU_AVX2;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
        have |= CONV_CPU_AVX512;
        if (__builtin_cpu_supports("avx512vnni"))
            have |= CONV_CPU_VNNI;
        if (__builtin_cpu_supports("avx512vbmi"))
            have |= CONV_CPU_VBMI;
    }
#elif defined(__aarch64__)
    have |= CONV_CPU_NEON; // part of the base architecture
    if (getauxval(AT_HWCAP) & HWCAP_ASIMDDP)
        have |= CONV_CPU_DOTPROD;
#endif
    return have;
}

#if CONV_TESTS
// CONV_DISABLE="avx2,avx512" hides features of the machine, so that tests meet every variant of
// every table on one machine.
static unsigned disabled(void)
{
    unsigned bits = 0;
    const char *text = getenv("CONV_DISABLE");
    while (text && *text) {
        size_t length = strcspn(text, ",");
        for (size_t i = 0; i < FEATURES; i++)
            if (strlen(features[i].name) == length && memcmp(text, features[i].name, length) == 0)
                bits |= features[i].bit;
        text += length + (text[length] == ',');
    }
    return bits;
}
#endif

unsigned conv_cpu_features(void)
{
#if CONV_TESTS
    return detect() & ~disabled();
#else
    return detect();
#endif
}

void conv_cpu_model(char *text, size_t size)
{
    char line[256], model[64] = "unknown processor";
    FILE *file = fopen("/proc/cpuinfo", "re");
    while (file && fgets(line, sizeof line, file) &&
           sscanf(line, "model name : %63[^\n]", model) != 1)
        ;
    if (file)
        fclose(file);
    snprintf(text, size, "%s", model);
}
