/* 256-bit vectors: the names that the kernels are written in. Also the part that is 256 bits wide everywhere. */
#ifndef LAPIS_SIMD_AVX2_H
#define LAPIS_SIMD_AVX2_H

#include <immintrin.h>
#include <stdint.h>

typedef __m256i ints;
typedef __m256 floats;

enum {
    LANES = 8,     /* 32-bit lanes of a vector */
    TILE_ROWS = 6, /* rows of a register tile: 6 x 2 accumulators of the 16 registers */
    GRADIENT_ROWS = 1,
    GRADIENT_VECS = 2 /* 2 vectors x 4 digits */
};

#define load_ints(p) _mm256_loadu_si256((const __m256i *)(p))
#define store_ints(p, v) _mm256_storeu_si256((__m256i *)(p), v)
#define load_floats(p) _mm256_loadu_ps(p)
#define store_floats(p, v) _mm256_storeu_ps(p, v)
#define zero_ints() _mm256_setzero_si256()
#define zero_floats() _mm256_setzero_ps()
#define all8(x) _mm256_set1_epi8(x)
#define all16(x) _mm256_set1_epi16(x)
#define all32(x) _mm256_set1_epi32(x)
#define all_floats(x) _mm256_set1_ps(x)
#define add8(a, b) _mm256_add_epi8(a, b)
#define add16(a, b) _mm256_add_epi16(a, b)
#define add32(a, b) _mm256_add_epi32(a, b)
#define sub8(a, b) _mm256_sub_epi8(a, b)
#define sub32(a, b) _mm256_sub_epi32(a, b)
#define min_s32(a, b) _mm256_min_epi32(a, b)
#define max_s32(a, b) _mm256_max_epi32(a, b)
#define subs_u8(a, b) _mm256_subs_epu8(a, b)
#define min_u8(a, b) _mm256_min_epu8(a, b)
#define xor_ints(a, b) _mm256_xor_si256(a, b)
#define shuffle8(a, b) _mm256_shuffle_epi8(a, b)
#define interleave_low8(a, b) _mm256_unpacklo_epi8(a, b)
#define interleave_high8(a, b) _mm256_unpackhi_epi8(a, b)
#define widen_low16(a) _mm256_cvtepi16_epi32(_mm256_castsi256_si128(a))
#define widen_high16(a) _mm256_cvtepi16_epi32(_mm256_extracti128_si256(a, 1))
#define four_copies(x) _mm256_broadcastsi128_si256(x)
#define widen_u8(p) _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(p)))
#define multiply_u8_s8(a, b) _mm256_maddubs_epi16(a, b)
#define multiply_s16(a, b) _mm256_madd_epi16(a, b)
#define shift_left_32(a, n) _mm256_slli_epi32(a, n)
#define to_floats(a) _mm256_cvtepi32_ps(a)
#define multiply_add(a, b, c) _mm256_fmadd_ps(a, b, c)
#define add_floats(a, b) _mm256_add_ps(a, b)
#define multiply_floats(a, b) _mm256_mul_ps(a, b)

/* All lanes joined in one. */
#define JOINED_LANES(name_, join_)                                                    \
    static inline int32_t name_(__m256i a) {                                          \
        __m128i x = join_(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1)); \
        x = join_(x, _mm_shuffle_epi32(x, 0x4e));                                     \
        return _mm_cvtsi128_si32(join_(x, _mm_shuffle_epi32(x, 0xb1)));               \
    }
JOINED_LANES(min_lane, _mm_min_epi32)
JOINED_LANES(max_lane, _mm_max_epi32)
JOINED_LANES(sum_of_lanes, _mm_add_epi32)

/* sum += x in place. Written out because gcc otherwise spills or copies the sums of a full tile, and the loop then
 * waits for memory. */
#define accumulate16(sum, x) __asm__("vpaddw %1, %0, %0" : "+x"(sum) : "x"(x))

#endif
