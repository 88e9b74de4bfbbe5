/* AVX-512 with byte and word operations and VNNI's fused multiply and add: 512 bits. */
#define LAPIS_VNNI 1
#define LAPIS_WIDE 1
#define TARGET avx512vnni
#include "../simd/avx512.h"
#include "vector_kernels.inc"
