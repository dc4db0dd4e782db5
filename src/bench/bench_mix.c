// SPDX-License-Identifier: MIT
#include "bench/bench_mix.h"

#include <stdint.h>

#include "bench/bench_random.h"

#define MOST_WIDTH 4000
#define MOST_HEIGHT 3000

// 1 to `most`, each octave as likely as the others.
static int random_side(uint32_t *state, int most)
{
    double octaves = 0, fraction = conv_bench_random(state) / 4294967296.0;
    while ((int)(1u << ((int)octaves + 1)) <= most)
        octaves++;
    double at = fraction * (octaves + 1);
    int low = 1 << (int)at;
    int side = low + (int)((at - (int)at) * low);
    return side < most ? side : most;
}

void conv_bench_mix(struct conv_bench_size *sizes, int count)
{
    uint32_t state = 0x9E3779B9u;
    for (int i = 0; i < count; i++) {
        sizes[i].width = i == 0 ? MOST_WIDTH : random_side(&state, MOST_WIDTH);
        sizes[i].height = i == 0 ? MOST_HEIGHT : random_side(&state, MOST_HEIGHT);
    }
}

// A generator of its own (Numerical Recipes' linear congruential one), because the figures in
// kernels/README.md were measured with these sizes.
void conv_bench_mix_uniform(struct conv_bench_size *sizes, int count)
{
    uint32_t state = 1;
    for (int i = 0; i < count; i++) {
        if (i < 2) {
            sizes[i].width = i == 0 ? 1 : MOST_WIDTH;
            sizes[i].height = i == 0 ? 1 : MOST_HEIGHT;
            continue;
        }
        state = state * 1664525u + 1013904223u;
        sizes[i].width = 1 + (int)((state >> 8) % MOST_WIDTH);
        state = state * 1664525u + 1013904223u;
        sizes[i].height = 1 + (int)((state >> 8) % MOST_HEIGHT);
    }
}
