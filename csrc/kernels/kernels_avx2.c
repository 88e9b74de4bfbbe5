/* AVX2 and FMA: 256 bits. */
#include "../simd/avx2.h"

#define LAPIS_VNNI 0
#define LAPIS_WIDE 0
#define KERNELS kernels_avx2
#include "vector_kernels.inc"
