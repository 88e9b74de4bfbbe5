/* AVX-512 with byte and word operations (F, BW, VL, DQ): 512 bits. */
#include "../simd/avx512.h"

#define LAPIS_VNNI 0
#define LAPIS_WIDE 1
#define KERNELS kernels_avx512bw
#include "vector_kernels.inc"
