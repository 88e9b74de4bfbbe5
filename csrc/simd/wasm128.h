/* 128-bit vectors of WebAssembly under the names of neon.h. Relaxed SIMD (-mrelaxed-simd) brings products of bytes;
 * whoever loads such a module must first check its answers, because early engines got them wrong. */
#ifndef LAPIS_SIMD_WASM128_H
#define LAPIS_SIMD_WASM128_H

#include <stdint.h>
#include <string.h>
#include <wasm_simd128.h>

#include "unroll.h"

typedef v128_t ints;
typedef v128_t floats;

enum { LANES = 4, CODE_VECTORS = 2, CODES = 8 };

#define SETTLE(a, b)

#define load_ints(p) wasm_v128_load(p)
#define store_ints(p, a) wasm_v128_store(p, a)
#define broadcast_dword(p) wasm_v128_load32_splat(p)

#define zero_ints() wasm_i32x4_const(0, 0, 0, 0)
#define all8(x) wasm_i8x16_splat((int8_t)(x))
#define all16(x) wasm_i16x8_splat(x)
#define all32(x) wasm_i32x4_splat(x)
#define add32(a, b) wasm_i32x4_add(a, b)
#define sub32(a, b) wasm_i32x4_sub(a, b)
#define min_s32(a, b) wasm_i32x4_min(a, b)
#define max_s32(a, b) wasm_i32x4_max(a, b)
#define min_u8(a, b) wasm_u8x16_min(a, b)
#define max_u8(a, b) wasm_u8x16_max(a, b)
#define subs_u8(a, b) wasm_u8x16_sub_sat(a, b)
#define or_ints(a, b) wasm_v128_or(a, b)
#define and_ints(a, b) wasm_v128_and(a, b)

/* Lanes are shifted by one count in all of them, so one by one. */
INLINE ints shift_right_32(ints a, ints counts) {
    int32_t x[4], n[4];
    wasm_v128_store(x, a);
    wasm_v128_store(n, counts);
    for (int i = 0; i < 4; i++) x[i] >>= n[i];
    return wasm_v128_load(x);
}

/* Codes: the lower eight bytes. */
typedef v128_t code_bytes;
#define load_codes(p) wasm_v128_load64_zero(p)
#define store_codes(p, a) wasm_v128_store64_lane(p, a, 0)
#define all_codes(x) wasm_i8x16_splat((int8_t)(x))
#define min_codes(a, b) wasm_u8x16_min(a, b)
#define codes_apart(a, b) or_ints(subs_u8(a, b), subs_u8(b, a))
#define codes_at_most(a, b) wasm_u8x16_le(a, b)
#define select_codes(mask, a, b) wasm_v128_bitselect(a, b, mask)

typedef v128_t code_lows;
#define load_lows(p) wasm_v128_load(p)
#define all_lows(x) wasm_i16x8_splat((int16_t)(x))
#define in_words(x) wasm_i16x8_narrow_i32x4((x)[0], (x)[1])
#define narrow_less(x, low) wasm_u8x16_narrow_i16x8(wasm_i16x8_sub_sat(in_words(x), low), zero_ints())
#define narrow(x) wasm_u8x16_narrow_i16x8(in_words(x), zero_ints())

/* All lanes joined in one. */
#define JOINED_LANES(name_, join_)                                                         \
    INLINE int32_t name_(ints a) {                                                         \
        a = join_(a, wasm_i32x4_shuffle(a, a, 2, 3, 0, 1));                                \
        return wasm_i32x4_extract_lane(join_(a, wasm_i32x4_shuffle(a, a, 1, 0, 3, 2)), 0); \
    }
JOINED_LANES(min_lane, min_s32)
JOINED_LANES(max_lane, max_s32)

INLINE int greatest_u8(ints a) {
    uint8_t bytes[16], most = 0;
    wasm_v128_store(bytes, a);
    for (int i = 0; i < 16; i++) most = bytes[i] > most ? bytes[i] : most;
    return most;
}

#define difference(a, b) or_ints(subs_u8(a, b), subs_u8(b, a))
#define add_difference(sum, a, b) wasm_i8x16_add(sum, difference(a, b))
#define add_unequal(sum, a, b) wasm_i8x16_sub(sum, wasm_i8x16_ne(a, b))

/* Neighbours of a, then of b, added. */
#define add_neighbours(a, b) wasm_i32x4_add(wasm_i32x4_shuffle(a, b, 0, 2, 4, 6), wasm_i32x4_shuffle(a, b, 1, 3, 5, 7))

INLINE ints sums_of_bytes(ints a, ints b, ints c, ints d) {
    const v128_t ones = wasm_i16x8_splat(1);
    const v128_t w = wasm_i32x4_dot_i16x8(wasm_u16x8_extadd_pairwise_u8x16(a), ones);
    const v128_t x = wasm_i32x4_dot_i16x8(wasm_u16x8_extadd_pairwise_u8x16(b), ones);
    const v128_t y = wasm_i32x4_dot_i16x8(wasm_u16x8_extadd_pairwise_u8x16(c), ones);
    const v128_t z = wasm_i32x4_dot_i16x8(wasm_u16x8_extadd_pairwise_u8x16(d), ones);
    const v128_t wx = add_neighbours(w, x), yz = add_neighbours(y, z);
    return add_neighbours(wx, yz);
}

INLINE ints add_products(ints sum, ints a, ints b) {
    const v128_t both = wasm_i16x8_add(wasm_u16x8_extmul_low_u8x16(a, b), wasm_u16x8_extmul_high_u8x16(a, b));
    return add32(sum, wasm_i32x4_dot_i16x8(both, wasm_i16x8_splat(1)));
}
INLINE ints sums_of_lanes(ints a, ints b, ints c, ints d) {
    return add_neighbours(add_neighbours(a, b), add_neighbours(c, d));
}

#define load_floats(p) wasm_v128_load(p)
#define all_floats(x) wasm_f32x4_splat(x)
#define to_floats(a) wasm_f32x4_convert_i32x4(a)
#define multiply_floats(a, b) wasm_f32x4_mul(a, b)
#define add_floats(a, b) wasm_f32x4_add(a, b)
#define add_at_least(count, a, b) sub32(count, wasm_f32x4_ge(a, b))
#define add_at_most(count, a, b) sub32(count, wasm_f32x4_le(a, b))

/* `pmin` and `pmax` are one instruction on x86. */
INLINE ints floored(floats a) {
    a = wasm_f32x4_pmax(wasm_f32x4_pmin(a, wasm_f32x4_splat(0x1p30F)), wasm_f32x4_splat(-0x1p30F));
    return wasm_i32x4_trunc_sat_f32x4(wasm_f32x4_floor(a));
}

/* Sixteen bytes at a time; what lies beyond them is read as zero. */
INLINE floats look_up_floats(const float *nodes, int level, ints index) {
    const v128_t at = wasm_i32x4_add(wasm_i32x4_mul(index, wasm_i32x4_splat(0x04040404)), wasm_i32x4_splat(0x03020100));
    v128_t found = wasm_i8x16_swizzle(wasm_v128_load(nodes), at);
    for (int i = 1; i < 1 << (level < 2 ? 0 : level - 2); i++) {
        const v128_t here = wasm_i8x16_sub(at, wasm_i8x16_splat((int8_t)(16 * i)));
        found = wasm_v128_or(found, wasm_i8x16_swizzle(wasm_v128_load(nodes + 4 * i), here));
    }
    return found;
}

typedef v128_t pair_sums;
#define no_pairs() zero_ints()
#define add_pairs(sum, a, b) (*(sum) = wasm_i32x4_add(*(sum), wasm_i32x4_dot_i16x8(a, b)))
#define joined_pairs(sum) (sum)

#if defined(__wasm_relaxed_simd__)
typedef v128_t quad_sums;
#define no_quads() zero_ints()
#define add_quads(sum, a, b) (*(sum) = wasm_i16x8_add(*(sum), wasm_i16x8_relaxed_dot_i8x16_i7x16(a, b)))
#define joined_quads(sum) wasm_i32x4_dot_i16x8(sum, wasm_i16x8_splat(1))
#endif

/* Eight bytes as 16 bits. */
#define load_wide_s8(p) wasm_i16x8_load8x8(p)
#define widen_low_u8(a) wasm_u16x8_extend_low_u8x16(a)

typedef v128_t long_sums;
#define no_longs() wasm_i64x2_const(0, 0)
#define add_longs(sum, a) \
    ((sum) = wasm_i64x2_add(sum, wasm_i64x2_add(wasm_i64x2_extend_low_i32x4(a), wasm_i64x2_extend_high_i32x4(a))))
#define add_squares(sum, a) \
    ((sum) = wasm_i64x2_add(sum, wasm_i64x2_add(wasm_i64x2_extmul_low_i32x4(a, a), wasm_i64x2_extmul_high_i32x4(a, a))))
#define joined_longs(sum) (wasm_i64x2_extract_lane(sum, 0) + wasm_i64x2_extract_lane(sum, 1))

#define multiply_s16(a, b) wasm_i32x4_dot_i16x8(a, b)

#endif
