/* AVX-512 from SIMDe's portable versions, and what SIMDe 0.7.4 lacks or has wrong. Proven by the same tests that the
 * hardware's instructions pass where there are any. */
#ifndef LAPIS_SIMD_EMULATE_H
#define LAPIS_SIMD_EMULATE_H

#include <stdint.h>
#include <string.h>

#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>

/* This alias is declared with the arguments of its masked sister. */
#undef _mm512_madd_epi16
#define _mm512_madd_epi16(a, b) simde_mm512_madd_epi16(a, b)

/* result[i] = expression of lanes[i], for functions that SIMDe does not have. */
#define EMULATED_LANES(name_, from_, from_lane_, count_, to_, to_lane_, expression_) \
    static inline to_ emulated_##name_(from_ vector) {                               \
        from_lane_ lanes[sizeof vector / sizeof(from_lane_)];                        \
        to_lane_ result[count_];                                                     \
        to_ made;                                                                    \
        memcpy(lanes, &vector, sizeof vector);                                       \
        for (int i = 0; i < count_; i++) {                                           \
            const from_lane_ x = lanes[i];                                           \
            result[i] = (to_lane_)(expression_);                                     \
        }                                                                            \
        memcpy(&made, result, sizeof made);                                          \
        return made;                                                                 \
    }
EMULATED_LANES(cvtepi32_ps, simde__m512i, int32_t, 16, simde__m512, float, x)
EMULATED_LANES(cvtps_epi32, simde__m512, float, 16, simde__m512i, int32_t, _mm_cvtss_si32(_mm_set_ss(x)))
EMULATED_LANES(cvtepu8_epi32, simde__m128i, uint8_t, 16, simde__m512i, int32_t, x)
EMULATED_LANES(cvtepi16_epi32, simde__m256i, int16_t, 16, simde__m512i, int32_t, x)
EMULATED_LANES(cvtepi32_epi64, simde__m256i, int32_t, 8, simde__m512i, int64_t, x)
EMULATED_LANES(cvtepi32_epi16, simde__m512i, int32_t, 16, simde__m256i, uint16_t, x)
EMULATED_LANES(cvtepi32_epi8, simde__m512i, int32_t, 16, simde__m128i, uint8_t, x)
EMULATED_LANES(cvtusepi32_epi8, simde__m512i, uint32_t, 16, simde__m128i, uint8_t, x > 255 ? 255 : x)
#define _mm512_cvtepi32_ps(a) emulated_cvtepi32_ps(a)
#define _mm512_cvtps_epi32(a) emulated_cvtps_epi32(a)
#define _mm512_cvtepu8_epi32(a) emulated_cvtepu8_epi32(a)
#define _mm512_cvtepi16_epi32(a) emulated_cvtepi16_epi32(a)
#define _mm512_cvtepi32_epi64(a) emulated_cvtepi32_epi64(a)
#define _mm512_cvtepi32_epi16(a) emulated_cvtepi32_epi16(a)
#define _mm512_cvtepi32_epi8(a) emulated_cvtepi32_epi8(a)
#define _mm512_cvtusepi32_epi8(a) emulated_cvtusepi32_epi8(a)

static inline simde__m512i emulated_srav_epi32(simde__m512i vector, simde__m512i counts) {
    int32_t lanes[16], by[16];
    memcpy(lanes, &vector, sizeof vector);
    memcpy(by, &counts, sizeof counts);
    for (int i = 0; i < 16; i++) lanes[i] >>= by[i];
    memcpy(&vector, lanes, sizeof vector);
    return vector;
}
#define _mm512_srav_epi32(a, counts) emulated_srav_epi32(a, counts)

/* All lanes joined in one. */
#define EMULATED_REDUCE(name_, lane_, expression_)              \
    static inline lane_ emulated_##name_(simde__m512i vector) { \
        lane_ lanes[64 / sizeof(lane_)];                        \
        memcpy(lanes, &vector, sizeof vector);                  \
        for (unsigned i = 1; i < 64 / sizeof(lane_); i++) {     \
            const lane_ a = lanes[0], b = lanes[i];             \
            lanes[0] = (lane_)(expression_);                    \
        }                                                       \
        return lanes[0];                                        \
    }
EMULATED_REDUCE(reduce_min_epi32, int32_t, a < b ? a : b)
EMULATED_REDUCE(reduce_max_epi32, int32_t, a > b ? a : b)
EMULATED_REDUCE(reduce_add_epi32, int32_t, (uint32_t)a + (uint32_t)b)
EMULATED_REDUCE(reduce_add_epi64, int64_t, (uint64_t)a + (uint64_t)b)
#define _mm512_reduce_min_epi32(a) emulated_reduce_min_epi32(a)
#define _mm512_reduce_max_epi32(a) emulated_reduce_max_epi32(a)
#define _mm512_reduce_add_epi32(a) emulated_reduce_add_epi32(a)
#define _mm512_reduce_add_epi64(a) emulated_reduce_add_epi64(a)

#endif
