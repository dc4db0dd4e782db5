// SPDX-License-Identifier: MIT
// conv_cache_flush: the bytes stay unchanged, the cached copies are dropped. `conv bench kernels`
// once timed copies of planes that lay in the caches after a fast kernel and did not after a slow
// one.
#include "base/cache.h"
#include "base/clock.h"
#include "support/unit.h"

#define LINE 64 // bytes from an element of the chain to the next
#define LINES 512
#define TRIES 200

UNIT_TEST(test_bytes_stay)
{
    uint8_t *bytes = malloc(4096);
    assert_non_null(bytes);
    for (int i = 0; i < 4096; i++)
        bytes[i] = (uint8_t)(i * 7);
    conv_cache_flush(bytes, 0);
    conv_cache_flush(bytes + 13, 1);
    conv_cache_flush(bytes + 61, 4000);
    for (int i = 0; i < 4096; i++)
        assert_int_equal(bytes[i], (uint8_t)(i * 7));
    free(bytes);
}

// Follows the chain once: each load's address is what the load before it has found.
static uint64_t walk(void *const *chain)
{
    uint64_t start = conv_clock_ns();
    void *const *at = chain;
    do
        at = *(void *const volatile *)at;
    while (at != chain);
    return conv_clock_ns() - start;
}

UNIT_TEST(test_the_next_access_goes_to_memory)
{
#if !defined(__x86_64__) && !defined(__aarch64__)
    skip();
#endif
    const char *preload = getenv("LD_PRELOAD");
    if (preload && strstr(preload, "vgpreload")) // valgrind has no caches to flush
        skip();
    char *memory = aligned_alloc(LINE, LINES * LINE);
    assert_non_null(memory);
    // 211 has no factor in common with 512, so the steps meet every line, far from the one before.
    for (int i = 0; i < LINES; i++)
        *(void **)(void *)(memory + (size_t)i * LINE) = memory + (size_t)((i + 211) % LINES) * LINE;
    uint64_t cached = UINT64_MAX, flushed = UINT64_MAX;
    for (int i = 0; i < TRIES; i++) { // the fastest of each: what else runs only adds to it
        conv_cache_flush(memory, LINES * LINE);
        uint64_t ns = walk((void *const *)(void *)memory);
        flushed = ns < flushed ? ns : flushed;
        ns = walk((void *const *)(void *)memory);
        cached = ns < cached ? ns : cached;
    }
    print_message("%d lines: %llu ns cached, %llu ns flushed\n", LINES, (unsigned long long)cached,
                  (unsigned long long)flushed);
    assert_true(flushed > 2 * cached);
    free(memory);
}

UNIT_MAIN(NULL, NULL)
