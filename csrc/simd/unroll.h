/* How tiles are written: accumulators live in registers only if every loop over them is unrolled. */
#ifndef LAPIS_SIMD_UNROLL_H
#define LAPIS_SIMD_UNROLL_H

#define INLINE static inline __attribute__((always_inline))

#if defined(__clang__)
#define UNROLL_FOR _Pragma("clang loop unroll(full)") for
#else
#define UNROLL_FOR _Pragma("GCC unroll 16") for
#endif

#endif
