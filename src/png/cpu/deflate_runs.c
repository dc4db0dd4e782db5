// SPDX-License-Identifier: MIT
// Blocks with many runs: icons, drawings, screenshots. 64 bytes at a time are compared with the
// bytes one place and one pixel before them; the position after each match is looked up in a hash
// table. More look-ups do not make files smaller: with two, icons grow by 2 to 4 %, since far
// matches replace runs and literals that cost fewer bits.
#include "base/features.h"
#include "png/cpu/deflate_internal.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define WIDTH 64
// Shortest run and shortest match of the hash table: shorter ones cost as much as their literals.
// conv_deflate_run_starts spells out the former.
#define RUN_LEAST 5
#define FAR_LEAST 8
#define MOST_PIXEL 8

#define INLINE static inline __attribute__((always_inline))

// Bit i of the result: a[i] == b[i], for 64 bytes.
typedef uint64_t (*compare_fn)(const uint8_t *a, const uint8_t *b);

INLINE uint64_t compare_plain(const uint8_t *a, const uint8_t *b)
{
    const uint64_t low7 = 0x7f7f7f7f7f7f7f7f;
    uint64_t equal = 0;
    for (unsigned i = 0; i < WIDTH; i += 8) {
        uint64_t different = conv_match_load64(a + i) ^ conv_match_load64(b + i);
        uint64_t zeros = ~(((different & low7) + low7) | different | low7); // 0x80 where equal
        equal |= (zeros >> 7) * 0x0102040810204080 >> 56 << i;
    }
    return equal;
}

// The bits that begin RUN_LEAST bits of 1.
INLINE uint64_t run_starts(uint64_t equal)
{
    uint64_t two = equal & equal >> 1;
    return two & two >> 2 & equal >> 4;
}

INLINE unsigned ones(uint64_t bits) // below the lowest 0
{
    return ~bits ? (unsigned)__builtin_ctzll(~bits) : WIDTH;
}

// The two comparisons at `p`, of at most `left` bytes.
struct equal {
    uint64_t byte, pixel;
};

INLINE struct equal compare(const uint8_t *p, size_t left, size_t pixel, compare_fn compare64)
{
    if (__builtin_expect(left >= WIDTH, 1))
        return (struct equal){compare64(p, p - 1), compare64(p, p - pixel)};
    uint8_t end[MOST_PIXEL + WIDTH] = {0}; // nothing after the data is read
    memcpy(end, p - pixel, left + pixel);
    uint64_t mask = ((uint64_t)1 << left) - 1;
    return (struct equal){compare64(end + pixel, end + pixel - 1) & mask,
                          compare64(end + pixel, end) & mask};
}

// Enters a position and returns the last one with its hash.
INLINE const uint8_t *look_up(const struct conv_deflate_tokens *tokens, uint32_t *heads, size_t at)
{
    uint64_t word = conv_match_load64(tokens->data + at);
    uint32_t *head = &heads[word * 0x9e3779b97f4a7c15 >> (64 - CONV_DEFLATE_HASH_BITS)];
    const uint8_t *there = tokens->data + *head;
    *head = (uint32_t)at;
    return there;
}

// A match `skip` bytes after the position; length 0: none.
struct found {
    size_t skip, length, distance;
};

// The bytes that match from p on, before `end`.
INLINE size_t run_length(const uint8_t *p, size_t distance, const uint8_t *end,
                         compare_fn compare64)
{
    const uint8_t *start = p;
    for (; end - p >= WIDTH; p += WIDTH) {
        unsigned equal = ones(compare64(p, p - distance));
        if (equal < WIDTH)
            return (size_t)(p - start) + equal;
    }
    return (size_t)(p - start) + conv_match_length(p - distance, p, end);
}

INLINE struct found find(const struct conv_deflate_tokens *tokens, uint32_t *heads, size_t at,
                         size_t pixel, compare_fn compare64)
{
    const uint8_t *here = tokens->data + at, *end = tokens->data + tokens->size;
    const uint8_t *there = look_up(tokens, heads, at);
    size_t left = (size_t)(end - here), far = (size_t)(here - there);
    struct equal equal = compare(here, left, pixel, compare64);
    uint64_t starts = run_starts(equal.byte) | run_starts(equal.pixel);
    unsigned of_far = far > CONV_DEFLATE_WINDOW ? 0
                      : left >= WIDTH           ? ones(compare64(here, there))
                                                : (unsigned)conv_match_length(there, here, end);
    unsigned skip = starts ? (unsigned)__builtin_ctzll(starts) : 0;
    unsigned of_byte = ones(equal.byte >> skip), of_pixel = ones(equal.pixel >> skip);
    struct found found = {skip, of_byte, 1};
    found.length = of_pixel > of_byte ? of_pixel : found.length;
    found.distance = of_pixel > of_byte ? pixel : found.distance;
    found.length = starts ? found.length : 0;
    bool is_far = (of_far >= FAR_LEAST) & !(starts & 1);
    found.skip = is_far ? 0 : found.skip;
    found.length = is_far ? of_far : found.length;
    found.distance = is_far ? far : found.distance;
    if (found.skip + found.length == WIDTH) {
        here += WIDTH;
        // In a flat part only the filter byte of a row needs a far match; continuing as a run takes
        // 1/6 of the bits.
        if (is_far && end - here > CONV_DEFLATE_MATCH_MOST - WIDTH)
            end = here + CONV_DEFLATE_MATCH_MOST - WIDTH;
        found.length += run_length(here, found.distance, end, compare64);
    }
    return found;
}

INLINE void find_runs(struct conv_deflate_tokens *tokens, uint32_t *heads, size_t pixel,
                      compare_fn compare64, conv_deflate_copy_fn copy)
{
    size_t at = pixel;
    while (at + FAR_LEAST <= tokens->size) {
        struct found found = find(tokens, heads, at, pixel, compare64);
        if (found.length == 0) {
            at += WIDTH - RUN_LEAST + 1;
            continue;
        }
        at += found.skip;
        conv_deflate_add_tokens(tokens, at, found.length,
                                conv_deflate_distance_token((unsigned)found.distance), copy);
        at += found.length;
    }
}

static void find_plain(struct conv_deflate_tokens *tokens, uint32_t *heads, size_t pixel)
{
    find_runs(tokens, heads, pixel, compare_plain, conv_deflate_copy_plain);
}

#if defined(__x86_64__)
#define AVX2 __attribute__((target("avx2,bmi,bmi2")))
#define AVX512 __attribute__((target("avx512f,avx512bw,bmi,bmi2")))

AVX2 static inline uint64_t compare_avx2(const uint8_t *a, const uint8_t *b)
{
    uint64_t equal = 0;
    for (unsigned i = 0; i < WIDTH; i += 32) {
        __m256i x = _mm256_loadu_si256((const __m256i *)(const void *)(a + i));
        __m256i y = _mm256_loadu_si256((const __m256i *)(const void *)(b + i));
        equal |= (uint64_t)(uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(x, y)) << i;
    }
    return equal;
}

AVX2 static void find_avx2(struct conv_deflate_tokens *tokens, uint32_t *heads, size_t pixel)
{
    find_runs(tokens, heads, pixel, compare_avx2, conv_deflate_copy_plain);
}

AVX512 static inline uint64_t compare_avx512(const uint8_t *a, const uint8_t *b)
{
    return _mm512_cmpeq_epi8_mask(_mm512_loadu_si512(a), _mm512_loadu_si512(b));
}

AVX512 static inline void copy_avx512(uint32_t *to, const uint8_t *from)
{
    for (size_t k = 0; k < CONV_DEFLATE_COPY; k += 16) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)(from + k));
        _mm512_storeu_si512(to + k, _mm512_cvtepu8_epi32(bytes));
    }
}

AVX512 static void find_avx512(struct conv_deflate_tokens *tokens, uint32_t *heads, size_t pixel)
{
    find_runs(tokens, heads, pixel, compare_avx512, copy_avx512);
}
#endif

bool conv_deflate_put_runs(struct conv_deflate *deflate, struct conv_bits *out, const uint8_t *data,
                           size_t size, size_t pixel, bool last)
{
    conv_deflate_start_tokens(&deflate->tokens, data, size);
    // An unused entry reads as position 0, which is compared like any other.
    memset(deflate->head, 0, sizeof deflate->head);
#if defined(__x86_64__)
    if (deflate->tokens.features & CONV_CPU_AVX512)
        find_avx512(&deflate->tokens, deflate->head, pixel);
    else if (deflate->tokens.features & CONV_CPU_AVX2)
        find_avx2(&deflate->tokens, deflate->head, pixel);
    else
#endif
        find_plain(&deflate->tokens, deflate->head, pixel);
    return conv_deflate_put_tokens(out, &deflate->codes, &deflate->tokens, last);
}
