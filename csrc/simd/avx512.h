/* 512-bit vectors of x86 under the names of avx2.h. LAPIS_VNNI is defined before. LAPIS_EMULATE builds the same source
 * from SIMDe's portable versions, so that a machine without AVX-512 can prove it. */
#ifndef LAPIS_SIMD_AVX512_H
#define LAPIS_SIMD_AVX512_H

#include "x86.h"

typedef __m512i ints;
typedef __m512 floats;

enum {
    LANES = 16,
    CODE_VECTORS = 1,
    TILE_ROWS = 12, /* 12 x 2 accumulators of the 32 registers */
    GRADIENT_ROWS = 4,
    GRADIENT_VECS = 1 /* 4 rows x 4 digits */
};

#define load_ints(p) _mm512_loadu_si512((const void *)(p))
#define store_ints(p, v) _mm512_storeu_si512((void *)(p), v)
#define load_floats(p) _mm512_loadu_ps(p)
#define store_floats(p, v) _mm512_storeu_ps(p, v)
#define zero_ints() _mm512_setzero_si512()
#define zero_floats() _mm512_setzero_ps()
#define all8(x) _mm512_set1_epi8(x)
#define all16(x) _mm512_set1_epi16(x)
#define all32(x) _mm512_set1_epi32(x)
#define all_floats(x) _mm512_set1_ps(x)
#define add8(a, b) _mm512_add_epi8(a, b)
#define add16(a, b) _mm512_add_epi16(a, b)
#define add32(a, b) _mm512_add_epi32(a, b)
#define sub8(a, b) _mm512_sub_epi8(a, b)
#define sub32(a, b) _mm512_sub_epi32(a, b)
#define min_s32(a, b) _mm512_min_epi32(a, b)
#define max_s32(a, b) _mm512_max_epi32(a, b)
#define min_lane(a) _mm512_reduce_min_epi32(a)
#define max_lane(a) _mm512_reduce_max_epi32(a)
#define sum_of_lanes(a) _mm512_reduce_add_epi32(a)
#define subs_u8(a, b) _mm512_subs_epu8(a, b)
#define min_u8(a, b) _mm512_min_epu8(a, b)
#define xor_ints(a, b) _mm512_xor_si512(a, b)
#define shuffle8(a, b) _mm512_shuffle_epi8(a, b)
#define interleave_low8(a, b) _mm512_unpacklo_epi8(a, b)
#define interleave_high8(a, b) _mm512_unpackhi_epi8(a, b)
#define widen_low16(a) _mm512_cvtepi16_epi32(_mm512_castsi512_si256(a))
#define widen_high16(a) _mm512_cvtepi16_epi32(_mm512_extracti64x4_epi64(a, 1))
#define four_copies(x) _mm512_broadcast_i32x4(x)
#define widen_u8(p) _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(p)))
#define multiply_u8_s8(a, b) _mm512_maddubs_epi16(a, b)
#define multiply_s16(a, b) _mm512_madd_epi16(a, b)
#define shift_left_32(a, n) _mm512_slli_epi32(a, n)
#define to_floats(a) _mm512_cvtepi32_ps(a)
#define multiply_add(a, b, c) _mm512_fmadd_ps(a, b, c)
#define add_floats(a, b) _mm512_add_ps(a, b)
#define multiply_floats(a, b) _mm512_mul_ps(a, b)
#define and_ints(a, b) _mm512_and_si512(a, b)
#define shift_right_32(a, counts) _mm512_srav_epi32(a, counts)
#define floored(a) \
    _mm512_cvtps_epi32(_mm512_roundscale_ps(_mm512_min_ps(a, all_floats(0x1p30F)), _MM_FROUND_TO_NEG_INF))
#define add_at_least(count, a, b) _mm512_mask_add_epi32(count, _mm512_cmp_ps_mask(a, b, _CMP_GE_OQ), count, all32(1))
#define add_at_most(count, a, b) _mm512_mask_add_epi32(count, _mm512_cmp_ps_mask(a, b, _CMP_LE_OQ), count, all32(1))

/* Tables of up to 64 floats: 32 to a permutation of two registers. */
INLINE floats look_up_floats(const float *nodes, int level, ints index) {
    if (level < 4) return _mm512_permutexvar_ps(index, load_floats(nodes));
    floats node = _mm512_permutex2var_ps(load_floats(nodes), index, load_floats(nodes + 16));
    if (level > 5) {
        const floats upper = _mm512_permutex2var_ps(load_floats(nodes + 32), index, load_floats(nodes + 48));
        node = _mm512_mask_mov_ps(node, _mm512_test_epi32_mask(index, all32(32)), upper);
    }
    return node;
}

/* Codes narrow from 32 bits at once. */
typedef ints code_lows;
#define load_lows(p) _mm512_cvtepi16_epi32(_mm256_loadu_si256((const __m256i *)(p)))
#define all_lows(x) all32((int32_t)(x))
#define narrow_less(x, low) _mm512_cvtusepi32_epi8(max_s32(sub32((x)[0], low), zero_ints()))
#define narrow(x) _mm512_cvtepi32_epi8((x)[0])

typedef ints pair_sums;
#define no_pairs() zero_ints()
#if LAPIS_VNNI
#define add_pairs(sum, a, b) (*(sum) = _mm512_dpwssd_epi32(*(sum), a, b))
#else
#define add_pairs(sum, a, b) (*(sum) = add32(*(sum), multiply_s16(a, b)))
#endif
#define joined_pairs(sum) (sum)

typedef ints long_sums;
#define no_longs() zero_ints()
INLINE ints sum_longs(ints sum, ints a) {
    sum = _mm512_add_epi64(sum, _mm512_cvtepi32_epi64(_mm512_castsi512_si256(a)));
    return _mm512_add_epi64(sum, _mm512_cvtepi32_epi64(_mm512_extracti64x4_epi64(a, 1)));
}
INLINE ints sum_squares(ints sum, ints a) {
    const ints odd = _mm512_srli_epi64(a, 32);
    return _mm512_add_epi64(_mm512_add_epi64(sum, _mm512_mul_epi32(a, a)), _mm512_mul_epi32(odd, odd));
}
#define add_longs(sum, a) ((sum) = sum_longs(sum, a))
#define add_squares(sum, a) ((sum) = sum_squares(sum, a))
#define joined_longs(sum) _mm512_reduce_add_epi64(sum)

#define accumulate16(sum, x) ((sum) = add16(sum, x))
/* VNNI: sum += the four products of each dword; `_all` reads one dword of factors for every lane. Named registers: left
 * to itself, gcc 12 copies its sums to and fro. */
#if LAPIS_EMULATE
#define dot_add(sum, u8, s8) ((sum) = _mm512_dpbusd_epi32(sum, u8, s8))
#define dot_add_all(sum, u8, p) ((sum) = _mm512_dpbusd_epi32(sum, u8, all32(*(const int32_t *)(p))))
#else
#define dot_add(sum, u8, s8) __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(u8), "v"(s8))
#define dot_add_all(sum, u8, p) \
    __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(u8), "m"(*(const int32_t *)(p)))
#endif

#endif
