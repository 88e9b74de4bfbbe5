/* How kernels are written: accumulators live in registers only if every loop over them is unrolled, and a static
 * function carries its instruction set in its name, as in linear_rows__avx2, so that a profile tells one from the
 * other. */
#ifndef LAPIS_SIMD_UNROLL_H
#define LAPIS_SIMD_UNROLL_H

/* TARGET is the instruction set of the file. */
#define KERNEL(name) KERNEL_OF(name, TARGET)
#define KERNEL_OF(name, target) JOINED_NAME(name, __, target)
#define TABLE(name) TABLE_OF(name, TARGET)
#define TABLE_OF(name, target) JOINED_NAME(name, _, target)
#define JOINED_NAME(name, link, target) name##link##target

#define INLINE static inline __attribute__((always_inline))

#if defined(__clang__)
#define UNROLL_FOR _Pragma("clang loop unroll(full)") for
#else
#define UNROLL_FOR _Pragma("GCC unroll 16") for
#endif

#endif
