/* What x86's instruction sets share: codes, sixteen bytes in a vector of 128 bits, and sums of 64 bits. */
#ifndef LAPIS_SIMD_X86_H
#define LAPIS_SIMD_X86_H

#if LAPIS_EMULATE
#include "emulate.h"
#endif
#include <immintrin.h>
#include <stdint.h>

#include "unroll.h"

typedef __m128i code_bytes;
enum { CODES = 16 };

#define load_codes(p) _mm_loadu_si128((const __m128i *)(p))
#define store_codes(p, v) _mm_storeu_si128((__m128i *)(p), v)
#define all_codes(x) _mm_set1_epi8((char)(x))
#define min_codes(a, b) _mm_min_epu8(a, b)
/* |a - b|; -1 where a <= b; a where the mask is set, else b. */
#define codes_apart(a, b) _mm_or_si128(_mm_subs_epu8(a, b), _mm_subs_epu8(b, a))
#define codes_at_most(a, b) _mm_cmpeq_epi8(_mm_subs_epu8(a, b), _mm_setzero_si128())
#define select_codes(mask, a, b) _mm_blendv_epi8(b, a, mask)

INLINE int64_t sum_of_four(__m256i x) {
    const __m128i half = _mm_add_epi64(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    return _mm_cvtsi128_si64(half) + _mm_extract_epi64(half, 1);
}

#endif
