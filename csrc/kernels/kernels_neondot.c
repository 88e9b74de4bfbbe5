/* ARM NEON with dot products of bytes: 128 bits. */
#define TARGET neondot
#include "../simd/neon.h"
#include "kernels128.inc"
