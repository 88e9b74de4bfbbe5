/* AVX-512 with byte and word operations (F, BW, VL, DQ): 512 bits. */
#define LAPIS_VNNI 0
#define LAPIS_WIDE 1
#define TARGET avx512bw
#include "../simd/avx512.h"
#include "vector_kernels.inc"
