/* AVX2 and FMA: 256 bits. */
#define LAPIS_VNNI 0
#define LAPIS_WIDE 0
#define TARGET avx2
#include "../simd/avx2.h"
#include "vector_kernels.inc"
