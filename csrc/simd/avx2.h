/* 256-bit vectors of x86: the names that the kernels are written in. avx512.h, neon.h and wasm128.h have the same ones
 * for other instruction sets: norms, quantizers and what follows a linear layer are written once, over those names.
 * LAPIS_VNNI, defined before, is whether AVX-VNNI's products are there, which processors without AVX-512 have too. */
#ifndef LAPIS_SIMD_AVX2_H
#define LAPIS_SIMD_AVX2_H

#include "x86.h"

typedef __m256i ints;
typedef __m256 floats;

enum {
    LANES = 8,        /* 32-bit lanes of a vector */
    CODE_VECTORS = 2, /* vectors that become one of codes */
    TILE_ROWS = 6,    /* rows of a register tile: 6 x 2 accumulators of the 16 registers */
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

#define and_ints(a, b) _mm256_and_si256(a, b)
#define shift_right_32(a, counts) _mm256_srav_epi32(a, counts)

/* floor, right up to 2^30; below -2^31 it is -2^31. Narrowing then clamps it for free. */
#define floored(a) _mm256_cvtps_epi32(_mm256_floor_ps(_mm256_min_ps(a, all_floats(0x1p30F))))

/* count + (a >= b), and count + (a <= b). */
#define add_at_least(count, a, b) sub32(count, _mm256_castps_si256(_mm256_cmp_ps(a, b, _CMP_GE_OQ)))
#define add_at_most(count, a, b) sub32(count, _mm256_castps_si256(_mm256_cmp_ps(a, b, _CMP_LE_OQ)))

/* nodes[index] of a table of 2^level floats, eight to a register. */
INLINE floats look_up_floats(const float *nodes, int level, ints index) {
    floats node = _mm256_permutevar8x32_ps(load_floats(nodes), index);
    for (int i = 1; i < 1 << (level < 3 ? 0 : level - 3); i++) {
        const floats other = _mm256_permutevar8x32_ps(load_floats(nodes + 8 * i), index);
        const ints here = _mm256_cmpeq_epi32(_mm256_srli_epi32(index, 3), all32(i));
        node = _mm256_blendv_ps(node, other, _mm256_castsi256_ps(here));
    }
    return node;
}

/* The lowest values of codes, as they are subtracted before narrowing: here in 16 bits. */
typedef ints code_lows;
#define load_lows(p) load_ints(p)
#define all_lows(x) all16((int16_t)(x))

/* 0..255 of integers less `low`, and of integers. */
INLINE code_bytes narrow_words(ints words) {
    return _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
}
#define in_words(x) _mm256_permute4x64_epi64(_mm256_packs_epi32((x)[0], (x)[1]), 0xd8)
#define narrow_less(x, low) narrow_words(_mm256_subs_epi16(in_words(x), low))
#define narrow(x) narrow_words(in_words(x))

/* Sums of products of 16-bit pairs. */
typedef ints pair_sums;
#define no_pairs() zero_ints()
#if LAPIS_VNNI && !LAPIS_EMULATE
#define add_pairs(sum, a, b) (*(sum) = _mm256_dpwssd_avx_epi32(*(sum), a, b))
#else
#define add_pairs(sum, a, b) (*(sum) = add32(*(sum), multiply_s16(a, b)))
#endif
#define joined_pairs(sum) (sum)

/* Sums of 64 bits, of lanes and of their squares. */
typedef ints long_sums;
#define no_longs() zero_ints()
INLINE ints sum_longs(ints sum, ints a) {
    sum = _mm256_add_epi64(sum, _mm256_cvtepi32_epi64(_mm256_castsi256_si128(a)));
    return _mm256_add_epi64(sum, _mm256_cvtepi32_epi64(_mm256_extracti128_si256(a, 1)));
}
INLINE ints sum_squares(ints sum, ints a) {
    const ints odd = _mm256_srli_epi64(a, 32);
    return _mm256_add_epi64(_mm256_add_epi64(sum, _mm256_mul_epi32(a, a)), _mm256_mul_epi32(odd, odd));
}
#define add_longs(sum, a) ((sum) = sum_longs(sum, a))
#define add_squares(sum, a) ((sum) = sum_squares(sum, a))
#define joined_longs(sum) sum_of_four(sum)

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

/* VNNI: sum += the four products of each dword, as in avx512.h, in the encoding that does without AVX-512. */
#if LAPIS_VNNI
#if LAPIS_EMULATE
/* Bytes at even and at odd places apart, in 16 bits, where no product is too large. */
INLINE ints emulated_dot(ints u8, ints s8) {
    const ints even = multiply_s16(and_ints(u8, all16(255)), _mm256_srai_epi16(_mm256_slli_epi16(s8, 8), 8));
    return add32(even, multiply_s16(_mm256_srli_epi16(u8, 8), _mm256_srai_epi16(s8, 8)));
}
#define dot_add(sum, u8, s8) ((sum) = add32(sum, emulated_dot(u8, s8)))
#else
#define dot_add(sum, u8, s8) __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(u8), "x"(s8))
#endif
#define dot_add_all(sum, u8, p) dot_add(sum, u8, broadcast_dword(p))
#endif

#endif
