/* ARM NEON: 128 bits. */
#include "../simd/neon.h"

#define KERNELS kernels_neon
#include "kernels128.inc"
