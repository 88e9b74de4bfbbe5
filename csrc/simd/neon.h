/* 128-bit vectors of ARM under the names of avx2.h, and those that the narrow kernels (linear128.inc, distance128.inc)
 * are written in. wasm128.h has the same names for WebAssembly. Products by dword (dot_by_dword) and by matrix
 * (multiply_matrix) only where the compiler was told that the processor has them. */
#ifndef LAPIS_SIMD_NEON_H
#define LAPIS_SIMD_NEON_H

#include <arm_neon.h>
#include <stdint.h>
#include <string.h>

#include "unroll.h"

typedef int32x4_t ints;
typedef float32x4_t floats;

enum { LANES = 4, CODE_VECTORS = 2, CODES = 8 };

/* Only x86's compilers need it: tiles.inc. */
#define SETTLE(a, b)

#define as_s8(a) vreinterpretq_s8_s32(a)
#define as_u8(a) vreinterpretq_u8_s32(a)
#define as_s16(a) vreinterpretq_s16_s32(a)
#define from_s8(a) vreinterpretq_s32_s8(a)
#define from_u8(a) vreinterpretq_s32_u8(a)
#define from_s16(a) vreinterpretq_s32_s16(a)
#define from_u32(a) vreinterpretq_s32_u32(a)

INLINE ints load_ints(const void *p) { return from_u8(vld1q_u8(p)); }
INLINE void store_ints(void *p, ints a) { vst1q_u8(p, as_u8(a)); }
/* Four bytes in every lane. */
INLINE ints broadcast_dword(const void *p) {
    int32_t dword;
    memcpy(&dword, p, 4);
    return vdupq_n_s32(dword);
}

#define zero_ints() vdupq_n_s32(0)
#define all8(x) from_s8(vdupq_n_s8((int8_t)(x)))
#define all16(x) from_s16(vdupq_n_s16(x))
#define all32(x) vdupq_n_s32(x)
#define add32(a, b) vaddq_s32(a, b)
#define sub32(a, b) vsubq_s32(a, b)
#define min_s32(a, b) vminq_s32(a, b)
#define max_s32(a, b) vmaxq_s32(a, b)
#define min_lane(a) vminvq_s32(a)
#define max_lane(a) vmaxvq_s32(a)
#define min_u8(a, b) from_u8(vminq_u8(as_u8(a), as_u8(b)))
#define max_u8(a, b) from_u8(vmaxq_u8(as_u8(a), as_u8(b)))
#define greatest_u8(a) vmaxvq_u8(as_u8(a))
#define subs_u8(a, b) from_u8(vqsubq_u8(as_u8(a), as_u8(b)))
#define and_ints(a, b) vandq_s32(a, b)
#define shift_right_32(a, counts) vshlq_s32(a, vnegq_s32(counts))

/* Codes: eight bytes. */
typedef uint8x8_t code_bytes;
#define load_codes(p) vld1_u8(p)
#define store_codes(p, a) vst1_u8(p, a)
#define all_codes(x) vdup_n_u8((uint8_t)(x))
#define min_codes(a, b) vmin_u8(a, b)
#define codes_apart(a, b) vabd_u8(a, b)
#define codes_at_most(a, b) vcle_u8(a, b)
#define select_codes(mask, a, b) vbsl_u8(mask, a, b)

typedef int16x8_t code_lows;
#define load_lows(p) vld1q_s16(p)
#define all_lows(x) vdupq_n_s16((int16_t)(x))
#define in_words(x) vcombine_s16(vqmovn_s32((x)[0]), vqmovn_s32((x)[1]))
#define narrow_less(x, low) vqmovun_s16(vqsubq_s16(in_words(x), low))
#define narrow(x) vqmovun_s16(in_words(x))

/* sum = sum OP (a, b) in one register. Written out, because gcc 12 copies sums to and fro between two that it thinks
 * are of different types. */
#define IN_PLACE(sum, operation, a, b) __asm__(operation : "+w"(sum) : "w"(a), "w"(b))

/* |a - b|, sum + |a - b|, and sum + (a != b), byte by byte. */
INLINE ints difference(ints a, ints b) {
    ints sum;
    __asm__("uabd %0.16b, %1.16b, %2.16b" : "=w"(sum) : "w"(a), "w"(b));
    return sum;
}
INLINE ints add_difference(ints sum, ints a, ints b) {
    IN_PLACE(sum, "uaba %0.16b, %1.16b, %2.16b", a, b);
    return sum;
}
#define add_unequal(sum, a, b) \
    from_u8(vsubq_u8(vaddq_u8(as_u8(sum), vdupq_n_u8(1)), vshrq_n_u8(vceqq_u8(as_u8(a), as_u8(b)), 7)))

/* The sums of the bytes of four vectors. */
INLINE ints sums_of_bytes(ints a, ints b, ints c, ints d) {
    uint16x8_t ab = vpaddq_u16(vpaddlq_u8(as_u8(a)), vpaddlq_u8(as_u8(b)));
    uint16x8_t cd = vpaddq_u16(vpaddlq_u8(as_u8(c)), vpaddlq_u8(as_u8(d)));
    return from_u32(vpaddlq_u16(vpaddq_u16(ab, cd)));
}

/* sum + products of bytes up to 127, whatever the lane; and the sums of the lanes of four vectors. */
INLINE ints add_products(ints sum, ints a, ints b) {
#if defined(__ARM_FEATURE_DOTPROD)
    IN_PLACE(sum, "udot %0.4s, %1.16b, %2.16b", a, b);
    return sum;
#else
    const uint16x8_t low = vmull_u8(vget_low_u8(as_u8(a)), vget_low_u8(as_u8(b)));
    const uint16x8_t both = vmlal_high_u8(low, as_u8(a), as_u8(b));
    return from_u32(vpadalq_u16(vreinterpretq_u32_s32(sum), both));
#endif
}
INLINE ints sums_of_lanes(ints a, ints b, ints c, ints d) { return vpaddq_s32(vpaddq_s32(a, b), vpaddq_s32(c, d)); }

#define load_floats(p) vld1q_f32(p)
#define all_floats(x) vdupq_n_f32(x)
#define to_floats(a) vcvtq_f32_s32(a)
#define multiply_floats(a, b) vmulq_f32(a, b)
#define add_floats(a, b) vaddq_f32(a, b)
#define add_at_least(count, a, b) sub32(count, from_u32(vcgeq_f32(a, b)))
#define add_at_most(count, a, b) sub32(count, from_u32(vcleq_f32(a, b)))
/* floor, kept within -2^30..2^30. */
#define floored(a) vcvtmq_s32_f32(vmaxq_f32(vminq_f32(a, vdupq_n_f32(0x1p30F)), vdupq_n_f32(-0x1p30F)))

/* nodes[index] of a table of 2^level floats. */
INLINE floats look_up_floats(const float *nodes, int level, ints index) {
    const uint8x16_t at =
        vreinterpretq_u8_u32(vmlaq_n_u32(vdupq_n_u32(0x03020100), vreinterpretq_u32_s32(index), 0x04040404));
    const uint8_t *bytes = (const uint8_t *)nodes;
    if (level < 3) return vreinterpretq_f32_u8(vqtbl1q_u8(vld1q_u8(bytes), at));
    if (level == 3) return vreinterpretq_f32_u8(vqtbl2q_u8(vld1q_u8_x2(bytes), at));
    uint8x16_t found = vqtbl4q_u8(vld1q_u8_x4(bytes), at);
    for (int i = 1; i < 1 << (level - 4); i++)
        found = vqtbx4q_u8(found, vld1q_u8_x4(bytes + 64 * i), vsubq_u8(at, vdupq_n_u8((uint8_t)(64 * i))));
    return vreinterpretq_f32_u8(found);
}

/* Sums of products of 16-bit pairs: four of them, in the end. */
typedef struct {
    int32x4_t low, high;
} pair_sums;

#define no_pairs() ((pair_sums){vdupq_n_s32(0), vdupq_n_s32(0)})
INLINE void add_pairs(pair_sums *sum, ints a, ints b) {
    IN_PLACE(sum->low, "smlal %0.4s, %1.4h, %2.4h", a, b);
    IN_PLACE(sum->high, "smlal2 %0.4s, %1.8h, %2.8h", a, b);
}
#define joined_pairs(sum) vpaddq_s32((sum).low, (sum).high)

/* Sums in 16 bits of products of four bytes and four bytes: four of them, in the end. */
typedef struct {
    int16x8_t low, high;
} quad_sums;

#define no_quads() ((quad_sums){vdupq_n_s16(0), vdupq_n_s16(0)})
INLINE void add_quads(quad_sums *sum, ints a, ints b) {
    IN_PLACE(sum->low, "smlal %0.8h, %1.8b, %2.8b", a, b);
    IN_PLACE(sum->high, "smlal2 %0.8h, %1.16b, %2.16b", a, b);
}
#define joined_quads(sum) vpaddq_s32(vpaddlq_s16((sum).low), vpaddlq_s16((sum).high))

#if defined(__ARM_FEATURE_DOTPROD)
/* sum += the four products of each dword, with dword `lane` of b for all. */
#define dot_by_dword(sum, a, b, lane) IN_PLACE(sum, "sdot %0.4s, %1.16b, %2.4b[" #lane "]", a, b)
#endif

#if defined(__ARM_FEATURE_MATMUL_INT8)
/* sum [2, 2] += a [2, 8] times b [2, 8] transposed. */
#define multiply_matrix(sum, a, b) IN_PLACE(sum, "smmla %0.4s, %1.16b, %2.16b", a, b)
/* Two rows' eight bytes. */
#define two_halves(p, q) from_u8(vcombine_u8(vld1_u8(p), vld1_u8(q)))
#define interleave_low32(a, b) vzip1q_s32(a, b)
#define interleave_high32(a, b) vzip2q_s32(a, b)
#define lower_halves(a, b) vreinterpretq_s32_s64(vzip1q_s64(vreinterpretq_s64_s32(a), vreinterpretq_s64_s32(b)))
#define upper_halves(a, b) vreinterpretq_s32_s64(vzip2q_s64(vreinterpretq_s64_s32(a), vreinterpretq_s64_s32(b)))
#endif

/* Sums of 64 bits, of lanes and of their squares. */
typedef int64x2_t long_sums;
#define no_longs() vdupq_n_s64(0)
#define add_longs(sum, a) ((sum) = vpadalq_s32(sum, a))
#define add_squares(sum, a) ((sum) = vmlal_high_s32(vmlal_s32(sum, vget_low_s32(a), vget_low_s32(a)), a, a))
#define joined_longs(sum) vaddvq_s64(sum)

/* Products of 16-bit neighbours, added in pairs. */
INLINE ints multiply_s16(ints a, ints b) {
    return vpaddq_s32(vmull_s16(vget_low_s16(as_s16(a)), vget_low_s16(as_s16(b))),
                      vmull_high_s16(as_s16(a), as_s16(b)));
}

#endif
