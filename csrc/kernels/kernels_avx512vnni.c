/* AVX-512 with byte and word operations and VNNI's fused multiply and add: 512 bits. */
#include "../simd/avx512.h"

#define LAPIS_VNNI 1
#define LAPIS_WIDE 1
#define KERNELS kernels_avx512vnni
#include "vector_kernels.inc"
