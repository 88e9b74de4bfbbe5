/* AVX2 and FMA with AVX-VNNI's fused multiply and add: 256 bits. */
#define LAPIS_VNNI 1
#define LAPIS_WIDE 0
#define TARGET avxvnni
#include "../simd/avx2.h"
#include "vector_kernels.inc"
